// Convolutions as products: at each position a Linear over its window.
#ifndef OCTAVO_PASSES_UNFOLD_H_
#define OCTAVO_PASSES_UNFOLD_H_

#include <optional>

#include "octavo/ir/unfold.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes {

// Those of a Conv in one group over one to three axes with these weights. With a bias it is constant and not of 16 bits, since a Conv rounds once and a
// product and a sum twice.
std::optional<ir::Windows> WindowsOf(const ir::Graph& g, const ir::Node& conv, const ir::Tensor& weights);

// A Conv of constant weights of floats whose windows are the elements: kernel 1, no stride, no padding.
bool IsPointwise(const ir::Graph& g, const ir::Node& n);

// Channels and filters from which a product in codes pays: 64 x 64 on AVX2 take 0.84 of the time of floats with one scale for all positions, and 1.13 with a scale
// for each (docs/lab/runtime.md).
constexpr int64_t kLeastChannelsInCodes = 64;
constexpr int64_t kMostPositionsInCodes = 25;  // of a window, 5 x 5: a Slice for each

// The weights [N,C,kernel...] of a Conv as the matrix [positions * C, N] of a Linear.
ir::Tensor WindowMatrix(const ir::Tensor& w);

// [B, out..., positions * C], whose spatial sizes `out` are, of x [B, in..., C] (ir/unfold.h). `padding`: a scalar of x's type; invalid: 0.
ir::ValueId MakeUnfold(Rewriter& rw, ir::ValueId x, const ir::Windows& w, ir::ValueId padding, const ir::SymShape& out);

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_UNFOLD_H_
