// MatMulInteger and QLinearMatMul. QLinearMatMul rounds as ONNX's text says, "x / y_scale to nearest even", and then adds the zero point: clamp(
// rint(float(acc) * (sa * sb / sy)) + zero) in float32, bit for bit what ONNX Runtime computes. ONNX's reference adds before it rounds, which its
// own text does not.
#include <algorithm>
#include <cmath>

#include "octavo/ir/interpret/products.h"
#include "octavo/ir/interpret/requantize.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

namespace {

// The zero point of an operand as it broadcasts: one element, one per row ([m]) of the left, one per column ([n]) of
// the right, or a full shape such as [.., m, 1].
Tensor SpreadZero(const Tensor& zero, const Tensor& x, bool rows) {
  if (!zero.defined()) return Tensor::Zeros(x.dtype(), {});
  if (zero.size() == 1) return zero.Reshaped({});
  if (rows && zero.rank() == 1 && x.rank() >= 2) return zero.Reshaped({zero.size(), 1});
  return zero;
}

Tensor ZeroOf(const Call& call, size_t slot) { return call.Has(slot) ? call.T(slot) : Tensor(); }

struct Centers {
  MatMulShape shape;
  IntProduct acc;
};
Result<Centers> Accumulate(const Tensor& a, const Tensor& a_zero, const Tensor& b, const Tensor& b_zero) {
  Centers c;
  OCTAVO_TRY(c.shape, MatMulShapeOf(a.shape(), b.shape()));
  OCTAVO_TRY_STATUS(CheckShape(DType::kS64, c.shape.result));
  OCTAVO_TRY(const auto x, CenteredBy(a, SpreadZero(a_zero, a, true)));
  OCTAVO_TRY(const auto w, CenteredBy(b, SpreadZero(b_zero, b, false)));
  c.acc = MultiplyCentered(c.shape, x, w);
  return c;
}

Status MatMulInteger(Call& call) {
  OCTAVO_TRY(const Centers c, Accumulate(call.T(0), ZeroOf(call, 2), call.T(1), ZeroOf(call, 3)));
  Tensor y = Tensor::Empty(DType::kS32, c.shape.result);
  auto out = y.mutable_as<int32_t>();
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(c.acc.At(static_cast<int64_t>(i)));  // wraps
  call.Return(std::move(y));
  return {};
}

Status QLinearMatMul(Call& call) {
  const Tensor &a = call.T(0), &b = call.T(3), &y_zero = call.T(7);
  if (!quant::IsInt8(y_zero.dtype())) return BadType(y_zero.dtype());
  if (call.T(6).size() != 1 || y_zero.size() != 1)
    return Fail("the scale and zero point of the result must be one element");
  OCTAVO_TRY(const Centers c, Accumulate(a, call.T(2), b, call.T(5)));
  const MatMulShape& s = c.shape;
  const std::vector<float> sa = call.T(1).ToFloats(), sb = call.T(4).ToFloats();
  const float sy = call.T(6).ToFloats()[0];
  const int64_t rows = a.rank() >= 2 ? a.shape()[a.shape().size() - 2] : 1;
  if ((sa.size() != 1 && static_cast<int64_t>(sa.size()) != rows) ||
      (sb.size() != 1 && static_cast<int64_t>(sb.size()) != s.n)) {
    return Fail("scales must be one element, or one per row of the left and one per column of the right matrix");
  }
  Tensor y = Tensor::Empty(y_zero.dtype(), s.result);
  const Requantizer requantize(y_zero);
  auto* out = MutablePtr<uint8_t>(y);
  for (int64_t i = 0; i < y.size(); ++i) {
    const auto row = static_cast<size_t>(i / s.n % rows), column = static_cast<size_t>(i % s.n);
    const float scale = sa[sa.size() == 1 ? 0 : row] * sb[sb.size() == 1 ? 0 : column] / sy;
    out[i] = requantize(c.acc.At(i), scale);
  }
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterQuantizedProducts(Table& t) {
  t.Set(Op::kMatMulInteger, MatMulInteger);
  t.Set(Op::kQLinearMatMul, QLinearMatMul);
}

}  // namespace octavo::ir::interpret
