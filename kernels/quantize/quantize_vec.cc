#include <cstring>

#include "octavo/kernels/quantize/quantize_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/quantize/quantize_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// After foreach_target.h:
#include "octavo/kernels/forms.h"
#include "octavo/kernels/simd/fp8-inl.h"
#include "octavo/kernels/simd/requant-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using QuantizeD = hn::ScalableTag<float>;

template <bool kDivide>
void QuantizeRun(const float* x, int64_t n, const Requant& requant, uint8_t* y) {
  const QuantizeD d;
  const hn::Repartition<uint8_t, QuantizeD> d8;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  const auto bytes = [&](const float* p) HWY_ATTR {
    return RequantBytes<kDivide>(d, requant, hn::LoadU(d, p), hn::LoadU(d, p + kLanes), hn::LoadU(d, p + 2 * kLanes),
                                 hn::LoadU(d, p + 3 * kLanes));
  };
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) hn::StoreU(bytes(x + i), d8, y + i);
  if (i == n) return;
  alignas(64) float rest[4 * kLanes] = {};
  alignas(64) uint8_t out[4 * kLanes];
  std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(float));
  hn::Store(bytes(rest), d8, out);
  std::memcpy(y + i, out, static_cast<size_t>(n - i));
}

void QuantizeVector(const float* x, int64_t n, float scale, int32_t zero_point, quant::DType dtype, void* y) {
  if (quant::IsFp8(dtype))
    return EncodeFp8(MakeFp8Requant(scale, dtype), x, static_cast<size_t>(n), static_cast<uint8_t*>(y));
  const Requant requant = MakeRequant(scale, zero_point, dtype);
  if (requant.divide) {
    QuantizeRun<true>(x, n, requant, static_cast<uint8_t*>(y));
  } else {
    QuantizeRun<false>(x, n, requant, static_cast<uint8_t*>(y));
  }
}

template <class T>
HWY_INLINE void DequantizeRun(const T* x, int64_t n, float scale, int32_t zero_point, float* y) {
  const QuantizeD d;
  const hn::RebindToSigned<QuantizeD> di;
  const hn::Rebind<T, QuantizeD> d8;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  const auto zero = hn::Set(di, zero_point);
  const auto factor = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto q = hn::Sub(hn::PromoteTo(di, hn::LoadU(d8, x + i)), zero);
    hn::StoreU(hn::Mul(hn::ConvertTo(d, q), factor), d, y + i);
  }
  for (; i < n; ++i) y[i] = static_cast<float>(x[i] - zero_point) * scale;
}

void DequantizeVector(const void* x, quant::DType dtype, int64_t n, float scale, int32_t zero_point, float* y) {
  if (dtype == quant::DType::kE4M3FN) {
    DecodeFp8<true>(static_cast<const uint8_t*>(x), static_cast<size_t>(n), scale, y);
  } else if (dtype == quant::DType::kE5M2) {
    DecodeFp8<false>(static_cast<const uint8_t*>(x), static_cast<size_t>(n), scale, y);
  } else if (dtype == quant::DType::kU8) {
    DequantizeRun(static_cast<const uint8_t*>(x), n, scale, zero_point, y);
  } else {
    DequantizeRun(static_cast<const int8_t*>(x), n, scale, zero_point, y);
  }
}

MinMax MinMaxVector(const float* x, int64_t n) {
  const QuantizeD d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  // minps and maxps give their second operand for a NaN: the element comes first, so a NaN leaves the result alone.
  auto low = hn::Inf(d);
  auto high = hn::Neg(hn::Inf(d));
  auto nan = hn::Zero(d);
  const auto take = [&](decltype(low) v) HWY_ATTR {
    low = hn::Min(v, low);
    high = hn::Max(v, high);
    nan = hn::IfThenElse(hn::IsNaN(v), v, nan);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) take(hn::LoadU(d, x + i));
  alignas(64) float lows[kLanes], highs[kLanes];
  hn::Store(low, d, lows);
  hn::Store(high, d, highs);
  MinMax range = internal::MinMaxReference(x + i, n - i);
  range.has_nan = range.has_nan || !hn::AllFalse(d, hn::IsNaN(nan));
  for (int64_t j = 0; j < kLanes; ++j) {
    if (lows[j] < range.min) range.min = lows[j];
    if (highs[j] > range.max) range.max = highs[j];
  }
  return range;
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
namespace octavo::kernels {
namespace {

constexpr PerArch<internal::QuantizeFn> kQuantize = {&internal::QuantizeReference, &N_AVX2::QuantizeVector,
                                                     &N_AVX3::QuantizeVector, &N_AVX3_DL::QuantizeVector};
constexpr PerArch<internal::DequantizeFn> kDequantize = {&internal::DequantizeReference, &N_AVX2::DequantizeVector,
                                                         &N_AVX3::DequantizeVector, &N_AVX3_DL::DequantizeVector};
constexpr PerArch<internal::MinMaxFn> kMinMax = {&internal::MinMaxReference, &N_AVX2::MinMaxVector,
                                                 &N_AVX3::MinMaxVector, &N_AVX3_DL::MinMaxVector};

}  // namespace

void QuantizeLinear(Arch arch, const float* x, int64_t n, float scale, int32_t zero_point, quant::DType dtype,
                    void* y) {
  kQuantize[arch](x, n, scale, zero_point, dtype, y);
}

void DequantizeLinear(Arch arch, const void* x, quant::DType dtype, int64_t n, float scale, int32_t zero_point,
                      float* y) {
  kDequantize[arch](x, dtype, n, scale, zero_point, y);
}

MinMax FindMinMax(Arch arch, const float* x, int64_t n) { return kMinMax[arch](x, n); }

}  // namespace octavo::kernels
#endif  // HWY_ONCE
