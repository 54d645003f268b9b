// A form of the product: how rows of x are laid out for it and how a tile of them is multiplied. Per target.
//
//   Input               element of a prepared row
//   kCompensation            of its sums (block-inl.h)
//   ReadsInPlace(x, k)  the rows can be read where they lie
//   PackRow             one prepared row of ceil(k / 4) * 4 elements; padding meets zero weights
//   kTileRows, Rows     up to kTileRows rows x 64 columns, all of k
//   FinishedRows        VNNI on zmm alone: the same, but the sums go from registers to the output
//   Decode              WideForm alone: before the rows of a block
//   kTileColumns        without VNNI: columns of one call of a tile
//   Small               up to kSmallRows rows x 64 columns, weights streamed once (Tuning::one_stream); sums begin with zeros
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
  static constexpr Compensation kCompensation = Compensation::kFlippedZeroPoint;

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

  static void Small(const PreparedRows<Input>& x, int rows, const int8_t* const panels[4], bool one_stream,
                    int32_t* acc) {
    SmallRows<VnniQuad>(x.data, x.stride, x.k, rows, panels, one_stream, acc);
  }
};
#endif

#if HWY_TARGET > HWY_AVX3_DL
// s16 with the zero point taken off, missing values of the last quad 0; `order` and `place` say where the four of a quad stand.
template <class T, class Order>
HWY_INLINE void PackWords(const T* row, int32_t zero_point, size_t k, const int (&place)[4], Order order,
                          int16_t* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<T, TileD16> d8;
  const auto zero = hn::Set(TileD16(), static_cast<int16_t>(zero_point));
  constexpr size_t kLanes = hn::MaxLanes(TileD16());
  if (k % 4 != 0) std::memset(out + k / 4 * 4, 0, 4 * sizeof(int16_t));
  size_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    hn::StoreU(order(hn::Sub(hn::PromoteTo(TileD16(), hn::LoadU(d8, row + i)), zero)), TileD16(), out + i);
  }
  for (; i < k; ++i) out[i / 4 * 4 + place[i % 4]] = static_cast<int16_t>(row[i] - zero_point);
}

struct S16Form {
  using Input = int16_t;
  static constexpr Compensation kCompensation = Compensation::kNone;
  static constexpr int kTileRows = 6;
  static constexpr int kTileColumns = static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(TileD()));

  static bool ReadsInPlace(const GemmInput&, int64_t) { return false; }

  static void PackRow(const GemmInput& x, const uint8_t* row, size_t k, Input* out) {
    constexpr int kPlace[4] = {0, 1, 2, 3};
    const auto as_they_are = [](auto v) HWY_ATTR { return v; };
    if (x.dtype == quant::DType::kU8) return PackWords(row, x.zero_point, k, kPlace, as_they_are, out);
    PackWords(reinterpret_cast<const int8_t*>(row), x.zero_point, k, kPlace, as_they_are, out);
  }

  template <int kRows>
  static HWY_INLINE void Rows(PreparedRows<Input>& x, int64_t row, const int8_t* const panels[4], const int32_t*,
                              int32_t* acc) {
    const Input* first = x.data + static_cast<size_t>(row) * x.stride;
    for (int c = 0; c < kColumnBlock; c += kTileColumns) {
      S16Tile<kRows>(first, x.stride, x.k, panels[c / 16] + c % 16 * 4, acc + c, x.bursts.next, x.bursts.Every(x.k));
      x.bursts.Pass();
    }
  }
};

// At most kSmallRows: each quad in the order 0 2 1 3, one dword per half of a weight quad (S16Quad).
struct FewS16Form : S16Form {
  static void PackRow(const GemmInput& x, const uint8_t* row, size_t k, Input* out) {
    constexpr int kPlace[4] = {0, 2, 1, 3};
    const auto order = [](auto v) HWY_ATTR {
      namespace hn = hwy::HWY_NAMESPACE;
      const hn::Repartition<uint8_t, TileD16> bytes;
      return hn::TableLookupBytes(v, hn::BitCast(TileD16(), hn::Dup128VecFromValues(bytes, 0, 1, 4, 5, 2, 3, 6, 7, 8, 9,
                                                                                    12, 13, 10, 11, 14, 15)));
    };
    if (x.dtype == quant::DType::kU8) return PackWords(row, x.zero_point, k, kPlace, order, out);
    PackWords(reinterpret_cast<const int8_t*>(row), x.zero_point, k, kPlace, order, out);
  }

  static void Small(const PreparedRows<Input>& x, int rows, const int8_t* const panels[4], bool one_stream,
                    int32_t* acc) {
    SmallRows<S16Quad>(x.data, x.stride, x.k, rows, panels, one_stream, acc);
  }
};

// The same as S16Form for many rows, which share the decoding of a block of weights.
struct WideForm : S16Form {
  static void Decode(const PreparedRows<Input>& x, const int8_t* const panels[4]) {
    for (int c = 0; c < kColumnBlock; c += kTileColumns) {
      DecodeColumns(panels[c / 16] + c % 16 * 4, x.k, x.decoded + static_cast<size_t>(c) * x.k);
    }
  }

  template <int kRows>
  static HWY_INLINE void Rows(PreparedRows<Input>& x, int64_t row, const int8_t* const[4], const int32_t*,
                              int32_t* acc) {
    const Input* first = x.data + static_cast<size_t>(row) * x.stride;
    for (int c = 0; c < kColumnBlock; c += kTileColumns) {
      x.bursts.Fetch();
      WideTile<kRows>(first, x.stride, x.k, x.decoded + static_cast<size_t>(c) * x.k, acc + c);
    }
  }
};

// Certified panels: vpmaddubsw on bytes, kQuads of k before the sums are widened.
template <int kQuads>
struct PairForm : BytesForm {
  static constexpr int kTileRows = 4;
  static constexpr int kTileColumns = 2 * static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(TileD()));

  template <int kRows>
  static HWY_INLINE void Rows(PreparedRows<Input>& x, int64_t row, const int8_t* const panels[4], const int32_t* init,
                              int32_t* acc) {
    const Input* first = x.data + static_cast<size_t>(row) * x.stride;
    constexpr int kLanes = kTileColumns / 2;
    for (int c = 0; c < kColumnBlock; c += kTileColumns) {
      const int8_t* b0 = panels[c / 16] + c % 16 * 4;
      const int8_t* b1 = panels[(c + kLanes) / 16] + (c + kLanes) % 16 * 4;
      x.bursts.Fetch();
      PairTile<kRows, kQuads>(first, x.stride, x.k, b0, b1, init + c, acc + c);
    }
  }

  static void Small(const PreparedRows<Input>& x, int rows, const int8_t* const panels[4], bool one_stream,
                    int32_t* acc) {
    SmallRows<PairQuad>(x.data, x.stride, x.k, rows, panels, one_stream, acc);
  }
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
