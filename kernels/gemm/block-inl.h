// One block of 64 columns, whatever the form: panels, zero points, scales, and the way to the output. Per target.
#if defined(OCTAVO_KERNELS_GEMM_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_GEMM_BLOCK_INL_H_
#undef OCTAVO_KERNELS_GEMM_BLOCK_INL_H_
#else
#define OCTAVO_KERNELS_GEMM_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "octavo/kernels/gemm/epilogue-inl.h"
#include "octavo/kernels/gemm/segments.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

using internal::kSmallRows;

struct ColumnsOfBlock {
  const int8_t* panels[4];
  int64_t column;
  int columns;
};

// What a form's sums of x w hold beyond those of (x - zero point) w, and what is compensated for: nothing (it took the zero point off the rows), the zero point, or
// for rows of s8, whose top bits are flipped, the zero point and 128.
enum class Compensation { kNone, kZeroPoint, kFlippedZeroPoint };

// Fills `init` only if there is something to compensate for: the column sums lie in memory, and few rows would wait for them.
HWY_INLINE void FillBlock(const GemmInput& x, Compensation compensation, const GemmOutput& y, int64_t column,
                          BlockColumns* c) {
  const auto count = static_cast<int>(std::min<int64_t>(y.w->n() - column, kColumnBlock));
  // sum (x - zx) w = sum x w - zx * sum w, modulo 2^32.
  const bool flips = compensation == Compensation::kFlippedZeroPoint && x.dtype == quant::DType::kS8;
  const auto zero_point = static_cast<uint32_t>(x.zero_point + (flips ? 128 : 0));
  const int32_t* sums = y.w->column_sums() + column;
  const float x_scale = x.row_scale != nullptr ? 1.0f : x.scale;
  for (int i = 0; x.row_zero_point != nullptr && i < kColumnBlock; ++i) c->sums[i] = i < count ? sums[i] : 0;
  if (count < kColumnBlock) {  // one row of small k spends more time here than in the product: hence the two loops
    for (int i = 0; i < kColumnBlock; ++i) {
      const bool real = i < count;
      c->init[i] = real && compensation != Compensation::kNone
                       ? static_cast<int32_t>(0u - zero_point * static_cast<uint32_t>(sums[i]))
                       : 0;
      c->scale[i] = real ? x_scale * y.w_scale[y.w_scale_per_column ? column + i : 0] : 0.0f;
      c->bias[i] = real && y.bias != nullptr ? y.bias[column + i] : -0.0f;
    }
    return;
  }
  for (int i = 0; compensation != Compensation::kNone && i < kColumnBlock; ++i) {
    c->init[i] = static_cast<int32_t>(0u - zero_point * static_cast<uint32_t>(sums[i]));
  }
  if (y.w_scale_per_column) {
    for (int i = 0; i < kColumnBlock; ++i) c->scale[i] = x_scale * y.w_scale[column + i];
  } else {
    for (int i = 0; i < kColumnBlock; ++i) c->scale[i] = x_scale * y.w_scale[0];
  }
  if (y.bias != nullptr) {
    std::memcpy(c->bias, y.bias + column, sizeof(c->bias));
  } else {
    for (int i = 0; i < kColumnBlock; ++i) c->bias[i] = -0.0f;
  }
}

// Whether fixed-inl.h knows this output. Its tables are 250 instructions a block (counted by stepping), and it saves ports 7.7
// cycles a row of 64 (46 of 117 for six rows), so few rows do without.
inline bool IsFixed(const GemmInput& x, const GemmOutput& y, int64_t rows) {
  return rows > internal::kSmallRows && quant::IsInt8(y.dtype) && x.row_scale == nullptr && y.post_scale == nullptr &&
         y.residual == nullptr && (y.activation == Activation::kNone || y.activation == Activation::kRelu) &&
         !MakeRequant(y.scale, y.zero_point, y.dtype).divide;
}

// Panels that do not exist are read as the last one; their columns are not stored.
HWY_INLINE ColumnsOfBlock PlaceOf(const PackedWeights& w, int64_t block) {
  ColumnsOfBlock b;
  b.column = block * kColumnBlock;
  b.columns = static_cast<int>(std::min<int64_t>(w.n() - b.column, kColumnBlock));
  const int8_t* panel =
      w.Panel(block * 4);  // one after the other: vectors of 64-bit products cost a block of few rows 90 cycles
  for (int i = 0; i < 4; ++i) {
    b.panels[i] = panel;
    if ((i + 1) * 16 < b.columns) panel += w.panel_bytes();
  }
  return b;
}

// What the products of a block need; FillEpilogue: what its epilogue needs beside it.
HWY_INLINE ColumnsOfBlock BeginProducts(const GemmInput& x, Compensation compensation, const GemmOutput& y,
                                        int64_t block, BlockColumns* columns) {
  const ColumnsOfBlock b = PlaceOf(*y.w, block);
  FillBlock(x, compensation, y, b.column, columns);
  return b;
}

HWY_INLINE void FillEpilogue(const GemmInput& x, const GemmOutput& y, int64_t rows, BlockColumns* columns) {
  if (IsFixed(x, y, rows)) {
    FillFixed(columns->scale, columns->bias, y.scale, y.zero_point, y.dtype == quant::DType::kS8,
              y.activation == Activation::kRelu, &columns->fixed);
  } else {
    columns->fixed.digits = 0;
  }
}

HWY_INLINE ColumnsOfBlock BeginBlock(const GemmInput& x, Compensation compensation, const GemmOutput& y, int64_t block,
                                     int64_t rows, BlockColumns* columns) {
  const ColumnsOfBlock b = BeginProducts(x, compensation, y, block, columns);
  FillEpilogue(x, y, rows, columns);
  return b;
}

// For tiles of these rows.
HWY_INLINE EpilogueTile TileOf(const GemmInput& x, const GemmOutput& y, const ColumnsOfBlock& b, Range rows,
                               const BlockColumns* columns, int32_t* acc) {
  EpilogueTile tile{};
  tile.acc = acc;
  tile.columns_of = columns;
  tile.column = b.column;
  tile.columns = b.columns;
  tile.SetOutput(y, rows);
  tile.row_scale = x.row_scale;
  tile.row_zero_point = x.row_zero_point;
  ChooseStore(tile);
  return tile;
}

// The lines that the epilogue will write: they arrive while the product runs.
HWY_INLINE void PrefetchOutput(const EpilogueTile& t) {
  if (t.by_heads) return;
  const int64_t bytes = t.Bytes(), stride = t.stride * bytes, width = t.columns * bytes;
  const uint8_t* out = t.out + t.row * stride + t.column * bytes;
  for (int r = 0; r < t.rows; ++r, out += stride) {
    hwy::Prefetch(out);
    for (int64_t i = 64; i < width; i += 64) hwy::Prefetch(out + i);
  }
}

// Rows of sums from tile.acc on, as many as there are, six at a time: what the epilogue's buffer holds.
HWY_INLINE void EpilogueOfRows(EpilogueTile& tile, int64_t first, int64_t rows) {
  int32_t* acc = tile.acc;
  for (int64_t r = 0; r < rows; r += 6) {
    tile.acc = acc + r * 64;
    tile.row = first + r;
    tile.rows = static_cast<int>(std::min<int64_t>(rows - r, 6));
    tile.store(tile);
  }
}

// The end of a block of few rows, whose sums [rows][64] began with zeros.
HWY_NOINLINE void EndOfFewRows(const GemmInput& x, Compensation compensation, const GemmOutput& y, int64_t block,
                               Range rows, int32_t* acc) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<EpilogueD> d;
  BlockColumns columns;
  const int64_t count = rows.end - rows.begin;
  const ColumnsOfBlock b = BeginBlock(x, compensation, y, block, count, &columns);
  for (int64_t i = 0; compensation != Compensation::kNone && i < count * kColumnBlock;
       i += static_cast<int64_t>(hn::MaxLanes(d))) {
    hn::Store(hn::Add(hn::Load(d, acc + i), hn::Load(d, columns.init + i % kColumnBlock)), d, acc + i);
  }
  EpilogueTile tile = TileOf(x, y, b, rows, &columns, acc);  // a copy would wait for the stores that made it
  EpilogueOfRows(tile, rows.begin, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
