// 1 to 8 rows x 64 columns: the weights come once from wherever they lie. zmm reads four panels at a time to 4 rows, because Ice
// Lake's memory gives more to several streams than to one (23.7 against 17.3 GB/s). ymm reads one panel after
// the other, but for one row where the CPU likes four better (Tuning::one_stream). Per target.
//
// A quad says how four values of a row meet 64 bytes of a panel (4 values of 16 columns), in kParts steps; kMostRows: rows
// x 2 vectors that 16 ymm have room for. Accumulators stand in arrays
// whose loops are fully unrolled and are pinned: no copies, no spills in GCC 14.
#if defined(OCTAVO_KERNELS_GEMM_SMALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_GEMM_SMALL_INL_H_
#undef OCTAVO_KERNELS_GEMM_SMALL_INL_H_
#else
#define OCTAVO_KERNELS_GEMM_SMALL_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/gemm/tile-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// Rows as u8: four values are a dword, and so are the weights of a column that they meet.
struct BytesQuad {
  using Input = uint8_t;
  static constexpr int kParts = 1;
  template <int kPart>
  static HWY_INLINE TileV LoadA(const Input* p) {
    return Broadcast4(p);
  }
  template <int kPart>
  static HWY_INLINE TileV LoadB(const int8_t* p) {
    return hwy::HWY_NAMESPACE::Load(TileD(), reinterpret_cast<const int32_t*>(p));
  }
};

#if HWY_TARGET != HWY_AVX3
struct VnniQuad : BytesQuad {
  static constexpr int kMostRows = 6;
  static HWY_INLINE void Dot(TileV& c, TileV a, TileV b) { VnniDot(c, a, b); }
  static HWY_INLINE void DotAll(TileV& c, const Input* x, TileV b) { Dot(c, LoadA<0>(x), b); }
};
#endif

#if HWY_TARGET > HWY_AVX3_DL
// Two vpmaddwd: the even (0, 2) and the odd bytes (1, 3) of the quad, sign-extended.
struct S16Quad {
  using Input = int16_t;
  static constexpr int kParts = 2;
  static constexpr int kMostRows = 6;
  template <int kPart>
  static HWY_INLINE TileV LoadA(const Input* p) {
    return Broadcast4(p + 2 * kPart);
  }
  template <int kPart>
  static HWY_INLINE TileV LoadB(const int8_t* p) {
    namespace hn = hwy::HWY_NAMESPACE;
    auto v = hn::BitCast(TileD16(), hn::Load(hn::Repartition<int8_t, TileD>(), p));
    if constexpr (kPart == 0) v = hn::ShiftLeft<8>(v);
    return hn::BitCast(TileD(), hn::ShiftRight<8>(v));
  }
  static HWY_INLINE void Dot(TileV& c, TileV a, TileV b) { PairDot(c, a, b); }
  static HWY_INLINE void DotAll(TileV& c, const Input* x, TileV b) {
    namespace hn = hwy::HWY_NAMESPACE;
    const auto v = hn::BitCast(TileD16(), b);
    Dot(c, LoadA<0>(x), hn::BitCast(TileD(), hn::ShiftRight<8>(hn::ShiftLeft<8>(v))));
    Dot(c, LoadA<1>(x), hn::BitCast(TileD(), hn::ShiftRight<8>(v)));
  }
};

// vpmaddubsw, vpmaddwd: certified panels alone. The ones need a register too, hence fewer rows.
struct PairQuad : BytesQuad {
  static constexpr int kMostRows = 4;
  static HWY_INLINE void Dot(TileV& c, TileV a, TileV b) { PairDot(c, PairSums(a, b), OnesOfPairs()); }
  static HWY_INLINE void DotAll(TileV& c, const Input* x, TileV b) { Dot(c, LoadA<0>(x), b); }
};
#endif

// One part of a step: kRows rows x kVectors vectors of columns.
template <class Quad, int kPart, int kRows, int kVectors>
HWY_INLINE void SmallPart(const typename Quad::Input* x, size_t stride, const int8_t* const* b, size_t at,
                          TileV (&c)[kRows][kVectors]) {
  TileV w[kVectors];
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) w[v] = Quad::template LoadB<kPart>(b[v] + at);
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    const TileV a = Quad::template LoadA<kPart>(x + static_cast<size_t>(r) * stride);
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) Quad::Dot(c[r][v], a, w[v]);
  }
}

template <class Quad, int kRows, int kVectors>
HWY_INLINE void SmallStep(const typename Quad::Input* x, size_t stride, const int8_t* const* b, size_t at,
                          TileV (&c)[kRows][kVectors]) {
  constexpr int kLast = Quad::kParts - 1;
  if constexpr (kRows == 1) {  // one weight at a time
    const TileV first = Quad::template LoadA<0>(x), last = Quad::template LoadA<kLast>(x);
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      Quad::Dot(c[0][v], first, Quad::template LoadB<0>(b[v] + at));
      if constexpr (kLast > 0) Quad::Dot(c[0][v], last, Quad::template LoadB<kLast>(b[v] + at));
    }
    return;
  }
  SmallPart<Quad, 0>(x, stride, b, at, c);
  if constexpr (kLast > 0) {
    // Loads the weights again where both parts of two vectors and the sums are more than 16 registers.
    if constexpr (kRows * kVectors > 8) asm("" : "+r"(at));
    SmallPart<Quad, kLast>(x, stride, b, at, c);
  }
}

// Memory is asked for 12 KB ahead where the columns are one or two streams: the hardware follows four of them well (there it
// loses 6 to 15 % on Ice Lake), not fewer. Ice Lake, a page ahead: AVX2 gains 16 % at two rows and 25 to 30 % at 3 to 8, VNNI 6 to
// 18 % at 5 to 8; 1 KB ahead half of it, 8 KB the same. Zen 4, two rows and more: 20 to 40 % from 8 to 48
// KB ahead, a loss of up to 40 at 1 or 2 KB. One row does not ask (OneRow).
template <int kVectors>
HWY_INLINE void AskAhead(const int8_t* const (&columns)[kVectors], size_t at) {
  constexpr size_t kAhead = 12288;
  constexpr int kOfLine = 16 / static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(TileD()));  // vectors that share a line
  if constexpr (kVectors <= 2 * kOfLine) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; v += kOfLine) asm volatile("prefetcht2 (%0)" ::"r"(columns[v] + at + kAhead));
  }
}

// out[r][64], kVectors vectors from `out` on = init + x[r] . b. kSplit 2: k runs in two chains, where so few sums would wait for
// each other. init: null for 0.
template <class Quad, int kRows, int kVectors, int kSplit>
HWY_NOINLINE void SmallTile(const typename Quad::Input* HWY_RESTRICT x, size_t stride, size_t k, const int8_t* const* b,
                            const int32_t* init, int32_t* HWY_RESTRICT out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const TileD d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(TileD()));
  TileV c[kRows][kVectors], e[kRows][kVectors];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      c[r][v] = init == nullptr ? hn::Zero(d) : hn::Load(d, init + v * kLanes);
      e[r][v] = hn::Zero(d);
    }
  }
  const int8_t* columns[kVectors];
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) columns[v] = b[v];
  size_t i = 0;
  if constexpr (kSplit == 2) {
    for (; i + 8 <= k; i += 8) {
      AskAhead<kVectors>(columns, i * 16);
      AskAhead<kVectors>(columns, i * 16 + 64);
      SmallStep<Quad, kRows, kVectors>(x + i, stride, columns, i * 16, c);
      SmallStep<Quad, kRows, kVectors>(x + i + 4, stride, columns, i * 16 + 64, e);
    }
  }
  // 16 dots and 8 loads leave little room for counting: Granite Rapids, 4 rows from L2 3 to 9 % faster.
  if constexpr (kVectors == 4 && kSplit == 1 && Quad::kParts == 1) {
    for (; i + 16 <= k; i += 16) {
      HWY_UNROLL(4)
      for (size_t s = i; s < i + 16; s += 4) SmallStep<Quad, kRows, kVectors>(x + s, stride, columns, s * 16, c);
    }
  }
  for (; i < k; i += 4) {
    AskAhead<kVectors>(columns, i * 16);
    SmallStep<Quad, kRows, kVectors>(x + i, stride, columns, i * 16, c);
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(kSplit == 2 ? hn::Add(c[r][v], e[r][v]) : c[r][v], d, out + r * 64 + v * kLanes);
    }
  }
}

// All 64 columns, kVectors vectors of them at a time.
template <class Quad, int kRows, int kVectors, int kSplit>
HWY_INLINE void SmallColumns(const typename Quad::Input* x, size_t stride, size_t k, const int8_t* const panels[4],
                             const int32_t* init, int32_t* out) {
  constexpr int kLanes = static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(TileD()));
  for (int column = 0; column < 64; column += kVectors * kLanes) {
    const int8_t* b[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const int at = column + v * kLanes;
      b[v] = panels[at / 16] + at % 16 * 4;
    }
    SmallTile<Quad, kRows, kVectors, kSplit>(x, stride, k, b, init == nullptr ? nullptr : init + column, out + column);
  }
}

// One row x one panel on ymm, in two chains. The hardware follows one stream that nothing disturbs better than a program can ask for
// it: Zen 4 reads 30 of 32 GB/s so, 24 with prefetches, 18 with the end of each block between (weights on pages of 2 MB).
template <class Quad>
HWY_NOINLINE void OneRow(const typename Quad::Input* HWY_RESTRICT x, size_t k, const int8_t* HWY_RESTRICT b,
                         int32_t* HWY_RESTRICT out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const TileD d;
  TileV c[4];
  HWY_UNROLL(4)
  for (int v = 0; v < 4; ++v) c[v] = hn::Zero(d);
  size_t i = 0;
  for (; i + 8 <= k; i += 8, b += 128) {
    TileV w[4];
    HWY_UNROLL(4)
    for (int v = 0; v < 4; ++v) w[v] = hn::Load(d, reinterpret_cast<const int32_t*>(b) + 8 * v);
    HWY_UNROLL(4)
    for (int v = 0; v < 4; ++v) Quad::DotAll(c[v], x + i + v / 2 * 4, w[v]);
  }
  if (i < k) {
    HWY_UNROLL(2)
    for (int v = 0; v < 2; ++v) Quad::DotAll(c[v], x + i, hn::Load(d, reinterpret_cast<const int32_t*>(b) + 8 * v));
  }
  hn::Store(hn::Add(c[0], c[2]), d, out);
  hn::Store(hn::Add(c[1], c[3]), d, out + 8);
}

// Vectors at a time, so that sums, weights and the row fit into the registers (16 ymm or 32 zmm).
constexpr int SmallVectors(int rows) { return HWY_TARGET != HWY_AVX2 && rows <= 4 ? 4 : 2; }

template <class Quad, int kRows>
HWY_INLINE void SmallOf(const typename Quad::Input* x, size_t stride, size_t k, const int8_t* const panels[4],
                        bool one_stream, int32_t* out) {
  constexpr bool kYmm = HWY_TARGET == HWY_AVX2;
  if constexpr (kYmm && kRows == 1) {
    if (!one_stream) return SmallColumns<Quad, 1, 8, 1>(x, stride, k, panels, nullptr, out);
    for (int p = 0; p < 4; ++p) OneRow<Quad>(x, k, panels[p], out + 16 * p);
  } else if constexpr (kYmm && kRows > Quad::kMostRows) {
    // Does not fit: two passes over 16 columns at a time, the second of which finds them in L1.
    for (int p = 0; p < 4; ++p) {
      const int8_t* b[2] = {panels[p], panels[p] + 32};
      SmallTile<Quad, 4, 2, 1>(x, stride, k, b, nullptr, out + 16 * p);
      SmallTile<Quad, kRows - 4, 2, 1>(x + 4 * stride, stride, k, b, nullptr, out + 4 * 64 + 16 * p);
    }
  } else {
    constexpr int kSplit = kRows <= (kYmm ? 2 : 1) ? 2 : 1;
    SmallColumns<Quad, kRows, SmallVectors(kRows), kSplit>(x, stride, k, panels, nullptr, out);
  }
}

// out: [8][64].
template <class Quad>
HWY_INLINE void SmallRows(const typename Quad::Input* x, size_t stride, size_t k, int rows,
                          const int8_t* const panels[4], bool one_stream, int32_t* out) {
  switch (rows) {
    case 1:
      return SmallOf<Quad, 1>(x, stride, k, panels, one_stream, out);
    case 2:
      return SmallOf<Quad, 2>(x, stride, k, panels, one_stream, out);
    case 3:
      return SmallOf<Quad, 3>(x, stride, k, panels, one_stream, out);
    case 4:
      return SmallOf<Quad, 4>(x, stride, k, panels, one_stream, out);
    case 5:
      return SmallOf<Quad, 5>(x, stride, k, panels, one_stream, out);
    case 6:
      return SmallOf<Quad, 6>(x, stride, k, panels, one_stream, out);
    case 7:
      return SmallOf<Quad, 7>(x, stride, k, panels, one_stream, out);
    default:
      return SmallOf<Quad, 8>(x, stride, k, panels, one_stream, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
