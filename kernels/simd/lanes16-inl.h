// Sixteen float lanes on every target: one zmm or two ymm. The contract of sums (quant/numeric/math.h) is written for
// sixteen lanes, so kernels that sum are written with this type. Per target: include after hwy/foreach_target.h.
#if defined(OCTAVO_KERNELS_SIMD_LANES16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SIMD_LANES16_INL_H_
#undef OCTAVO_KERNELS_SIMD_LANES16_INL_H_
#else
#define OCTAVO_KERNELS_SIMD_LANES16_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

using F16D = hwy::HWY_NAMESPACE::CappedTag<float, 16>;
using F16V = hwy::HWY_NAMESPACE::Vec<F16D>;
inline constexpr size_t kF16Lanes = hwy::HWY_NAMESPACE::MaxLanes(F16D());  // of one vector: 8 or 16

#if HWY_TARGET == HWY_AVX2
struct F16 {
  F16V a, b;
};
#define OCTAVO_F16(expr_a, expr_b) \
  F16 { expr_a, expr_b }
#else
struct F16 {
  F16V a;
};
#define OCTAVO_F16(expr_a, expr_b) \
  F16 { expr_a }
#endif

// Applies f to each vector.
template <class F>
HWY_INLINE F16 Map(F f, F16 x) {
  return OCTAVO_F16(f(x.a), f(x.b));
}
template <class F>
HWY_INLINE F16 Map(F f, F16 x, F16 y) {
  return OCTAVO_F16(f(x.a, y.a), f(x.b, y.b));
}

HWY_INLINE F16 Set16(float v) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::Set(F16D(), v), hn::Set(F16D(), v));
}
HWY_INLINE F16 Load16(const float* p) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::LoadU(F16D(), p), hn::LoadU(F16D(), p + 8));
}
HWY_INLINE void Store16(F16 x, float* p) {
  namespace hn = hwy::HWY_NAMESPACE;
  hn::StoreU(x.a, F16D(), p);
#if HWY_TARGET == HWY_AVX2
  hn::StoreU(x.b, F16D(), p + 8);
#endif
}
HWY_INLINE size_t HighPart(size_t n) { return n > 8 ? n - 8 : 0; }
// The first n <= 16 lanes, the others `fill`. Touches no memory beyond them.
HWY_INLINE F16 LoadN16(const float* p, size_t n, float fill = 0.0f) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16V no = hn::Set(F16D(), fill);
  return OCTAVO_F16(hn::LoadNOr(no, F16D(), p, HWY_MIN(n, kF16Lanes)), hn::LoadNOr(no, F16D(), p + 8, HighPart(n)));
}
HWY_INLINE void StoreN16(F16 x, float* p, size_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  hn::StoreN(x.a, F16D(), p, HWY_MIN(n, kF16Lanes));
#if HWY_TARGET == HWY_AVX2
  if (n > 8) hn::StoreN(x.b, F16D(), p + 8, n - 8);
#endif
}
// x with 0 beyond the first n lanes.
HWY_INLINE F16 FirstN16(F16 x, size_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::IfThenElseZero(hn::FirstN(F16D(), HWY_MIN(n, kF16Lanes)), x.a),
                    hn::IfThenElseZero(hn::FirstN(F16D(), HighPart(n)), x.b));
}

HWY_INLINE F16 Add16(F16 x, F16 y) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::Add(x.a, y.a), hn::Add(x.b, y.b));
}
HWY_INLINE F16 Sub16(F16 x, F16 y) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::Sub(x.a, y.a), hn::Sub(x.b, y.b));
}
HWY_INLINE F16 Mul16(F16 x, F16 y) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::Mul(x.a, y.a), hn::Mul(x.b, y.b));
}
HWY_INLINE F16 Div16(F16 x, F16 y) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::Div(x.a, y.a), hn::Div(x.b, y.b));
}
HWY_INLINE F16 Max16(F16 x, F16 y) {  // y where either is NaN
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::Max(x.a, y.a), hn::Max(x.b, y.b));
}
HWY_INLINE F16 MulAdd16(F16 x, F16 y, F16 z) {
  namespace hn = hwy::HWY_NAMESPACE;
  return OCTAVO_F16(hn::MulAdd(x.a, y.a, z.a), hn::MulAdd(x.b, y.b, z.b));
}

// l[i] op l[i + 8], then 4, 2, 1.
template <class Op>
HWY_INLINE float Fold16(F16 x, Op op) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Full256<float> d8;
  const hn::Full128<float> d4;
#if HWY_TARGET == HWY_AVX2
  const auto eight = op(x.a, x.b);
#else
  const auto eight = op(hn::LowerHalf(d8, x.a), hn::UpperHalf(d8, x.a));
#endif
  const auto four = op(hn::LowerHalf(d4, eight), hn::UpperHalf(d4, eight));
  const auto two = op(four, hn::Shuffle1032(four));
  return hn::GetLane(op(two, hn::Shuffle2301(two)));
}
struct AddOp {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hwy::HWY_NAMESPACE::Add(a, b);
  }
};
struct MaxOp {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hwy::HWY_NAMESPACE::Max(a, b);
  }
};
struct AddIntOp {  // of the bits
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::DFromV<V> d;
    const hn::RebindToSigned<decltype(d)> di;
    return hn::BitCast(d, hn::Add(hn::BitCast(di, a), hn::BitCast(di, b)));
  }
};
HWY_INLINE float SumLanes(F16 x) { return Fold16(x, AddOp()); }
HWY_INLINE float MaxLane(F16 x) { return Fold16(x, MaxOp()); }

// A number for each row of a block: kRowSlots of them, for FoldRows writes that many.
inline constexpr size_t kRowSlots = 8;
template <class T>
struct alignas(64) RowSlots {
  T at[kRowSlots];
  HWY_INLINE T& operator[](size_t r) { return at[r]; }
  HWY_INLINE const T& operator[](size_t r) const { return at[r]; }
};

// Fold16 of six rows, each result in the lane of its row: 21 operations instead of 48 (AVX2 25 instead of 42), and one
// chain of them instead of six.
template <class Op>
HWY_INLINE hwy::HWY_NAMESPACE::Vec256<float> FoldSix(const F16 (&v)[6], Op op) {
#if HWY_TARGET == HWY_AVX2
  const auto eight = [&](const F16& x) HWY_ATTR { return op(x.a, x.b); };
  const auto four = [&](F16V x, F16V y) HWY_ATTR {  // a block of 128 bits for each row
    return op(F16V{_mm256_permute2f128_ps(x.raw, y.raw, 0x20)}, F16V{_mm256_permute2f128_ps(x.raw, y.raw, 0x31)});
  };
  const auto two = [&](F16V x, F16V y) HWY_ATTR {
    const __m256d a = _mm256_castps_pd(x.raw), b = _mm256_castps_pd(y.raw);
    return op(F16V{_mm256_castpd_ps(_mm256_unpacklo_pd(a, b))}, F16V{_mm256_castpd_ps(_mm256_unpackhi_pd(a, b))});
  };
  const F16V r45 = four(eight(v[4]), eight(v[5]));
  const F16V r0213 = two(four(eight(v[0]), eight(v[1])), four(eight(v[2]), eight(v[3]))), r4455 = two(r45, r45);
  const F16V all =
      op(F16V{_mm256_shuffle_ps(r0213.raw, r4455.raw, 0x88)}, F16V{_mm256_shuffle_ps(r0213.raw, r4455.raw, 0xDD)});
  return {_mm256_permutevar8x32_ps(all.raw, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 2, 6))};
#else
  const auto eight = [&](const F16& x, const F16& y) HWY_ATTR {  // a half for each row
    return op(F16V{_mm512_shuffle_f32x4(x.a.raw, y.a.raw, 0x44)}, F16V{_mm512_shuffle_f32x4(x.a.raw, y.a.raw, 0xEE)});
  };
  const auto four = [&](F16V x, F16V y) HWY_ATTR {  // a block of 128 bits for each row
    return op(F16V{_mm512_shuffle_f32x4(x.raw, y.raw, 0x88)}, F16V{_mm512_shuffle_f32x4(x.raw, y.raw, 0xDD)});
  };
  const F16V r45 = eight(v[4], v[5]);
  const F16V r0123 = four(eight(v[0], v[1]), eight(v[2], v[3])), r4545 = four(r45, r45);
  const __m512d a = _mm512_castps_pd(r0123.raw), b = _mm512_castps_pd(r4545.raw);
  const F16V two =
      op(F16V{_mm512_castpd_ps(_mm512_unpacklo_pd(a, b))}, F16V{_mm512_castpd_ps(_mm512_unpackhi_pd(a, b))});
  const F16V one = op(two, F16V{_mm512_permute_ps(two.raw, 0xB1)});
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 2, 6, 0, 0, 0, 0, 0, 0, 0, 0);
  return {_mm512_castps512_ps256(_mm512_permutexvar_ps(order, one.raw))};
#endif
}

// out[r] = the bits of Fold16(v[r], op) for kR <= 6 rows. The slots behind them repeat rows: whoever computes with all slots at once
// must not meet whatever was there (a division of subnormal numbers costs some 250 cycles).
template <size_t kR, class Op, class T>
HWY_INLINE void FoldRows(const F16 (&v)[kR], Op op, RowSlots<T>& out) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (kR >= 4) {
    const hn::Full256<T> d;
    const F16 six[6] = {v[0], v[1], v[2], v[3], v[kR > 4 ? 4 : 3], v[kR - 1]};
    hn::Store(hn::BitCast(d, FoldSix(six, op)), d, out.at);
  } else {
    for (size_t r = 0; r < kRowSlots; ++r) out[r] = r < kR ? std::bit_cast<T>(Fold16(v[r], op)) : out[kR - 1];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
