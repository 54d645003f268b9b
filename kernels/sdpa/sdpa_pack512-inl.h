// K and V in s8 into panels, 64 bytes a store: four pieces of 16 bytes are put into one register as they are loaded (a
// masked broadcast is no shuffle), which leaves one shuffle for each 64 bytes of V and two for K. Per target: AVX-512
// with VBMI.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_PACK512_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_PACK512_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_PACK512_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_PACK512_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_pack-inl.h"

#if HWY_TARGET <= HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// 16 bytes at p, p + stride, p + 2 stride, p + 3 stride.
HWY_INLINE __m512i LoadPieces(const uint8_t* p, int64_t stride) {
  const auto piece = [&](int64_t i)
                         HWY_ATTR { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i * stride)); };
  __m512i v = _mm512_castsi128_si512(piece(0));
  v = _mm512_mask_broadcast_i32x4(v, 0x00F0, piece(1));
  v = _mm512_mask_broadcast_i32x4(v, 0x0F00, piece(2));
  return _mm512_mask_broadcast_i32x4(v, 0xF000, piece(3));
}

// Panels of K that have sixteen rows, if rows are whole pieces; the number of rows done. Block b of a register holds
// rows 4 b to 4 b + 3, so that transposing words inside of the blocks gives the sixteen rows in order.
HWY_INLINE size_t PackWholePanels(const HeadRows<uint8_t>& rows, size_t steps, uint8_t flip, uint8_t* out) {
  if (rows.width % 16 != 0) return 0;
  const __m512i f = _mm512_set1_epi8(static_cast<char>(flip));
  const int64_t stride = rows.stride;
  size_t row = 0;
  for (; row + 16 <= rows.count; row += 16) {
    for (size_t at = 0; at < rows.width; at += 16) {
      const uint8_t* p = rows.data + static_cast<int64_t>(row) * stride + at;
      const __m512i a = LoadPieces(p, 4 * stride), b = LoadPieces(p + stride, 4 * stride);
      const __m512i c = LoadPieces(p + 2 * stride, 4 * stride), d = LoadPieces(p + 3 * stride, 4 * stride);
      const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
      const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
      uint8_t* o = out + row * steps * 4 + at * 16;
      _mm512_store_si512(o, _mm512_xor_si512(_mm512_unpacklo_epi64(ab_low, cd_low), f));
      _mm512_store_si512(o + 64, _mm512_xor_si512(_mm512_unpackhi_epi64(ab_low, cd_low), f));
      _mm512_store_si512(o + 128, _mm512_xor_si512(_mm512_unpacklo_epi64(ab_high, cd_high), f));
      _mm512_store_si512(o + 192, _mm512_xor_si512(_mm512_unpackhi_epi64(ab_high, cd_high), f));
    }
    for (size_t step = rows.width / 4; step < steps; ++step) {  // AMX: whole tiles
      _mm512_store_si512(out + row * steps * 4 + step * 64, _mm512_setzero_si512());
    }
  }
  return row;
}

// Groups of four rows of V, if rows are whole pieces; the number of rows done.
HWY_INLINE size_t PackWholeQuads(const HeadRows<uint8_t>& rows, size_t k16, uint8_t flip, uint8_t* out) {
  if (rows.width % 16 != 0) return 0;
  alignas(64) static constexpr auto kOrder = [] {
    struct {
      uint8_t at[64];
    } order{};
    for (int i = 0; i < 64; ++i) order.at[i] = static_cast<uint8_t>(i % 4 * 16 + i / 4);
    return order;
  }();
  const __m512i order = _mm512_load_si512(kOrder.at), f = _mm512_set1_epi8(static_cast<char>(flip));
  size_t row = 0;
  for (; row + 4 <= rows.count; row += 4) {
    const uint8_t* p = rows.data + static_cast<int64_t>(row) * rows.stride;
    for (size_t at = 0; at < rows.width; at += 16) {
      const __m512i v = _mm512_permutexvar_epi8(order, LoadPieces(p + at, rows.stride));
      _mm512_store_si512(out + at * k16 + row * 16, _mm512_xor_si512(v, f));
    }
  }
  return row;
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX3_DL

#endif  // include guard
