// The windows of a convolution as rows (im2col, torch.nn.Unfold), in standard ops: Pad, a Slice for each position of a window, and their Concat.
#ifndef OCTAVO_IR_UNFOLD_H_
#define OCTAVO_IR_UNFOLD_H_

#include <optional>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::ir {

// Vectors have an element for each spatial axis; those of x [B, in..., C] lie between its first and its last.
struct Windows {
  std::vector<int64_t> kernel = {}, strides = {}, dilations = {};  // at least 1
  std::vector<int64_t> before = {}, after = {};                    // padding, at least 0

  int64_t positions() const;  // of a window: the product of `kernel`
  bool padded() const;
};

struct Unfold {
  ValueId x;
  Windows windows;
  ValueId padding;  // what Pad puts there; invalid: 0
  std::vector<NodeId>
      nodes;  // in the graph's order but for the Slices, which are in that of the positions; the last one is the Concat
};

// What makes v [B, out..., positions * C] where it is x's windows of two positions or more, channels fastest. Every node but the last serves it alone.
std::optional<Unfold> UnfoldAt(const Graph& g, ValueId v);

// The first element along an axis of the Slice for position `at` of `kernel`, and its end (counted from behind where negative).
constexpr int64_t kToTheEnd = INT64_MAX;
inline int64_t SliceStart(int64_t at, int64_t dilation) { return at * dilation; }
inline int64_t SliceEnd(int64_t at, int64_t kernel, int64_t dilation) {
  return at + 1 == kernel ? kToTheEnd : (at + 1 - kernel) * dilation;
}

}  // namespace octavo::ir

#endif  // OCTAVO_IR_UNFOLD_H_
