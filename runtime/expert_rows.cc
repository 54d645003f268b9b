#include "octavo/runtime/expert_rows.h"

#include <numeric>

namespace octavo::runtime {

std::vector<size_t> ExpertRows::Chosen() const {
  std::vector<size_t> chosen;
  for (size_t e = 0; e + 1 < first.size(); ++e) {
    if (first[e] < first[e + 1]) chosen.push_back(e);
  }
  return chosen;
}

std::optional<ExpertRows> SortByExpert(const Tensor& index, int64_t each, int64_t experts) {
  ExpertRows rows{.order = {}, .first = std::vector<int64_t>(static_cast<size_t>(experts) + 1)};
  std::vector<int64_t> expert(static_cast<size_t>(index.size()));
  for (size_t t = 0; t < expert.size(); ++t) {
    const int64_t e = index.GetInt(static_cast<int64_t>(t));
    expert[t] = e < 0 ? e + experts : e;
    if (expert[t] < 0 || expert[t] >= experts) return {};
    rows.first[static_cast<size_t>(expert[t]) + 1] += each;
  }
  rows.in_order = std::ranges::is_sorted(expert);
  std::partial_sum(rows.first.begin(), rows.first.end(), rows.first.begin());
  rows.order.resize(expert.size() * static_cast<size_t>(each));
  std::vector<int64_t> next = rows.first;
  for (size_t row = 0; row < rows.order.size(); ++row) {
    const auto e = static_cast<size_t>(expert[row / static_cast<size_t>(each)]);
    rows.order[static_cast<size_t>(next[e]++)] = static_cast<int64_t>(row);
  }
  return rows;
}

}  // namespace octavo::runtime
