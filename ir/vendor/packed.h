// Codes of 2, 4 or 8 bits that ONNX Runtime packs into rows of whole bytes, from the low bits up.
#ifndef OCTAVO_IR_VENDOR_PACKED_H_
#define OCTAVO_IR_VENDOR_PACKED_H_

#include "octavo/ir/tensor.h"

namespace octavo::ir::vendor {

// Bytes of a row of `count` codes.
inline int64_t BytesOfCodes(int64_t count, int64_t bits) { return (count * bits + 7) / 8; }
// Code `i` of a row.
inline int CodeAt(const uint8_t* row, int64_t i, int64_t bits) {
  const int64_t in_byte = 8 / bits;
  return (row[i / in_byte] >> (i % in_byte * bits)) & ((1 << bits) - 1);
}
// [rows, count]: u8 for 8 bits, else u4. `t` has rows * BytesOfCodes(count, bits) bytes, or rows that are longer.
Tensor UnpackCodes(const Tensor& t, int64_t rows, int64_t count, int64_t bits);
// The middle of the range everywhere: the zero point where a file has none.
Tensor MidCodes(int64_t rows, int64_t count, int64_t bits);

// f32, f16 or bf16; and such scales as f32, which is exact.
bool IsOfScales(DType t);
Tensor InFloats(const Tensor& t);

}  // namespace octavo::ir::vendor

#endif  // OCTAVO_IR_VENDOR_PACKED_H_
