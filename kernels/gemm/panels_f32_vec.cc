// Tiles of 6 rows and a panel add to sums in registers: 8 loads for 12 FMA on AVX2. A deep panel comes from L2, 64 bytes in 6 cycles. Blocks of its depth,
// whose sums would wait in y, are slower: rows of y of 512 or 3072 columns lie in one set of L1 (128 x 768 x 3072 on Zen 3: 28 in place of 36 GFMA/s).
#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/gemm/panels_f32_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// After foreach_target.h:
#include "octavo/kernels/gemm/panels_f32.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using Floats = hn::Vec<F32>;
constexpr int64_t kLanes = hn::MaxLanes(F32());
constexpr int kVectors = kPanelColumns / kLanes;  // of a panel

// Vector v of a row of `columns` from here on; beyond them it is zero, and is not written.
HWY_INLINE Floats Load(const float* from, int v, int64_t columns) {
  const F32 d;
  const int64_t left = columns - v * kLanes;
  return left >= kLanes ? hn::LoadU(d, from + v * kLanes)
                        : hn::LoadN(d, from + v * kLanes, static_cast<size_t>(std::max<int64_t>(left, 0)));
}
HWY_INLINE void Store(Floats sum, float* to, int v, int64_t columns) {
  const F32 d;
  const int64_t left = columns - v * kLanes;
  if (left >= kLanes) {
    hn::StoreU(sum, d, to + v * kLanes);
  } else if (left > 0) {
    hn::StoreN(sum, d, to + v * kLanes, static_cast<size_t>(left));
  }
}

// kRows rows from i on, kPanels panels from column j on.
template <int kRows, int kPanels>
HWY_INLINE void Tile(const PanelsF32Args& args, int64_t i, int64_t j) {
  const F32 d;
  constexpr int kAll = kPanels * kVectors;
  const int64_t columns = std::min<int64_t>(args.n - j, kPanels * kPanelColumns);
  const float* x = args.x + i * args.x_stride;
  Floats s[kRows][kAll];
  HWY_UNROLL(8)
  for (int v = 0; v < kAll; ++v) {
    s[0][v] = args.bias == nullptr ? hn::Zero(d) : Load(args.bias + j, v, columns);
    HWY_UNROLL(6)
    for (int r = 1; r < kRows; ++r) s[r][v] = s[0][v];
  }
  const float* w = args.panels + j * args.k;
  for (int64_t l = 0; l < args.k; ++l, w += kPanelColumns) {
    Floats row[kAll];
    HWY_UNROLL(8)
    for (int v = 0; v < kAll; ++v)
      row[v] = hn::Load(d, w + v / kVectors * args.k * kPanelColumns + v % kVectors * kLanes);
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      const Floats value = hn::Set(d, x[r * args.x_stride + l]);
      HWY_UNROLL(8)
      for (int v = 0; v < kAll; ++v) s[r][v] = hn::MulAdd(value, row[v], s[r][v]);
    }
  }
  float* y = args.y + i * args.y_stride + j;
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kAll; ++v) Store(s[r][v], y + r * args.y_stride, v, columns);
  }
}

template <int kRows, int kPanels>
void FewRows(const PanelsF32Args& args) {
  int64_t j = 0;
  for (; j + kPanels * kPanelColumns <= args.n; j += kPanels * kPanelColumns) Tile<kRows, kPanels>(args, 0, j);
  for (; j < args.n; j += kPanelColumns) Tile<kRows, 1>(args, 0, j);
}

void Panels(const PanelsF32Args& args) {
  if (args.m == 1) return FewRows<1, 4>(args);
  if (args.m == 2) return FewRows<2, 3>(args);
  if (args.m == 3) return FewRows<3, 2>(args);
  constexpr decltype(&Tile<1, 1>) kRest[kPanelTileRows] = {nullptr,    Tile<1, 1>, Tile<2, 1>,
                                                           Tile<3, 1>, Tile<4, 1>, Tile<5, 1>};
  for (int64_t j = 0; j < args.n; j += kPanelColumns) {
    int64_t i = 0;
    for (; i + kPanelTileRows <= args.m; i += kPanelTileRows) Tile<kPanelTileRows, 1>(args, i, j);
    if (i < args.m) kRest[args.m - i](args, i, j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
namespace octavo::kernels {

const PerArch<void(const PanelsF32Args&)> kPanelsF32Of = {nullptr, &N_AVX2::Panels, &N_AVX3::Panels,
                                                          &N_AVX3_DL::Panels};

// Rows are read as they lie: panels are as many streams of writes, or columns as many streams of reads.
void PackPanelsF32(const float* w, int64_t k, int64_t n, int64_t row, int64_t column, float* panels) {
  const auto pack = [&](int64_t l, int64_t j) {
    const int64_t columns = std::min(kPanelColumns, n - j);
    const float* from = w + l * row + j * column;
    float* to = panels + j * k + l * kPanelColumns;
    for (int64_t c = 0; c < columns; ++c) to[c] = from[c * column];
    std::fill(to + columns, to + kPanelColumns, 0.0f);
  };
  if (column == 1) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t j = 0; j < n; j += kPanelColumns) pack(l, j);
    }
  } else {
    for (int64_t j = 0; j < n; j += kPanelColumns) {
      for (int64_t l = 0; l < k; ++l) pack(l, j);
    }
  }
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
