// The bounds by position in a mask of attention, and what is left of the mask without them. There are none in index arithmetic that is not
// affine, and in masks whose dims are not known to be those of the scores.
#ifndef OCTAVO_PASSES_FUSIONS_WINDOW_BOUNDS_H_
#define OCTAVO_PASSES_FUSIONS_WINDOW_BOUNDS_H_

#include <optional>

#include "octavo/passes/canonical/mask_indices.h"
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

struct MaskBounds {
  int64_t left = -1, right = -1;  // -1: none
  bool bottom_right = false;
  float low = 0;  // what an additive mask writes where a key is hidden
  ValueId mask;   // what is left, made by `b`; invalid: nothing
};

// Of a bool mask, true where a key is visible, and of an additive one. `queries`, `keys`: the dims of the scores. nullopt: it has none.
std::optional<MaskBounds> BoundsOfKeep(Rewriter& b, canonical::IndexFacts& facts, const ir::Dim& queries,
                                       const ir::Dim& keys, ValueId keep);
std::optional<MaskBounds> BoundsOfMask(Rewriter& b, canonical::IndexFacts& facts, const ir::Dim& queries,
                                       const ir::Dim& keys, ValueId mask);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_WINDOW_BOUNDS_H_
