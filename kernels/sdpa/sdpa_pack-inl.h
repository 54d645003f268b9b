// K and V of one head into panels (sdpa_layout.h), query rows into words. Per target. 128-bit shuffles: two of them run
// per cycle on Ice Lake and Zen, against one 512-bit one.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_PACK_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_PACK_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_PACK_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

using Bytes = hwy::HWY_NAMESPACE::Full128<uint8_t>;
using Shorts = hwy::HWY_NAMESPACE::Full128<int16_t>;
using Words = hwy::HWY_NAMESPACE::Full128<uint32_t>;
using WordV = hwy::HWY_NAMESPACE::Vec<Words>;

// Rows of a head as the loaders below see them; rows from `count` on are zero.
template <class T>
struct HeadRows {
  const T* data;
  int64_t stride;
  size_t count;
  size_t width;
};

struct FourWords {
  WordV a, b, c, d;
};

// Words (i, 0..3) of four rows become words (0..3, i).
HWY_INLINE FourWords Transpose(FourWords r) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Words d32;
  const hn::Full128<uint64_t> d64;
  const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d32, r.a, r.b));
  const auto cd_low = hn::BitCast(d64, hn::InterleaveLower(d32, r.c, r.d));
  const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d32, r.a, r.b));
  const auto cd_high = hn::BitCast(d64, hn::InterleaveUpper(d32, r.c, r.d));
  return {hn::BitCast(d32, hn::InterleaveLower(d64, ab_low, cd_low)),
          hn::BitCast(d32, hn::InterleaveUpper(d64, ab_low, cd_low)),
          hn::BitCast(d32, hn::InterleaveLower(d64, ab_high, cd_high)),
          hn::BitCast(d32, hn::InterleaveUpper(d64, ab_high, cd_high))};
}

// kept[i] = 16 bytes of row i from column `at`, flipped, 0 beyond the row.
HWY_INLINE hwy::HWY_NAMESPACE::Vec<Bytes> LoadBytes(const HeadRows<uint8_t>& rows, size_t row, size_t at,
                                                    uint8_t flip) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Bytes d;
  if (row >= rows.count || at >= rows.width) return hn::Zero(d);
  const uint8_t* p = rows.data + static_cast<int64_t>(row) * rows.stride + at;
  const auto f = hn::Set(d, flip);
  if (rows.width - at >= 16) return hn::Xor(hn::LoadU(d, p), f);
  const size_t n = rows.width - at;
  return hn::IfThenElseZero(hn::FirstN(d, n), hn::Xor(hn::LoadN(d, p, n), f));
}

// Eight values less the zero point as s16, 0 beyond the row. is_signed: bytes are s8.
HWY_INLINE hwy::HWY_NAMESPACE::Vec<Shorts> LoadCentered(const HeadRows<uint8_t>& rows, size_t row, size_t at,
                                                        bool is_signed, int32_t zero_point) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Shorts d16;
  const hn::Rebind<uint8_t, Shorts> d8;
  const hn::RebindToSigned<decltype(d8)> ds8;
  if (row >= rows.count || at >= rows.width) return hn::Zero(d16);
  const uint8_t* p = rows.data + static_cast<int64_t>(row) * rows.stride + at;
  const size_t n = HWY_MIN(rows.width - at, size_t{8});
  const auto bytes = n == 8 ? hn::LoadU(d8, p) : hn::LoadN(d8, p, n);
  const auto wide = is_signed ? hn::PromoteTo(d16, hn::BitCast(ds8, bytes)) : hn::PromoteTo(d16, bytes);
  const auto centered = hn::Sub(wide, hn::Set(d16, static_cast<int16_t>(zero_point)));
  return n == 8 ? centered : hn::IfThenElseZero(hn::FirstN(d16, n), centered);
}

HWY_INLINE WordV LoadFloats(const HeadRows<float>& rows, size_t row, size_t at) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Full128<float> d;
  if (row >= rows.count || at >= rows.width) return hn::Zero(Words());
  const float* p = rows.data + static_cast<int64_t>(row) * rows.stride + at;
  const size_t n = rows.width - at;
  return hn::BitCast(Words(), n >= 4 ? hn::LoadU(d, p) : hn::LoadN(d, p, n));
}

// K-like: panel [16 rows] of words, from row `first` on. load(row, word) gives four words of a row.
template <class Load>
HWY_INLINE void PackRowsAsColumns(size_t rows16, size_t steps, Load load, uint8_t* out, size_t first = 0) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Words d;
  for (size_t panel = first; panel < rows16; panel += 16) {
    for (size_t row = panel; row < panel + 16; row += 4) {
      for (size_t step = 0; step < steps; step += 4) {
        const FourWords t = Transpose({load(row, step), load(row + 1, step), load(row + 2, step), load(row + 3, step)});
        auto* p = reinterpret_cast<uint32_t*>(out + panel * steps * 4 + step * 64) + (row - panel);
        hn::Store(t.a, d, p);
        if (step + 1 < steps) hn::Store(t.b, d, p + 16);
        if (step + 2 < steps) hn::Store(t.c, d, p + 32);
        if (step + 3 < steps) hn::Store(t.d, d, p + 48);
      }
    }
  }
}

// V in s8: four rows interleaved byte by byte, from row `first` on.
HWY_INLINE void PackQuads(const HeadRows<uint8_t>& rows, size_t k16, size_t v16, uint8_t flip, uint8_t* out,
                          size_t first = 0) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Bytes d8;
  const hn::Full128<uint16_t> d16;
  for (size_t row = first; row < k16; row += 4) {
    for (size_t at = 0; at < v16; at += 16) {
      const auto r0 = LoadBytes(rows, row, at, flip), r1 = LoadBytes(rows, row + 1, at, flip);
      const auto r2 = LoadBytes(rows, row + 2, at, flip), r3 = LoadBytes(rows, row + 3, at, flip);
      const auto low01 = hn::BitCast(d16, hn::InterleaveLower(d8, r0, r1));
      const auto low23 = hn::BitCast(d16, hn::InterleaveLower(d8, r2, r3));
      const auto high01 = hn::BitCast(d16, hn::InterleaveUpper(d8, r0, r1));
      const auto high23 = hn::BitCast(d16, hn::InterleaveUpper(d8, r2, r3));
      auto* p = reinterpret_cast<uint16_t*>(out + at * k16 + row * 16);
      hn::Store(hn::InterleaveLower(d16, low01, low23), d16, p);
      hn::Store(hn::InterleaveUpper(d16, low01, low23), d16, p + 8);
      hn::Store(hn::InterleaveLower(d16, high01, high23), d16, p + 16);
      hn::Store(hn::InterleaveUpper(d16, high01, high23), d16, p + 24);
    }
  }
}

// V in s16: two rows interleaved.
HWY_INLINE void PackPairs(const HeadRows<uint8_t>& rows, size_t k16, size_t v16, bool is_signed, int32_t zero_point,
                          uint8_t* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Shorts d;
  for (size_t row = 0; row < k16; row += 2) {
    for (size_t at = 0; at < v16; at += 8) {
      const auto r0 = LoadCentered(rows, row, at, is_signed, zero_point);
      const auto r1 = LoadCentered(rows, row + 1, at, is_signed, zero_point);
      auto* p = reinterpret_cast<int16_t*>(out + (at / 16) * k16 * 32 + row * 32 + (at % 16) * 4);
      hn::Store(hn::InterleaveLower(d, r0, r1), d, p);
      hn::Store(hn::InterleaveUpper(d, r0, r1), d, p + 8);
    }
  }
}

HWY_INLINE void PackFloats(const HeadRows<float>& rows, size_t v16, uint8_t* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  for (size_t row = 0; row < rows.count; ++row) {
    for (size_t at = 0; at < v16; at += 4) {
      auto* p = reinterpret_cast<uint32_t*>(out + (at / 16) * rows.count * 64 + row * 64) + at % 16;
      hn::Store(LoadFloats(rows, row, at), Words(), p);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
