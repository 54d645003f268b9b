// The int8 products of the attention on AMX tiles: sixteen rows x up to four panels, which hides the latency of the dot
// product (gemm/amx-inl.h). A panel is a column of B tiles as it lies, its steps padded to whole tiles with zeros;
// rows that do not exist are computed and not looked at. Per target: AVX-512 VNNI, for what stands between.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_AMX_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_AMX_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_AMX_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_finish-inl.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"
#include "octavo/kernels/tile/amx.h"

#if HWY_TARGET == HWY_AVX3_DL
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

struct AmxEngine : VnniEngine {
  using Values = AmxEngine;
  static constexpr size_t kRows = 16;
  static constexpr size_t kStepsTo = 16;
};

// out[16][16 kC], rows `stride` bytes apart: a . b for kC panels of b, without what zero points contribute. K and V do not stay
// in L1, scores do.
template <int kC>
HWY_NOINLINE void TileColumns(const TileArgs<int32_t>& args, const uint8_t* b, int32_t* out, ptrdiff_t stride) {
  const auto a_stride = static_cast<ptrdiff_t>(args.a_stride);
  tile::Zero<0>(), tile::Zero<1>(), tile::Zero<2>(), tile::Zero<3>();
  for (size_t i = 0; i < args.steps; i += 16) {
    const uint8_t* at = b + i * 64;
    tile::Load<4>(args.a + i * 4, a_stride);
    tile::LoadOnce<6>(at, 64);
    tile::DotUS<0, 4, 6>();
    if constexpr (kC > 1) {
      tile::LoadOnce<7>(at + args.panel_bytes, 64);
      tile::DotUS<1, 4, 7>();
    }
    if constexpr (kC > 2) {
      tile::LoadOnce<6>(at + 2 * args.panel_bytes, 64);
      tile::DotUS<2, 4, 6>();
    }
    if constexpr (kC > 3) {
      tile::LoadOnce<7>(at + 3 * args.panel_bytes, 64);
      tile::DotUS<3, 4, 7>();
    }
  }
  tile::Store<0>(out, stride);
  if constexpr (kC > 1) tile::Store<1>(out + 16, stride);
  if constexpr (kC > 2) tile::Store<2>(out + 32, stride);
  if constexpr (kC > 3) tile::Store<3>(out + 48, stride);
}

// All columns of `panels` panels to out[16][16 panels].
inline void TilePanels(const TileArgs<int32_t>& args, const uint8_t* b, size_t panels, int32_t* out, ptrdiff_t stride) {
  for (; panels >= 4; panels -= 4, b += 4 * args.panel_bytes, out += 64) TileColumns<4>(args, b, out, stride);
  if (panels == 3) TileColumns<3>(args, b, out, stride);
  if (panels == 2) TileColumns<2>(args, b, out, stride);
  if (panels == 1) TileColumns<1>(args, b, out, stride);
}

// What zero points contribute to sums, of each column and of each row (null: nothing).
struct TileTerms {
  const int32_t* columns;
  const int32_t* rows;

  HWY_INLINE I16V OfRow(size_t r) const {
    namespace hn = hwy::HWY_NAMESPACE;
    return rows == nullptr ? hn::Zero(I16D()) : hn::Set(I16D(), rows[r]);
  }
  // Added to the columns [begin, end), whole vectors, of `count` rows that begin at `sums`.
  HWY_INLINE void Add(size_t begin, size_t end, size_t count, int32_t* sums, size_t stride) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const I16D d;
    for (size_t r = 0; r < count; ++r) {
      const I16V row = OfRow(r);
      int32_t* at = sums + r * stride;
      for (size_t c = begin; c < end; c += 16) {
        hn::Store(hn::Add(hn::Add(hn::Load(d, at + c), hn::Load(d, columns + c)), row), d, at + c);
      }
    }
  }
};

// What ScoreFinish does, of kR rows of sums without terms, in place: s = float(sum) * factor (kScale: * scale) (kMask: + mask).
template <size_t kR, bool kScale, bool kMask>
HWY_INLINE void ScoresOfSums(const TileTerms& terms, const ScoreRows& rows, const ScoreScales& scales,
                             const MaskRows& mask, MaxLanes* max) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const I16D di;
  const F16V factor = hn::Set(d, scales.factor), scale = hn::Set(d, scales.scale);
  const auto each = [](auto f) HWY_ATTR {
    HWY_UNROLL(6)
    for (size_t r = 0; r < kR; ++r) f(r);
  };
  F16V most[kR];
  I16V of_row[kR];
  each([&](size_t r) HWY_ATTR { most[r] = hn::Load(d, kNoMaxima.at[r]), of_row[r] = terms.OfRow(r); });
  for (size_t i = 0; i < rows.keys; i += 16) {
    const I16V column = hn::Load(di, terms.columns + i);
    each([&](size_t r) HWY_ATTR {
      float* at = rows.Row(r) + i;
      const I16V sum = hn::Add(hn::Add(hn::Load(di, reinterpret_cast<const int32_t*>(at)), column), of_row[r]);
      F16V s = hn::Mul(hn::ConvertTo(d, sum), factor);
      if constexpr (kScale) s = hn::Mul(s, scale);
      if constexpr (kMask) s = hn::Add(s, hn::LoadU(d, mask.data + static_cast<int64_t>(r) * mask.row + i));
      hn::Store(s, d, at);
      most[r] = hn::Max(s, most[r]);  // in this order: a NaN is not taken
    });
  }
  each([&](size_t r) HWY_ATTR { hn::Store(most[r], d, max->at[r]); });
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3_DL

#endif  // include guard
