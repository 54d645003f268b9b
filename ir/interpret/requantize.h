// The last step of ONNX's QLinear ops, in their own order (qproducts.cc says where it comes from).
#ifndef OCTAVO_IR_INTERPRET_REQUANTIZE_H_
#define OCTAVO_IR_INTERPRET_REQUANTIZE_H_

#include <cmath>

#include "octavo/ir/tensor.h"

namespace octavo::ir::interpret {

class Requantizer {
 public:
  // `zero`: one element of the result's type.
  explicit Requantizer(const Tensor& zero)
      : zero_(static_cast<double>(zero.GetInt(0))),
        lo_(static_cast<double>(quant::RangeOf(zero.dtype()).lo)),
        hi_(static_cast<double>(quant::RangeOf(zero.dtype()).hi)) {}

  // clamp(rint(acc * scale + zero)) in double; the byte of the result's type. NaN gives the lower limit.
  uint8_t operator()(int64_t acc, float scale) const {
    const double v = std::nearbyint(static_cast<double>(acc) * static_cast<double>(scale) + zero_);
    const double clamped = v > lo_ ? (v < hi_ ? v : hi_) : lo_;
    return static_cast<uint8_t>(static_cast<int>(clamped));
  }

 private:
  double zero_, lo_, hi_;
};

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_REQUANTIZE_H_
