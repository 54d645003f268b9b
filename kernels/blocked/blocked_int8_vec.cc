// The tiles of GemmBlockedInt8, compiled once per target. Weights are the unsigned operand of the products, codes of rows the
// signed one. Without dot products of 8 bits vpmaddubsw takes 4-bit weights: two products are at most 2 * 15 * 127, so those of 32
// k fit into s16 and are widened once; 8-bit weights would saturate it and are split into even and odd bytes for vpmaddwd.
#include <algorithm>
#include <cstring>
#include <limits>

#include "octavo/kernels/blocked/blocked_int8.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/blocked/blocked_int8_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// After foreach_target.h:
#include "octavo/kernels/blocked/blocked_amx-inl.h"
#include "octavo/kernels/blocked/store-inl.h"
#include "octavo/kernels/gemm/tile-inl.h"
#include "octavo/kernels/tile/rows-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using RowD = hn::ScalableTag<float>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(RowD()));

// The ways in which codes meet weights.
enum class Way { kVnni, kPairs, kWords };
template <int kBits, bool kVnni>
constexpr Way kWay = kVnni        ? Way::kVnni
                     : kBits == 4 ? Way::kPairs
                                  : Way::kWords;

// Codes of kLanes values in the order of a step: 8 k of 4 bits as even and odd ones, 4 k of 8 bits as they are, or as s16 in
// the order 0 2 1 3.
template <int kBits, bool kVnni>
HWY_INLINE uint8_t* PutCodes(hn::Vec<hn::RebindToSigned<RowD>> codes, uint8_t* out) {
  if constexpr (kWay<kBits, kVnni> == Way::kWords) {
    const hn::Rebind<int16_t, RowD> d16;
    alignas(32) static constexpr uint8_t kOrder[32] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,
                                                       0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
    const auto order = hn::BitCast(d16, hn::Load(hn::Repartition<uint8_t, decltype(d16)>(), kOrder));
    hn::StoreU(hn::TableLookupBytes(hn::DemoteTo(d16, codes), order), d16, reinterpret_cast<int16_t*>(out));
    return out + 2 * kLanes;
  } else {
    const hn::Rebind<int8_t, RowD> d8;
    alignas(16) static constexpr int8_t kOrder[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
    const auto bytes = hn::DemoteTo(d8, codes);
    hn::StoreU(kBits == 4 ? hn::TableLookupBytes(bytes, hn::Load(d8, kOrder)) : bytes, d8,
               reinterpret_cast<int8_t*>(out));
    return out + kLanes;
  }
}

// What the product needs of the sum of a block's codes: the sum, or what zero points in the middle of the range take off.
template <int kBits>
HWY_INLINE void PutSum(int32_t total, bool zeros, float* sum) {
  const int32_t offset = total * -(1 << (kBits - 1));
  if (zeros) {
    *sum = static_cast<float>(total);
  } else {
    std::memcpy(sum, &offset, sizeof(offset));
  }
}

// One block of a row, its scale and what its sum gives.
template <int kBits, bool kVnni>
HWY_INLINE uint8_t* QuantizeBlock(const float* x, int64_t block, bool zeros, uint8_t* out, float* scale, float* sum) {
  const RowD d;
  const hn::RebindToSigned<RowD> di;
  auto top = hn::Zero(di);  // as bits: an infinity or NaN is larger than all that is finite
  for (int64_t i = 0; i < block; i += kLanes) top = hn::Max(top, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i))));
  const float most = hwy::BitCastScalar<float>(hn::ReduceMax(di, top));
  if (!(most <= std::numeric_limits<float>::max())) {
    const auto bytes = static_cast<size_t>(block) * (kWay<kBits, kVnni> == Way::kWords ? 2 : 1);
    std::memset(out, 0, bytes);
    *scale = std::numeric_limits<float>::quiet_NaN();
    PutSum<kBits>(0, zeros, sum);
    return out + bytes;
  }
  *scale = std::max(most / 127.0f, 0x1p-100f);
  const auto step = hn::Set(d, *scale);
  auto total = hn::Zero(di);
  for (int64_t i = 0; i < block; i += kLanes) {
    const auto codes = hn::NearestInt(hn::Div(hn::LoadU(d, x + i), step));  // within +-127: the scale is top / 127
    total = hn::Add(total, codes);
    out = PutCodes<kBits, kVnni>(codes, out);
  }
  PutSum<kBits>(hn::ReduceSum(di, total), zeros, sum);
  return out;
}

template <int kBits, bool kVnni>
void QuantizeRows(const PackedBlocked& w, const float* x, int64_t x_stride, int64_t rows, uint8_t* out) {
  const int64_t block = w.block(), row_bytes = BlockedRowBytes(w);
  const bool zeros = w.Zeros(0) != nullptr;
  for (int64_t m = 0; m < rows; ++m, x += x_stride, out += row_bytes) {
    auto* scale = reinterpret_cast<float*>(out + internal::BlockedCodeBytes(w));
    float* sum = scale + w.blocks();
    uint8_t* codes = out;
    int64_t b = 0;
    for (; (b + 1) * block <= w.k(); ++b) {
      codes = QuantizeBlock<kBits, kVnni>(x + b * block, block, zeros, codes, scale + b, sum + b);
    }
    if (b < w.blocks()) {
      alignas(64) float rest[kMaxBlockOfCodes];
      std::memset(rest, 0, static_cast<size_t>(block) * sizeof(float));
      std::memcpy(rest, x + b * block, static_cast<size_t>(w.k() - b * block) * sizeof(float));
      QuantizeBlock<kBits, kVnni>(rest, block, zeros, codes, scale + b, sum + b);
    }
  }
}

HWY_INLINE TileV LoadCodes(const uint8_t* p) { return hn::Load(TileD(), reinterpret_cast<const int32_t*>(p)); }

template <Way kHow>
HWY_INLINE void Product(TileV& sum, TileV w, TileV x) {
#if HWY_TARGET != HWY_AVX3
  if constexpr (kHow == Way::kVnni) return VnniDot(sum, w, x);
#endif
  if constexpr (kHow == Way::kPairs) return PairAdd(sum, w, x);
  if constexpr (kHow == Way::kWords) return PairDot(sum, w, x);
}

// The weights that the first or the second half of a step of a row meets: even and odd nibbles, or even and odd bytes.
template <int kBits, bool kSecond>
HWY_INLINE TileV Half(TileV codes) {
  if constexpr (kBits == 8) {
    const hn::Repartition<uint16_t, TileD> d16;
    const auto words = hn::BitCast(d16, codes);
    return hn::BitCast(TileD(), kSecond ? hn::ShiftRight<8>(words) : hn::And(words, hn::Set(d16, uint16_t{0xFF})));
  } else {
    const auto shifted = kSecond ? hn::ShiftRight<4>(codes) : codes;
    return hn::And(shifted, hn::Set(TileD(), 0x0F0F0F0F));
  }
}

// sum[r][v] += w[v] . the four bytes at x of each row.
template <Way kHow, int kRows, int kV>
HWY_INLINE void Meet(const TileV (&w)[kV], const uint8_t* x, int64_t stride, TileV (&sum)[kRows][kV]) {
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    const TileV a = Broadcast4(x + r * stride);
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) Product<kHow>(sum[r][v], w[v], a);
  }
}

// One load of codes for each vector of columns, and what of the rows meets them: 8 bytes, or 4 with 8 bits and VNNI.
template <int kBits, Way kHow, int kRows, int kV>
HWY_INLINE void Step(const uint8_t* const (&codes)[kV], int64_t at, const uint8_t* x, int64_t stride,
                     TileV (&sum)[kRows][kV]) {
  TileV c[kV], w[kV];
  HWY_UNROLL(8)
  for (int v = 0; v < kV; ++v) c[v] = LoadCodes(codes[v] + at);
  if constexpr (kBits == 8 && kHow == Way::kVnni) {
    Meet<kHow>(c, x, stride, sum);
  } else {
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) w[v] = Half<kBits, false>(c[v]);
    Meet<kHow>(w, x, stride, sum);
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) w[v] = Half<kBits, true>(c[v]);
    Meet<kHow>(w, x + 4, stride, sum);
  }
}

template <int kRows, int kV>
HWY_INLINE void Clear(TileV (&sum)[kRows][kV]) {
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) sum[r][v] = hn::Zero(TileD());
  }
}

// sum += the products of 8 * kSteps k, which s16 holds.
template <int kSteps, int kRows, int kV>
HWY_INLINE void PairChunk(const uint8_t* const (&codes)[kV], int64_t k, const uint8_t* x, int64_t stride, TileV ones,
                          TileV (&sum)[kRows][kV]) {
  TileV pairs[kRows][kV];
  Clear(pairs);
  HWY_UNROLL(4)
  for (int s = 0; s < kSteps; ++s) Step<4, Way::kPairs>(codes, k * 8 + s * 64, x + k + s * 8, stride, pairs);
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) PairDot(sum[r][v], pairs[r][v], ones);
  }
}

// sum += the integer sums of one block, codes as they stand.
template <int kBits, Way kHow, int kRows, int kV>
HWY_INLINE void BlockSums(const uint8_t* const (&codes)[kV], const uint8_t* x, int64_t stride, int64_t block,
                          TileV (&sum)[kRows][kV]) {
  if constexpr (kHow == Way::kPairs) {
    const TileV ones = hn::BitCast(TileD(), hn::Set(hn::Repartition<int16_t, TileD>(), int16_t{1}));
    int64_t k = 0;
    for (; k + 32 <= block; k += 32) PairChunk<4>(codes, k, x, stride, ones, sum);
    if (k < block) PairChunk<2>(codes, k, x, stride, ones, sum);
  } else {
    constexpr int kOfRow = kHow == Way::kVnni && kBits == 8 ? 4 : 8;  // bytes of a row in a step
    const int64_t steps = block * kBits / 32;
    for (int64_t i = 0; i < steps; ++i) Step<kBits, kHow>(codes, i * 64, x + i * kOfRow, stride, sum);
  }
}

// What a tile asks for with each block: so many bytes of each panel, so far ahead; nothing where the weights are in L1 or L2, or the
// CPU finds them itself.
struct Ask {
  int64_t bytes = 0;
  int64_t ahead = 0;

  HWY_INLINE void From(const uint8_t* record) const {
    for (int64_t i = 0; i < bytes; i += 64) asm volatile("prefetcht2 (%0)" ::"r"(record + ahead + i));
  }
};

// ymm: several rows read slower than memory gives, and their second halves disturb what the hardware asks for
// (kernels/gemm/small-inl.h has the figures). One row asks where the CPU does not follow one stream (Tuning::one_stream), and nearer:
// Zen 3 reads 23 GB/s 2 KB ahead, 20 at 12 KB, 18 without. zmm asks where the CPU likes it (Tuning::asks_near), but for
// 3 and 4 rows, whose tile follows four panels: they would read 5 % more from memory and 20 % less from L3.
inline Ask AskOf(const Tuning& tuning, int64_t rows, int64_t record_bytes) {
  if (tuning.asks_near && (rows < 3 || rows > 4)) return {record_bytes, 2048};
  if (HWY_TARGET != HWY_AVX2 || (rows == 1 && tuning.one_stream)) return {};
  return {record_bytes, rows == 1 ? 2048 : 12288};
}

// Rows and vectors of a tile, so that both kinds of sums fit into the registers. ymm takes a panel of 16 columns as two halves,
// one after the other in each block, so that several rows find the second half in L1.
constexpr int kMostRows = static_cast<int>(internal::kMostCodeRows) / (HWY_TARGET <= HWY_AVX3_DL ? 1 : 2);
constexpr int VectorsOf(int rows) {
  if (HWY_TARGET == HWY_AVX2) return rows == 1 ? 2 : 1;
  return HWY_TARGET == HWY_AVX3 || rows > 4 ? 2 : 4;
}
constexpr int PartsOf(int rows) { return HWY_TARGET == HWY_AVX2 && rows > 1 ? 2 : 1; }

// Where a tile stands in k: the records of its vectors of columns, and its rows.
template <int kVectors>
struct Place {
  const uint8_t* record[kVectors];
  const uint8_t* zeros[kVectors];
  const uint8_t* x;
  const float* scales;  // of the first row, for the block; what its sums give stands `to_sums` behind
  int64_t stride;       // in bytes, of codes and of scales
  int64_t to_sums;
};

// A block for kV vectors from `first` on: y(r, v) is the sum so far of the row and vector.
template <int kBits, Way kHow, bool kZeros, int kRows, int kV, int kVectors, class Y>
HWY_INLINE void Block(const Place<kVectors>& at, int first, int64_t block, const Y& y) {
  const RowD d;
  TileV sum[kRows][kV];
  const uint8_t* codes[kV];
  HWY_UNROLL(8)
  for (int v = 0; v < kV; ++v) codes[v] = at.record[first + v] + 64;
  const auto of_row = [&](int r) HWY_ATTR {
    return reinterpret_cast<const float*>(reinterpret_cast<const uint8_t*>(at.scales) + r * at.stride);
  };
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    const TileV start = kZeros ? hn::Zero(TileD()) : Broadcast4(of_row(r) + at.to_sums);
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) sum[r][v] = start;
  }
  BlockSums<kBits, kHow>(codes, at.x, at.stride, block, sum);
  HWY_UNROLL(8)
  for (int v = 0; v < kV; ++v) {
    const auto scale = hn::LoadU(d, reinterpret_cast<const float*>(at.record[first + v]));
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      auto whole = hn::ConvertTo(d, sum[r][v]);  // exact, as what follows: whole numbers below 2^24
      if constexpr (kZeros) {
        const hn::Rebind<uint8_t, RowD> d8;
        const auto zero = hn::ConvertTo(d, hn::PromoteTo(TileD(), hn::LoadU(d8, at.zeros[first + v])));
        whole = hn::NegMulAdd(zero, hn::Set(d, of_row(r)[at.to_sums]), whole);
      }
      y.Add(r, first + v, whole, hn::Mul(scale, hn::Set(d, of_row(r)[0])));
    }
  }
}

// The sums of several rows stay in L1: they are touched once a block.
struct InMemory {
  float* acc;  // [rows][64]
  using V = hn::Vec<RowD>;
  HWY_INLINE void Add(int r, int v, V a, V b) const {
    float* at = acc + r * 64 + v * kLanes;
    hn::Store(hn::MulAdd(a, b, hn::Load(RowD(), at)), RowD(), at);
  }
};
// Those of one row have registers.
template <int kVectors>
struct InRegisters {
  hn::Vec<RowD>* y;
  using V = hn::Vec<RowD>;
  HWY_INLINE void Add(int, int v, V a, V b) const { y[v] = hn::MulAdd(a, b, y[v]); }
};

// The vectors of columns from `column` (of 64) on, blocks [range.begin, range.end) of k, added to acc [kRows][64].
template <int kBits, bool kVnni, bool kZeros, int kRows, int kV>
HWY_NOINLINE void CodesTile(const PackedBlocked& w, int64_t first_panel, int column, Range range, const uint8_t* x,
                            Ask ask, float* HWY_RESTRICT acc) {
  const RowD d;
  constexpr Way kHow = kWay<kBits, kVnni>;
  constexpr int kVectors = kV * PartsOf(kRows);
  const int64_t block = w.block(), record_bytes = w.record_bytes();
  const int64_t of_block = block * (kHow == Way::kWords ? 2 : 1);
  Place<kVectors> at;
  for (int v = 0; v < kVectors; ++v) {
    const int c = column + v * kLanes;
    const int64_t panel = std::min(first_panel + c / 16, w.panels() - 1);  // one that does not exist is not stored
    at.record[v] = w.Panel(panel) + range.begin * record_bytes + c % 16 * 4;
    at.zeros[v] = kZeros ? w.Zeros(panel) + range.begin * 16 + c % 16 : nullptr;
  }
  at.x = x + range.begin * of_block;
  at.scales = internal::BlockedRowScales(w, x) + range.begin;
  at.stride = BlockedRowBytes(w);
  at.to_sums = w.blocks();
  acc += column;
  hn::Vec<RowD> y[kRows == 1 ? kVectors : 1];
  if constexpr (kRows == 1) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) y[v] = hn::Load(d, acc + v * kLanes);
  }
  for (int64_t b = range.begin; b < range.end; ++b) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; v += 16 / kLanes) ask.From(at.record[v]);
    HWY_UNROLL(2)
    for (int first = 0; first < kVectors; first += kV) {
      if constexpr (kRows == 1) {
        Block<kBits, kHow, kZeros, kRows, kV>(at, first, block, InRegisters<kVectors>{y});
      } else {
        Block<kBits, kHow, kZeros, kRows, kV>(at, first, block, InMemory{acc});
      }
    }
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      at.record[v] += record_bytes;
      if constexpr (kZeros) at.zeros[v] += 16;
    }
    at.x += of_block;
    ++at.scales;
  }
  if constexpr (kRows == 1) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) hn::Store(y[v], d, acc + v * kLanes);
  }
}

template <int kBits, bool kVnni, bool kZeros, int kRows, int kV = VectorsOf(kRows)>
void TileColumns(const PackedBlocked& w, int64_t panel, int columns, Range range, const uint8_t* x, Ask ask,
                 float* acc) {
  constexpr int kStep = kV * PartsOf(kRows) * kLanes;
  for (int c = 0; c < columns; c += kStep) CodesTile<kBits, kVnni, kZeros, kRows, kV>(w, panel, c, range, x, ask, acc);
}

// One row takes one panel after the other where the CPU reads one stream best.
template <int kBits, bool kVnni, bool kZeros>
void TileRows(int64_t rows, bool one_stream, const PackedBlocked& w, int64_t panel, int columns, Range range,
              const uint8_t* x, Ask ask, float* acc) {
  constexpr int kPanel = 16 / kLanes;  // in vectors
  if (rows == 1 && one_stream) {
    return TileColumns<kBits, kVnni, kZeros, 1, kPanel>(w, panel, columns, range, x, ask, acc);
  }
  WithRows<kMostRows>(
      rows, [&]<int kRows>() { TileColumns<kBits, kVnni, kZeros, kRows>(w, panel, columns, range, x, ask, acc); });
}

constexpr int64_t kRowsAtOnce = internal::kCodeRowsAtOnce, kDepthAtOnce = internal::kCodeDepthAtOnce;

template <int kBits, bool kVnni, bool kZeros>
void RunCodes(const BlockedInt8Args& args, Range rows, Range blocks, void* scratch) {
  const PackedBlocked& w = *args.w;
  const int64_t row_bytes = BlockedRowBytes(w);
  auto* acc = static_cast<float*>(scratch);
  for (int64_t first = rows.begin; first < rows.end; first += kRowsAtOnce) {
    const int64_t count = std::min(rows.end - first, kRowsAtOnce);
    const Ask ask = AskOf(args.tuning, count, w.record_bytes());
    const int64_t at_once = count <= kMostRows ? w.blocks() : std::max<int64_t>(1, kDepthAtOnce / w.block());
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      const auto columns = static_cast<int>(std::min<int64_t>(w.n() - b * kColumnBlock, kColumnBlock));
      std::memset(acc, 0, static_cast<size_t>(count) * 64 * sizeof(float));
      for (int64_t k = 0; k < w.blocks(); k += at_once) {
        const Range range{k, std::min(w.blocks(), k + at_once)};
        for (int64_t r = 0; r < count; r += kMostRows) {
          TileRows<kBits, kVnni, kZeros>(std::min<int64_t>(kMostRows, count - r), args.tuning.one_stream, w, b * 4,
                                         columns, range, args.x + (first + r) * row_bytes, r == 0 ? ask : Ask{},
                                         acc + r * 64);
        }
      }
      StoreRows(args, acc, first, count, b * kColumnBlock, columns);
    }
  }
}

template <bool kVnni>
void QuantizeAny(const PackedBlocked& w, const float* x, int64_t x_stride, int64_t rows, uint8_t* out) {
  (w.bits() == 4 ? QuantizeRows<4, kVnni> : QuantizeRows<8, kVnni>)(w, x, x_stride, rows, out);
}

template <bool kVnni>
void RunAnyCodes(const BlockedInt8Args& args, Range rows, Range blocks, void* scratch) {
  const bool zeros = args.w->Zeros(0) != nullptr;
  if (args.w->bits() == 4) {
    return (zeros ? RunCodes<4, kVnni, true> : RunCodes<4, kVnni, false>)(args, rows, blocks, scratch);
  }
  return (zeros ? RunCodes<8, kVnni, true> : RunCodes<8, kVnni, false>)(args, rows, blocks, scratch);
}

#if HWY_TARGET == HWY_AVX3_DL
// Few rows are bound by memory, and codes of 8 bits less a zero point do not fit into a byte: the vector form.
void RunCodesAmx(const BlockedInt8Args& args, Range rows, Range blocks, void* scratch) {
  if (args.w->bits() != 4 || rows.end - rows.begin < internal::kCodeTileRows)
    return RunAnyCodes<true>(args, rows, blocks, scratch);
  tile::LoadConfig(BlockedTiles(TileStepOf(args.w->block())));
  for (int64_t first = rows.begin; first < rows.end; first += internal::kCodeTileRowsAtOnce) {
    const int64_t count = std::min(rows.end - first, internal::kCodeTileRowsAtOnce);
    for (int64_t b = blocks.begin; b < blocks.end; ++b) TileBlock(args, first, count, b, static_cast<float*>(scratch));
  }
  tile::Release();
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/forms.h"

namespace octavo::kernels {
namespace {

struct Form {
  std::string_view name;
  Tile tile;
  void (*quantize)(const PackedBlocked&, const float*, int64_t, int64_t, uint8_t*);
  void (*run)(const BlockedInt8Args&, Range, Range, void*);
};
constexpr Tile Codes(int rows, int64_t columns) {
  return {.rows = rows, .columns = columns, .depth = internal::kCodeDepthAtOnce, .share = 48};
}
constexpr Tile kYmmTile = Codes(N_AVX2::kMostRows, N_AVX2::VectorsOf(N_AVX2::kMostRows) * N_AVX2::kLanes);
constexpr Tile kZmmTile = Codes(N_AVX3::kMostRows, N_AVX3::VectorsOf(N_AVX3::kMostRows) * N_AVX3::kLanes);
constexpr Tile kVnniTile = Codes(N_AVX3_DL::kMostRows, N_AVX3_DL::VectorsOf(N_AVX3_DL::kMostRows) * N_AVX3_DL::kLanes);
constexpr Forms<Form> kForms = {
    .scalar = {"scalar", Tile{}, &internal::QuantizeBlocksReference, &internal::GemmBlockedInt8Reference},
    .avx2 = {"avx2", kYmmTile, &N_AVX2::QuantizeAny<false>, &N_AVX2::RunAnyCodes<false>},
    .avx512 = {"avx512", kZmmTile, &N_AVX3::QuantizeAny<false>, &N_AVX3::RunAnyCodes<false>},
    .avx512vnni = {"avx512vnni", kVnniTile, &N_AVX3_DL::QuantizeAny<true>, &N_AVX3_DL::RunAnyCodes<true>},
    .avxvnni = Form{"avxvnni", kYmmTile, &N_AVX2::QuantizeAny<true>, &N_AVX2::RunAnyCodes<true>},
    .amx = Form{"amx", Codes(internal::kCodeTileRows, 16), &N_AVX3_DL::QuantizeAny<true>, &N_AVX3_DL::RunCodesAmx}};

}  // namespace

std::string_view internal::BlockedInt8Form(Arch arch) { return kForms[arch].name; }

Tile BlockedInt8Tile(Arch arch) { return kForms[arch].tile; }

void QuantizeBlocks(Arch arch, const PackedBlocked& w, const float* x, int64_t x_stride, int64_t rows, uint8_t* out) {
  kForms[arch].quantize(w, x, x_stride, rows, out);
}

void GemmBlockedInt8(Arch arch, const BlockedInt8Args& args, Range rows, Range blocks, void* scratch) {
  if (rows.begin < rows.end) kForms[arch].run(args, rows, blocks, scratch);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
