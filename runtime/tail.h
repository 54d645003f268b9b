// Element-wise nodes behind products of one activation (SiLU(gate) * up, an activation, a sum with a residual) as the end of the products'
// step: they run on the piece that a task has just made, with the bits of their own steps.
#ifndef OCTAVO_RUNTIME_TAIL_H_
#define OCTAVO_RUNTIME_TAIL_H_

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "octavo/runtime/chain.h"

namespace octavo::runtime {

using ChainsByNode = std::map<ir::NodeId, const Chain*>;

// The chains that read products (first outputs of nodes in the graph's order) which nobody else reads, and beside them only what is there
// before the first of the products.
std::vector<Chain> FindTails(const CompileContext& c, std::span<const ir::NodeId> products, const ChainsByNode& chains);

// Whether v is made before the node in the graph's order.
bool IsThereBefore(const Graph& g, ValueId v, ir::NodeId node);

// A kernel, the nodes whose work it does, and what it reads and makes.
struct Made {
  KernelPtr kernel = nullptr;
  std::vector<ir::NodeId> nodes = {};
  std::vector<ValueId> inputs = {}, outputs = {};
};

// f(rows, column blocks) for pieces of a task of whole units, the results of one of which stay in L2 until the tail has read them. Of all columns where
// these are few, since the tail is called once for each row of other pieces; else nearly square, which reads the least of x and of weights.
template <class F>
void ForPieces(kernels::Range rows, kernels::Range blocks, int64_t unit, const F& f) {
  constexpr int64_t kRun = 96, kMostRuns = 8, kFloats = 32768;  // a run: whole tiles of every kernel
  const int64_t columns = std::max<int64_t>(1, (blocks.end - blocks.begin) * kernels::kColumnBlock);
  const int64_t runs = kFloats / columns / kRun, at_once = kRun * (runs == 0 ? 2 : std::min(runs, kMostRuns));
  for (int64_t r = rows.begin; r < rows.end; r += at_once) {
    const kernels::Range some{r, std::min(rows.end, r + at_once)};
    const int64_t floats = (some.end - some.begin) * kernels::kColumnBlock * unit;
    const int64_t wide = std::max<int64_t>(1, kFloats / floats) * unit;
    for (int64_t b = blocks.begin; b < blocks.end; b += wide)
      f(some, kernels::Range{b, std::min(blocks.end, b + wide)});
  }
}

// Column blocks of products: `beside` of so many blocks each that go side by side, in units that stay whole.
struct Lane {
  int64_t blocks = 0, beside = 1, unit = 1;
};
// f(lane, its blocks) for what lies in [begin, end) of the blocks of all lanes, one behind the other.
template <class F>
void ForLanes(std::span<const Lane> lanes, int64_t begin, int64_t end, const F& f) {
  int64_t before = 0;  // blocks of the lanes before this one
  for (size_t i = 0; i < lanes.size(); ++i) {
    const Lane& lane = lanes[i];
    const int64_t step = lane.beside * lane.unit;
    const auto own = [&](int64_t at) {
      return std::clamp((at - before + step - 1) / step * lane.unit, int64_t{0}, lane.blocks);
    };
    if (own(begin) < own(end)) f(i, kernels::Range{own(begin), own(end)});
    before += lane.blocks * lane.beside;
  }
}

// Columns of these blocks of a product of n.
inline kernels::Range ColumnsOf(kernels::Range blocks, int64_t n) {
  return {blocks.begin * kernels::kColumnBlock, std::min(n, blocks.end * kernels::kColumnBlock)};
}

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_TAIL_H_
