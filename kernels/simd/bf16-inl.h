// Products of pairs of bf16 (AVX512_BF16, AMX), and fp8 codes as such pairs. Per target: AVX-512 VNNI, whose vpermi2b looks up
// 64 codes at once. Asking DetectedFeatures().bf16_pairs, or amx, is left to the caller.
//
// vdpbf16ps adds the product of the upper halves, then that of the lower ones. So the first of two neighbours goes into the upper
// half, and a sum takes its products in order, as a chain of FMA does; sums of fp8 products have no bits below 2^-32, so that
// nothing is flushed either. TDPBF16PS sums upper and lower halves apart, and does not care.
#if defined(OCTAVO_KERNELS_SIMD_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SIMD_BF16_INL_H_
#undef OCTAVO_KERNELS_SIMD_BF16_INL_H_
#else
#define OCTAVO_KERNELS_SIMD_BF16_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/simd/bf16.h"
#include "octavo/kernels/simd/fp8-inl.h"

#if HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// An engine of products as those of the tiles of attention and of LinearFp8: a word, two bf16, is moved as a float.
struct Bf16Engine {
  using T = float;
  using D = hwy::HWY_NAMESPACE::Full512<float>;
  static constexpr size_t kPerWord = 2;
  template <class V>
  static HWY_INLINE void Dot(V& acc, V a, V b) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(acc.raw) : "v"(a.raw), "v"(b.raw));
    asm("" : "+v"(acc.raw));  // else sums move in a circle (sdpa_tile-inl.h)
  }
};

using Bf16Words = hwy::HWY_NAMESPACE::Full512<uint32_t>;
using Bf16WordV = hwy::HWY_NAMESPACE::Vec<Bf16Words>;

// Sixteen floats that are bf16 values as eight pairs of neighbours.
HWY_INLINE hwy::HWY_NAMESPACE::Vec256<uint32_t> NeighbourPairs(Fp8V v) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Full512<uint64_t> d64;
  const auto two = hn::BitCast(d64, v);
  const auto pair = hn::Or(hn::And(two, hn::Set(d64, 0xFFFF0000u)), hn::ShiftRight<48>(two));
  return hn::TruncateTo(hn::Full256<uint32_t>(), pair);
}

// Sixteen values of a row, 0 from n on.
template <bool kE4M3>
HWY_INLINE Fp8V Fp8Values16(const uint8_t* codes, size_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Fp8D d;
  const Fp8Bytes d8;
  return Fp8ToFloat<kE4M3>(d, n >= 16 ? hn::LoadU(d8, codes) : hn::LoadN(d8, codes, n),
                           hn::Set(d, kE4M3 ? 256.0f : 1.0f));
}

// n codes as pairs of neighbours, zeros up to `words`, a multiple of 8.
template <bool kE4M3>
HWY_INLINE void PairsOfRowAs(const uint8_t* codes, size_t n, size_t words, uint32_t* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Full256<uint32_t> d;
  size_t i = 0;
  for (; i < n; i += 16) hn::StoreU(NeighbourPairs(Fp8Values16<kE4M3>(codes + i, n - i)), d, out + i / 2);
  for (i = i / 2; i < words; i += 8) hn::StoreU(hn::Zero(d), d, out + i);
}
inline void PairsOfRow(quant::DType type, const uint8_t* codes, size_t n, size_t words, uint32_t* out) {
  (type == quant::DType::kE4M3FN ? PairsOfRowAs<true> : PairsOfRowAs<false>)(codes, n, words, out);
}

// Looks bf16 up by the bytes of 64 codes, and puts them together as pairs.
class Bf16Lookup {
 public:
  explicit HWY_INLINE Bf16Lookup(quant::DType type) {
    const Bf16Table& t = Bf16TableOf(type);
    low0_ = _mm512_load_si512(t.low), low1_ = _mm512_load_si512(t.low + 64);
    high0_ = _mm512_load_si512(t.high), high1_ = _mm512_load_si512(t.high + 64);
  }

  // Two rows of 64 columns, the first in the upper halves; out[v]: columns 16 v to 16 v + 15. kPacked: column c is byte 2 c, from 32
  // on byte 2 (c - 32) + 1, as in PackedFp8 (fp8.h); else byte c.
  template <bool kPacked>
  HWY_INLINE void Rows(__m512i first, __m512i second, Bf16WordV* out) const {
    const __m512i pick = _mm512_load_si512(kRows<kPacked>.at);
    const __m512i others = _mm512_or_si512(pick, _mm512_set1_epi8(kPacked ? 1 : 32));
    const Halves a = Of(_mm512_permutex2var_epi8(first, pick, second));
    const Halves b = Of(_mm512_permutex2var_epi8(first, others, second));
    out[0] = {_mm512_unpacklo_epi8(a.low, a.high)}, out[1] = {_mm512_unpackhi_epi8(a.low, a.high)};
    out[2] = {_mm512_unpacklo_epi8(b.low, b.high)}, out[3] = {_mm512_unpackhi_epi8(b.low, b.high)};
  }

  // Sixteen columns of four rows each; out[0]: rows 0 and 1, out[1]: rows 2 and 3.
  HWY_INLINE void Quads(__m512i codes, Bf16WordV* out) const {
    const __m512i pick = _mm512_load_si512(kQuads.at);
    const Halves h = Of(codes);
    out[0] = {_mm512_permutex2var_epi8(h.low, pick, h.high)};
    out[1] = {_mm512_permutex2var_epi8(h.low, _mm512_or_si512(pick, _mm512_set1_epi8(2)), h.high)};
  }

 private:
  struct Halves {
    __m512i low, high;
  };
  HWY_INLINE Halves Of(__m512i codes) const {
    const __m512i low = _mm512_permutex2var_epi8(low0_, codes, low1_);  // by seven bits: the sign is not looked at
    const __m512i magnitude = _mm512_permutex2var_epi8(high0_, codes, high1_);
    return {low, _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(-128), 0xF8)};  // | (codes & sign)
  }

  struct alignas(64) Picks {
    uint8_t at[64];
  };
  // What unpacking brings into order: of each 16 bytes the pairs of columns 4 l to 4 l + 3, then of 16 + 4 l on.
  template <bool kPacked>
  static constexpr Picks kRows = [] {
    Picks p{};
    for (int i = 0; i < 64; ++i) {
      const int column = i / 16 * 4 + i % 16 / 8 * 16 + i % 8 / 2;
      p.at[i] = static_cast<uint8_t>(column * (kPacked ? 2 : 1) + (i % 2 != 0 ? 0 : 64));
    }
    return p;
  }();
  static constexpr Picks kQuads = [] {
    Picks p{};
    for (int i = 0; i < 64; ++i)
      p.at[i] = static_cast<uint8_t>(i / 4 * 4 + (i % 4 < 2 ? 1 : 0) + (i % 2 != 0 ? 64 : 0));
    return p;
  }();

  __m512i low0_, low1_, high0_, high1_;
};

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_DL

#endif  // include guard
