// MatMul and Gemm. Two operands with integers behind them (interpret.h) are the exact integer product times one float
// scale per output column, two with fp8 codes the float product of the codes times that scale; everything else is float,
// in order of k (products.h). 16-bit floats are widened and rounded
// once.
#include "octavo/ir/interpret/products.h"
#include "octavo/ir/interpret/strided.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

namespace {

// The type products of `t` are computed in; kUndefined: not a type of MatMul.
DType ProductType(DType t) {
  switch (t) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return DType::kF32;
    case DType::kF64:
      return DType::kF64;
    case DType::kS32:
    case DType::kU32:
    case DType::kS64:
    case DType::kU64:
      return DType::kU64;
    default:
      return DType::kUndefined;
  }
}

// Row-major product of any numeric type of MatMul; in the product type.
Result<Tensor> Product(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype()) return Fail("the operands have different element types; cast one of them");
  const DType mid = ProductType(a.dtype());
  if (mid == DType::kUndefined) return BadType(a.dtype());
  OCTAVO_TRY(const Tensor x, CastTo(a, mid));
  OCTAVO_TRY(const Tensor w, CastTo(b, mid));
  if (mid == DType::kF32) return MatMulF32(x, w);
  OCTAVO_TRY(const MatMulShape s, MatMulShapeOf(a.shape(), b.shape()));
  OCTAVO_TRY(Tensor y, AllocZeros(mid, s.result));
  for (size_t i = 0; i < s.a_batch.size() && y.size() > 0; ++i) {
    const int64_t at_x = s.a_batch[i] * s.m * s.k, at_w = s.b_batch[i] * s.k * s.n;
    const int64_t at_y = static_cast<int64_t>(i) * s.m * s.n;
    if (mid == DType::kF64) {
      MultiplyF64(Ptr<double>(x) + at_x, Ptr<double>(w) + at_w, MutablePtr<double>(y) + at_y, s.m, s.k, s.n);
    } else {
      MultiplyU64(Ptr<uint64_t>(x) + at_x, Ptr<uint64_t>(w) + at_w, MutablePtr<uint64_t>(y) + at_y, s.m, s.k, s.n);
    }
  }
  return y;
}

// Both have codes, integers or fp8: the left per tensor, the right per tensor or per output column.
bool IsCodeProduct(const RtValue& a, const RtValue& b) {
  if (a.quant == nullptr || b.quant == nullptr || a.quant->axis >= 0) return false;
  if (quant::IsFp8(a.quant->q.dtype()) != quant::IsFp8(b.quant->q.dtype())) return false;
  const auto rank = static_cast<int64_t>(b.quant->q.shape().size());
  return b.quant->axis < 0 || (rank >= 2 && b.quant->axis == rank - 1);
}

// acc * (sa * sw[n]). Integers: acc is float(exact sum). fp8: products of two codes are exact in float, and their sum is
// rounded step by step in order of k, which is the same with and without FMA (kernels/fp8/fp8.h).
Result<Tensor> CodeProduct(const QuantForm& a, const QuantForm& b) {
  OCTAVO_TRY(const MatMulShape s, MatMulShapeOf(a.q.shape(), b.q.shape()));
  OCTAVO_TRY(Tensor y, Alloc(DType::kF32, s.result));
  const bool fp8 = quant::IsFp8(a.q.dtype());
  IntProduct acc;
  if (fp8) {
    OCTAVO_TRY(const Tensor x, CastTo(a.q, DType::kF32));
    OCTAVO_TRY(const Tensor w, CastTo(b.q, DType::kF32));
    OCTAVO_TRY(y, MatMulF32(x, w));
  } else {
    OCTAVO_TRY(const auto x, Centered(a.q, a.zero_point, -1));
    OCTAVO_TRY(const auto w, Centered(b.q, b.zero_point, b.axis));
    acc = MultiplyCentered(s, x, w);
  }
  std::vector<float> scales = b.scale.ToFloats();
  const float sa = a.scale.ToFloats()[0];
  for (float& v : scales) v = sa * v;
  const size_t step = scales.size() == 1 ? 0 : 1;
  float* out = MutablePtr<float>(y);
  for (int64_t i = 0, total = y.size(); i < total; i += s.n) {
    for (int64_t j = 0; j < s.n; ++j) {
      out[i + j] = (fp8 ? out[i + j] : acc.AsFloat(i + j)) * scales[static_cast<size_t>(j) * step];
    }
  }
  return y;
}

Status MatMul(Call& call) {
  const RtValue &a = call.in[0], &b = call.in[1];
  if (IsCodeProduct(a, b)) {
    OCTAVO_TRY(Tensor y, CodeProduct(*a.quant, *b.quant));
    call.Return(std::move(y));
    return {};
  }
  OCTAVO_TRY(Tensor product, Product(a.tensor, b.tensor));
  OCTAVO_TRY(Tensor y, CastTo(product, a.tensor.dtype()));
  call.Return(std::move(y));
  return {};
}

Tensor Transposed(const Tensor& x, bool swap) {
  if (!swap) return x;
  Tensor y = Tensor::Empty(x.dtype(), {x.shape()[1], x.shape()[0]});
  CopyStrided(x.data(), std::vector<int64_t>{1, x.shape()[1]}, y.mutable_data(), StridesOf(y.shape()), y.shape(),
              static_cast<size_t>(quant::BitsOf(x.dtype()) / 8));
  return y;
}

RtValue Transposed(const RtValue& v, bool swap) {
  if (!swap || v.quant == nullptr) return {Transposed(v.tensor, swap), v.quant};
  QuantForm form = *v.quant;
  form.q = Transposed(form.q, true);
  form.axis = form.axis < 0 ? -1 : 1 - form.axis;
  return {Transposed(v.tensor, true), std::make_shared<const QuantForm>(std::move(form))};
}

// y = alpha * y + beta * c, in the product type; no multiplication by 1.
template <typename T>
Status AddScaled(Tensor& y, float alpha, float beta, const Tensor* c) {
  const auto times = [](T v, float f) {
    if constexpr (std::is_floating_point_v<T>) {
      return f == 1.0f ? v : v * static_cast<T>(f);
    } else {
      return f == 1.0f ? v : static_cast<T>(static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(v)) * f));
    }
  };
  T* out = MutablePtr<T>(y);
  if (alpha != 1.0f) {
    for (int64_t i = 0, n = y.size(); i < n; ++i) out[i] = times(out[i], alpha);
  }
  if (c == nullptr) return {};
  OCTAVO_TRY(const Shape shape, BroadcastShapes(c->shape(), y.shape()));
  if (shape != y.shape()) return Fail("C does not broadcast to the result {}", ToString(y.shape()));
  const auto steps = BroadcastStrides(c->shape(), y.shape());
  const T* bias = Ptr<T>(*c);
  for (int64_t i = 0; i < y.shape()[0]; ++i) {
    for (int64_t j = 0; j < y.shape()[1]; ++j, ++out) *out = *out + times(bias[i * steps[0] + j * steps[1]], beta);
  }
  return {};
}

Status Gemm(Call& call) {
  const DType type = call.T(0).dtype();
  if (call.T(0).rank() != 2 || call.T(1).rank() != 2) return Fail("both matrices must have rank 2");
  if (ProductType(type) == DType::kUndefined) return BadType(type);
  if (call.T(1).dtype() != type) return Fail("the operands have different element types; cast one of them");
  const RtValue a = Transposed(call.in[0], call.Int("transA", 0) != 0);
  const RtValue b = Transposed(call.in[1], call.Int("transB", 0) != 0);
  const float alpha = call.Float("alpha", 1.0f), beta = call.Float("beta", 1.0f);
  Tensor y;
  if (alpha == 1.0f && beta == 1.0f && IsCodeProduct(a, b)) {
    OCTAVO_TRY(y, CodeProduct(*a.quant, *b.quant));
  } else {
    OCTAVO_TRY(y, Product(a.tensor, b.tensor));
  }
  Tensor c;
  if (call.Has(2)) {
    if (call.T(2).dtype() != type) return Fail("C has another element type than A; cast one of them");
    OCTAVO_TRY(c, CastTo(call.T(2), y.dtype()));
  }
  const Tensor* bias = c.defined() ? &c : nullptr;
  if (y.dtype() == DType::kF32) {
    OCTAVO_TRY_STATUS(AddScaled<float>(y, alpha, beta, bias));
  } else if (y.dtype() == DType::kF64) {
    OCTAVO_TRY_STATUS(AddScaled<double>(y, alpha, beta, bias));
  } else {
    OCTAVO_TRY_STATUS(AddScaled<uint64_t>(y, alpha, beta, bias));
  }
  OCTAVO_TRY(y, CastTo(y, type));
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterMatMul(Table& t) {
  t.Set(Op::kMatMul, MatMul);
  t.Set(Op::kGemm, Gemm);
}

}  // namespace octavo::ir::interpret
