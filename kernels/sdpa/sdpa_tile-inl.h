// The inner loops of both products of the attention: 1 to 6 rows x up to four vectors of columns over all steps
// (sdpa_layout.h), in s8 (VNNI), s16 or float. Per target. Named accumulators, pinned, and a run-time trip count: GCC 14
// otherwise copies or spills them and halves the speed.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_TILE_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_TILE_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

using I16D = hwy::HWY_NAMESPACE::CappedTag<int32_t, 16>;
using I16V = hwy::HWY_NAMESPACE::Vec<I16D>;
inline constexpr size_t kTileLanes = hwy::HWY_NAMESPACE::MaxLanes(I16D());
inline constexpr size_t kPanelVectors = 16 / kTileLanes;
// Vectors in a full tile: 4 zmm (64 columns) or 2 ymm (16 columns, all that 16 registers allow).
inline constexpr size_t kTileVectors = kPanelVectors == 1 ? 4 : 2;

// After a step, even one of assembly: GCC 14.2 otherwise moves the sums of some tiles (4 x 3, 4 x 4) in a circle. Not after
// the two instructions of s16, where it is the other way round.
template <class V>
HWY_INLINE void Pin(V& v) {
  asm("" : "+v"(v.raw));
}

// An engine: how one word of a row meets 64 bytes of a panel.
struct FloatEngine {
  using T = float;
  using D = hwy::HWY_NAMESPACE::CappedTag<float, 16>;
  static constexpr size_t kPerWord = 1;
  template <class V>
  static HWY_INLINE void Dot(V& acc, V a, V b) {
    acc = hwy::HWY_NAMESPACE::MulAdd(a, b, acc);
    Pin(acc);
  }
};

#if HWY_TARGET != HWY_AVX3
// u8 x s8, four products a lane; wraps, never saturates. On ymm it is the VEX form (AVX-VNNI), which the compiler only
// knows under a flag of its own.
struct VnniEngine {
  using T = int32_t;
  using D = I16D;
  using Prob = uint8_t;
  using Values = VnniEngine;  // of the second product
  static constexpr size_t kPerWord = 4;
  static constexpr size_t kRows = 12;  // query rows in scratch: two groups of internal::kSdpaRows
  static constexpr size_t kStepsTo = 1;
  static HWY_INLINE void Dot(I16V& acc, I16V a, I16V b) {
#if HWY_TARGET == HWY_AVX2
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc.raw) : "x"(a.raw), "x"(b.raw));
#else
    asm("vpdpbusd %2, %1, %0" : "+v"(acc.raw) : "v"(a.raw), "v"(b.raw));
#endif
    Pin(acc);
  }
};
#endif

#if HWY_TARGET > HWY_AVX3_DL
// s16 x s16, two products a lane. Values are less their zero point, at most 255, so a pair is at most 130,050.
struct S16Engine {
  using T = int32_t;
  using D = I16D;
  using Prob = int16_t;
  using Values = S16Engine;
  static constexpr size_t kPerWord = 2;
  static constexpr size_t kRows = 12;  // query rows in scratch: two groups of internal::kSdpaRows
  static constexpr size_t kStepsTo = 1;
  static HWY_INLINE void Dot(I16V& acc, I16V a, I16V b) {
    I16V product;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(acc.raw), "=v"(product.raw) : "v"(a.raw), "v"(b.raw));
  }
  static HWY_INLINE void DotTwo(I16V& acc0, I16V& acc1, I16V a, I16V b0, I16V b1) {
    I16V product;
    asm("vpmaddwd %4, %2, %3\n\tvpmaddwd %5, %2, %2\n\tvpaddd %3, %0, %0\n\tvpaddd %2, %1, %1"
        : "+v"(acc0.raw), "+v"(acc1.raw), "+v"(a.raw), "=&v"(product.raw)
        : "v"(b0.raw), "v"(b1.raw));
  }
};
#endif

// Engines of several instructions on ymm: all products of a word before the additions, the last one in the word's register (tile-inl.h of
// gemm says why).
template <class E>
inline constexpr bool kDotsTwo = kTileLanes == 8 && requires { &E::DotTwo; };

// Engines whose tiles are added to what stands in the output already: sums of a piece of the steps.
template <class E>
inline constexpr bool kAddsToOut = requires { &E::Widen; };

// One row of a tile: kC accumulators.
template <class E, size_t kC>
struct TileRow {
  using D = typename E::D;
  using T = typename E::T;
  using V = hwy::HWY_NAMESPACE::Vec<D>;
  V c0, c1, c2, c3;

  // Starts with what the zero points contribute: per column, and `row` for all. Float and s16: nothing.
  HWY_INLINE void Init(const T* columns, const T* row) {
    c0 = Term(columns, 0);
    c1 = Term(columns, kC > 1 ? kTileLanes : 0);
    c2 = Term(columns, kC > 2 ? 2 * kTileLanes : 0);
    c3 = Term(columns, kC > 3 ? 3 * kTileLanes : 0);
    if constexpr (E::kPerWord == 4 && !kAddsToOut<E>) {
      if (row == nullptr) return;
      const V v = hwy::HWY_NAMESPACE::Set(D(), *row);
      c0 = hwy::HWY_NAMESPACE::Add(c0, v);
      c1 = hwy::HWY_NAMESPACE::Add(c1, v);
      c2 = hwy::HWY_NAMESPACE::Add(c2, v);
      c3 = hwy::HWY_NAMESPACE::Add(c3, v);
    }
  }
  static HWY_INLINE V Term(const T* columns, size_t at) {
    if constexpr (E::kPerWord == 4 && !kAddsToOut<E>) return hwy::HWY_NAMESPACE::Load(D(), columns + at);
    return hwy::HWY_NAMESPACE::Zero(D());
  }
  HWY_INLINE void Step(const uint8_t* a, V b0, V b1, V b2, V b3) {
    T word;
    std::memcpy(&word, a, sizeof(word));
    const V v = hwy::HWY_NAMESPACE::Set(D(), word);
    if constexpr (kC == 2 && kDotsTwo<E>) return E::DotTwo(c0, c1, v, b0, b1);
    E::Dot(c0, v, b0);
    if constexpr (kC > 1) E::Dot(c1, v, b1);
    if constexpr (kC > 2) E::Dot(c2, v, b2);
    if constexpr (kC > 3) E::Dot(c3, v, b3);
  }
  HWY_INLINE void Store(T* out) const {
    Put(c0, out);
    if constexpr (kC > 1) Put(c1, out + kTileLanes);
    if constexpr (kC > 2) Put(c2, out + 2 * kTileLanes);
    if constexpr (kC > 3) Put(c3, out + 3 * kTileLanes);
  }
  static HWY_INLINE void Put(V c, T* out) {
    namespace hn = hwy::HWY_NAMESPACE;
    const D d;
    if constexpr (kAddsToOut<E>) c = hn::Add(hn::Load(d, out), E::Widen(c));
    hn::Store(c, d, out);
  }
};

template <class T>
struct TileArgs {
  const uint8_t* a;  // rows of words
  size_t a_stride;   // bytes
  size_t steps;
  size_t panel_bytes;
  T* out;
  size_t out_stride;   // elements
  const T* row_terms;  // null: all 0
};

// The end of a tile: its sums to out[r * stride].
template <class T>
struct SumsFinish {
  T* out;
  size_t stride;  // elements

  struct End {
    T* out;
    size_t stride;
    HWY_INLINE explicit End(const SumsFinish& finish) : out(finish.out), stride(finish.stride) {}
    template <class Row>
    HWY_INLINE void Take(size_t r, const Row& row) const {
      row.Store(out + r * stride);
    }
    HWY_INLINE void Done() const {}
  };
};

// a[r] . b for kR rows and kC vectors of columns, then what `finish` makes of it; b: the first panel, columns: the terms of
// its columns.
template <class E, size_t kR, size_t kC, class Finish>
HWY_NOINLINE void Tile(const TileArgs<typename E::T>& args, const uint8_t* HWY_RESTRICT b, const typename E::T* columns,
                       const Finish& finish) {
  namespace hn = hwy::HWY_NAMESPACE;
  using T = typename E::T;
  const typename E::D d;
  const uint8_t* HWY_RESTRICT a = args.a;
  const size_t stride = args.a_stride;
  // Vector i of the tile begins at panel i / kPanelVectors, half i % kPanelVectors.
  constexpr auto kIndex = [](size_t i) { return i < kC ? i : 0; };
  const auto at = [&](size_t i) HWY_ATTR {
    return b + kIndex(i) / kPanelVectors * args.panel_bytes + kIndex(i) % kPanelVectors * sizeof(T) * kTileLanes;
  };
  const uint8_t* b0 = at(0);
  const uint8_t* b1 = at(1);
  const uint8_t* b2 = at(2);
  const uint8_t* b3 = at(3);
  TileRow<E, kC> r0, r1, r2, r3, r4, r5;
  const T* row = args.row_terms;
  const auto term = [row](size_t r) HWY_ATTR { return row == nullptr ? nullptr : row + r; };
  r0.Init(columns, term(0));
  if constexpr (kR > 1) r1.Init(columns, term(1));
  if constexpr (kR > 2) r2.Init(columns, term(2));
  if constexpr (kR > 3) r3.Init(columns, term(3));
  if constexpr (kR > 4) r4.Init(columns, term(4));
  if constexpr (kR > 5) r5.Init(columns, term(5));
  for (size_t i = 0; i < args.steps; ++i) {
    const auto v0 = hn::Load(d, reinterpret_cast<const T*>(b0 + i * 64));
    const auto v1 = kC > 1 ? hn::Load(d, reinterpret_cast<const T*>(b1 + i * 64)) : v0;
    const auto v2 = kC > 2 ? hn::Load(d, reinterpret_cast<const T*>(b2 + i * 64)) : v0;
    const auto v3 = kC > 3 ? hn::Load(d, reinterpret_cast<const T*>(b3 + i * 64)) : v0;
    r0.Step(a + i * 4, v0, v1, v2, v3);
    if constexpr (kR > 1) r1.Step(a + i * 4 + stride, v0, v1, v2, v3);
    if constexpr (kR > 2) r2.Step(a + i * 4 + 2 * stride, v0, v1, v2, v3);
    if constexpr (kR > 3) r3.Step(a + i * 4 + 3 * stride, v0, v1, v2, v3);
    if constexpr (kR > 4) r4.Step(a + i * 4 + 4 * stride, v0, v1, v2, v3);
    if constexpr (kR > 5) r5.Step(a + i * 4 + 5 * stride, v0, v1, v2, v3);
  }
  typename Finish::End end(finish);
  end.Take(0, r0);
  if constexpr (kR > 1) end.Take(1, r1);
  if constexpr (kR > 2) end.Take(2, r2);
  if constexpr (kR > 3) end.Take(3, r3);
  if constexpr (kR > 4) end.Take(4, r4);
  if constexpr (kR > 5) end.Take(5, r5);
  end.Done();
}

// All columns of `panels` panels. columns: null for the float engine, which has no zero points.
template <class E, size_t kR>
HWY_INLINE void TileRows(const TileArgs<typename E::T>& args, const uint8_t* b, const typename E::T* columns,
                         size_t panels) {
  constexpr size_t kPanels = kTileVectors / kPanelVectors;
  const auto terms = [columns](size_t panel) HWY_ATTR { return columns == nullptr ? columns : columns + 16 * panel; };
  SumsFinish<typename E::T> to = {args.out, args.out_stride};
  size_t p = 0;
  for (; p + kPanels <= panels; p += kPanels) {
    Tile<E, kR, kTileVectors>(args, b + p * args.panel_bytes, terms(p), to);
    to.out += 16 * kPanels;
  }
  if constexpr (kPanels == 4) {
    b += p * args.panel_bytes;
    columns = terms(p);
    if (panels - p == 3) Tile<E, kR, 3>(args, b, columns, to);
    if (panels - p == 2) Tile<E, kR, 2>(args, b, columns, to);
    if (panels - p == 1) Tile<E, kR, 1>(args, b, columns, to);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
