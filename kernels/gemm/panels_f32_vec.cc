// Tiles of 6 rows and a panel (AVX-512: four) add to sums in registers: 8 loads for 12 FMA on AVX2, 10 for 24 on AVX-512. A deep panel comes from L2, 64 bytes in 6 cycles. Blocks of its depth,
// whose sums would wait in y, are slower: rows of y of 512 or 3072 columns lie in one set of L1 (128 x 768 x 3072 on Zen 3: 28 in place of 36 GFMA/s).
#include <xmmintrin.h>

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

// Sums that start as the bias, kRows rows from i on, kPanels panels from column j on. kCopied: w lies in panels.
template <int kRows, int kPanels, bool kCopied>
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
  const float* w = kCopied ? args.panels + j * args.k : args.rows + j;
  for (int64_t l = 0; l < args.k; ++l, w += kCopied ? kPanelColumns : args.rows_stride) {
    Floats row[kAll];
    HWY_UNROLL(8)
    for (int v = 0; v < kAll; ++v) {
      row[v] = kCopied ? hn::Load(d, w + v / kVectors * args.k * kPanelColumns + v % kVectors * kLanes)
                       : hn::LoadU(d, w + v * kLanes);
    }
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

template <int kRows, int kPanels, bool kCopied>
void FewRows(const PanelsF32Args& args) {
  int64_t j = 0;
  for (; j + kPanels * kPanelColumns <= args.n; j += kPanels * kPanelColumns) Tile<kRows, kPanels, kCopied>(args, 0, j);
  for (; j < args.n; j += kPanelColumns) Tile<kRows, 1, kCopied>(args, 0, j);
}

// All rows of kPanels panels from column j on.
template <int kPanels, bool kCopied>
void AllRows(const PanelsF32Args& args, int64_t j) {
  constexpr decltype(&Tile<1, 1, true>) kRest[kPanelTileRows] = {nullptr,
                                                                 Tile<1, kPanels, kCopied>,
                                                                 Tile<2, kPanels, kCopied>,
                                                                 Tile<3, kPanels, kCopied>,
                                                                 Tile<4, kPanels, kCopied>,
                                                                 Tile<5, kPanels, kCopied>};
  int64_t i = 0;
  for (; i + kPanelTileRows <= args.m; i += kPanelTileRows) Tile<kPanelTileRows, kPanels, kCopied>(args, i, j);
  if (i < args.m) kRest[args.m - i](args, i, j);
}

template <bool kCopied>
void Product(const PanelsF32Args& args) {
  if (args.m == 1) return FewRows<1, 4, kCopied>(args);
  if (args.m == 2) return FewRows<2, 3, kCopied>(args);
  if (args.m == 3) return FewRows<3, 2, kCopied>(args);
  constexpr int kWide = kVectors == 1 ? 4 : 1;
  int64_t j = 0;
  for (; j + (kWide - 1) * kPanelColumns < args.n; j += kWide * kPanelColumns) AllRows<kWide, kCopied>(args, j);
  for (; j < args.n; j += kPanelColumns) AllRows<1, kCopied>(args, j);
}

void Panels(const PanelsF32Args& args) { args.panels != nullptr ? Product<true>(args) : Product<false>(args); }

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
namespace octavo::kernels {

namespace {

// For CPUs without AVX2: products and sums apart, since these lack FMA.
void PlainPanels(const PanelsF32Args& args) {
  for (int64_t j = 0; j < args.n; j += kPanelColumns) {
    const int64_t columns = std::min(kPanelColumns, args.n - j);
    for (int64_t i = 0; i < args.m; ++i) {
      float sums[kPanelColumns] = {};
      if (args.bias != nullptr) std::copy_n(args.bias + j, columns, sums);
      for (int64_t l = 0; l < args.k; ++l) {
        const float x = args.x[i * args.x_stride + l];
        const bool copied = args.panels != nullptr;
        const float* w = copied ? args.panels + j * args.k + l * kPanelColumns : args.rows + l * args.rows_stride + j;
        for (int64_t c = 0; c < kPanelColumns; ++c) sums[c] += x * w[c];
      }
      std::copy_n(sums, columns, args.y + i * args.y_stride + j);
    }
  }
}

}  // namespace

const PerArch<void(const PanelsF32Args&)> kPanelsF32Of = {&PlainPanels, &N_AVX2::Panels, &N_AVX3::Panels,
                                                          &N_AVX3_DL::Panels};

// Rows are read as they lie: panels are as many streams of writes, or columns as many streams of reads. Columns that lie one behind the other turn in
// squares of four.
void PackPanelsF32(const float* w, int64_t k, int64_t n, int64_t row, int64_t column, float* panels) {
  const auto pack = [&](int64_t l, int64_t j) {
    const int64_t columns = std::min(kPanelColumns, n - j);
    const float* from = w + l * row + j * column;
    float* to = panels + j * k + l * kPanelColumns;
    for (int64_t c = 0; c < columns; ++c) to[c] = from[c * column];
    std::fill(to + columns, to + kPanelColumns, 0.0f);
  };
  const auto turn = [&](int64_t l, int64_t j) {
    for (int64_t c = 0; c < kPanelColumns; c += 4) {
      const float* from = w + l + (j + c) * column;
      float* to = panels + j * k + l * kPanelColumns + c;
      __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + column), d = _mm_loadu_ps(from + 2 * column),
             e = _mm_loadu_ps(from + 3 * column);
      _MM_TRANSPOSE4_PS(a, b, d, e);
      _mm_storeu_ps(to, a), _mm_storeu_ps(to + kPanelColumns, b);
      _mm_storeu_ps(to + 2 * kPanelColumns, d), _mm_storeu_ps(to + 3 * kPanelColumns, e);
    }
  };
  if (column == 1) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t j = 0; j < n; j += kPanelColumns) pack(l, j);
    }
  } else {
    for (int64_t j = 0; j < n; j += kPanelColumns) {
      int64_t l = 0;
      for (; row == 1 && j + kPanelColumns <= n && l + 4 <= k; l += 4) turn(l, j);
      for (; l < k; ++l) pack(l, j);
    }
  }
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
