// A form of the product: how rows of x are laid out for it and how a tile of them is multiplied. Per target.
//
//   Input               element of a prepared row
//   kSurplus            of its sums (block-inl.h)
//   ReadsInPlace(x, k)  the rows can be read where they lie
//   PackRow             one prepared row of ceil(k / 4) * 4 elements; padding meets zero weights
//   kTileRows, Rows     up to kTileRows rows x 64 columns, all of k
//   FinishedRows        VNNI on zmm alone: the same, but the sums go from registers to the output
//   Decode              WideForm alone: before the rows of a block
//   Small               up to kSmallRows rows x 64 columns, weights streamed once; sums begin with zeros
#if defined(OCTAVO_KERNELS_GEMM_FORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_GEMM_FORM_INL_H_
#undef OCTAVO_KERNELS_GEMM_FORM_INL_H_
#else
#define OCTAVO_KERNELS_GEMM_FORM_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "octavo/kernels/gemm/block-inl.h"
#include "octavo/kernels/gemm/gemm.h"
#include "octavo/kernels/gemm/small-inl.h"
#include "octavo/kernels/gemm/tile-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// Rows of x as the tiles read them; k is padded to a multiple of 4 (whatever stands there meets zero weights).
template <class T>
struct PreparedRows {
  const T* data;
  size_t stride;
  size_t k;
  Ahead ahead{};               // VNNI on zmm
  AheadInBursts bursts{};      // without VNNI
  int16_t* decoded = nullptr;  // room for a block of weights as WideForm wants them
};

// Rows as u8, read where they lie if possible.
struct BytesForm {
  using Input = uint8_t;
  static constexpr Surplus kSurplus = Surplus::kFlippedZeroPoint;

  static bool ReadsInPlace(const GemmInput& x, int64_t k) { return x.dtype == quant::DType::kU8 && k % 4 == 0; }

  // u8 as it is; s8 with the top bit flipped, which adds 128 (and the same to the zero point: see FillBlock).
  static void PackRow(const GemmInput& x, const uint8_t* row, size_t k, Input* out) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::ScalableTag<uint8_t> d;
    const auto flip = hn::Set(d, x.dtype == quant::DType::kS8 ? 0x80 : 0);
    size_t i = 0;
    for (; i + hn::MaxLanes(d) <= k; i += hn::MaxLanes(d)) hn::StoreU(hn::Xor(hn::LoadU(d, row + i), flip), d, out + i);
    if (i < k) hn::StoreN(hn::Xor(hn::LoadN(d, row + i, k - i), flip), d, out + i, k - i);
  }
};

#if HWY_TARGET != HWY_AVX3
struct VnniForm : BytesForm {
  static constexpr int kTileRows = 6;

  template <int kRows>
  static HWY_INLINE void Rows(const PreparedRows<Input>& x, int64_t row, const int8_t* const panels[4],
                              const int32_t* init, int32_t* acc) {
    const Input* first = x.data + static_cast<size_t>(row) * x.stride;
#if HWY_TARGET <= HWY_AVX3_DL
    VnniTile<kRows>(first, x.stride, x.k, panels, init, BufferFinish{acc}, x.ahead);
#else
    SmallColumns<VnniQuad, kRows, 2, 1>(first, x.stride, x.k, panels, init, acc);
#endif
  }

#if HWY_TARGET <= HWY_AVX3_DL
  template <int kRows, class Finish>
  static HWY_INLINE void FinishedRows(const PreparedRows<Input>& x, int64_t row, const int8_t* const panels[4],
                                      const int32_t* init, const Finish& finish) {
    VnniTile<kRows>(x.data + static_cast<size_t>(row) * x.stride, x.stride, x.k, panels, init, finish, x.ahead);
  }
#endif

  static void Small(const PreparedRows<Input>& x, int rows, const int8_t* const panels[4], int32_t* acc) {
    SmallRows<VnniQuad>(x.data, x.stride, x.k, rows, panels, acc);
  }
};
#endif

#if HWY_TARGET > HWY_AVX3_DL
struct S16Form {
  using Input = int16_t;
  static constexpr Surplus kSurplus = Surplus::kNone;
  static constexpr int kTileRows = 6;

  static bool ReadsInPlace(const GemmInput&, int64_t) { return false; }

  template <class T>
  static HWY_INLINE void PackRowAs(const T* row, int32_t zero_point, size_t k, Input* out) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::ScalableTag<int16_t> d16;
    const hn::Rebind<T, decltype(d16)> d8;
    const hn::Repartition<uint8_t, decltype(d16)> d_bytes;
    const auto order =
        hn::BitCast(d16, hn::Dup128VecFromValues(d_bytes, 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    const auto zero = hn::Set(d16, static_cast<int16_t>(zero_point));
    size_t i = 0;
    for (; i + hn::MaxLanes(d16) <= k; i += hn::MaxLanes(d16)) {
      const auto v = hn::Sub(hn::PromoteTo(d16, hn::LoadU(d8, row + i)), zero);
      hn::StoreU(hn::TableLookupBytes(v, order), d16, out + i);
    }
    constexpr int kPlace[4] = {0, 2, 1, 3};
    for (; i < k; ++i) out[i / 4 * 4 + kPlace[i % 4]] = static_cast<int16_t>(row[i] - zero_point);
  }

  // s16 with the zero point taken off, each quad in the order 0 2 1 3: one dword per half of a weight quad.
  static void PackRow(const GemmInput& x, const uint8_t* row, size_t k, Input* out) {
    if (k % 4 != 0) std::memset(out + k / 4 * 4, 0, 4 * sizeof(Input));
    if (x.dtype == quant::DType::kU8) {
      PackRowAs(row, x.zero_point, k, out);
    } else {
      PackRowAs(reinterpret_cast<const int8_t*>(row), x.zero_point, k, out);
    }
  }

  template <int kRows>
  static HWY_INLINE void Rows(PreparedRows<Input>& x, int64_t row, const int8_t* const panels[4], const int32_t*,
                              int32_t* acc) {
    const Input* first = x.data + static_cast<size_t>(row) * x.stride;
    constexpr int kLanes = static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(TileD()));
    for (int c = 0; c < kColumnBlock; c += 2 * kLanes) {
      const int8_t* b0 = panels[c / 16] + c % 16 * 4;
      const int8_t* b1 = panels[(c + kLanes) / 16] + (c + kLanes) % 16 * 4;
      S16Tile<kRows>(first, x.stride, x.k, b0, b1, acc + c, x.bursts.next, x.bursts.Every(x.k));
      x.bursts.Pass();
    }
  }

  static void Small(const PreparedRows<Input>& x, int rows, const int8_t* const panels[4], int32_t* acc) {
    SmallRows<S16Quad>(x.data, x.stride, x.k, rows, panels, acc);
  }
};

// The same for many rows, which share the decoding of a block of weights.
struct WideForm : S16Form {
  static void Decode(const PreparedRows<Input>& x, const int8_t* const panels[4]) {
    constexpr int kLanes = static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(TileD()));
    for (int c = 0; c < kColumnBlock; c += 2 * kLanes) {
      const int8_t* b0 = panels[c / 16] + c % 16 * 4;
      const int8_t* b1 = panels[(c + kLanes) / 16] + (c + kLanes) % 16 * 4;
      DecodeColumns(b0, b1, x.k, x.decoded + static_cast<size_t>(c) * x.k);
    }
  }

  template <int kRows>
  static HWY_INLINE void Rows(PreparedRows<Input>& x, int64_t row, const int8_t* const[4], const int32_t*,
                              int32_t* acc) {
    const Input* first = x.data + static_cast<size_t>(row) * x.stride;
    constexpr int kLanes = static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(TileD()));
    for (int c = 0; c < kColumnBlock; c += 2 * kLanes) {
      x.bursts.Fetch();
      WideTile<kRows>(first, x.stride, x.k, x.decoded + static_cast<size_t>(c) * x.k, acc + c);
    }
  }
};

// Certified panels: vpmaddubsw on bytes, kQuads of k before the sums are widened.
template <int kQuads>
struct PairForm : BytesForm {
  static constexpr int kTileRows = 4;

  template <int kRows>
  static HWY_INLINE void Rows(PreparedRows<Input>& x, int64_t row, const int8_t* const panels[4], const int32_t* init,
                              int32_t* acc) {
    const Input* first = x.data + static_cast<size_t>(row) * x.stride;
    constexpr int kLanes = static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(TileD()));
    for (int c = 0; c < kColumnBlock; c += 2 * kLanes) {
      const int8_t* b0 = panels[c / 16] + c % 16 * 4;
      const int8_t* b1 = panels[(c + kLanes) / 16] + (c + kLanes) % 16 * 4;
      x.bursts.Fetch();
      PairTile<kRows, kQuads>(first, x.stride, x.k, b0, b1, init + c, acc + c);
    }
  }

  static void Small(const PreparedRows<Input>& x, int rows, const int8_t* const panels[4], int32_t* acc) {
    SmallRows<PairQuad>(x.data, x.stride, x.k, rows, panels, acc);
  }
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
