// The blocking around the forms (form-inl.h, amx-inl.h), compiled once per target, and their table.
#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/gemm/gemm_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// After foreach_target.h:
#include "octavo/kernels/gemm/amx-inl.h"
#include "octavo/kernels/gemm/block-inl.h"
#include "octavo/kernels/gemm/form-inl.h"
#include "octavo/kernels/gemm/segments.h"
#include "octavo/kernels/gemm/stepped-inl.h"
#include "octavo/kernels/tile/rows-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

template <class Form>
PreparedRows<typename Form::Input> PrepareRows(const internal::SegmentArgs& args, int64_t first, int64_t rows,
                                               int64_t k, void* scratch) {
  using Input = typename Form::Input;
  const auto* x = static_cast<const uint8_t*>(args.x.data) + first * args.x.stride;
  const auto k4 = static_cast<size_t>((k + 3) / 4 * 4);
  if constexpr (std::is_same_v<Input, uint8_t>) {
    if (Form::ReadsInPlace(args.x, k)) return {x, static_cast<size_t>(args.x.stride), k4};
  }
  auto* out = static_cast<Input*>(scratch);
  for (int64_t r = 0; r < rows; ++r) {
    Form::PackRow(args.x, x + r * args.x.stride, static_cast<size_t>(k), out + static_cast<size_t>(r) * k4);
  }
  return {out, k4, k4};
}

// The next block's weights come to L2 while this one is multiplied: four panels of k / 4 lines, spread over `tiles`.
// Steady streams are best, also where they run on into the panels behind them; at most 3 tiles, two lines a step would
// be more than memory gives (M = 16: 0.75 of the peak against 0.78 with three lines in two steps).
inline Ahead AheadOf(const int8_t* next, int64_t k_padded, int64_t tiles) {
  if (tiles <= 3) return {next, next + 44 * k_padded, 64, 128};
  const size_t period = tiles >= 16 ? 512 : tiles >= 8 ? 256 : 128;
  return {next, next + 32 * k_padded, period, period};
}

// The same for forms without VNNI: k_padded lines in as many parts as tiles are called. AVX2, weights in L3: 12 to
// 18 lines at once before a tile gain 2 to 5 % (M = 64 to 128), 64 of them (M = 16) lose 7, one every third step gains 8 to 14.
inline AheadInBursts BurstsOf(const int8_t* next, int64_t k_padded, int64_t parts) {
  return {next, static_cast<size_t>((k_padded + parts - 1) / parts)};
}

// The panels of the block that comes after block b of segment s; after the last one the first.
inline const int8_t* PanelsAfter(const internal::SegmentArgs& args, int s, int64_t b) {
  const bool last = b + 1 == args.segments[s].blocks.end;
  const internal::Segment& after = args.segments[last ? (s + 1) % args.count : s];
  return after.y->w->Panel((last ? after.blocks.begin : b + 1) * 4);
}

// The tiles of a block through a buffer of sums.
template <class Form>
void RunTilesOfSums(const ColumnsOfBlock& b, PreparedRows<typename Form::Input> x, int64_t first, int64_t rows,
                    EpilogueTile tile) {
  for (int64_t r = 0; r < rows; r += tile.rows) {
    tile.rows = static_cast<int>(RowsOfTile(rows - r, Form::kTileRows));
    tile.row = first + r;
    PrefetchOutput(tile);
    WithRows<Form::kTileRows>(tile.rows, [&]<int kRows>() HWY_ATTR {
      Form::template Rows<kRows>(x, r, b.panels, tile.columns_of->init, tile.acc);
    });
    tile.store(tile);
    x.ahead.Advance(x.k);
  }
}

#if HWY_TARGET <= HWY_AVX3_DL
// The tiles of a block of 64 columns from registers to bytes (fixed-inl.h).
template <class Form, bool kPlain>
void RunFinishedTiles(const ColumnsOfBlock& b, PreparedRows<typename Form::Input> x, int64_t first, int64_t rows,
                      EpilogueTile tile) {
  const int64_t stride = tile.stride;
  uint8_t* out = tile.out + first * stride + tile.column;
  uint32_t doubt = 0;
  for (int64_t r = 0; r < rows; r += tile.rows) {
    tile.rows = static_cast<int>(RowsOfTile(rows - r, Form::kTileRows));
    const FixedFinish<kPlain> finish{&tile.columns_of->fixed, out, stride, tile.acc, &doubt};
    WithRows<Form::kTileRows>(tile.rows, [&]<int kRows>() HWY_ATTR {
      Form::template FinishedRows<kRows>(x, r, b.panels, tile.columns_of->init, finish);
    });
    if (HWY_UNLIKELY(doubt != 0)) {
      tile.row = first + r;
      StoreRowsInDoubt(tile, doubt);
      doubt = 0;
    }
    out += tile.rows * stride;
    x.ahead.Advance(x.k);
  }
}
#endif

// 64 columns of one output for the prepared rows, which are rows first.. of y.
template <class Form>
void RunBlock(const internal::SegmentArgs& args, const GemmOutput& y, int64_t block,
              PreparedRows<typename Form::Input> x, int64_t first, int64_t rows, const int8_t* next) {
  BlockColumns columns;
  ColumnsOfBlock b = BeginBlock(args.x, Form::kCompensation, y, block, rows, &columns);
  WidenBlock<!requires { Form::kPairs; }>(*y.w, args.wide, &b);
  alignas(64) int32_t acc[Form::kTileRows * 64];
  const EpilogueTile tile = TileOf(args.x, y, b, {first, first + rows}, &columns, acc);
  if constexpr (requires { Form::Decode(x, b.panels); }) Form::Decode(x, b.panels);
  const int64_t tiles = (rows + Form::kTileRows - 1) / Form::kTileRows;
  const int64_t lines = y.w->panel_bytes() / 16;  // of four panels
  x.ahead = AheadOf(next, lines, tiles);
  if constexpr (requires { Form::kTileColumns; }) {
    x.bursts = BurstsOf(next, lines, tiles * (kColumnBlock / Form::kTileColumns));
  }
#if HWY_TARGET <= HWY_AVX3_DL
  if (columns.fixed.digits != 0 && b.columns == 64 && !tile.by_heads) {
    return columns.fixed.IsPlain() ? RunFinishedTiles<Form, true>(b, x, first, rows, tile)
                                   : RunFinishedTiles<Form, false>(b, x, first, rows, tile);
  }
#endif
  RunTilesOfSums<Form>(b, x, first, rows, tile);
}

// Few rows: the sums of many blocks, then their ends, which wait for scales and biases and would keep memory from the weights of the
// next block (Zen 4, M = 1: a tenth of what it reads). sums_of(w, block, acc) leaves [rows][64] sums and returns their compensation.
template <class SumsOf>
void RunFewRows(const internal::SegmentArgs& args, SumsOf sums_of) {
  using internal::kRowsOfSums;
  struct Pending {
    const GemmOutput* y;
    int64_t block;
    Compensation compensation;
  };
  alignas(64) int32_t acc[kRowsOfSums * 64];
  Pending pending[kRowsOfSums];
  const int64_t rows = args.rows.end - args.rows.begin, most = kRowsOfSums / std::max<int64_t>(rows, 1);
  int64_t count = 0;
  const auto finish = [&] {
    for (int64_t i = 0; i < count; ++i) {
      EndOfFewRows(args.x, pending[i].compensation, *pending[i].y, pending[i].block, args.rows, acc + i * rows * 64);
    }
    count = 0;
  };
  for (int s = 0; s < args.count; ++s) {
    const internal::Segment& segment = args.segments[s];
    for (int64_t b = segment.blocks.begin; b < segment.blocks.end; ++b, ++count) {
      if (count == most) finish();
      pending[count] = {segment.y, b, sums_of(*segment.y->w, b, acc + count * rows * 64)};
    }
  }
  finish();
}

template <class Form>
void RunSegments(const internal::SegmentArgs& args) {
  if (args.count == 0) return;
  const int64_t k = args.segments[0].y->w->k();
  const int64_t at_once = internal::RowsAtOnce(args.rows.end - args.rows.begin, k, sizeof(typename Form::Input));
  for (int64_t first = args.rows.begin; first < args.rows.end; first += at_once) {
    const int64_t rows = std::min(args.rows.end - first, at_once);
    const PreparedRows<typename Form::Input> x = PrepareRows<Form>(args, first, rows, k, args.scratch);
    if (args.rows.end - args.rows.begin <= kSmallRows) {
      return RunFewRows(args, [&](const PackedWeights& w, int64_t block, int32_t* acc) HWY_ATTR {
        const ColumnsOfBlock b = PlaceOf(w, block);
        if (w.stepped()) {
          SteppedRows<false>(x.data, x.stride, static_cast<int64_t>(x.k), rows, b.panels, args.tuning, acc);
        } else {
          Form::Small(x, static_cast<int>(rows), b.panels, args.tuning.one_stream, acc);
        }
        return Form::kCompensation;
      });
    }
    for (int s = 0; s < args.count; ++s) {
      const internal::Segment& segment = args.segments[s];
      for (int64_t b = segment.blocks.begin; b < segment.blocks.end; ++b) {
        RunBlock<Form>(args, *segment.y, b, x, first, rows, PanelsAfter(args, s, b));
      }
    }
  }
}

#if HWY_TARGET > HWY_AVX3_DL
// Of the block's panels that exist; weights with steps have a form of their own, which reads bytes too.
inline int SafeQuadsOf(const PackedWeights& w, int64_t block) {
  int safe = 2;
  if (w.stepped()) return safe;
  const int64_t end = std::min(block * 4 + 4, w.n_padded() / 16);
  for (int64_t p = block * 4; p < end; ++p) safe = std::min(safe, w.SafeQuads(p));
  return safe;
}

// Rows prepared in both ways, each if some block wants it: bytes for the certified blocks, s16 for the others.
inline void RunSegmentsOfPairs(const internal::SegmentArgs& args) {
  if (args.count == 0) return;
  bool certified = false, others = false;
  for (int s = 0; s < args.count; ++s) {
    const internal::Segment& segment = args.segments[s];
    for (int64_t b = segment.blocks.begin; b < segment.blocks.end; ++b) {
      (SafeQuadsOf(*segment.y->w, b) > 0 ? certified : others) = true;
    }
  }
  const int64_t k = args.segments[0].y->w->k();
  const int64_t at_once = internal::RowsAtOnce(args.rows.end - args.rows.begin, k, sizeof(int16_t));
  auto* wide = static_cast<int16_t*>(args.scratch);
  for (int64_t first = args.rows.begin; first < args.rows.end; first += at_once) {
    const int64_t rows = std::min(args.rows.end - first, at_once);
    const int64_t k4 = (k + 3) / 4 * 4;
    PreparedRows<uint8_t> bytes{};
    PreparedRows<int16_t> words{};
    if (certified) bytes = PrepareRows<BytesForm>(args, first, rows, k, wide + at_once * k4);
    const bool few = args.rows.end - args.rows.begin <= kSmallRows;
    if (others && few) words = PrepareRows<FewS16Form>(args, first, rows, k, wide);
    if (others && !few) words = PrepareRows<S16Form>(args, first, rows, k, wide);
    if (few) {
      return RunFewRows(args, [&](const PackedWeights& w, int64_t block, int32_t* acc) HWY_ATTR {
        const ColumnsOfBlock b = PlaceOf(w, block);
        if (w.stepped()) {
          SteppedRows<true>(bytes.data, bytes.stride, static_cast<int64_t>(bytes.k), rows, b.panels, args.tuning, acc);
          return BytesForm::kCompensation;
        }
        if (SafeQuadsOf(w, block) == 0) {
          FewS16Form::Small(words, static_cast<int>(rows), b.panels, args.tuning.one_stream, acc);
          return FewS16Form::kCompensation;
        }
        PairForm<1>::Small(bytes, static_cast<int>(rows), b.panels, args.tuning.one_stream, acc);
        return BytesForm::kCompensation;
      });
    }
    const bool decodes = args.tuning.decodes_once && rows >= internal::kDecodingRows && k4 <= internal::kMostDecodedK;
    if (decodes) words.decoded = wide + internal::WideElements(k);
    for (int s = 0; s < args.count; ++s) {
      const internal::Segment& segment = args.segments[s];
      for (int64_t b = segment.blocks.begin; b < segment.blocks.end; ++b) {
        const int safe = SafeQuadsOf(*segment.y->w, b);
        const int8_t* next = PanelsAfter(args, s, b);
        if (segment.y->w->stepped()) {
          RunBlock<SteppedForm>(args, *segment.y, b, bytes, first, rows, next);
        } else if (safe == 2) {
          RunBlock<PairForm<2>>(args, *segment.y, b, bytes, first, rows, next);
        } else if (safe == 1) {
          RunBlock<PairForm<1>>(args, *segment.y, b, bytes, first, rows, next);
        } else if (decodes) {
          RunBlock<WideForm>(args, *segment.y, b, words, first, rows, next);
        } else {
          RunBlock<S16Form>(args, *segment.y, b, words, first, rows, next);
        }
      }
    }
  }
}
#endif

#if HWY_TARGET == HWY_AVX3_DL
// Few rows leave most of a tile empty and are bound by memory anyway: the vector form streams the same panels.
void RunSegmentsAmx(const internal::SegmentArgs& args) {
  if (args.rows.end - args.rows.begin <= kSmallRows) return RunSegments<VnniForm>(args);
  RunTiles(args);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
namespace octavo::kernels::internal {
namespace {

void Reference(const SegmentArgs& args) {
  for (int i = 0; i < args.count; ++i) {
    GemmReference({args.x, *args.segments[i].y}, args.rows, args.segments[i].blocks);
  }
}

size_t NoScratch(quant::DType, int64_t) { return 0; }
size_t NoWide(int64_t) { return 0; }
// A block of 64 columns; as pairs with their steps; blocks that pass together.
size_t WideBlock(int64_t k) { return static_cast<size_t>((k + 63) / 64 * 64 * 64); }
size_t WidePairs(int64_t k) { return WideBlock(k) / 4 * 5; }
size_t WideTiles(int64_t k) { return WideBlock(k) * static_cast<size_t>(TileBlocksAtOnce(k)); }
// Rows of bytes, read where they lie if possible.
size_t BytesScratch(quant::DType x, int64_t k) {
  if (x == quant::DType::kU8 && k % 4 == 0) return 0;
  return static_cast<size_t>(MostRowsAtOnce(k, 1) * ((k + 3) / 4 * 4));
}
// Rows as s16, behind them as u8 for the certified panels, and a decoded block of weights.
size_t PairsScratch(quant::DType, int64_t k) {
  const int64_t k4 = (k + 3) / 4 * 4;
  const int64_t decoded = k4 <= kMostDecodedK ? kColumnBlock * k4 : 0;
  return static_cast<size_t>(WideElements(k) + decoded) * sizeof(int16_t);
}
size_t TilesScratch(quant::DType, int64_t k) { return static_cast<size_t>(TileRowsAtOnce(k) * TileStride(k)); }

// 12 rows in two tiles: to read a block of weights takes as long as 8 rows (SharesOf).
constexpr Tile Registers(int64_t rows, int64_t columns) { return {.rows = rows, .columns = columns, .share = 12}; }
constexpr Tile kYmmTile = Registers(N_AVX2::S16Form::kTileRows, N_AVX2::S16Form::kTileColumns);
constexpr Tile kZmmTile = Registers(N_AVX3::S16Form::kTileRows, N_AVX3::S16Form::kTileColumns);
constexpr Tile kYmmVnniTile = Registers(N_AVX2::VnniForm::kTileRows, 16);
constexpr Tile kZmmVnniTile = Registers(N_AVX3_DL::VnniForm::kTileRows, kColumnBlock);
constexpr Tile kAmxTile = {.rows = 32, .columns = 32, .depth = kTileDepth * kWholeDepth, .share = 32};

}  // namespace

const Forms<GemmDescriptor> kGemmForms = {
    .scalar = {"scalar", "scalar", Tile{}, &Reference, &NoScratch, &NoWide},
    .avx2 = {"s16_avx2", "s16_avx2", kYmmTile, &N_AVX2::RunSegmentsOfPairs, &PairsScratch, &WidePairs},
    .avx512 = {"s16_avx512", "s16_avx512", kZmmTile, &N_AVX3::RunSegmentsOfPairs, &PairsScratch, &WidePairs},
    .avx512vnni = {"avx512vnni", "avx512vnni", kZmmVnniTile, &N_AVX3_DL::RunSegments<N_AVX3_DL::VnniForm>,
                   &BytesScratch, &WideBlock},
    .avxvnni = GemmDescriptor{"avxvnni", "avxvnni", kYmmVnniTile, &N_AVX2::RunSegments<N_AVX2::VnniForm>, &BytesScratch,
                              &WideBlock},
    .amx = GemmDescriptor{"amx", "avx512vnni", kAmxTile, &N_AVX3_DL::RunSegmentsAmx, &TilesScratch, &WideTiles}};

}  // namespace octavo::kernels::internal
#endif  // HWY_ONCE
