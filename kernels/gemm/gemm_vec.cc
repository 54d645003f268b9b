// The blocking around tile-inl.h and epilogue-inl.h, compiled once per target, and the table of the forms.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/gemm/gemm_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// After foreach_target.h:
#include "hwy/cache_control.h"
#include "octavo/kernels/gemm/epilogue-inl.h"
#include "octavo/kernels/gemm/segments.h"
#include "octavo/kernels/gemm/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {
#if HWY_TARGET <= HWY_AVX2

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET <= HWY_AVX3_DL
using InputElement = uint8_t;
#else
using InputElement = int16_t;
#endif

// Rows of x as the tiles read them; k is padded to a multiple of 4 (whatever stands there meets zero weights).
struct InputRows {
  const InputElement* data;
  size_t stride;
  size_t k;
};

#if HWY_TARGET <= HWY_AVX3_DL

// u8 as it is; s8 with the top bit flipped, which adds 128 (and the same to the zero point: see FillBlock).
void PackRow(const GemmInput& x, const uint8_t* row, size_t k, InputElement* out) {
  const hn::ScalableTag<uint8_t> d;
  const auto flip = hn::Set(d, x.dtype == quant::DType::kS8 ? 0x80 : 0);
  size_t i = 0;
  for (; i + hn::MaxLanes(d) <= k; i += hn::MaxLanes(d)) hn::StoreU(hn::Xor(hn::LoadU(d, row + i), flip), d, out + i);
  if (i < k) hn::StoreN(hn::Xor(hn::LoadN(d, row + i, k - i), flip), d, out + i, k - i);
}

#else

template <class T>
HWY_INLINE void PackRowAs(const T* row, int32_t zero_point, size_t k, InputElement* out) {
  const hn::ScalableTag<int16_t> d16;
  const hn::Rebind<T, decltype(d16)> d8;
  const hn::Repartition<uint8_t, decltype(d16)> d_bytes;
  const auto order =
      hn::BitCast(d16, hn::Dup128VecFromValues(d_bytes, 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  const auto zero = hn::Set(d16, static_cast<int16_t>(zero_point));
  size_t i = 0;
  for (; i + hn::MaxLanes(d16) <= k; i += hn::MaxLanes(d16)) {
    const auto v = hn::Sub(hn::PromoteTo(d16, hn::LoadU(d8, row + i)), zero);
    hn::StoreU(hn::TableLookupBytes(v, order), d16, out + i);
  }
  constexpr int kPlace[4] = {0, 2, 1, 3};
  for (; i < k; ++i) out[i / 4 * 4 + kPlace[i % 4]] = static_cast<int16_t>(row[i] - zero_point);
}

// s16 with the zero point taken off, each quad in the order 0 2 1 3: one dword per half of a weight quad.
void PackRow(const GemmInput& x, const uint8_t* row, size_t k, InputElement* out) {
  if (k % 4 != 0) std::memset(out + k / 4 * 4, 0, 4 * sizeof(InputElement));
  if (x.dtype == quant::DType::kU8) {
    PackRowAs(row, x.zero_point, k, out);
  } else {
    PackRowAs(reinterpret_cast<const int8_t*>(row), x.zero_point, k, out);
  }
}

#endif

InputRows PrepareRows(const internal::SegmentArgs& args, int64_t first, int64_t rows, int64_t k) {
  const auto* x = static_cast<const uint8_t*>(args.x.data) + first * args.x.stride;
  const auto k4 = static_cast<size_t>((k + 3) / 4 * 4);
#if HWY_TARGET <= HWY_AVX3_DL
  if (args.x.dtype == quant::DType::kU8 && k % 4 == 0) return {x, static_cast<size_t>(args.x.stride), k4};
#endif
  auto* out = static_cast<InputElement*>(args.scratch);
  for (int64_t r = 0; r < rows; ++r) {
    PackRow(args.x, x + r * args.x.stride, static_cast<size_t>(k), out + static_cast<size_t>(r) * k4);
  }
  return {out, k4, k4};
}

void FillBlock(const GemmInput& x, const GemmOutput& y, int64_t column, BlockColumns* c) {
  const auto count = static_cast<int>(std::min<int64_t>(y.w->n() - column, kColumnBlock));
  const auto padded = static_cast<int>(std::min<int64_t>(y.w->n_padded() - column, kColumnBlock));
  // sum (x - zx) w = sum x w - zx * sum w, modulo 2^32; the s16 form has no zero point left.
  const uint32_t zero_point = static_cast<uint32_t>(x.zero_point + (x.dtype == quant::DType::kS8 ? 128 : 0));
  const int32_t* sums = y.w->column_sums() + column;
  for (int i = 0; i < padded; ++i) c->init[i] = static_cast<int32_t>(0u - zero_point * static_cast<uint32_t>(sums[i]));
  for (int i = padded; i < kColumnBlock; ++i) c->init[i] = 0;
  for (int i = 0; i < kColumnBlock; ++i) {
    const bool real = i < count;
    c->scale[i] = real ? x.scale * y.w_scale[y.w_scale_per_column ? column + i : 0] : 0.0f;
    c->bias[i] = real && y.bias != nullptr ? y.bias[column + i] : -0.0f;
  }
}

template <int kRows>
HWY_INLINE void RunTile(const InputRows& x, int64_t row, const int8_t* const panels[4], const int32_t* init,
                        int32_t* acc) {
  const InputElement* first = x.data + static_cast<size_t>(row) * x.stride;
#if HWY_TARGET <= HWY_AVX3_DL
  VnniTile<kRows>(first, x.stride, x.k, panels, init, acc);
#else
  (void)init;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(TileD()));
  for (int c = 0; c < kColumnBlock; c += 2 * kLanes) {
    const int8_t* b0 = panels[c / 16] + c % 16 * 4;
    const int8_t* b1 = panels[(c + kLanes) / 16] + (c + kLanes) % 16 * 4;
    S16Tile<kRows>(first, x.stride, x.k, b0, b1, acc + c);
  }
#endif
}

void RunRows(const InputRows& x, int64_t row, int rows, const int8_t* const panels[4], const int32_t* init,
             int32_t* acc) {
  switch (rows) {
    case 1:
      return RunTile<1>(x, row, panels, init, acc);
    case 2:
      return RunTile<2>(x, row, panels, init, acc);
    case 3:
      return RunTile<3>(x, row, panels, init, acc);
    case 4:
      return RunTile<4>(x, row, panels, init, acc);
    case 5:
      return RunTile<5>(x, row, panels, init, acc);
    default:
      return RunTile<6>(x, row, panels, init, acc);
  }
}

// The lines that the epilogue will write: they arrive while the product runs.
HWY_INLINE void PrefetchOutput(const EpilogueTile& t) {
  const int64_t bytes = t.y->dtype == quant::DType::kF32 ? 4 : 1;
  const char* out = static_cast<const char*>(t.y->y) + (t.row * t.y->stride + t.column) * bytes;
  for (int r = 0; r < t.rows; ++r, out += t.y->stride * bytes) {
    for (int64_t i = 0; i < t.columns * bytes; i += 64) hwy::Prefetch(out + i);
  }
}

// 64 columns of one output for the prepared rows, which are rows first.. of y.
void RunBlock(const internal::SegmentArgs& args, const GemmOutput& y, int64_t block, const InputRows& x, int64_t first,
              int64_t rows) {
  const int64_t column = block * kColumnBlock;
  BlockColumns columns;
  FillBlock(args.x, y, column, &columns);
  // Panels that do not exist are read as the last one; their columns are not stored.
  const int64_t last_panel = y.w->n_padded() / 16 - 1;
  const int8_t* panels[4];
  for (int i = 0; i < 4; ++i) panels[i] = y.w->Panel(std::min(block * 4 + i, last_panel));
  alignas(64) int32_t acc[6 * 64];
  EpilogueTile tile{};
  tile.acc = acc;
  tile.columns_of = &columns;
  tile.y = &y;
  tile.column = column;
  tile.columns = static_cast<int>(std::min<int64_t>(y.w->n() - column, kColumnBlock));
  if (y.dtype != quant::DType::kF32) tile.requant = MakeRequant(y.scale, y.zero_point, y.dtype);
  for (int64_t r = 0; r < rows;) {
    // Never leaves one or two rows, whose few chains cannot hide the latency of the dot product, if it can be helped.
    const int64_t left = rows - r;
    tile.rows = static_cast<int>(left > 9 ? 6 : left > 6 ? (left + 1) / 2 : left);
    tile.row = first + r;
    PrefetchOutput(tile);
    RunRows(x, r, tile.rows, panels, columns.init, acc);
    Epilogue(tile);
    r += tile.rows;
  }
}

void RunSegments(const internal::SegmentArgs& args) {
  if (args.count == 0) return;
  const int64_t k = args.segments[0].y->w->k();
  const int64_t at_once = internal::RowsAtOnce(k, sizeof(InputElement));
  for (int64_t first = args.rows.begin; first < args.rows.end; first += at_once) {
    const int64_t rows = std::min(args.rows.end - first, at_once);
    const InputRows x = PrepareRows(args, first, rows, k);
    for (int s = 0; s < args.count; ++s) {
      const internal::Segment& segment = args.segments[s];
      for (int64_t b = segment.blocks.begin; b < segment.blocks.end; ++b) RunBlock(args, *segment.y, b, x, first, rows);
    }
  }
}

#endif  // HWY_TARGET <= HWY_AVX2
}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::kernels::internal {
namespace {

void Reference(const SegmentArgs& args) {
  for (int i = 0; i < args.count; ++i) {
    GemmReference({args.x, *args.segments[i].y}, args.rows, args.segments[i].blocks);
  }
}

}  // namespace

const PerArch<SegmentsFn> kRunSegments = {&Reference, &N_AVX2::RunSegments, &N_AVX3::RunSegments,
                                          &N_AVX3_DL::RunSegments};

}  // namespace octavo::kernels::internal
#endif  // HWY_ONCE
