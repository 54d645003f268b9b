#include <cmath>
#include <type_traits>

#include "octavo/kernels/norm/norm_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/norm/norm_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/simd/fp8-inl.h"
#include "octavo/kernels/simd/lanes16-inl.h"
#include "octavo/kernels/simd/requant-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Calls f(i, count) for the blocks of 16 elements; only the last count can be less than 16. Two copies of the code: in
// the first the compiler sees whole vectors.
template <class F>
HWY_INLINE void Blocks(size_t n, F f) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, std::integral_constant<size_t, 16>());
  if (i < n) f(i, n - i);
}
// The same with a sum that f takes and returns. It is handed on by value: captured by reference, GCC 14 keeps it on the
// stack, and every addition waits for a store and a load.
template <class F>
HWY_INLINE F16 SumBlocks(size_t n, F f) {
  F16 sum = Set16(0.0f);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) sum = f(i, std::integral_constant<size_t, 16>(), sum);
  return i < n ? f(i, n - i, sum) : sum;
}
HWY_INLINE F16 Load(const float* p, std::integral_constant<size_t, 16>) { return Load16(p); }
HWY_INLINE F16 Load(const float* p, size_t count) { return LoadN16(p, count); }
HWY_INLINE void Store(F16 x, float* p, std::integral_constant<size_t, 16>) { Store16(x, p); }
HWY_INLINE void Store(F16 x, float* p, size_t count) { StoreN16(x, p, count); }

// How q is made; each has the code of sixteen lanes as `Codes`.
template <bool kDivide>
struct IntegerCodes {
  Requant requant;
  explicit IntegerCodes(const NormArgs& a) : requant(MakeRequant(a.q_scale, a.q_zero_point, a.q_type)) {}
  HWY_INLINE auto Codes(F16V v) const {
    const hn::Rebind<int8_t, F16D> d8;
    const hn::Repartition<uint8_t, decltype(d8)> du8;
    const auto codes = hn::DemoteTo(d8, RequantToInt<kDivide>(F16D(), requant, v));
    return hn::Xor(hn::BitCast(du8, codes), hn::Set(du8, requant.flip));
  }
};
struct Fp8CodesOf {
  Fp8Requant requant;
  explicit Fp8CodesOf(const NormArgs& a) : requant(MakeFp8Requant(a.q_scale, a.q_type)) {}
  HWY_INLINE auto Codes(F16V v) const { return Fp8Codes(requant, v); }
};

template <class Quantizer>
HWY_INLINE void StoreQuantized(const Quantizer& quantizer, F16 y, uint8_t* q, std::integral_constant<size_t, 16>) {
  const hn::Rebind<uint8_t, F16D> d8;
  hn::StoreU(quantizer.Codes(y.a), d8, q);
#if HWY_TARGET == HWY_AVX2
  hn::StoreU(quantizer.Codes(y.b), d8, q + 8);
#endif
}
template <class Quantizer>
HWY_INLINE void StoreQuantized(const Quantizer& quantizer, F16 y, uint8_t* q, size_t count) {
  const hn::Rebind<uint8_t, F16D> d8;
  hn::StoreN(quantizer.Codes(y.a), d8, q, HWY_MIN(count, kF16Lanes));
#if HWY_TARGET == HWY_AVX2
  if (count > 8) hn::StoreN(quantizer.Codes(y.b), d8, q + 8, count - 8);
#endif
}

// Sum of the row, and x + skip where wanted. Returns where the normalization reads.
HWY_INLINE const float* SumRow(const NormArgs& args, int64_t r, float* scratch, F16* sum) {
  const auto n = static_cast<size_t>(args.n);
  const float* x = args.x + r * args.x_stride;
  const float* skip = args.skip == nullptr ? nullptr : args.skip + r * args.skip_stride;
  float* out = args.sum != nullptr ? args.sum + r * args.sum_stride : scratch;
  if (skip != nullptr) {
    *sum = SumBlocks(n, [=](size_t i, auto count, F16 total) HWY_ATTR {
      const F16 v = Add16(Load(x + i, count), Load(skip + i, count));
      Store(v, out + i, count);
      return Add16(total, v);
    });
    return out;
  }
  const bool copies = args.sum != nullptr;
  *sum = SumBlocks(n, [=](size_t i, auto count, F16 total) HWY_ATTR {
    const F16 v = Load(x + i, count);
    if (copies) Store(v, out + i, count);
    return Add16(total, v);
  });
  return copies ? out : x;
}

// d * gamma [+ beta as an fma].
template <class Count>
HWY_INLINE F16 Affine(F16 d, const float* gamma, const float* beta, size_t i, Count count) {
  const F16 g = Load(gamma + i, count);
  return beta != nullptr ? MulAdd16(d, g, Load(beta + i, count)) : Mul16(d, g);
}

// y = ((x - mean) * r) * gamma [+ beta as an fma]. kRms: no mean (x - 0 is x, but for RMSNorm nothing is subtracted).
template <bool kRms, class Quantizer>
HWY_INLINE void NormRow(const NormArgs& args, Quantizer quantizer, int64_t row, float* scratch) {
  const auto n = static_cast<size_t>(args.n);
  F16 total;
  const float* x = SumRow(args, row, scratch, &total);
  if (args.y == nullptr && args.q == nullptr) return;
  const auto count_f = static_cast<float>(args.n);
  const F16 mean = Set16(kRms ? 0.0f : SumLanes(total) / count_f);
  const F16 squares = SumBlocks(n, [=](size_t i, auto count, F16 sum) HWY_ATTR {
    F16 d = Load(x + i, count);
    if constexpr (!kRms) {
      d = Sub16(d, mean);
      if constexpr (std::is_same_v<decltype(count), size_t>) d = FirstN16(d, count);
    }
    return MulAdd16(d, d, sum);
  });
  const F16 r = Set16(1.0f / std::sqrt(SumLanes(squares) / count_f + args.epsilon));
  float* y = args.y == nullptr ? nullptr : args.y + row * args.y_stride;
  uint8_t* q = args.q == nullptr ? nullptr : static_cast<uint8_t*>(args.q) + row * args.q_stride;
  Blocks(n, [&](size_t i, auto count) HWY_ATTR {
    F16 d = Load(x + i, count);
    if constexpr (!kRms) d = Sub16(d, mean);
    d = Mul16(d, r);
    const F16 v = Affine(d, args.gamma, kRms ? nullptr : args.beta, i, count);
    if (y != nullptr) Store(v, y + i, count);
    if (q == nullptr) return;
    const F16 own = args.q_gamma != nullptr ? Affine(d, args.q_gamma, kRms ? nullptr : args.q_beta, i, count) : v;
    StoreQuantized(quantizer, own, q + i, count);
  });
  for (int64_t i = 0; i < args.q_more; ++i) q[args.n + i] = q[args.q_again[i]];
}

template <class Quantizer>
void NormRowsBy(const NormArgs& args, int64_t begin, int64_t end, float* scratch) {
  const Quantizer quantizer(args);
  for (int64_t r = begin; r < end; ++r) {
    args.rms ? NormRow<true>(args, quantizer, r, scratch) : NormRow<false>(args, quantizer, r, scratch);
  }
}

void NormVec(const NormArgs& args, int64_t begin, int64_t end, float* scratch) {
  if (quant::IsFp8(args.q_type)) return NormRowsBy<Fp8CodesOf>(args, begin, end, scratch);
  const bool divide = MakeRequant(args.q_scale, args.q_zero_point, args.q_type).divide;
  (divide ? NormRowsBy<IntegerCodes<true>> : NormRowsBy<IntegerCodes<false>>)(args, begin, end, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/forms.h"

namespace octavo::kernels {
namespace {

constexpr PerArch<decltype(internal::NormReference)> kNorm = {&internal::NormReference, &N_AVX2::NormVec,
                                                              &N_AVX3::NormVec, &N_AVX3_DL::NormVec};

}  // namespace

void NormRows(Arch arch, const NormArgs& args, int64_t begin, int64_t end, float* scratch) {
  kNorm[arch](args, begin, end, scratch);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
