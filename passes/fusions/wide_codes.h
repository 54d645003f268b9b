// Codes of types that no kernel has as codes of one that some have, exactly.
#ifndef OCTAVO_PASSES_FUSIONS_WIDE_CODES_H_
#define OCTAVO_PASSES_FUSIONS_WIDE_CODES_H_

#include <vector>

#include "octavo/passes/rewriter.h"

namespace octavo::passes::fusions {

// The types of codes in blocks that have a kernel, as they are or wide.
std::vector<ir::DType> CodesOfBlocks();
// u2 become u4, s2 s4, and e2m1, whose values are halves up to 6, s8 of twice as much; others stay.
ir::DType WideTypeOf(ir::DType codes);
// Of a product's operands: codes, scale (f32; half of it for e2m1, which is exact from 2^-125 on) and zero point in slots 1 to 3, all constants.
void Widen(Rewriter& b, std::vector<ir::ValueId>& in);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_WIDE_CODES_H_
