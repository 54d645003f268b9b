// fp8 attention in pairs of bf16 (simd/bf16-inl.h): by vdpbf16ps, with the bits of the floats, and on AMX tiles, which sum in
// another order (tile/amx.h) within the same bound. Both are forms of sdpa_fp8_vec.cc. Per target: AVX-512 VNNI.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_FP8_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_FP8_PAIRS_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_FP8_PAIRS_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_FP8_PAIRS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_blocks-inl.h"
#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_pack-inl.h"
#include "octavo/kernels/sdpa/sdpa_pack512-inl.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"
#include "octavo/kernels/simd/bf16-inl.h"
#include "octavo/kernels/tile/bf16.h"

#if HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

struct Fp8Pairs {
  static constexpr size_t kPerWord = 2, kRows = internal::kSdpaRows, kStepsTo = 2;  // K: four codes at a time

  // A query row as words.
  static void Query(quant::DType type, const uint8_t* codes, size_t n, const internal::SdpaLayout& l, uint8_t* out) {
    PairsOfRow(type, codes, n, l.q_stride / 4, reinterpret_cast<uint32_t*>(out));
  }
  // Codes first, four to a word, into the upper half of where the pairs go; then each word becomes two, from below.
  static void PackKeys(quant::DType type, const HeadRows<uint8_t>& k, const internal::SdpaLayout& l, uint8_t* out) {
    namespace hn = hwy::HWY_NAMESPACE;
    const Bf16Words d;
    const size_t steps = l.d_steps / 2, vectors = l.k16 / 16 * steps;
    uint8_t* codes = out + vectors * 64;
    const size_t done = PackWholePanels(k, steps, 0, codes);
    const auto load = [&](size_t row, size_t step)
                          HWY_ATTR { return hn::BitCast(Words(), LoadBytes(k, row, step * 4, 0)); };
    PackRowsAsColumns(l.k16, steps, load, codes, done);
    const Bf16Lookup lookup(type);
    for (size_t i = 0; i < vectors; ++i) {
      Bf16WordV words[2];
      lookup.Quads(_mm512_load_si512(codes + i * 64), words);
      hn::Store(words[0], d, reinterpret_cast<uint32_t*>(out + i * 128));
      hn::Store(words[1], d, reinterpret_cast<uint32_t*>(out + i * 128 + 64));
    }
  }
  static void PackValues(quant::DType type, const HeadRows<uint8_t>& v, const internal::SdpaLayout& l, uint8_t* out) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::Full512<uint8_t> d8;
    const Bf16Lookup lookup(type);
    const auto load = [&](size_t row, size_t at) HWY_ATTR {
      if (row >= v.count || at >= v.width) return hn::Zero(d8);
      const uint8_t* p = v.data + static_cast<int64_t>(row) * v.stride + at;
      return v.width - at >= 64 ? hn::LoadU(d8, p) : hn::LoadN(d8, p, v.width - at);
    };
    for (size_t step = 0; step < l.k_steps; ++step) {
      for (size_t at = 0; at < l.v16; at += 64) {
        Bf16WordV words[4];
        lookup.Rows<false>(load(2 * step, at).raw, load(2 * step + 1, at).raw, words);
        for (size_t c = at; c < HWY_MIN(at + 64, l.v16); c += 16) {
          hn::Store(words[(c - at) / 16], Bf16Words(),
                    reinterpret_cast<uint32_t*>(out + c * l.k_steps * 4 + step * 64));
        }
      }
    }
  }

  // Where the probabilities of row r lie, those of sixteen keys, and the steps that some keys take.
  static HWY_INLINE uint8_t* Probs(const Block<SdpaInt8Args>& block, const ScoreRows&, size_t first, size_t r) {
    return block.scratch + block.layout.p_at + (first + r) * block.layout.p_stride;
  }
  static size_t ProbStride(const internal::SdpaLayout& l) { return l.p_stride; }
  static HWY_INLINE void StoreProbs(Fp8V v, uint8_t* row, size_t key) {
    namespace hn = hwy::HWY_NAMESPACE;
    hn::StoreU(NeighbourPairs(v), hn::Full256<uint32_t>(), reinterpret_cast<uint32_t*>(row) + key / 2);
  }
  static size_t Steps(size_t keys) { return (keys + 1) / 2; }

  template <size_t kR>
  static HWY_INLINE void Products(const TileArgs<float>& args, const uint8_t* b, size_t panels) {
    TileRows<Bf16Engine, kR>(args, b, nullptr, panels);
  }
};

// Sixteen rows at a time; steps are whole tiles.
struct Fp8Tiles : Fp8Pairs {
  static constexpr size_t kRows = 16, kStepsTo = 16;
  static size_t Steps(size_t keys) { return internal::RoundUp((keys + 1) / 2, kStepsTo); }

  template <size_t kR>
  static void Products(const TileArgs<float>& args, const uint8_t* b, size_t panels) {
    static_assert(kR == kRows);
    const auto stride = static_cast<ptrdiff_t>(args.a_stride), out_stride = static_cast<ptrdiff_t>(args.out_stride * 4);
    const auto steps = static_cast<int64_t>(args.steps / kStepsTo), panel = static_cast<int64_t>(args.panel_bytes);
    using Fn = void(const uint8_t*, ptrdiff_t, int64_t, const uint8_t*, int64_t, float*, ptrdiff_t);
    constexpr Fn* kFns[] = {tile::Bf16Columns<1>, tile::Bf16Columns<2>, tile::Bf16Columns<3>, tile::Bf16Columns<4>};
    for (size_t p = 0; p < panels; p += 4) {
      kFns[HWY_MIN(panels - p, size_t{4}) - 1](args.a, stride, steps, b + p * args.panel_bytes, panel,
                                               args.out + 16 * p, out_stride);
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_DL

#endif  // include guard
