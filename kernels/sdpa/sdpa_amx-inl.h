// The int8 products of the attention on AMX tiles. A panel is a column of B tiles as it lies, its steps padded to whole tiles with
// zeros; rows that do not exist are computed and not looked at. Per target: AVX-512 VNNI, for what stands between.
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
HWY_NOINLINE void TileColumns(const TileArgs<int32_t>& args, const uint8_t* a, const uint8_t* b, int32_t* out,
                              ptrdiff_t stride) {
  const auto a_stride = static_cast<ptrdiff_t>(args.a_stride);
  tile::Zero<0>(), tile::Zero<1>(), tile::Zero<2>(), tile::Zero<3>();
  for (size_t i = 0; i < args.steps; i += 16) {
    const uint8_t* at = b + i * 64;
    tile::Load<4>(a + i * 4, a_stride);
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

// The same where a row is one tile (kSteps 1, of 16 kA rows) or two (kSteps 2): those of A stay, one sum after the other begins, and
// what is stored is the sum begun three before it. A product with its load from L2 and its store takes 21 cycles so, and 45 where
// four products are followed by four stores (kernels/DESIGN.md).
template <int kA, int kSteps>
HWY_NOINLINE void TileStream(const TileArgs<int32_t>& args, const uint8_t* a, const uint8_t* b, size_t panels,
                             int32_t* out, ptrdiff_t stride) {
  static_assert(kA * kSteps <= 2);
  constexpr int kPanels = 4 / kA;  // in four sums
  const auto a_stride = static_cast<ptrdiff_t>(args.a_stride);
  const auto panel_bytes = static_cast<ptrdiff_t>(args.panel_bytes);
  const size_t tiles = panels * kA;
  const uint8_t* last = b + static_cast<ptrdiff_t>(panels - 1) * panel_bytes;
  tile::Load<4>(a, a_stride);
  if constexpr (kA == 2) tile::Load<5>(a + 16 * a_stride, a_stride);
  if constexpr (kSteps == 2) tile::Load<5>(a + 64, a_stride);
  tile::LoadOnce<6>(b, 64);
  if (kSteps == 2 || panels > 1) tile::LoadOnce<7>(b + (kSteps == 2 ? 1024 : panel_bytes), 64);
  // Tile kC of C to the place of sum kI, which counts from the four that b and out stand at.
  const auto store = [&]<int kC, int kI>() HWY_ATTR {
    constexpr int kRow = (kI + 4) % kA, kPanel = (kI - kRow) / kA;
    tile::Store<kC>(out + kPanel * 16 + 4 * kRow * stride, stride);
  };
  // Sum kC of the four; kStores: and the one begun three before it to its place. What is hidden behind the last panel is not read.
  const auto sum = [&]<int kC, bool kStores>() HWY_ATTR {
    constexpr int kB = 6 + kC / kA % 2;
    const uint8_t* next = b + (kSteps == 2 ? kC + 1 : kC / kA + 2) * panel_bytes;
    tile::Zero<kC>();
    tile::DotUS<kC, 4 + (kSteps == 1 ? kC % kA : 0), kSteps == 1 ? kB : 6>();
    if (kC % kA == kA - 1 && next <= last) tile::LoadOnce<kSteps == 1 ? kB : 6>(next, 64);
    if constexpr (kSteps == 2) {
      tile::DotUS<kC, 5, 7>();
      if (next <= last) tile::LoadOnce<7>(next + 1024, 64);
    }
    if constexpr (kStores) store.template operator()<(kC + 1) % 4, kC - 3>();
  };
  const auto four = [&]<bool kStores>() HWY_ATTR {
    sum.template operator()<0, kStores>();
    sum.template operator()<1, kStores>();
    sum.template operator()<2, kStores>();
    sum.template operator()<3, true>();
    b += kPanels * panel_bytes, out += kPanels * 16;
  };
  const size_t rest = tiles % 4;
  if (tiles < 4) {
    sum.template operator()<0, false>();
    if (rest > 1) sum.template operator()<1, false>();
    if (rest > 2) sum.template operator()<2, false>();
  } else {
    four.template operator()<false>();
    for (size_t t = 8; t <= tiles; t += 4) four.template operator()<true>();
    if (rest > 0) sum.template operator()<0, true>();
    if (rest > 1) sum.template operator()<1, true>();
    if (rest > 2) sum.template operator()<2, true>();
    if (rest == 0) store.template operator()<1, -3>();
    if (rest <= 1) store.template operator()<2, -2>();
    if (rest <= 2) store.template operator()<3, -1>();
  }
  if (rest > 0) store.template operator()<0, 0>();
  if (rest > 1) store.template operator()<1, 1>();
  if (rest > 2) store.template operator()<2, 2>();
}

// All columns of `panels` panels to out[rows, rounded up to 16][16 panels].
inline void TilePanels(const TileArgs<int32_t>& args, const uint8_t* b, size_t panels, int32_t* out, ptrdiff_t stride,
                       int64_t rows) {
  const uint8_t* a = args.a;
  const auto down = [&](int64_t by)
                        HWY_ATTR { a += static_cast<size_t>(by) * args.a_stride, out += by / 4 * stride, rows -= by; };
  if (panels == 0) return;
  if (args.steps == 16) {
    for (; rows > 16; down(32)) TileStream<2, 1>(args, a, b, panels, out, stride);
    if (rows > 0) TileStream<1, 1>(args, a, b, panels, out, stride);
    return;
  }
  for (; rows > 0; down(16)) {
    if (args.steps == 32) {
      TileStream<1, 2>(args, a, b, panels, out, stride);
      continue;
    }
    size_t p = 0;
    const auto columns = [&](auto f) HWY_ATTR { f(args, a, b + p * args.panel_bytes, out + p * 16, stride); };
    for (; p + 4 <= panels; p += 4) columns(TileColumns<4>);
    if (panels - p == 3) columns(TileColumns<3>);
    if (panels - p == 2) columns(TileColumns<2>);
    if (panels - p == 1) columns(TileColumns<1>);
  }
}

// What zero points contribute to sums, of each column and of each row (null: nothing).
struct TileTerms {
  const int32_t* columns;
  const int32_t* rows;

  HWY_INLINE I16V OfRow(size_t r) const {
    namespace hn = hwy::HWY_NAMESPACE;
    return rows == nullptr ? hn::Zero(I16D()) : hn::Set(I16D(), rows[r]);
  }
  HWY_INLINE I16V Add(I16V sums, size_t c, I16V row) const {
    namespace hn = hwy::HWY_NAMESPACE;
    return hn::Add(hn::Add(sums, hn::Load(I16D(), columns + c)), row);
  }
  // Added to the columns [begin, end), whole vectors, of `count` rows that begin at `sums`.
  HWY_INLINE void Add(size_t begin, size_t end, size_t count, int32_t* sums, size_t stride) const {
    namespace hn = hwy::HWY_NAMESPACE;
    for (size_t r = 0; r < count; ++r) {
      int32_t* at = sums + r * stride;
      for (size_t c = begin; c < end; c += 16) hn::Store(Add(hn::Load(I16D(), at + c), c, OfRow(r)), I16D(), at + c);
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
