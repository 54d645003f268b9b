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

// f(rows, column blocks) for pieces of a task, the results of one of which stay in L2 until the tail has read them.
template <class F>
void ForPieces(kernels::Range rows, kernels::Range blocks, const F& f) {
  constexpr int64_t kRows = 768, kFloats = 32768;  // rows: whole runs of the kernels' tiles
  for (int64_t r = rows.begin; r < rows.end; r += kRows) {
    const kernels::Range some{r, std::min(rows.end, r + kRows)};
    const int64_t wide = std::max<int64_t>(1, kFloats / ((some.end - some.begin) * kernels::kColumnBlock));
    for (int64_t b = blocks.begin; b < blocks.end; b += wide)
      f(some, kernels::Range{b, std::min(blocks.end, b + wide)});
  }
}

// Columns of these blocks of a product of n.
inline kernels::Range ColumnsOf(kernels::Range blocks, int64_t n) {
  return {blocks.begin * kernels::kColumnBlock, std::min(n, blocks.end * kernels::kColumnBlock)};
}

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_TAIL_H_
