// Ends of tiles that work on the sums where they are, in registers: scores with scale, mask and maximum after the first
// product, bytes of the output after the second one. A buffer between costs no vector operation, but the tile before it
// ends alone: of 384 sums, 24 stores, then 24 loads that wait for them, 34 cycles (measured on kernel 1's tile, which is the
// same). Per target.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_FINISH_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_FINISH_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_FINISH_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_rows-inl.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"
#include "octavo/kernels/sdpa/sdpa_store-inl.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

inline constexpr size_t kTileColumns = kTileVectors * kTileLanes;  // 64 (zmm) or 16
inline constexpr bool kFinishesOutput = kTileColumns == 64;        // what RequantPack fills a vector with

// The maxima of rows by lane, from tile to tile.
struct MaxLanes {
  alignas(64) float at[internal::kSdpaRows][16];
};
inline constexpr MaxLanes kNoMaxima = [] {
  MaxLanes m{};
  for (auto& row : m.at) {
    for (float& v : row) v = -std::numeric_limits<float>::infinity();
  }
  return m;
}();

// What ScoreLanes (sdpa_rows-inl.h) does: s = float(sum) * factor (kScale: * scale) (kMask: + mask), stored; maxima.
template <bool kScale, bool kMask>
struct ScoreFinish {
  float factor, scale;
  float* out;
  size_t stride;      // elements
  const float* mask;  // of the tile's first row and column
  int64_t mask_row;
  const MaxLanes* before;  // maxima of the tiles before this one
  MaxLanes* max;

  struct End {
    F16V factor, scale;
    ScoreFinish to;
    HWY_INLINE explicit End(const ScoreFinish& finish)
        : factor(Set16(finish.factor).a), scale(Set16(finish.scale).a), to(finish) {}

    template <class Row>
    HWY_INLINE void Take(size_t r, const Row& row) {
      namespace hn = hwy::HWY_NAMESPACE;
      const F16D d;
      float* out = to.out + r * to.stride;
      F16 m = Load16(to.before->at[r]);
      const auto one = [&](I16V sum, size_t i, F16V& most) HWY_ATTR {
        F16V s = hn::Mul(hn::ConvertTo(d, sum), factor);
        if constexpr (kScale) s = hn::Mul(s, scale);
        if constexpr (kMask) s = hn::Add(s, hn::LoadU(d, to.mask + static_cast<int64_t>(r) * to.mask_row + i));
        hn::Store(s, d, out + i);
        most = hn::Max(s, most);  // in this order: a NaN is not taken
      };
#if HWY_TARGET == HWY_AVX2
      one(row.c0, 0, m.a), one(row.c1, 8, m.b);
#else
      one(row.c0, 0, m.a), one(row.c1, 16, m.a), one(row.c2, 32, m.a), one(row.c3, 48, m.a);
#endif
      Store16(m, to.max->at[r]);
    }
    HWY_INLINE void Done() const {}
  };
};

// What StoreByInterval (sdpa_store-inl.h) does. *certain turns false where an integer is in doubt.
struct OutputFinish {
  const OutputForm* form;
  const OutputBounds* bounds;
  uint8_t* out;
  int64_t stride;
  bool* certain;

  struct End {
    F16V magic;
    S32V offset, doubt;
    const Requant& requant;
    const OutputBounds& bounds;
    uint8_t* out;
    int64_t stride;
    bool* certain;
    HWY_INLINE explicit End(const OutputFinish& finish)
        : requant(finish.form->requant),
          bounds(*finish.bounds),
          out(finish.out),
          stride(finish.stride),
          certain(finish.certain) {
      namespace hn = hwy::HWY_NAMESPACE;
      magic = Set16(kRoundMagic).a;
      offset = hn::Set(S32D(), finish.form->requant.offset), doubt = hn::Zero(S32D());
    }

    template <class Row>
    HWY_INLINE void Take(size_t r, const Row& row) {
      namespace hn = hwy::HWY_NAMESPACE;
      const S32D di;
      const F16V low = Set16(bounds.low[r]).a, high = Set16(bounds.high[r]).a;
      const auto one = [&](I16V sum) HWY_ATTR {
        const F16V x = hn::ConvertTo(F16D(), sum);
        const S32V a = hn::BitCast(di, hn::MulAdd(x, low, magic));
        doubt = OrXor(doubt, a, hn::BitCast(di, hn::MulAdd(x, high, magic)));
        return hn::Add(a, offset);
      };
      const auto bytes = RequantPack(di, requant, one(row.c0), one(row.c1), one(row.c2), one(row.c3));
      hn::StoreU(bytes, hn::Repartition<uint8_t, S32D>(), out);
      out += stride;
    }
    HWY_INLINE void Done() const {
      namespace hn = hwy::HWY_NAMESPACE;
      *certain = *certain && hn::AllTrue(S32D(), hn::Eq(doubt, hn::Zero(S32D())));
    }
  };
};

// Whether nothing but a scale, a mask of floats and a window stands between products and scores.
HWY_INLINE bool FinishesScores(const SdpaInt8Args& args) {
  const SdpaVisibility& see = args.visibility;
  return args.softcap == 0.0f && see.alibi == nullptr && see.keep.data == nullptr && !args.HasScoreSteps() &&
         (args.mask.data == nullptr || args.mask.col == 1);
}

// The keys from span.begin on, in whole tiles, that every one of `rows` rows sees.
HWY_INLINE size_t FinishedKeys(const Block<SdpaInt8Args>& block, const Span& span, int64_t rows) {
  size_t end = span.end;
  const SdpaWindow& window = block.args.visibility.window;
  if (internal::HasWindow(window)) {
    const internal::KeyRange common = internal::CommonKeys(window, block.args.shape, block.row, rows);
    if (static_cast<size_t>(common.begin) > span.begin) return 0;
    end = HWY_MIN(end, static_cast<size_t>(common.end));
  }
  return end > span.begin ? (end - span.begin) / kTileColumns * kTileColumns : 0;
}

template <class E, size_t kR, bool kScale, bool kMask>
HWY_INLINE void FinishedTiles(const TileArgs<int32_t>& products, const uint8_t* panels, const int32_t* columns,
                              size_t keys, const ScoreScales& scales, const MaskRows& mask, MaxLanes* max) {
  ScoreFinish<kScale, kMask> finish = {scales.factor,       scales.scale, reinterpret_cast<float*>(products.out),
                                       products.out_stride, mask.data,    mask.row,
                                       &kNoMaxima,          max};
  for (size_t at = 0; at < keys; at += kTileColumns) {
    Tile<E, kR, kTileVectors>(products, panels, columns, finish);
    panels += kTileColumns / 16 * products.panel_bytes, columns += kTileColumns;
    finish.before = max, finish.out += kTileColumns;
    if constexpr (kMask) finish.mask += kTileColumns;
  }
}

// The scores of the whole tiles of kR rows, `keys` of them, and their maxima by lane.
template <class E, size_t kR>
HWY_INLINE void FinishedScores(const TileArgs<int32_t>& products, const uint8_t* panels, const int32_t* columns,
                               size_t keys, const ScoreScales& scales, const MaskRows& mask, MaxLanes* max) {
  const bool plain = scales.scale == 1.0f;
  if (mask.data == nullptr) {
    plain ? FinishedTiles<E, kR, false, false>(products, panels, columns, keys, scales, mask, max)
          : FinishedTiles<E, kR, true, false>(products, panels, columns, keys, scales, mask, max);
  } else {
    plain ? FinishedTiles<E, kR, false, true>(products, panels, columns, keys, scales, mask, max)
          : FinishedTiles<E, kR, true, true>(products, panels, columns, keys, scales, mask, max);
  }
}

// The maxima of the rows of a span, of which the keys before `from` have been finished; this makes the scores of the others.
template <size_t kR>
HWY_INLINE void FinishMaxima(const Block<SdpaInt8Args>& block, const ScoreRows& rows, size_t from, const Span& span,
                             const MaxLanes& lanes, RowSlots<float>& max) {
  F16 of_rows[kR];
  HWY_UNROLL(6)
  for (size_t r = 0; r < kR; ++r) of_rows[r] = Load16(lanes.at[r]);
  FoldRows<kR>(of_rows, MaxOp(), max);
  if (from == span.end) return;
  RowSlots<float> rest;
  ScoresOfSpan<kR, true>(block, rows, block.args.q_scale * block.args.k_scale, {from, span.end, span.padded, false},
                         rest);
  for (size_t r = 0; r < kR; ++r) max[r] = rest[r] > max[r] ? rest[r] : max[r];
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
