// The last step of ONNX's QLinear ops (qproducts.cc says where its order comes from).
#ifndef OCTAVO_IR_INTERPRET_REQUANTIZE_H_
#define OCTAVO_IR_INTERPRET_REQUANTIZE_H_

#include "octavo/ir/tensor.h"
#include "octavo/quant/numeric/rounding.h"

namespace octavo::ir::interpret {

class Requantizer {
 public:
  // `zero`: one element of the result's type.
  explicit Requantizer(const Tensor& zero)
      : zero_(static_cast<int32_t>(zero.GetInt(0))),
        lo_(static_cast<int32_t>(quant::RangeOf(zero.dtype()).lo)),
        hi_(static_cast<int32_t>(quant::RangeOf(zero.dtype()).hi)) {}

  // clamp(rint(float(acc) * scale) + zero) in float32, halves to even; the byte of the result's type. NaN gives the lower limit.
  uint8_t operator()(int64_t acc, float scale) const {
    return static_cast<uint8_t>(quant::QuantizeOne(static_cast<float>(acc) * scale, 1.0f, zero_, lo_, hi_));
  }

 private:
  int32_t zero_, lo_, hi_;
};

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_REQUANTIZE_H_
