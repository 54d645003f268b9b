// Sizes that are read of a value of which other passes want to make another one.
#ifndef OCTAVO_PASSES_CANONICAL_SIZES_H_
#define OCTAVO_PASSES_CANONICAL_SIZES_H_

#include <span>

#include "octavo/passes/rewriter.h"

namespace octavo::passes::canonical {

// Before: Shape(scores [b,4,s,s])   After: Concat(Gather(Shape(ids [b,s]), 0), 4, Gather(Shape(ids), 1), Gather(Shape(ids), 1))
// All of these Shape nodes or, where a dim is neither a number nor one of a graph input, none: false.
bool ReadSizesOfInputs(Rewriter& rw, std::span<const ir::NodeId> shapes);

}  // namespace octavo::passes::canonical

#endif  // OCTAVO_PASSES_CANONICAL_SIZES_H_
