#include "octavo/runtime/plan.h"

#include <algorithm>
#include <numeric>

namespace octavo::runtime {

MemoryPlan PlanMemory(const std::vector<Lifetime>& lifetimes) {
  MemoryPlan plan;
  plan.offsets.assign(lifetimes.size(), 0);
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  std::vector<size_t> placed;  // sorted by offset
  for (size_t i : order) {
    const Lifetime& l = lifetimes[i];
    const size_t bytes = (l.bytes + 63) / 64 * 64;
    size_t at = 0;
    for (size_t j : placed) {
      const Lifetime& other = lifetimes[j];
      if (other.last < l.first || l.last < other.first) continue;
      if (plan.offsets[j] >= at + bytes) break;
      at = std::max(at, plan.offsets[j] + (other.bytes + 63) / 64 * 64);
    }
    plan.offsets[i] = at;
    plan.arena_bytes = std::max(plan.arena_bytes, at + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), at,
                                   [&](size_t offset, size_t j) { return offset < plan.offsets[j]; }),
                  i);
  }
  return plan;
}

}  // namespace octavo::runtime
