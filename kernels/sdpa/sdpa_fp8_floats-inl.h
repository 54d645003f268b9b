// fp8 attention in floats, the form of every target: K and V become floats while they are packed, sixteen codes or more at a
// time, by byte lookups where there are some (AVX-512 VNNI), else through binary16. A form of sdpa_fp8_vec.cc. Per target.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_FP8_FLOATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_FP8_FLOATS_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_FP8_FLOATS_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_FP8_FLOATS_INL_H_
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
#include "octavo/kernels/simd/fp8-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// 16 bytes of each of sixteen rows.
struct CodeTile {
  const uint8_t* at;
  int64_t stride;
};

// A tile at the edge, with 0 beyond it.
HWY_NOINLINE inline CodeTile CopyCodeTile(const HeadRows<uint8_t>& rows, size_t row, size_t at, uint8_t* buffer) {
  for (size_t i = 0; i < 16; ++i) hwy::HWY_NAMESPACE::Store(LoadBytes(rows, row + i, at, 0), Bytes(), buffer + 16 * i);
  return {buffer, 16};
}
HWY_INLINE CodeTile CodeTileOf(const HeadRows<uint8_t>& rows, size_t row, size_t at, uint8_t* buffer) {
  if (row + 16 > rows.count || at + 16 > rows.width) return CopyCodeTile(rows, row, at, buffer);
  return {rows.data + static_cast<int64_t>(row) * rows.stride + at, rows.stride};
}

#if HWY_TARGET == HWY_AVX3_DL
class Fp8FloatPacker {
 public:
  explicit HWY_INLINE Fp8FloatPacker(quant::DType type) : lookup_(type) {}

  // out[d][16] for the 16 bytes of sixteen rows, `steps` of which are there.
  HWY_INLINE void Transposed(CodeTile t, size_t steps, float* out) const {
    const __m512i a = LoadPieces(t.at, 4 * t.stride), b = LoadPieces(t.at + t.stride, 4 * t.stride);
    const __m512i c = LoadPieces(t.at + 2 * t.stride, 4 * t.stride), d = LoadPieces(t.at + 3 * t.stride, 4 * t.stride);
    const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
    Four(_mm512_unpacklo_epi64(ab_low, cd_low), 16, steps, out);
    if (steps > 4) Four(_mm512_unpackhi_epi64(ab_low, cd_low), 16, steps - 4, out + 64);
    if (steps > 8) Four(_mm512_unpacklo_epi64(ab_high, cd_high), 16, steps - 8, out + 128);
    if (steps > 12) Four(_mm512_unpackhi_epi64(ab_high, cd_high), 16, steps - 12, out + 192);
  }

  // Columns of one row: sixteen floats every `panel` floats.
  HWY_INLINE void Row(const HeadRows<uint8_t>& rows, size_t row, size_t columns, size_t panel, float* out) const {
    const uint8_t* p = rows.data + static_cast<int64_t>(row) * rows.stride;
    const __m512i order = _mm512_load_si512(kColumns.at);
    size_t at = 0;
    for (; at + 64 <= rows.width; at += 64, out += 4 * panel)
      Four(_mm512_permutexvar_epi8(order, _mm512_loadu_si512(p + at)), panel, 4, out);
    if (at >= columns) return;
    const __mmask64 there = (__mmask64{1} << (rows.width - at)) - 1;
    Four(_mm512_permutexvar_epi8(order, _mm512_maskz_loadu_epi8(there, p + at)), panel, (columns - at) / 16, out);
  }

 private:
  // Four codes in each of sixteen lanes: the floats of the first ones at `out`, of the next at out + stride, as far as there are.
  HWY_INLINE void Four(__m512i codes, size_t stride, size_t count, float* out) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const Bf16Words d;
    const auto upper = hn::Set(d, 0xFFFF0000u);
    Bf16WordV words[2];
    lookup_.Quads(codes, words);
    auto* to = reinterpret_cast<uint32_t*>(out);
    hn::Store(hn::And(words[0], upper), d, to);
    if (count > 1) hn::Store(hn::ShiftLeft<16>(words[0]), d, to + stride);
    if (count > 2) hn::Store(hn::And(words[1], upper), d, to + 2 * stride);
    if (count > 3) hn::Store(hn::ShiftLeft<16>(words[1]), d, to + 3 * stride);
  }

  struct alignas(64) Picks {
    uint8_t at[64];
  };
  static constexpr Picks kColumns = [] {  // lane i: columns i, 16 + i, 32 + i, 48 + i
    Picks p{};
    for (int i = 0; i < 64; ++i) p.at[i] = static_cast<uint8_t>(i % 4 * 16 + i / 4);
    return p;
  }();

  Bf16Lookup lookup_;
};
#else
template <bool kE4M3>
class Fp8FloatPackerAs {
 public:
  HWY_INLINE void Transposed(CodeTile t, size_t steps, float* out) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const Codes d;
    hn::Vec<Codes> v[8], w[8];
    HWY_UNROLL(8)
    for (int i = 0; i < 8; ++i)  // rows i and 8 + i, which stay in their halves
      v[i] = hn::Combine(d, hn::LoadU(Bytes(), t.at + (8 + i) * t.stride), hn::LoadU(Bytes(), t.at + i * t.stride));
    Stage(v, w), Stage(w, v), Stage(v, w);  // w[i]: column 2 i of eight rows, then column 2 i + 1
    HWY_UNROLL(8)
    for (size_t i = 0; i < 8; ++i) {
      if (2 * i < steps) Store(hn::InterleaveLower(d, w[i], w[i]), out + 32 * i);
      if (2 * i + 1 < steps) Store(hn::InterleaveUpper(d, w[i], w[i]), out + 32 * i + 16);
    }
  }

  HWY_INLINE void Row(const HeadRows<uint8_t>& rows, size_t row, size_t columns, size_t panel, float* out) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::Full256<uint16_t> d16;
    for (size_t at = 0; at < columns; at += 16, out += panel)
      Store(hn::BitCast(Codes(), hn::ShiftLeft<8>(hn::PromoteTo(d16, LoadBytes(rows, row, at, 0)))), out);
  }

 private:
  using Codes = hwy::HWY_NAMESPACE::Full256<uint8_t>;
  using CodeV = hwy::HWY_NAMESPACE::Vec<Codes>;

  // Bytes of vectors i and i + 4 in turns.
  static HWY_INLINE void Stage(const CodeV* from, CodeV* to) {
    namespace hn = hwy::HWY_NAMESPACE;
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = hn::InterleaveLower(Codes(), from[i], from[i + 4]);
      to[2 * i + 1] = hn::InterleaveUpper(Codes(), from[i], from[i + 4]);
    }
  }

  // Sixteen codes, in the upper bytes of 16-bit lanes. The NaN of E4M3FN is put in while two codes share 32 bits.
  static HWY_INLINE void Store(CodeV codes, float* out) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::Full256<uint16_t> d16;
    const Fp8D d;
    auto half = Fp8ToHalf<kE4M3>(hn::BitCast(d16, codes));
    if constexpr (kE4M3) {
      const auto nan = hn::Set(d16, 0x3F80);
      half = hn::Or(half, hn::VecFromMask(d16, hn::Eq(hn::And(half, nan), nan)));
    }
    const auto store = [&](auto part, float* to) HWY_ATTR {
      const Fp8V v = HalfToFloat(d, part);
      hn::Store(kE4M3 ? hn::Mul(v, hn::Set(d, 256.0f)) : v, d, to);
    };
    if constexpr (hn::MaxLanes(d) == 16) {
      store(half, out);
    } else {
      store(hn::LowerHalf(hn::Full128<uint16_t>(), half), out);
      store(hn::UpperHalf(hn::Full128<uint16_t>(), half), out + 8);
    }
  }
};
#endif

// The words are floats, and probabilities stay where the scores were.
struct Fp8Floats {
  static constexpr size_t kPerWord = 1, kRows = internal::kSdpaRows, kStepsTo = 1;

  static void Query(quant::DType type, const uint8_t* codes, size_t n, const internal::SdpaLayout&, uint8_t* out) {
    (type == quant::DType::kE4M3FN ? DecodeFp8<true> : DecodeFp8<false>)(codes, n, 1.0f, reinterpret_cast<float*>(out));
  }

  static void PackKeys(quant::DType type, const HeadRows<uint8_t>& k, const internal::SdpaLayout& l, uint8_t* out) {
    WithPacker(type, [&](const auto& packer) HWY_ATTR {
      alignas(16) uint8_t buffer[256];
      auto* to = reinterpret_cast<float*>(out);
      for (size_t row = 0; row < l.k16; row += 16) {
        for (size_t at = 0; at < l.d_steps; at += 16) {
          const size_t steps = HWY_MIN(l.d_steps - at, size_t{16});
          packer.Transposed(CodeTileOf(k, row, at, buffer), steps, to);
          to += steps * 16;
        }
      }
    });
  }
  static void PackValues(quant::DType type, const HeadRows<uint8_t>& v, const internal::SdpaLayout& l, uint8_t* out) {
    WithPacker(type, [&](const auto& packer) HWY_ATTR {
      for (size_t row = 0; row < v.count; ++row)
        packer.Row(v, row, l.v16, v.count * 16, reinterpret_cast<float*>(out) + row * 16);
    });
  }

  static HWY_INLINE uint8_t* Probs(const Block<SdpaInt8Args>&, const ScoreRows& part, size_t, size_t r) {
    return part.base + r * part.stride;
  }
  static size_t ProbStride(const internal::SdpaLayout& l) { return l.score_stride; }
  static HWY_INLINE void StoreProbs(Fp8V v, uint8_t* row, size_t key) {
    hwy::HWY_NAMESPACE::Store(v, Fp8D(), reinterpret_cast<float*>(row) + key);
  }
  static size_t Steps(size_t keys) { return keys; }

  template <size_t kR>
  static HWY_INLINE void Products(const TileArgs<float>& args, const uint8_t* b, size_t panels) {
    TileRows<FloatEngine, kR>(args, b, nullptr, panels);
  }

 private:
  template <class F>
  static HWY_INLINE void WithPacker(quant::DType type, F f) {
#if HWY_TARGET == HWY_AVX3_DL
    f(Fp8FloatPacker(type));
#else
    if (type == quant::DType::kE4M3FN) return f(Fp8FloatPackerAs<true>());
    f(Fp8FloatPackerAs<false>());
#endif
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
