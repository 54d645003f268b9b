// Numbers to text and back, as Cast wants it.
#ifndef OCTAVO_IR_INTERPRET_STRINGS_H_
#define OCTAVO_IR_INTERPRET_STRINGS_H_

#include "octavo/ir/tensor.h"

namespace octavo::ir::interpret {

// Charges the evaluation for `count` texts that have `bytes` characters in all, before they are made.
void ChargeWords(size_t count, size_t bytes);

// Shortest text that reads back as the same number; NaN, INF and -INF for the special values.
Result<Tensor> ToStrings(const Tensor& t);
// As s64 or u64 (integer targets) or f64 (others; f32 if the target is f32 or narrower); the caller casts on.
Result<Tensor> FromStrings(const Tensor& t, DType target);

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_STRINGS_H_
