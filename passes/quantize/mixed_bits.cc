#include "octavo/passes/quantize/mixed_bits.h"

#include <algorithm>
#include <functional>
#include <map>

namespace octavo::passes::quantize {

std::vector<size_t> WorthEightBits(std::span<const FourBits> all, double bits) {
  struct Group {
    std::vector<size_t> members;
    double weights = 0, lost = 0;
  };
  std::vector<Group> groups;
  std::map<ValueId, size_t> of;
  double total = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto [it, fresh] = of.try_emplace(all[i].x, groups.size());
    if (fresh) groups.emplace_back();
    Group& group = groups[it->second];
    group.members.push_back(i);
    group.weights += static_cast<double>(all[i].weights), group.lost += all[i].lost;
    total += static_cast<double>(all[i].weights);
  }
  // Losses of Linears are taken as equally bad for the model, and add up.
  std::ranges::stable_sort(groups, std::greater(), [](const Group& g) { return g.lost / g.weights; });
  double left = (bits - 4) / 4 * total;
  std::vector<size_t> chosen;
  for (const Group& group : groups) {
    if (group.weights > left) continue;
    left -= group.weights;
    chosen.insert(chosen.end(), group.members.begin(), group.members.end());
  }
  return chosen;
}

double PowerOfProducts(const ir::Tensor& w, const Compensation* fit) {
  constexpr int64_t kColumns = 16;
  const int64_t k = w.shape()[0], n = w.shape()[1], few = std::min(n, kColumns);
  const auto at = [&](int64_t i, int64_t c) { return w.as<float>()[static_cast<size_t>(i * n + c * n / few)]; };
  std::vector<double> row(static_cast<size_t>(few));
  double power = 0;
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t c = 0; c < few; ++c) row[static_cast<size_t>(c)] = at(i, c);
    for (int64_t j = i + 1; fit != nullptr && j < k; ++j) {
      const double share = fit->v[static_cast<size_t>(i * k + j)];
      for (int64_t c = 0; c < few; ++c) row[static_cast<size_t>(c)] += share * at(j, c);
    }
    const double weight = fit != nullptr ? fit->weight[static_cast<size_t>(i)] : 1.0;
    for (const double x : row) power += weight * x * x;
  }
  return power * static_cast<double>(n) / static_cast<double>(few);
}

}  // namespace octavo::passes::quantize
