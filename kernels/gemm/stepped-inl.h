// Weights of 4 bits with steps (PackedWeights::stepped), per target. They are the integers that 8 bits would be, so every form of the
// product takes them.
//
// Many rows: a block of 64 columns is widened once for all of them (WidenPanels), which takes a tenth of the time of 128 rows with VNNI
// and a fifth with AMX (docs/lab/blocked-weights.md). VNNI and AMX read weights of s8. Without VNNI the panels hold code - zero: four quads of
// its products with u8 are at most 8 * 255 * 15 and stay in s16, and vpmaddwd multiplies them by the step while it widens (SteppedPairs).
// 1 to 8 rows: the same in registers, and the weights are read once.
#if defined(OCTAVO_KERNELS_GEMM_STEPPED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_GEMM_STEPPED_INL_H_
#undef OCTAVO_KERNELS_GEMM_STEPPED_INL_H_
#else
#define OCTAVO_KERNELS_GEMM_STEPPED_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/gemm/block-inl.h"
#include "octavo/kernels/gemm/form-inl.h"
#include "octavo/kernels/gemm/gemm.h"
#include "octavo/kernels/gemm/tile-inl.h"
#include "octavo/kernels/tile/rows-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

constexpr int kTileLanes = static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(TileD()));

// What 16 k of a vector's columns share.
struct StepOf {
  TileV step;  // in both s16 of a column
  TileV zero;  // in its four bytes; of weights (kOfWeights) times the step

  template <bool kOfWeights>
  static HWY_INLINE StepOf Load(const uint8_t* p) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::Repartition<uint8_t, TileD> d8;
    const hn::Repartition<uint16_t, TileD> d16;
    const auto bytes = hn::BitCast(d8, hn::PromoteTo(TileD(), hn::LoadU(hn::Rebind<uint8_t, TileD>(), p)));
    const auto all =
        hn::TableLookupBytes(bytes, hn::Dup128VecFromValues(d8, 0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    const auto zeros = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, all))), hn::Set(d8, 15));
    const auto step = hn::And(hn::BitCast(d16, all), hn::Set(d16, 15));
    if constexpr (!kOfWeights) return {hn::BitCast(TileD(), step), hn::BitCast(TileD(), zeros)};
    // step * zero is at most 225, so that two bytes of 16 bits do not touch.
    return {hn::BitCast(TileD(), step), hn::BitCast(TileD(), hn::Mul(hn::BitCast(d16, zeros), step))};
  }
};

// Four k of a vector's columns out of a line: weights, or code - zero.
template <bool kHigh, bool kOfWeights>
HWY_INLINE TileV QuadOf(TileV line, const StepOf& s) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Repartition<uint8_t, TileD> d8;
  const hn::Repartition<uint16_t, TileD> d16;
  auto codes = hn::BitCast(d16, line);
  if constexpr (kHigh) codes = hn::ShiftRight<4>(codes);
  codes = hn::And(codes, hn::Set(d16, 0x0F0F));
  if constexpr (kOfWeights) codes = hn::Mul(codes, hn::BitCast(d16, s.step));
  return hn::BitCast(TileD(), hn::Sub(hn::BitCast(d8, codes), hn::BitCast(d8, s.zero)));
}

// Four panels to [4][k_padded / 4][16][4]; kOfWeights: the weights, else code - zero, and behind the panels the steps of each 16 k of each
// panel in both s16 of 16 dwords.
template <bool kOfWeights>
HWY_NOINLINE void WidenPanels(const int8_t* const (&panels)[4], int64_t k_padded, int8_t* HWY_RESTRICT out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const TileD d;
  int8_t* steps = out + 4 * 16 * k_padded;
  for (int p = 0; p < 4; ++p) {
    const auto* unit = reinterpret_cast<const uint8_t*>(panels[p]);
    for (int64_t k = 0; k < k_padded; k += 64, unit += PackedWeights::kSteppedUnit) {
      asm volatile("prefetcht0 (%0)" ::"r"(unit + 2 * PackedWeights::kSteppedUnit));
      for (int64_t b = 0; b < 4; ++b, out += 256) {
        HWY_UNROLL(2)
        for (int c = 0; c < 16; c += kTileLanes) {
          const StepOf s = StepOf::Load<kOfWeights>(unit + b * 16 + c);
          if constexpr (!kOfWeights) {
            hn::Store(s.step, d, reinterpret_cast<int32_t*>(steps) + c);
          }
          HWY_UNROLL(2)
          for (int64_t i = 0; i < 2; ++i) {
            const TileV line = hn::Load(d, reinterpret_cast<const int32_t*>(unit + 64 + (2 * b + i) * 64 + c * 4));
            hn::Store(QuadOf<false, kOfWeights>(line, s), d, reinterpret_cast<int32_t*>(out + i * 128 + c * 4));
            hn::Store(QuadOf<true, kOfWeights>(line, s), d, reinterpret_cast<int32_t*>(out + i * 128 + 64 + c * 4));
          }
        }
        if constexpr (!kOfWeights) steps += 64;
      }
    }
  }
}

// The place of a block whose weights have steps becomes that of its panels in `wide`; other weights stay where they are.
template <bool kOfWeights>
HWY_INLINE void WidenBlock(const PackedWeights& w, int8_t* wide, ColumnsOfBlock* b) {
  if (!w.stepped()) return;
  WidenPanels<kOfWeights>(b->panels, w.k_padded(), wide);
  for (int p = 0; p < 4; ++p) b->panels[p] = wide + p * 16 * w.k_padded();
}

// Lines of so many bytes of each panel are asked for, so far ahead; 0: none.
inline int64_t SteppedAhead(const Tuning& tuning, int64_t rows) {
  if (tuning.asks_near) return 2048;
  if (HWY_TARGET != HWY_AVX2 || (rows == 1 && tuning.one_stream)) return 0;
  return rows == 1 ? 2048 : 12288;
}

// Where a tile reads the weights of its vectors of columns: units of 64 k, and each vector's place in them.
template <int kV>
struct SteppedPlace {
  const uint8_t* unit[kV];
  int column[kV];
};

// Sums of 4 k: of weights, or of codes less zeros in s16, which begin anew where a step does.
template <bool kPairs, bool kBegins, int kRows, int kV>
HWY_INLINE void SteppedQuad(const uint8_t* x, size_t stride, const TileV (&w)[kV], TileV (&sum)[kRows][kV]) {
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    const TileV a = Broadcast4(x + static_cast<size_t>(r) * stride);
    HWY_UNROLL(4)
    for (int v = 0; v < kV; ++v) {
      if constexpr (!kPairs) {
#if HWY_TARGET != HWY_AVX3
        VnniDot(sum[r][v], a, w[v]);
#endif
      } else if constexpr (kBegins) {
        sum[r][v] = PairSums(a, w[v]);
      } else {
        PairAdd(sum[r][v], a, w[v]);
      }
    }
  }
}

// 8 k, `at` of the unit and of x; kWhole: or 4.
template <bool kPairs, bool kBegins, bool kWhole, int kRows, int kV>
HWY_INLINE void SteppedLine(const SteppedPlace<kV>& p, int64_t at, const uint8_t* x, size_t stride,
                            const StepOf (&s)[kV], TileV (&first)[kRows][kV], TileV (&second)[kRows][kV]) {
  TileV line[kV], w[kV];
  HWY_UNROLL(4)
  for (int v = 0; v < kV; ++v)
    line[v] =
        hwy::HWY_NAMESPACE::LoadU(TileD(), reinterpret_cast<const int32_t*>(p.unit[v] + 64 + at * 8 + p.column[v] * 4));
  HWY_UNROLL(4)
  for (int v = 0; v < kV; ++v) w[v] = QuadOf<false, !kPairs>(line[v], s[v]);
  SteppedQuad<kPairs, kBegins>(x + at, stride, w, first);
  if constexpr (kWhole) {
    HWY_UNROLL(4)
    for (int v = 0; v < kV; ++v) w[v] = QuadOf<true, !kPairs>(line[v], s[v]);
    SteppedQuad<kPairs, false>(x + at + 4, stride, w, second);
  }
}

// 16 k, or the first kQuads * 4 of them. Sums: c, and beside them what kPairs has not widened yet, or a second chain.
template <bool kPairs, bool kTwoChains, int kQuads, int kRows, int kV>
HWY_INLINE void SteppedStep(const SteppedPlace<kV>& p, int64_t at, const uint8_t* x, size_t stride,
                            TileV (&c)[kRows][kV], TileV (&beside)[kRows][kV]) {
  StepOf s[kV];
  HWY_UNROLL(4)
  for (int v = 0; v < kV; ++v) s[v] = StepOf::Load<!kPairs>(p.unit[v] + at + p.column[v]);  // 16 bytes for 16 k
  auto& first = kPairs ? beside : c;
  auto& second = kPairs || kTwoChains ? beside : c;
  SteppedLine<kPairs, true, (kQuads > 1)>(p, at, x, stride, s, first, second);
  if constexpr (kQuads > 2) SteppedLine<kPairs, false, (kQuads > 3)>(p, at + 8, x, stride, s, first, second);
  HWY_UNROLL(8)
  for (int r = 0; kPairs && r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kV; ++v) PairDot(c[r][v], beside[r][v], s[v].step);
  }
}

// out[r][64], kV vectors of columns from `out` on. kPairs: without VNNI. k: a multiple of 4.
template <bool kPairs, int kRows, int kV>
HWY_NOINLINE void SteppedTile(const uint8_t* HWY_RESTRICT x, size_t stride, int64_t k, const SteppedPlace<kV>& place,
                              int64_t ahead, int32_t* HWY_RESTRICT out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const TileD d;
  constexpr bool kTwoChains = !kPairs && kRows * kV <= 4;
  TileV c[kRows][kV], beside[kRows][kV];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kV; ++v) c[r][v] = beside[r][v] = hn::Zero(d);
  }
  SteppedPlace<kV> p = place;
  for (; k >= 64; k -= 64, x += 64) {
    HWY_UNROLL(4)
    for (int v = 0; ahead != 0 && v < kV; v += 16 / kTileLanes) {
      for (int64_t i = 0; i < PackedWeights::kSteppedUnit; i += 64)
        asm volatile("prefetcht2 (%0)" ::"r"(p.unit[v] + ahead + i));
    }
    for (int64_t at = 0; at < 64; at += kStepRows) SteppedStep<kPairs, kTwoChains, 4>(p, at, x, stride, c, beside);
    HWY_UNROLL(4)
    for (int v = 0; v < kV; ++v) p.unit[v] += PackedWeights::kSteppedUnit;
  }
  int64_t at = 0;
  for (; at + kStepRows <= k; at += kStepRows) SteppedStep<kPairs, kTwoChains, 4>(p, at, x, stride, c, beside);
  if (k - at == 12) SteppedStep<kPairs, kTwoChains, 3>(p, at, x, stride, c, beside);
  if (k - at == 8) SteppedStep<kPairs, kTwoChains, 2>(p, at, x, stride, c, beside);
  if (k - at == 4) SteppedStep<kPairs, kTwoChains, 1>(p, at, x, stride, c, beside);
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kV; ++v)
      hn::Store(kTwoChains ? hn::Add(c[r][v], beside[r][v]) : c[r][v], d, out + r * 64 + v * kTileLanes);
  }
}

// out[r][64], 64 columns, kV vectors of them at a time.
template <bool kPairs, int kRows, int kV>
HWY_INLINE void SteppedColumns(const uint8_t* x, size_t stride, int64_t k, const int8_t* const (&panels)[4],
                               int64_t ahead, int32_t* out) {
  for (int c = 0; c < 64; c += kV * kTileLanes) {
    SteppedPlace<kV> place;
    for (int v = 0; v < kV; ++v) {
      const int at = c + v * kTileLanes;
      place.unit[v] = reinterpret_cast<const uint8_t*>(panels[at / 16]), place.column[v] = at % 16;
    }
    SteppedTile<kPairs, kRows, kV>(x, stride, k, place, ahead, out + c);
  }
}

// 1 to 8 rows x 64 columns; as many rows at once as the registers hold the sums of, the others find the weights in L2.
template <bool kPairs>
void SteppedRows(const uint8_t* x, size_t stride, int64_t k, int64_t rows, const int8_t* const (&panels)[4],
                 const Tuning& tuning, int32_t* out) {
  constexpr bool kYmm = HWY_TARGET == HWY_AVX2;
  constexpr int kPanel = 16 / kTileLanes, kMost = kYmm ? 4 : 8;
  const int64_t ahead = SteppedAhead(tuning, rows);
  if (rows == 1 && !tuning.one_stream) {
    return SteppedColumns<kPairs, 1, kYmm ? 2 : 4>(x, stride, k, panels, ahead, out);
  }
  for (int64_t r = 0; r < rows; r += kMost) {
    WithRows<kMost>(std::min<int64_t>(rows - r, kMost), [&]<int kRows>() HWY_ATTR {
      SteppedColumns<kPairs, kRows, kRows == 1 ? kPanel : 1>(x + r * static_cast<int64_t>(stride), stride, k, panels,
                                                             r == 0 ? ahead : 0, out + r * 64);
    });
  }
}

#if HWY_TARGET > HWY_AVX3_DL
// A row of two vectors of columns: sums, and those of one step in s16. Named, like all sums (tile-inl.h).
struct SteppedRow {
  TileV c0, c1, e0, e1;

  HWY_INLINE void Init(const int32_t* init) {
    namespace hn = hwy::HWY_NAMESPACE;
    c0 = hn::Load(TileD(), init), c1 = hn::Load(TileD(), init + kTileLanes);
  }
  template <bool kFirst>
  HWY_INLINE void Quad(const uint8_t* x, TileV w0, TileV w1) {
    const TileV a = Broadcast4(x);
    if constexpr (kFirst) {
      e0 = PairSums(a, w0), e1 = PairSums(a, w1);
    } else {
      PairAdd(e0, a, w0), PairAdd(e1, a, w1);
    }
  }
  // Times the steps, which stay in memory: sums of three rows, weights, a word of the row and a product are 16 registers.
  HWY_INLINE void End(const int8_t* step0, const int8_t* step1) { Widen(c0, e0, step0), Widen(c1, e1, step1); }
  static HWY_INLINE void Widen(TileV& c, TileV sums, const int8_t* step) {
    struct Bytes {
      int8_t at[kTileLanes * 4];
    };
    asm("vpmaddwd %2, %1, %1\n\tvpaddd %1, %0, %0"
        : "+v"(c.raw), "+v"(sums.raw)
        : "m"(*reinterpret_cast<const Bytes*>(step)));
  }
  HWY_INLINE void Store(int32_t* out) const {
    namespace hn = hwy::HWY_NAMESPACE;
    hn::Store(c0, TileD(), out), hn::Store(c1, TileD(), out + kTileLanes);
  }
};

template <int kRows>
struct SteppedRowsOfTile {
  SteppedRow r0, r1, r2, r3, r4, r5;

  HWY_INLINE void Init(const int32_t* init) {
    r0.Init(init);
    if constexpr (kRows > 1) r1.Init(init);
    if constexpr (kRows > 2) r2.Init(init);
    if constexpr (kRows > 3) r3.Init(init);
    if constexpr (kRows > 4) r4.Init(init);
    if constexpr (kRows > 5) r5.Init(init);
  }
  template <bool kFirst>
  HWY_INLINE void Quad(const uint8_t* x, const uint8_t* x3, size_t stride, const int8_t* b0, const int8_t* b1) {
    namespace hn = hwy::HWY_NAMESPACE;
    const TileV w0 = hn::Load(TileD(), reinterpret_cast<const int32_t*>(b0));
    const TileV w1 = hn::Load(TileD(), reinterpret_cast<const int32_t*>(b1));
    r0.template Quad<kFirst>(x, w0, w1);
    if constexpr (kRows > 1) r1.template Quad<kFirst>(x + stride, w0, w1);
    if constexpr (kRows > 2) r2.template Quad<kFirst>(x + 2 * stride, w0, w1);
    if constexpr (kRows > 3) r3.template Quad<kFirst>(x3, w0, w1);
    if constexpr (kRows > 4) r4.template Quad<kFirst>(x3 + stride, w0, w1);
    if constexpr (kRows > 5) r5.template Quad<kFirst>(x3 + 2 * stride, w0, w1);
  }
  HWY_INLINE void End(const int8_t* step0, const int8_t* step1) {
    r0.End(step0, step1);
    if constexpr (kRows > 1) r1.End(step0, step1);
    if constexpr (kRows > 2) r2.End(step0, step1);
    if constexpr (kRows > 3) r3.End(step0, step1);
    if constexpr (kRows > 4) r4.End(step0, step1);
    if constexpr (kRows > 5) r5.End(step0, step1);
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

// kRows x 2 vectors of columns of what WidenPanels<false> made: out = init + x . w; b: where the columns begin in their panels, steps too.
template <int kRows>
HWY_NOINLINE void SteppedPairs(const uint8_t* HWY_RESTRICT x, size_t stride, size_t k, const int8_t* b0,
                               const int8_t* b1, const int8_t* step0, const int8_t* step1, const int32_t* init,
                               int32_t* HWY_RESTRICT out) {
  SteppedRowsOfTile<kRows> rows;
  rows.Init(init);
  const uint8_t* x3 = x + 3 * stride;
  size_t i = 0;
  for (; i + 16 <= k; i += 16) {
    rows.template Quad<true>(x, x3, stride, b0, b1);
    rows.template Quad<false>(x + 4, x3 + 4, stride, b0 + 64, b1 + 64);
    rows.template Quad<false>(x + 8, x3 + 8, stride, b0 + 128, b1 + 128);
    rows.template Quad<false>(x + 12, x3 + 12, stride, b0 + 192, b1 + 192);
    rows.End(step0, step1);
    x += 16, x3 += 16, b0 += 256, b1 += 256, step0 += 64, step1 += 64;
    asm("" : "+r"(x), "+r"(x3));  // else GCC takes a pointer a row
  }
  if (i < k) {
    rows.template Quad<true>(x, x3, stride, b0, b1);
    for (i += 4; i < k; i += 4) {
      x += 4, x3 += 4, b0 += 64, b1 += 64;
      rows.template Quad<false>(x, x3, stride, b0, b1);
    }
    rows.End(step0, step1);
  }
  rows.Store(out);
}

// Of blocks of 64 columns, after WidenPanels<false>.
struct SteppedForm {
  using Input = uint8_t;
  static constexpr bool kPairs = true;
  static constexpr Compensation kCompensation = Compensation::kFlippedZeroPoint;
  static constexpr int kTileRows = HWY_TARGET == HWY_AVX2 ? 3 : 6;
  static constexpr int kTileColumns = 2 * kTileLanes;

  template <int kRows>
  static HWY_INLINE void Rows(PreparedRows<Input>& x, int64_t row, const int8_t* const (&panels)[4],
                              const int32_t* init, int32_t* acc) {
    const Input* first = x.data + static_cast<size_t>(row) * x.stride;
    const int64_t of_panel = panels[1] - panels[0],
                  of_steps = of_panel / 4;  // 16 bytes a row of k, and 64 for 16 of them
    const auto steps = [&](int c) HWY_ATTR { return panels[0] + 4 * of_panel + c / 16 * of_steps + c % 16 * 4; };
    for (int c = 0; c < kColumnBlock; c += kTileColumns) {
      const int next = c + kTileLanes;
      x.bursts.Fetch();
      SteppedPairs<kRows>(first, x.stride, x.k, panels[c / 16] + c % 16 * 4, panels[next / 16] + next % 16 * 4,
                          steps(c), steps(next), init + c, acc + c);
    }
  }
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
