// QuantizeLinear in vectors, equal to quant::QuantizeOne for every input. Per target: include after
// hwy/foreach_target.h.
#if defined(OCTAVO_KERNELS_SIMD_REQUANT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SIMD_REQUANT_INL_H_
#undef OCTAVO_KERNELS_SIMD_REQUANT_INL_H_
#else
#define OCTAVO_KERNELS_SIMD_REQUANT_INL_H_
#endif

#include "hwy/highway.h"
#include "octavo/kernels/simd/requant.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// x / scale within the bounds of its codes (NaN: the low one, since maxps gives its second operand for a NaN): RN(x * r)
// corrected once by its exact remainder (Markstein), which equals the division and takes 3 operations instead of the 16
// cycles of vdivps zmm on Ice Lake. kDivide must be r.divide.
template <bool kDivide, class DF, class VF = hwy::HWY_NAMESPACE::Vec<DF>>
HWY_INLINE VF RequantQuotient(DF df, const Requant& r, VF x) {
  namespace hn = hwy::HWY_NAMESPACE;
  VF q;
  if constexpr (kDivide) {
    q = hn::Div(x, hn::Set(df, r.scale));
    q = hn::Min(hn::Max(q, hn::Set(df, r.low)), hn::Set(df, r.high));
  } else {
    const VF reciprocal = hn::Set(df, r.reciprocal);
    x = hn::Min(hn::Max(x, hn::Set(df, r.low)), hn::Set(df, r.high));
    q = hn::Mul(x, reciprocal);
    q = hn::MulAdd(hn::NegMulAdd(q, hn::Set(df, r.scale), x), reciprocal, q);
  }
  return q;
}

// The same rounded and moved by the zero point, as int32 that still has to saturate to s8 (RequantPack does).
template <bool kDivide, class DF, class VF = hwy::HWY_NAMESPACE::Vec<DF>>
HWY_INLINE auto RequantToInt(DF df, const Requant& r, VF x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<DF> di;
  const VF q = RequantQuotient<kDivide>(df, r, x);
  return hn::Add(hn::BitCast(di, hn::Add(q, hn::Set(df, kRoundMagic))), hn::Set(di, r.offset));
}

// x through codes and back; r.to.divide must be kDivide.
template <bool kDivide, class DF, class VF = hwy::HWY_NAMESPACE::Vec<DF>>
HWY_INLINE VF ThroughCodes(DF df, const RoundTrip& r, VF x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const VF magic = hn::Set(df, kRoundMagic);
  const VF code = hn::Sub(hn::Add(RequantQuotient<kDivide>(df, r.to, x), magic), magic);
  return hn::Mul(hn::Min(hn::Max(code, hn::Set(df, r.lowest)), hn::Set(df, r.highest)), hn::Set(df, r.back));
}

// Bytes that packs of 16 bits have left in the order of 128-bit blocks: dword 4 b + j is block b of vector j and belongs to
// dword j * blocks + b.
template <class V8>
HWY_INLINE V8 BytesInOrder(V8 bytes) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::DFromV<V8> d8;
  const hn::Repartition<int32_t, decltype(d8)> di;
  static constexpr size_t kBlocks = hn::MaxLanes(hn::Repartition<int32_t, hn::DFromV<V8>>()) / 4;
  alignas(64) constexpr auto kOrder = [] {
    struct {
      int32_t at[4 * kBlocks];
    } order{};
    for (size_t i = 0; i < 4 * kBlocks; ++i) order.at[i] = static_cast<int32_t>(4 * (i % kBlocks) + i / kBlocks);
    return order;
  }();
  return hn::BitCast(d8, hn::TableLookupLanes(hn::BitCast(di, bytes), hn::SetTableIndices(di, kOrder.at)));
}

// Saturated to bytes and put in order.
template <class V16>
HWY_INLINE auto RequantOrder(const Requant& r, V16 v01, V16 v23) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Repartition<int8_t, hn::DFromV<V16>> d8;
  const hn::Repartition<uint8_t, hn::DFromV<V16>> du8;
  return hn::Xor(hn::BitCast(du8, BytesInOrder(hn::ReorderDemote2To(d8, v01, v23))), hn::Set(du8, r.flip));
}

// Four vectors of RequantToInt as one vector of bytes, in order, saturated; u8 after the flip of the top bit.
template <class DI, class VI = hwy::HWY_NAMESPACE::Vec<DI>>
HWY_INLINE auto RequantPack(DI di, const Requant& r, VI v0, VI v1, VI v2, VI v3) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Repartition<int16_t, DI> d16;
  return RequantOrder(r, hn::ReorderDemote2To(d16, v0, v1), hn::ReorderDemote2To(d16, v2, v3));
}

// x / scale, rounded half to even; what leaves int32, and NaN, is the lowest int32, as cvtps2dq gives it. That is right
// for all but large positive values, which are cut off before; hn::NearestInt would mend it at the cost of two more
// operations.
template <bool kDivide, class DF, class VF = hwy::HWY_NAMESPACE::Vec<DF>>
HWY_INLINE auto RequantRound(DF df, const Requant& r, VF x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const VF high = hn::Set(df, r.high);
  VF q;
  if constexpr (kDivide) {
    q = hn::Min(high, hn::Div(x, hn::Set(df, r.scale)));  // minps: the second operand for a NaN
  } else {
    const VF reciprocal = hn::Set(df, r.reciprocal);
    x = hn::Min(high, x);
    q = hn::Mul(x, reciprocal);
    // Infinite quotients, all of them negative, become NaN here, which is as low.
    q = hn::MulAdd(hn::NegMulAdd(q, hn::Set(df, r.scale), x), reciprocal, q);
  }
  hn::Vec<hn::RebindToSigned<DF>> rounded;
  asm("vcvtps2dq %1, %0" : "=v"(rounded.raw) : "v"(q.raw));
  return rounded;
}

// QuantizeLinear of four vectors: the bytes that RequantToInt and RequantPack give, in 9.75 instead of 11.25 operations
// a vector, because the zero point is added to 16 bits and only one bound is needed.
template <bool kDivide, class DF, class VF = hwy::HWY_NAMESPACE::Vec<DF>>
HWY_INLINE auto RequantBytes(DF df, const Requant& r, VF x0, VF x1, VF x2, VF x3) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Repartition<int16_t, DF> d16;
  const auto zero = hn::Set(d16, static_cast<int16_t>(r.offset + kRoundMagicBits));
  const auto v0 = RequantRound<kDivide>(df, r, x0), v1 = RequantRound<kDivide>(df, r, x1);
  const auto v01 = hn::SaturatedAdd(hn::ReorderDemote2To(d16, v0, v1), zero);
  const auto v2 = RequantRound<kDivide>(df, r, x2), v3 = RequantRound<kDivide>(df, r, x3);
  const auto v23 = hn::SaturatedAdd(hn::ReorderDemote2To(d16, v2, v3), zero);
  return RequantOrder(r, v01, v23);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
