// Memory plan: where in one arena the intermediate tensors of a run lie. Made from what a first run with the same input
// shapes was seen to need (sizes and aliases), so it holds for any dynamic shape without evaluating symbols.
#ifndef OCTAVO_RUNTIME_PLAN_H_
#define OCTAVO_RUNTIME_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace octavo::runtime {

// One buffer: written by step `first`, last read (itself or a view of it) by step `last`.
struct Lifetime {
  size_t bytes = 0;
  int32_t first = 0;
  int32_t last = 0;
};

struct MemoryPlan {
  std::vector<size_t> offsets;  // one per lifetime, multiples of 64
  size_t arena_bytes = 0;
};

// Greedy by size: the largest buffer first, each at the lowest offset that is free during its life.
MemoryPlan PlanMemory(const std::vector<Lifetime>& lifetimes);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_PLAN_H_
