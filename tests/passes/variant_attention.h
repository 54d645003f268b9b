// Kinds of variants that have a file of their own.
#ifndef OCTAVO_TESTS_PASSES_VARIANT_ATTENTION_H_
#define OCTAVO_TESTS_PASSES_VARIANT_ATTENTION_H_

#include "octavo/tests/passes/variant_builder.h"

namespace octavo::passes {

ir::ValueId Linear(VariantBuilder& b, ir::ValueId x);

// Softmax(q k^T) v, decomposed or as ONNX's op.
Variant AttentionVariant(VariantBuilder& b);
// QuantizeLinear and DequantizeLinear around products, element-wise chains, norms and attention.
Variant CodesVariant(VariantBuilder& b);

}  // namespace octavo::passes

#endif  // OCTAVO_TESTS_PASSES_VARIANT_ATTENTION_H_
