// The second product without VNNI where the codes of two probabilities sum to at most 256 (ProbPairsFit): vpmaddubsw of
// probabilities and s8 values. Its sums stay in s16 while the codes that meet in a lane, half of a row's, sum to at most
// 255, since 255 * 128 fits: nearly always the whole row, for probabilities sum to 1. Two operations for 32 products,
// where s16 words take four. Per target.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_PAIRS_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_PAIRS_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_PAIRS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_probs-inl.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

inline constexpr int32_t kMostPairCodes = 255;
HWY_INLINE bool StayInS16(const PairSums16& sums) {
  return sums.first <= kMostPairCodes && sums.second <= kMostPairCodes;
}

#if HWY_TARGET > HWY_AVX3_DL
alignas(64) inline constexpr auto kPairOnes = [] {
  struct {
    int16_t at[2 * kTileLanes];
  } ones{};
  for (int16_t& v : ones.at) v = 1;
  return ones;
}();

// A piece of the steps in which all rows stay in s16.
struct PairEngine {
  using T = int32_t;
  using D = I16D;
  using Prob = PairCode;
  static constexpr size_t kPerWord = 4;
  static constexpr size_t kStepsTo = 1;
  static HWY_INLINE void Dot(I16V& acc, I16V a, I16V b) {
    I16V product;
    asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+v"(acc.raw), "=v"(product.raw) : "v"(a.raw), "v"(b.raw));
  }
  static HWY_INLINE void DotTwo(I16V& acc0, I16V& acc1, I16V a, I16V b0, I16V b1) {
    I16V product;
    asm("vpmaddubsw %4, %2, %3\n\tvpmaddubsw %5, %2, %2\n\tvpaddw %3, %0, %0\n\tvpaddw %2, %1, %1"
        : "+v"(acc0.raw), "+v"(acc1.raw), "+v"(a.raw), "=&v"(product.raw)
        : "v"(b0.raw), "v"(b1.raw));
  }
  static HWY_INLINE I16V Widen(I16V sums) {
    asm("vpmaddwd %1, %0, %0" : "+v"(sums.raw) : "m"(kPairOnes));
    return sums;
  }
};

// The same widened in every step: any codes.
struct WidePairEngine : PairEngine {
  static HWY_INLINE void Dot(I16V& acc, I16V a, I16V b) {
    I16V product;
    asm("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
        : "+v"(acc.raw), "=&v"(product.raw)
        : "v"(a.raw), "v"(b.raw), "m"(kPairOnes));
  }
  static HWY_INLINE void DotTwo(I16V& acc0, I16V& acc1, I16V a, I16V b0, I16V b1) {
    I16V product;
    asm("vpmaddubsw %4, %2, %3\n\tvpmaddubsw %5, %2, %2\n\tvpmaddwd %6, %3, %3\n\tvpmaddwd %6, %2, %2\n\t"
        "vpaddd %3, %0, %0\n\tvpaddd %2, %1, %1"
        : "+v"(acc0.raw), "+v"(acc1.raw), "+v"(a.raw), "=&v"(product.raw)
        : "v"(b0.raw), "v"(b1.raw), "m"(kPairOnes));
  }
  static HWY_INLINE I16V Widen(I16V sums) { return sums; }
};

// s16 words for the first product.
struct S16PairEngine : S16Engine {
  using Values = PairEngine;
};

// Steps from p on, of at most `steps`, in which all rows stay in s16. 0: not even one unit. Rarely needed: out of line.
template <size_t kR>
HWY_NOINLINE size_t PieceSteps(const uint8_t* p, size_t stride, size_t steps) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Full128<uint8_t> d;
  const hn::Full128<uint32_t> du;
  const auto ones = hn::Set(hn::Full128<int8_t>(), int8_t{1});
  uint32_t sums[kR] = {};
  size_t done = 0;
  while (done < steps) {
    const size_t unit = HWY_MIN(steps - done, internal::kPairUnit);
    for (size_t r = 0; r < kR; ++r) {
      auto sum = hn::Zero(du);
      for (size_t i = 0; i < unit; i += 4) {
        const auto bytes = hn::Load(d, p + r * stride + (done + i) * 4);
        sum = hn::Add(sum, hn::BitCast(du, hn::SatWidenMulPairwiseAdd(hn::Full128<int16_t>(), bytes, ones)));
      }
      sums[r] += hn::ReduceSum(du, sum);
      if (!StayInS16(PairSums16(static_cast<int32_t>(sums[r])))) return done;
    }
    done += unit;
  }
  return done;
}

// out[r][columns of `panels` panels] = row_terms[r] + p[r] . v. whole: all steps are one piece. relative: codes that sum to anything,
// of which pieces would be short.
template <size_t kR>
HWY_INLINE void PairRows(TileArgs<int32_t> args, const uint8_t* v, size_t panels, bool whole, bool relative) {
  namespace hn = hwy::HWY_NAMESPACE;
  const I16D d;
  for (size_t r = 0; r < kR; ++r) {
    const auto term = hn::Set(d, args.row_terms == nullptr ? 0 : args.row_terms[r]);
    for (size_t c = 0; c < 16 * panels; c += kTileLanes) hn::Store(term, d, args.out + r * args.out_stride + c);
  }
  if (relative && !whole) return TileRows<WidePairEngine, kR>(args, v, nullptr, panels);
  for (size_t rest = args.steps; rest != 0; rest -= args.steps) {
    args.steps = whole ? rest : PieceSteps<kR>(args.a, args.a_stride, rest);
    if (args.steps != 0) {
      TileRows<PairEngine, kR>(args, v, nullptr, panels);
    } else {
      args.steps = HWY_MIN(rest, internal::kPairUnit);
      TileRows<WidePairEngine, kR>(args, v, nullptr, panels);
    }
    args.a += args.steps * 4;
    v += args.steps * 64;
  }
}

#endif  // HWY_TARGET > HWY_AVX3_DL
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
