// The parts that a Split makes of a packed int8 projection.
#ifndef OCTAVO_PASSES_FUSIONS_PACKED_PARTS_H_
#define OCTAVO_PASSES_FUSIONS_PACKED_PARTS_H_

#include <vector>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

// Empty: it does not split the last axis into 2 to 8 parts of known widths.
std::vector<int64_t> WidthsOf(const Graph& g, const Node& split);

// The only reader of v, if it quantizes it as the epilogue of a product can; null: there is none.
const Node* QuantizeBehind(const Graph& g, ValueId v, bool fp8);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_PACKED_PARTS_H_
