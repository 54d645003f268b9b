// Rows of codes (quant/numeric/coded_row.h) back to floats, for some keys at a time that stay in L1. Per target.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_CODED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_CODED_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_CODED_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_CODED_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_pack-inl.h"
#include "octavo/kernels/simd/lanes16-inl.h"
#include "octavo/quant/numeric/coded_row.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// Rows of one head as they lie, of 8 bits a code; `stride` in bytes.
struct CodedRows {
  const uint8_t* data;
  int64_t stride;
  size_t count, width;

  HWY_INLINE const uint8_t* Row(size_t i) const { return data + static_cast<int64_t>(i) * stride; }
  HWY_INLINE size_t codes_at() const { return quant::CodedCodesAt(static_cast<int64_t>(width)); }
  HWY_INLINE size_t padded() const { return (width + 15) / 16 * 16; }
  HWY_INLINE float Scale(size_t row, size_t block) const {
    float scale;
    std::memcpy(&scale, Row(row) + block * sizeof(float), sizeof(float));
    return scale;
  }
};

// `count` rows of codes of 4 bits as such of 8, one behind the other at `to`.
inline CodedRows WithBytes(const CodedRows& rows, size_t count, uint8_t* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::FixedTag<uint8_t, 16> d;
  const hn::Half<decltype(d)> half;
  const auto low = hn::Set(half, 15);
  const auto zero = hn::Set(d, 8);
  const size_t bytes = rows.codes_at() + rows.padded();
  for (size_t row = 0; row < count; ++row) {
    const uint8_t* from = rows.Row(row);
    uint8_t* out = to + row * bytes;
    std::memcpy(out, from, rows.codes_at());
    from += rows.codes_at(), out += rows.codes_at();
    for (size_t at = 0; at < rows.padded(); at += 16) {
      const auto pairs = hn::LoadU(half, from + at / 2);
      const auto codes = hn::Combine(d, hn::ShiftRight<4>(pairs), hn::And(pairs, low));
      hn::StoreU(hn::Sub(codes, zero), d, out + at);
    }
  }
  return {to, static_cast<int64_t>(bytes), count, rows.width};
}

// The byte of each word that shifting left by `left` brings to the top, as a float, times scale.
HWY_INLINE F16V CodeOfWord(hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::RebindToSigned<F16D>> words, int left,
                           F16V scale) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::Mul(hn::ConvertTo(F16D(), hn::ShiftRight<24>(hn::ShiftLeftSame(words, left))), scale);
}

// A panel of 16 keys from row `first` on, [d][16], as PackRowsAsColumns makes it of floats. Keys beyond the last are 0. `words`: 16 bytes a
// column, rounded up to 16 columns.
inline void PackCodedPanel(const CodedRows& rows, size_t first, uint8_t* words, float* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<F16D> d32;
  const HeadRows<uint8_t> codes = {rows.Row(first) + rows.codes_at(), rows.stride,
                                   HWY_MIN(rows.count - first, size_t{16}), rows.padded()};
  PackRowsAsColumns(
      16, rows.padded() / 4,
      [&](size_t row, size_t word) HWY_ATTR { return hn::BitCast(Words(), LoadBytes(codes, row, 4 * word, 0)); },
      words);
  HWY_ALIGN float scales[16] = {};
  for (size_t at = 0; at < rows.width; at += 4) {
    if (at % quant::kCodedBlock == 0) {
      for (size_t j = 0; j < codes.count; ++j) scales[j] = rows.Scale(first + j, at / quant::kCodedBlock);
    }
    const auto* word = reinterpret_cast<const int32_t*>(words + at * 16);
    for (size_t i = 0; i < HWY_MIN(rows.width - at, size_t{4}); ++i) {
      for (size_t lane = 0; lane < 16; lane += kF16Lanes) {
        const F16V x =
            CodeOfWord(hn::Load(d32, word + lane), static_cast<int>(24 - 8 * i), hn::Load(F16D(), scales + lane));
        hn::Store(x, F16D(), out + (at + i) * 16 + lane);
      }
    }
  }
}

// Columns [begin, end), multiples of 16 but for the end of the row, of `count` rows from `first` on, `stride` floats apart.
inline void UnpackCodedRows(const CodedRows& rows, size_t first, size_t count, size_t begin, size_t end, float* out,
                            size_t stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<F16D> d32;
  const hn::Rebind<int8_t, F16D> d8;
  for (size_t row = 0; row < count; ++row, out += stride) {
    const auto* codes = reinterpret_cast<const int8_t*>(rows.Row(first + row) + rows.codes_at());
    for (size_t at = begin; at < end; at += 16) {
      const F16V scale = hn::Set(F16D(), rows.Scale(first + row, at / quant::kCodedBlock));
      for (size_t lane = at; lane < at + 16; lane += kF16Lanes) {
        const auto x = hn::ConvertTo(F16D(), hn::PromoteTo(d32, hn::LoadU(d8, codes + lane)));
        hn::StoreU(hn::Mul(x, scale), F16D(), out + lane);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
