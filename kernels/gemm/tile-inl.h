// The inner loops of the int8 product: up to 6 rows x 64 columns (VNNI) or x 2 vectors (s16), all of k, into int32.
// Per target. Named accumulators that assembly accumulates into, and a run-time k: GCC 14 otherwise copies or spills
// them and runs at half the speed.
#if defined(OCTAVO_KERNELS_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_GEMM_TILE_INL_H_
#undef OCTAVO_KERNELS_GEMM_TILE_INL_H_
#else
#define OCTAVO_KERNELS_GEMM_TILE_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

using TileD = hwy::HWY_NAMESPACE::ScalableTag<int32_t>;
using TileV = hwy::HWY_NAMESPACE::Vec<TileD>;

// c += a . b, two products of s16 a lane (vpmaddwd), in the register of the sum. One piece of assembly: around intrinsics
// GCC 14.2 copies up to 8 sums of 12 a step, and with the addition alone as assembly still 4, or spills.
HWY_INLINE void PairDot(TileV& c, TileV a, TileV b) {
  TileV product;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(c.raw), "=v"(product.raw) : "v"(a.raw), "v"(b.raw));
}

// sum += the products of u8 and s8, two added to an s16 (vpmaddubsw); the caller sees that nothing saturates.
HWY_INLINE void PairAdd(TileV& sum, TileV u8, TileV s8) {
  TileV product;
  asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+v"(sum.raw), "=&v"(product.raw) : "v"(u8.raw), "v"(s8.raw));
}

HWY_INLINE TileV Broadcast4(const void* p) {
  int32_t word;
  std::memcpy(&word, p, 4);
  return hwy::HWY_NAMESPACE::Set(TileD(), word);
}

HWY_INLINE TileV Broadcast8(const void* p) {
  namespace hn = hwy::HWY_NAMESPACE;
  int64_t words;
  std::memcpy(&words, p, 8);
  return hn::BitCast(TileD(), hn::Set(hn::Repartition<int64_t, TileD>(), words));
}

// Memory that comes to L2 while tiles run: a line from `first` in every `period`-th step of 64 bytes, one from `second`
// in every `period2`-th. In bytes; powers of two, period2 no smaller.
struct Ahead {
  const int8_t* first = nullptr;
  const int8_t* second = nullptr;
  size_t period = 64;
  size_t period2 = 64;

  HWY_INLINE void Step(size_t at) {
    if ((at & (period - 1)) != 0) return;
    asm volatile("prefetcht2 (%0)" ::"r"(first));
    first += 64;
    if ((at & (period2 - 1)) != 0) return;
    asm volatile("prefetcht2 (%0)" ::"r"(second));
    second += 64;
  }
  // After a tile, which has worked on a copy.
  void Advance(size_t k) {
    first += (k * 16 + period - 1) / period * 64;
    second += (k * 16 + period2 - 1) / period2 * 64;
  }
};

// The same where a tile takes ten times as long: a few lines at once before it are spread enough, many (few rows) go with
// the steps of S16Tile.
struct AheadInBursts {
  static constexpr size_t kMost = 24;  // more at once lose

  const int8_t* next = nullptr;
  size_t lines = 1;  // for each call of a tile

  HWY_INLINE void Fetch() {
    if (lines > kMost) return;
    for (size_t i = 0; i < lines; ++i) asm volatile("prefetcht2 (%0)" ::"r"(next + i * 64));
    Pass();
  }
  // For a tile that fetches them itself: values of k from line to line.
  size_t Every(size_t k) const { return (k / 4 + lines - 1) / lines * 4; }
  HWY_INLINE void Pass() { next += lines * 64; }
};

#if HWY_TARGET != HWY_AVX3
// vpdpbusd: zmm, or in its VEX form on ymm (AVX-VNNI), which the compiler only knows under a flag of its own. The zmm
// form is assembly too: around the intrinsic GCC 14.2 leaves six copies of sums in a step of 6x64, pinned or not.
HWY_INLINE void VnniDot(TileV& c, TileV a, TileV b) {
#if HWY_TARGET == HWY_AVX2
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(c.raw) : "x"(a.raw), "x"(b.raw));
#else
  asm("vpdpbusd %2, %1, %0" : "+v"(c.raw) : "v"(a.raw), "v"(b.raw));
#endif
  asm("" : "+v"(c.raw));  // else it moves the sums of 4 x 4 in a circle: 6 copies of 34 instructions
}
#endif

#if HWY_TARGET <= HWY_AVX3_DL

struct VnniRow {
  TileV c0, c1, c2, c3;

  HWY_INLINE void Init(const int32_t* init) {
    namespace hn = hwy::HWY_NAMESPACE;
    const TileD d;
    c0 = hn::Load(d, init);
    c1 = hn::Load(d, init + 16);
    c2 = hn::Load(d, init + 32);
    c3 = hn::Load(d, init + 48);
  }
  HWY_INLINE void Step(const uint8_t* x, TileV b0, TileV b1, TileV b2, TileV b3) {
    const TileV a = Broadcast4(x);
    VnniDot(c0, a, b0);
    VnniDot(c1, a, b1);
    VnniDot(c2, a, b2);
    VnniDot(c3, a, b3);
  }
  HWY_INLINE void Store(int32_t* out) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const TileD d;
    hn::Store(c0, d, out);
    hn::Store(c1, d, out + 16);
    hn::Store(c2, d, out + 32);
    hn::Store(c3, d, out + 48);
  }
};

// The end of a tile: its sums to out[r][64].
struct BufferFinish {
  int32_t* out;

  HWY_INLINE void Begin(int) const {}
  struct End {
    int32_t* out;
    HWY_INLINE explicit End(const BufferFinish& finish) : out(finish.out) {}
    HWY_INLINE void Store(int r, const VnniRow& row) const { row.Store(out + r * 64); }
  };
};

// init + x[r] . b, then what `finish` makes of it; x: rows of u8, `k` bytes each (a multiple of 4), b: four panels.
template <int kRows, class Finish>
HWY_NOINLINE void VnniTile(const uint8_t* HWY_RESTRICT x, size_t stride, size_t k, const int8_t* const b[4],
                           const int32_t* init, const Finish& finish, const Ahead& ahead_of_tile) {
  finish.Begin(kRows);
  Ahead ahead = ahead_of_tile;
  const auto load = [](const int8_t* p)
                        HWY_ATTR { return hwy::HWY_NAMESPACE::Load(TileD(), reinterpret_cast<const int32_t*>(p)); };
  const int8_t* const b0 = b[0];
  const int8_t* const b1 = b[1];
  const int8_t* const b2 = b[2];
  const int8_t* const b3 = b[3];
  VnniRow r0, r1, r2, r3, r4, r5;
  r0.Init(init);
  if constexpr (kRows > 1) r1.Init(init);
  if constexpr (kRows > 2) r2.Init(init);
  if constexpr (kRows > 3) r3.Init(init);
  if constexpr (kRows > 4) r4.Init(init);
  if constexpr (kRows > 5) r5.Init(init);
  const uint8_t* x3 = x + 3 * stride;
  for (size_t i = 0; i < k * 16; i += 64) {
    ahead.Step(i);
    const TileV v0 = load(b0 + i), v1 = load(b1 + i), v2 = load(b2 + i), v3 = load(b3 + i);
    r0.Step(x, v0, v1, v2, v3);
    if constexpr (kRows > 1) r1.Step(x + stride, v0, v1, v2, v3);
    if constexpr (kRows > 2) r2.Step(x + 2 * stride, v0, v1, v2, v3);
    if constexpr (kRows > 3) r3.Step(x3, v0, v1, v2, v3);
    if constexpr (kRows > 4) r4.Step(x3 + stride, v0, v1, v2, v3);
    if constexpr (kRows > 5) r5.Step(x3 + 2 * stride, v0, v1, v2, v3);
    x += 4, x3 += 4;
    asm("" : "+r"(x), "+r"(x3));  // else GCC takes a pointer a row, and has too few registers
  }
  typename Finish::End end(finish);
  end.Store(0, r0);
  if constexpr (kRows > 1) end.Store(1, r1);
  if constexpr (kRows > 2) end.Store(2, r2);
  if constexpr (kRows > 3) end.Store(3, r3);
  if constexpr (kRows > 4) end.Store(4, r4);
  if constexpr (kRows > 5) end.Store(5, r5);
}

#else  // AVX2, AVX-512 without VNNI: s16 pairs, exact (two products of at most 255 * 128 fit)

// A row and as many columns as a vector has lanes: the first half of the columns in c0, the others in c1, each in two lanes, whose
// sum it is.
struct S16Row {
  TileV c0, c1;

  HWY_INLINE void Init() {
    c0 = hwy::HWY_NAMESPACE::Zero(TileD());
    c1 = c0;
  }
  // Four values of k. Both products before both additions, the second one in the register of the row: an addition may take any of
  // Zen's four pipes, also the two that multiply (Zen 3, a loop of these: 0.965 of the peak, 0.89 to 0.91 the other way).
  HWY_INLINE void Step(const int16_t* x, TileV b0, TileV b1) {
    TileV a = Broadcast8(x), product;
    asm("vpmaddwd %4, %2, %3\n\tvpmaddwd %5, %2, %2\n\tvpaddd %3, %0, %0\n\tvpaddd %2, %1, %1"
        : "+v"(c0.raw), "+v"(c1.raw), "+v"(a.raw), "=&v"(product.raw)
        : "v"(b0.raw), "v"(b1.raw));
  }
  HWY_INLINE void Store(int32_t* out) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const TileD d;
    hn::Store(hn::Add(hn::ConcatEven(d, c1, c0), hn::ConcatOdd(d, c1, c0)), d, out);
  }
};

using TileD16 = hwy::HWY_NAMESPACE::Repartition<int16_t, TileD>;

// Half a vector of weights as they are packed, four values of k for each column.
HWY_INLINE TileV WidenQuads(const int8_t* b) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::BitCast(TileD(), hn::PromoteTo(TileD16(), hn::Load(hn::Rebind<int8_t, TileD16>(), b)));
}

// A vector's lanes of columns as S16Tile widens them, for WideTile. On three vector ports (Intel) that is 2 of the 26 operations of a
// step of 6 rows, and many rows share it.
HWY_INLINE void DecodeColumns(const int8_t* b, size_t k, int16_t* HWY_RESTRICT out) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr size_t kLanes = hn::MaxLanes(TileD16());
  for (size_t i = 0; i < k; i += 4, out += 2 * kLanes) {
    hn::Store(hn::BitCast(TileD16(), WidenQuads(b + i * 16)), TileD16(), out);
    hn::Store(hn::BitCast(TileD16(), WidenQuads(b + i * 16 + kLanes)), TileD16(), out + kLanes);
  }
}

// Named, not an array, like all sums here.
template <int kRows>
struct S16Rows {
  S16Row r0, r1, r2, r3, r4, r5;

  HWY_INLINE void Init() {
    r0.Init();
    if constexpr (kRows > 1) r1.Init();
    if constexpr (kRows > 2) r2.Init();
    if constexpr (kRows > 3) r3.Init();
    if constexpr (kRows > 4) r4.Init();
    if constexpr (kRows > 5) r5.Init();
  }
  HWY_INLINE void Step(const int16_t* x, size_t stride, TileV b0, TileV b1) {
    r0.Step(x, b0, b1);
    if constexpr (kRows > 1) r1.Step(x + stride, b0, b1);
    if constexpr (kRows > 2) r2.Step(x + 2 * stride, b0, b1);
    if constexpr (kRows > 3) r3.Step(x + 3 * stride, b0, b1);
    if constexpr (kRows > 4) r4.Step(x + 4 * stride, b0, b1);
    if constexpr (kRows > 5) r5.Step(x + 5 * stride, b0, b1);
  }
  HWY_INLINE void Store(int32_t* out) const {
    r0.Store(out);
    if constexpr (kRows > 1) r1.Store(out + 64);
    if constexpr (kRows > 2) r2.Store(out + 128);
    if constexpr (kRows > 3) r3.Store(out + 192);
    if constexpr (kRows > 4) r4.Store(out + 256);
    if constexpr (kRows > 5) r5.Store(out + 320);
  }
};

// out[r][64], a vector's lanes of columns = x[r] . b; x: rows of s16, `k` values each; b: what DecodeColumns wrote.
template <int kRows>
HWY_NOINLINE void WideTile(const int16_t* HWY_RESTRICT x, size_t stride, size_t k, const int16_t* HWY_RESTRICT b,
                           int32_t* HWY_RESTRICT out) {
  constexpr size_t kLanes = hwy::HWY_NAMESPACE::MaxLanes(TileD16());
  const auto load = [](const int16_t* p)
                        HWY_ATTR { return hwy::HWY_NAMESPACE::Load(TileD(), reinterpret_cast<const int32_t*>(p)); };
  S16Rows<kRows> rows;
  rows.Init();
  for (size_t i = 0; i < k; i += 4, b += 2 * kLanes) rows.Step(x + i, stride, load(b), load(b + kLanes));
  rows.Store(out);
}

// The same with the weights as they are packed; b: where the columns begin in their panel. A line from `next` on comes to L2 before
// every `every` values of k.
template <int kRows>
HWY_NOINLINE void S16Tile(const int16_t* HWY_RESTRICT x, size_t stride, size_t k, const int8_t* b,
                          int32_t* HWY_RESTRICT out, const int8_t* next, size_t every) {
  constexpr size_t kHalf = hwy::HWY_NAMESPACE::MaxLanes(TileD16());
  S16Rows<kRows> rows;
  rows.Init();
  for (size_t i = 0; i < k;) {
    asm volatile("prefetcht2 (%0)" ::"r"(next));
    next += 64;
    const size_t end = i + every < k ? i + every : k;
    for (; i < end; i += 4) {
      rows.Step(x + i, stride, WidenQuads(b + i * 16), WidenQuads(b + i * 16 + kHalf));
    }
  }
  rows.Store(out);
}

// Four products of u8 and s8 a lane, summed to two s16. Exact where the weights are certified.
HWY_INLINE TileV PairSums(TileV a, TileV b) {
  TileV sums;
  asm("vpmaddubsw %2, %1, %0" : "=v"(sums.raw) : "v"(a.raw), "v"(b.raw));
  return sums;
}

HWY_INLINE TileV OnesOfPairs() {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::BitCast(TileD(), hn::Set(hn::Repartition<int16_t, TileD>(), int16_t{1}));
}

alignas(64) inline constexpr auto kOnesOfPairs = [] {
  struct {
    int16_t at[hwy::HWY_NAMESPACE::MaxLanes(hwy::HWY_NAMESPACE::Repartition<int16_t, TileD>())];
  } ones{};
  for (int16_t& v : ones.at) v = 1;
  return ones;
}();

struct PairRow {
  TileV c0, c1;

  HWY_INLINE void Init(const int32_t* init) {
    const TileD d;
    c0 = hwy::HWY_NAMESPACE::Load(d, init);
    c1 = hwy::HWY_NAMESPACE::Load(d, init + hwy::HWY_NAMESPACE::MaxLanes(d));
  }
  HWY_INLINE void Step(const uint8_t* x, TileV b0, TileV b1, TileV ones) {
    TileV a = Broadcast4(x), sums;
    asm("vpmaddubsw %4, %2, %3\n\tvpmaddubsw %5, %2, %2\n\tvpmaddwd %6, %3, %3\n\tvpmaddwd %6, %2, %2\n\t"
        "vpaddd %3, %0, %0\n\tvpaddd %2, %1, %1"
        : "+v"(c0.raw), "+v"(c1.raw), "+v"(a.raw), "=&v"(sums.raw)
        : "v"(b0.raw), "v"(b1.raw), "v"(ones.raw));
  }
  // Two quads: their s16 sums are added before they are widened. The ones stay in memory: eight sums, four weights, two
  // words of the row and two products are 16 registers.
  HWY_INLINE void Step2(const uint8_t* x, const TileV (&b)[4]) {
    const TileV a = Broadcast4(x), next = Broadcast4(x + 4);
    Widen(c0, AddPairs(PairSums(a, b[0]), PairSums(next, b[2])));
    Widen(c1, AddPairs(PairSums(a, b[1]), PairSums(next, b[3])));
  }
  static HWY_INLINE void Widen(TileV& c, TileV sums) {
    asm("vpmaddwd %2, %1, %1\n\tvpaddd %1, %0, %0" : "+v"(c.raw), "+v"(sums.raw) : "m"(kOnesOfPairs));
  }
  static HWY_INLINE TileV AddPairs(TileV a, TileV b) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::Repartition<int16_t, TileD> d16;
    return hn::BitCast(TileD(), hn::Add(hn::BitCast(d16, a), hn::BitCast(d16, b)));
  }
  HWY_INLINE void Store(int32_t* out) const {
    const TileD d;
    hwy::HWY_NAMESPACE::Store(c0, d, out);
    hwy::HWY_NAMESPACE::Store(c1, d, out + hwy::HWY_NAMESPACE::MaxLanes(d));
  }
};

// out[r][64], two vectors of columns = init + x[r] . b, for certified panels; kQuads as (PackedWeights::SafeQuads).
// Up to four rows, so that 16 ymm hold the sums, two quads of weights, the ones and the product.
template <int kRows, int kQuads>
HWY_NOINLINE void PairTile(const uint8_t* HWY_RESTRICT x, size_t stride, size_t k, const int8_t* b0, const int8_t* b1,
                           const int32_t* init, int32_t* HWY_RESTRICT out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const TileD d;
  const TileV ones = OnesOfPairs();
  const auto load = [&](const int8_t* p) HWY_ATTR { return hn::Load(d, reinterpret_cast<const int32_t*>(p)); };
  PairRow r0, r1, r2, r3;
  r0.Init(init);
  if constexpr (kRows > 1) r1.Init(init);
  if constexpr (kRows > 2) r2.Init(init);
  if constexpr (kRows > 3) r3.Init(init);
  size_t i = 0;
  if constexpr (kQuads == 2) {
    for (; i + 8 <= k; i += 8) {
      const TileV b[4] = {load(b0 + i * 16), load(b1 + i * 16), load(b0 + i * 16 + 64), load(b1 + i * 16 + 64)};
      r0.Step2(x + i, b);
      if constexpr (kRows > 1) r1.Step2(x + i + stride, b);
      if constexpr (kRows > 2) r2.Step2(x + i + 2 * stride, b);
      if constexpr (kRows > 3) r3.Step2(x + i + 3 * stride, b);
    }
  }
  for (; i < k; i += 4) {
    const TileV v0 = load(b0 + i * 16), v1 = load(b1 + i * 16);
    r0.Step(x + i, v0, v1, ones);
    if constexpr (kRows > 1) r1.Step(x + i + stride, v0, v1, ones);
    if constexpr (kRows > 2) r2.Step(x + i + 2 * stride, v0, v1, ones);
    if constexpr (kRows > 3) r3.Step(x + i + 3 * stride, v0, v1, ones);
  }
  r0.Store(out);
  if constexpr (kRows > 1) r1.Store(out + 64);
  if constexpr (kRows > 2) r2.Store(out + 128);
  if constexpr (kRows > 3) r3.Store(out + 192);
}

#endif  // VNNI or s16
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
