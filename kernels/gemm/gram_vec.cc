// A few rows of a panel against two vectors of the other: both panels stay in L1 (32 KB each for 256 pairs).
#include "octavo/kernels/gemm/gram_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/gemm/gram_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D32 = hn::ScalableTag<int32_t>;
using D16 = hn::Repartition<int16_t, D32>;
using V = hn::Vec<D32>;
constexpr int64_t kLanes = hn::MaxLanes(D32());

HWY_INLINE V Dot(V sum, hn::Vec<D16> a, hn::Vec<D16> b) {
#if HWY_TARGET <= HWY_AVX3_DL
  return V{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)};
#else
  return hn::Add(sum, hn::WidenMulPairwiseAdd(D32(), a, b));
#endif
}

HWY_INLINE hn::Vec<D16> PairOf(const int16_t* pair) {
  int32_t both;
  hwy::CopyBytes<4>(pair, &both);
  return hn::BitCast(D16(), hn::Set(D32(), both));
}

// Rows [i, i + 4) of c, columns [j, j + two vectors).
HWY_INLINE void Tile(const GramArgs& args, int64_t i, int64_t j) {
  const D32 d;
  const D16 d16;
  V c00 = hn::Zero(d), c01 = hn::Zero(d), c10 = hn::Zero(d), c11 = hn::Zero(d);
  V c20 = hn::Zero(d), c21 = hn::Zero(d), c30 = hn::Zero(d), c31 = hn::Zero(d);
  const int16_t* a = args.a + 2 * i;
  const int16_t* b = args.b + 2 * j;
  for (int64_t p = 0; p < args.pairs; ++p, a += 2 * kGramColumns, b += 2 * kGramColumns) {
    const auto b0 = hn::LoadU(d16, b), b1 = hn::LoadU(d16, b + 2 * kLanes);
    const auto a0 = PairOf(a), a1 = PairOf(a + 2), a2 = PairOf(a + 4), a3 = PairOf(a + 6);
    c00 = Dot(c00, a0, b0), c01 = Dot(c01, a0, b1);
    c10 = Dot(c10, a1, b0), c11 = Dot(c11, a1, b1);
    c20 = Dot(c20, a2, b0), c21 = Dot(c21, a2, b1);
    c30 = Dot(c30, a3, b0), c31 = Dot(c31, a3, b1);
  }
  int32_t* c = args.c + i * kGramColumns + j;
  hn::StoreU(c00, d, c), hn::StoreU(c01, d, c + kLanes), c += kGramColumns;
  hn::StoreU(c10, d, c), hn::StoreU(c11, d, c + kLanes), c += kGramColumns;
  hn::StoreU(c20, d, c), hn::StoreU(c21, d, c + kLanes), c += kGramColumns;
  hn::StoreU(c30, d, c), hn::StoreU(c31, d, c + kLanes);
}

void GramVec(const GramArgs& args) {
  for (int64_t i = 0; i < kGramColumns; i += 4) {
    for (int64_t j = 0; j < kGramColumns; j += 2 * kLanes) Tile(args, i, j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/forms.h"

namespace octavo::kernels {
namespace {

constexpr PerArch<decltype(internal::GramReference)> kGram = {&internal::GramReference, &N_AVX2::GramVec,
                                                              &N_AVX3::GramVec, &N_AVX3_DL::GramVec};

}  // namespace

void Gram(Arch arch, const GramArgs& args) { kGram[arch](args); }

}  // namespace octavo::kernels
#endif  // HWY_ONCE
