#include "octavo/ir/limits.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "octavo/ir/graph.h"
#include "octavo/quant/numeric/cgroups.h"

namespace octavo::ir {

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

int64_t SaturatedMul(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMost : product;
}
int64_t SaturatedAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMost : sum;
}

// What the process may use: the machine's memory, or less in a control group.
int64_t MemoryOfProcess() {
  static const int64_t bytes = [] {
    int64_t least = SaturatedMul(sysconf(_SC_PHYS_PAGES), sysconf(_SC_PAGESIZE));
    if (const int64_t quota = quant::MemoryQuota(quant::TextOf); quota > 0) least = std::min(least, quota);
    return least > 0 ? least : kMost;
  }();
  return bytes;
}

}  // namespace

size_t MemoryLimit(const Limits& limits, int64_t bytes, int64_t elements) {
  if (limits.max_memory > 0) return static_cast<size_t>(limits.max_memory);
  const int64_t of_run = SaturatedMul(bytes / 16, elements);
  const int64_t most = SaturatedAdd(SaturatedAdd(kDefaultMemory, SaturatedMul(bytes, 4)), of_run);
  return static_cast<size_t>(std::min(most, MemoryOfProcess() / 10 * 9));
}

size_t MemoryLimit(const Graph& graph, int64_t elements) {
  int64_t bytes = graph.info.bytes;
  if (bytes == 0) {
    for (const NodeId id : graph.NodesInOrder()) {
      const Tensor* constant = graph.ConstantOf(graph.node(id).output());
      if (constant != nullptr) bytes += static_cast<int64_t>(constant->byte_size());
    }
  }
  return MemoryLimit(graph.info.limits, bytes, elements);
}

int64_t NodeLimit(const Limits& limits, int64_t bytes) {
  return limits.max_nodes > 0 ? limits.max_nodes : SaturatedAdd(kDefaultNodes, bytes / 16);
}

}  // namespace octavo::ir
