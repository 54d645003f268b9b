// 4-bit tensors as bytes and back.
#ifndef OCTAVO_IR_INTERPRET_NIBBLES_H_
#define OCTAVO_IR_INTERPRET_NIBBLES_H_

#include "octavo/ir/tensor.h"

namespace octavo::ir::interpret {

// u4 to u8, s4 to s8.
Tensor UnpackNibbles(const Tensor& t);
// The low four bits of each byte of a u8 or s8 tensor.
Tensor PackNibbles(const Tensor& t, DType to);

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_NIBBLES_H_
