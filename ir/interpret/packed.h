// Tensors of 4-bit and 2-bit elements as bytes and back.
#ifndef OCTAVO_IR_INTERPRET_PACKED_H_
#define OCTAVO_IR_INTERPRET_PACKED_H_

#include "octavo/ir/tensor.h"

namespace octavo::ir::interpret {

// The type that holds one element of `packed` in a byte: s8 for signed integers, u8 for others (codes, where they are floats).
DType ByteTypeOf(DType packed);
Tensor Unpack(const Tensor& t);
// The low bits of each byte of a u8 or s8 tensor.
Tensor Pack(const Tensor& t, DType to);

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_PACKED_H_
