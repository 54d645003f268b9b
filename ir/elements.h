// Runs of elements between tensors of one type, of 4 bits too, which may begin in the middle of a byte.
#ifndef OCTAVO_IR_ELEMENTS_H_
#define OCTAVO_IR_ELEMENTS_H_

#include "octavo/ir/tensor.h"

namespace octavo::ir {

// `count` elements of `from`, from `begin` on, to those of `to` from `at` on; both lie inside.
void CopyElements(const Tensor& from, int64_t begin, Tensor& to, int64_t at, int64_t count);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_ELEMENTS_H_
