// fp8 as pairs of bf16 (simd/bf16-inl.h): the form of LinearFp8 that multiplies by vdpbf16ps, with the bits of the float form,
// and what the AMX form shares with it. Per target: AVX-512 VNNI.
#if defined(OCTAVO_KERNELS_FP8_FP8_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_FP8_FP8_PAIRS_INL_H_
#undef OCTAVO_KERNELS_FP8_FP8_PAIRS_INL_H_
#else
#define OCTAVO_KERNELS_FP8_FP8_PAIRS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/fp8/fp8.h"
#include "octavo/kernels/fp8/fp8_layout.h"
#include "octavo/kernels/simd/bf16-inl.h"
#include "octavo/kernels/tile/rows-inl.h"

#if HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// Row 2 i + 1 of k rows of 64 codes; zeros behind the last.
HWY_INLINE __m512i SecondRow(const uint8_t* w, int64_t i, int64_t k) {
  return 2 * i + 1 < k ? _mm512_load_si512(w + i * 128 + 64) : _mm512_setzero_si512();
}

// 64 columns of k rows of codes: pairs `i` of columns 16 v to 16 v + 15 go to out + i * step + v * panel. Zeros up to `pairs`.
HWY_NOINLINE inline void DecodePairs(quant::DType type, const uint8_t* w, int64_t k, int64_t pairs, int64_t step,
                                     int64_t panel, uint8_t* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Bf16Words d;
  const Bf16Lookup lookup(type);
  for (int64_t i = 0; i < pairs; ++i, out += step) {
    Bf16WordV words[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    if (2 * i < k) lookup.Rows<true>(_mm512_load_si512(w + i * 128), SecondRow(w, i, k), words);
    for (int v = 0; v < 4; ++v) hn::Store(words[v], d, reinterpret_cast<uint32_t*>(out + v * panel));
  }
}

// acc[kRows][64], all of k; weights are decoded in registers and read once.
template <int kRows>
HWY_NOINLINE void SmallPairs(quant::DType type, const uint8_t* HWY_RESTRICT w, int64_t k, const float* HWY_RESTRICT x,
                             int64_t stride, float* HWY_RESTRICT acc) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Bf16Engine::D d;
  const Bf16Lookup lookup(type);
  Fp8V sum[kRows][4];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < 4; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int64_t i = 0; 2 * i < k; ++i) {
    Bf16WordV words[4];
    lookup.Rows<true>(_mm512_load_si512(w + i * 128), SecondRow(w, i, k), words);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const Fp8V a = hn::Set(d, x[r * stride + i]);
      HWY_UNROLL(8)
      for (int v = 0; v < 4; ++v) Bf16Engine::Dot(sum[r][v], a, hn::BitCast(d, words[v]));
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < 4; ++v) hn::Store(sum[r][v], d, acc + r * 64 + v * 16);
  }
}

struct PairForm {
  using Engine = Bf16Engine;
  static constexpr int64_t kPerWord = 2;
  static constexpr int64_t kSmallRows = internal::kFp8SmallPairRows;
  static float Unit(quant::DType) { return 1.0f; }

  static void DecodeRows(const GemmInput& x, int64_t first, int64_t rows, int64_t k, float,
                         const internal::Fp8Layout& l, float* out) {
    const auto* codes = static_cast<const uint8_t*>(x.data) + first * x.stride;
    for (int64_t r = 0; r < rows; ++r, codes += x.stride, out += l.x_stride) {
      PairsOfRow(x.dtype, codes, static_cast<size_t>(k), static_cast<size_t>(k + 1) / 2,
                 reinterpret_cast<uint32_t*>(out));
    }
  }
  static void Small(quant::DType type, const uint8_t* w, int64_t k, const float* x, int64_t stride, int64_t rows,
                    float* acc) {
    WithRows<kSmallRows>(rows, [&]<int kRows>() { SmallPairs<kRows>(type, w, k, x, stride, acc); });
  }
  static void DecodeChunk(quant::DType type, const uint8_t* w, int64_t length, float* out) {
    DecodePairs(type, w, length, (length + 1) / 2, 256, 64, reinterpret_cast<uint8_t*>(out));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_DL

#endif  // include guard
