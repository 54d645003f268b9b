// The rows of a product by the expert that each was sent to.
#ifndef OCTAVO_RUNTIME_EXPERT_ROWS_H_
#define OCTAVO_RUNTIME_EXPERT_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "octavo/runtime/step.h"

namespace octavo::runtime {

struct ExpertRows {
  std::vector<int64_t> order;  // of the rows, those of an expert one after the other
  std::vector<int64_t> first;  // of each expert in that order, and the end
  bool in_order = true;

  int64_t count() const { return static_cast<int64_t>(order.size()); }
  // Those with rows. A run reads no other's weights.
  std::vector<size_t> Chosen() const;
};

// `each` rows to every index; negative ones count from the end. None: an index without an expert, of which the single nodes tell.
std::optional<ExpertRows> SortByExpert(const Tensor& index, int64_t each, int64_t experts);

// Lines of `size` floats; `line` says from where the i-th goes where.
template <class Line>
void MoveLines(StepCall& call, int64_t count, int64_t size, const Line& line) {
  const int64_t parts = PartsOf(count, std::max(int64_t{1}, kElementGrain / size), call.threads->count());
  call.threads->For(parts, [&](int64_t part) {
    const Part p = PartOf(count, parts, part, 1);
    for (int64_t i = p.begin; i < p.end; ++i) {
      const auto [from, to] = line(i);
      std::memcpy(to, from, static_cast<size_t>(size) * sizeof(float));
    }
  });
}

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_EXPERT_ROWS_H_
