// QuantizeLinear, DequantizeLinear (per tensor, per axis, blocked) and DynamicQuantizeLinear. The arithmetic is float32
// whatever the float type of the operands, one rounding to that type at the end.
#include <algorithm>
#include <cmath>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/packed.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/quant/numeric/code8.h"
#include "octavo/quant/numeric/rounding.h"
#include "octavo/quant/numeric/stored_float.h"

namespace octavo::ir::interpret {

namespace {

// Which scale and zero point belong to which element.
struct Layout {
  int64_t outer = 1, n = 1, inner = 1;  // the tensor as [outer, axis, inner]
  int64_t block = 0;                    // elements of the axis per parameter; 0: all of the tensor share one
  int64_t blocks = 1;                   // parameters along the axis
  bool by_block = false;                // parameters also vary over outer and inner
  int64_t axis = -1;                    // per-axis form: the axis

  // f(first element, count, first parameter, step of the parameter)
  template <typename F>
  void ForRuns(F f) const {
    if (block == 0) return f(0, outer * n * inner, 0, 0);
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = (o * n + i) * inner;
        if (by_block) {
          f(at, inner, (o * blocks + i / block) * inner, 1);
        } else {
          f(at, inner, i, 0);
        }
      }
    }
  }
};

Result<Layout> LayoutOf(const Call& call, const Tensor& x, const Tensor& scale, const Tensor& zero) {
  Layout l;
  l.n = x.size();
  if (zero.defined() && zero.size() != scale.size()) return Fail("scale and zero point have different sizes");
  const int64_t block = call.Int("block_size", 0);
  if (block < 0) return Fail("block_size {} is negative", block);
  if (block == 0 && scale.size() == 1) return l;
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", 1), x.rank()));
  const auto a = static_cast<size_t>(axis);
  l.outer = Count(x.shape(), 0, a);
  l.n = x.shape()[a];
  l.inner = Count(x.shape(), a + 1, x.shape().size());
  if (block == 0) {
    if (scale.rank() != 1 || scale.size() != l.n) {
      return Fail("the scale must be one element or {} (the size of axis {})", l.n, axis);
    }
    l.block = 1;
    l.blocks = l.n;
    l.axis = axis;
    return l;
  }
  Shape wanted = x.shape();
  wanted[a] = l.n / block + (l.n % block != 0 ? 1 : 0);
  if (scale.shape() != wanted) return Fail("blocks of {} on axis {} need a scale of {}", block, axis, ToString(wanted));
  l.block = block;
  l.blocks = wanted[a];
  l.by_block = true;
  return l;
}

Result<std::vector<float>> FloatsOf(const Tensor& t) {
  ChargeWork(static_cast<size_t>(t.size()) * (sizeof(float) + sizeof(int64_t)));  // and the zero points
  OCTAVO_TRY(const Tensor f, CastTo(t, DType::kF32));
  const auto v = f.as<float>();
  return std::vector<float>(v.begin(), v.end());
}

// --- quantize --------------------------------------------------------------------------------------------------

template <typename Q>
void QuantizeInts(const Layout& l, const float* x, const std::vector<float>& scale, const std::vector<int64_t>& zero,
                  quant::IntRange range, Q* y) {
  const auto lo = static_cast<int32_t>(range.lo), hi = static_cast<int32_t>(range.hi);
  l.ForRuns([&](int64_t at, int64_t count, int64_t param, int64_t step) {
    for (int64_t i = 0; i < count; ++i, param += step) {
      const auto p = static_cast<size_t>(param);
      y[at + i] = static_cast<Q>(quant::QuantizeOne(x[at + i], scale[p], static_cast<int32_t>(zero[p]), lo, hi));
    }
  });
}

Tensor QuantizeToFloats(const Layout& l, const float* x, const std::vector<float>& scale, DType to, const Shape& shape,
                        bool saturate) {
  const bool packed = quant::IsPacked(to);
  Tensor y = Tensor::Empty(packed ? DType::kU8 : to, shape);
  auto* out = MutablePtr<uint8_t>(y);
  l.ForRuns([&](int64_t at, int64_t count, int64_t param, int64_t step) {
    for (int64_t i = 0; i < count; ++i, param += step) {
      const float s = scale[static_cast<size_t>(param)];
      out[at + i] = quant::IsFp8(to) ? quant::QuantizeFp8One(x[at + i], s, to, saturate)
                                     : quant::F32ToStored(x[at + i] / s, to, saturate);
    }
  });
  return packed ? Pack(y, to) : y;
}

Status QuantizeLinear(Call& call) {
  const Tensor &x = call.T(0), &scale = call.T(1);
  const Tensor zero = call.Has(2) ? call.T(2) : Tensor();
  OCTAVO_TRY(const DType declared, TypeAttr(call, "output_dtype", DType::kUndefined));
  DType to = zero.defined() ? zero.dtype() : declared;
  if (to == DType::kUndefined) to = DType::kU8;
  if (zero.defined() && declared != DType::kUndefined && declared != to) {
    return Fail("output_dtype {} disagrees with the zero point", quant::Name(declared));
  }
  const bool codes = quant::IsFp8(to) || quant::IsStoredFloat(to);
  if (to == DType::kE8M0 || (!codes && (!quant::IsInteger(to) || quant::BitsOf(to) > 16))) return BadType(to);
  if (!quant::IsFloat(x.dtype()) && x.dtype() != DType::kS32) return BadType(x.dtype());
  OCTAVO_TRY(const Layout l, LayoutOf(call, x, scale, zero));
  OCTAVO_TRY(const Tensor f, CastTo(x, DType::kF32));
  OCTAVO_TRY(const auto scales, FloatsOf(scale));
  if (codes) {
    call.Return(QuantizeToFloats(l, Ptr<float>(f), scales, to, x.shape(), call.Int("saturate", 1) != 0));
    return {};
  }
  const std::vector<int64_t> zeros = zero.defined() ? zero.ToInts() : std::vector<int64_t>(scales.size(), 0);
  const quant::IntRange range = quant::RangeOf(to);
  const bool packed = quant::IsPacked(to);
  Tensor y = Tensor::Empty(packed ? ByteTypeOf(to) : to, x.shape());
  OCTAVO_TRY_STATUS(ForInts(y.dtype(), [&]<typename Q>() -> Status {
    if constexpr (sizeof(Q) <= 2) QuantizeInts<Q>(l, Ptr<float>(f), scales, zeros, range, MutablePtr<Q>(y));
    return {};
  }));
  call.Return(packed ? Pack(y, to) : std::move(y));
  return {};
}

// --- dequantize ------------------------------------------------------------------------------------------------

template <typename Q>
void DequantizeInts(const Layout& l, const Q* q, const std::vector<float>& scale, const std::vector<int64_t>& zero,
                    float* y) {
  l.ForRuns([&](int64_t at, int64_t count, int64_t param, int64_t step) {
    if (step == 0) {
      const float s = scale[static_cast<size_t>(param)];
      const auto z = static_cast<int32_t>(zero[static_cast<size_t>(param)]);
      for (int64_t i = 0; i < count; ++i) {
        y[at + i] = quant::DequantizeOne(static_cast<int32_t>(q[at + i]), s, z);
      }
      return;
    }
    for (int64_t i = 0; i < count; ++i, param += step) {
      const auto p = static_cast<size_t>(param);
      y[at + i] = quant::DequantizeOne(static_cast<int32_t>(q[at + i]), scale[p], static_cast<int32_t>(zero[p]));
    }
  });
}

Status DequantizeFloats(const Layout& l, const Tensor& q, const std::vector<float>& scale, Tensor& y) {
  OCTAVO_TRY(const Tensor f, CastTo(q, DType::kF32));
  const auto* in = Ptr<float>(f);
  auto* out = MutablePtr<float>(y);
  l.ForRuns([&](int64_t at, int64_t count, int64_t param, int64_t step) {
    for (int64_t i = 0; i < count; ++i, param += step) out[at + i] = in[at + i] * scale[static_cast<size_t>(param)];
  });
  return {};
}

void AttachForm(Call& call, const Layout& l, const Tensor& scale, const Tensor& zero) {
  const DType t = call.T(0).dtype();
  if ((!quant::IsInt8(t) && !quant::IsFp8(t)) || scale.dtype() != DType::kF32 || l.by_block) return;
  QuantForm form{call.T(0), scale, zero, l.axis};
  if (scale.size() == 1) {  // one parameter is per tensor, whatever its rank
    form.axis = -1;
    form.scale = scale.Reshaped({});
    if (zero.defined()) form.zero_point = zero.Reshaped({});
  }
  if (!form.zero_point.defined()) form.zero_point = Tensor::Zeros(call.T(0).dtype(), form.scale.shape());
  call.out[0].quant = std::make_shared<const QuantForm>(std::move(form));
}

Status DequantizeLinear(Call& call) {
  const Tensor &x = call.T(0), &scale = call.T(1);
  const Tensor zero = call.Has(2) ? call.T(2) : Tensor();
  if (zero.defined() && zero.dtype() != x.dtype()) return Fail("the zero point has another type than the operand");
  OCTAVO_TRY(DType to, TypeAttr(call, "output_dtype", DType::kUndefined));
  if (to == DType::kUndefined) to = scale.dtype();
  if (!quant::IsComputedFloat(to)) return BadType(to);
  OCTAVO_TRY(const Layout l, LayoutOf(call, x, scale, zero));
  OCTAVO_TRY(const auto scales, FloatsOf(scale));
  OCTAVO_TRY(Tensor y, Alloc(DType::kF32, x.shape()));
  if (quant::IsFp8(x.dtype()) || quant::IsStoredFloat(x.dtype())) {
    OCTAVO_TRY_STATUS(DequantizeFloats(l, x, scales, y));
  } else {
    if (!quant::IsInteger(x.dtype()) || (x.dtype() != DType::kS32 && quant::BitsOf(x.dtype()) > 16))
      return BadType(x.dtype());
    const Tensor q = quant::IsPacked(x.dtype()) ? Unpack(x) : x;
    const auto zeros = zero.defined() ? zero.ToInts() : std::vector<int64_t>(scales.size(), 0);
    if (x.dtype() == DType::kS32 && std::any_of(zeros.begin(), zeros.end(), [](int64_t z) { return z != 0; })) {
      return Fail("the zero point of 32-bit integers must be 0");
    }
    OCTAVO_TRY_STATUS(ForInts(q.dtype(), [&]<typename Q>() -> Status {
      if constexpr (sizeof(Q) <= 4) DequantizeInts<Q>(l, Ptr<Q>(q), scales, zeros, MutablePtr<float>(y));
      return {};
    }));
  }
  OCTAVO_TRY(y, CastTo(y, to));
  call.Return(std::move(y));
  if (to == DType::kF32) AttachForm(call, l, scale, zero);
  return {};
}

// --- dynamic ---------------------------------------------------------------------------------------------------

// scale = (max(x, 0) - min(x, 0)) / 255, zero = clamp(rne(0 - min / scale)). All zeros: scale 1 (ONNX would divide by
// 0).
Status DynamicQuantizeLinear(Call& call) {
  const Tensor& x = call.T(0);
  if (x.dtype() != DType::kF32) return BadType(x.dtype());
  float lo = 0.0f, hi = 0.0f;
  for (float v : x.as<float>()) {
    lo = v < lo ? v : lo;
    hi = v > hi ? v : hi;
  }
  const float spread = (hi - lo) / 255.0f;
  const float scale = spread == 0.0f ? 1.0f : spread;
  const float start = 0.0f - lo / scale;
  const auto zero = static_cast<uint8_t>(quant::RoundHalfEven(std::fmin(255.0f, std::fmax(0.0f, start))));
  Tensor y = Tensor::Empty(DType::kU8, x.shape());
  const auto in = x.as<float>();
  auto out = y.mutable_as<uint8_t>();
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<uint8_t>(quant::QuantizeOne(in[i], scale, zero, 0, 255));
  }
  call.Return(std::move(y), 0);
  call.Return(Tensor::ScalarF32(scale), 1);
  call.Return(Tensor::Of<uint8_t>(DType::kU8, {}, std::vector<uint8_t>{zero}), 2);
  return {};
}

}  // namespace

void RegisterQuantize(Table& t) {
  t.Set(Op::kQuantizeLinear, QuantizeLinear);
  t.Set(Op::kDequantizeLinear, DequantizeLinear);
  t.Set(Op::kDynamicQuantizeLinear, DynamicQuantizeLinear);
}

}  // namespace octavo::ir::interpret
