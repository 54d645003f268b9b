// Two vectors of columns are copied into a panel, then tiles of 6 rows add to sums in registers: 8 loads for 12 FMA. Adding to sums in L1
// (few_rows_f32_vec.cc) takes a load and a store for each FMA.
#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/gemm/in_order_f32_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// After foreach_target.h:
#include "octavo/kernels/gemm/in_order_f32.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using Floats = hn::Vec<F32>;
constexpr int64_t kLanes = hn::MaxLanes(F32());
constexpr int64_t kColumns = 2 * kLanes;
static_assert(kColumns <= kInOrderPanelColumns);

// Two vectors of a row, of which the last may have fewer columns: the rest is zero, and is not written.
struct Pair {
  Floats low, high;
};
HWY_INLINE Pair Load(const float* from, int64_t columns) {
  const F32 d;
  if (columns >= kColumns) return {hn::LoadU(d, from), hn::LoadU(d, from + kLanes)};
  if (columns <= kLanes) return {hn::LoadN(d, from, static_cast<size_t>(columns)), hn::Zero(d)};
  return {hn::LoadU(d, from), hn::LoadN(d, from + kLanes, static_cast<size_t>(columns - kLanes))};
}
HWY_INLINE void Store(Floats low, Floats high, float* to, int64_t columns) {
  const F32 d;
  if (columns >= kColumns) {
    hn::StoreU(low, d, to), hn::StoreU(high, d, to + kLanes);
  } else if (columns <= kLanes) {
    hn::StoreN(low, d, to, static_cast<size_t>(columns));
  } else {
    hn::StoreU(low, d, to), hn::StoreN(high, d, to + kLanes, static_cast<size_t>(columns - kLanes));
  }
}

// Rows [i, i + 6) and columns [j, j + columns). Rows behind the last are the last once more, and are not written.
HWY_INLINE void Tile(const InOrderF32Args& args, int64_t i, int64_t j, int64_t columns) {
  const F32 d;
  const float* x[kInOrderRows];
  for (int64_t r = 0; r < kInOrderRows; ++r) x[r] = args.x + std::min(i + r, args.m - 1) * args.x_stride;
  const Pair start = args.bias == nullptr ? Pair{hn::Zero(d), hn::Zero(d)} : Load(args.bias + j, columns);
  Floats s00 = start.low, s01 = start.high, s10 = s00, s11 = s01, s20 = s00, s21 = s01;
  Floats s30 = s00, s31 = s01, s40 = s00, s41 = s01, s50 = s00, s51 = s01;
  const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3], *x4 = x[4], *x5 = x[5], *w = args.panel;
  for (int64_t l = 0; l < args.k; ++l, w += kColumns) {
    const Floats w0 = hn::Load(d, w), w1 = hn::Load(d, w + kLanes);
    Floats v = hn::Set(d, x0[l]);
    s00 = hn::MulAdd(v, w0, s00), s01 = hn::MulAdd(v, w1, s01), v = hn::Set(d, x1[l]);
    s10 = hn::MulAdd(v, w0, s10), s11 = hn::MulAdd(v, w1, s11), v = hn::Set(d, x2[l]);
    s20 = hn::MulAdd(v, w0, s20), s21 = hn::MulAdd(v, w1, s21), v = hn::Set(d, x3[l]);
    s30 = hn::MulAdd(v, w0, s30), s31 = hn::MulAdd(v, w1, s31), v = hn::Set(d, x4[l]);
    s40 = hn::MulAdd(v, w0, s40), s41 = hn::MulAdd(v, w1, s41), v = hn::Set(d, x5[l]);
    s50 = hn::MulAdd(v, w0, s50), s51 = hn::MulAdd(v, w1, s51);
  }
  float* y = args.y + i * args.y_stride + j;
  const int64_t rows = args.m - i;
  Store(s00, s01, y, columns);
  if (rows > 1) Store(s10, s11, y + args.y_stride, columns);
  if (rows > 2) Store(s20, s21, y + 2 * args.y_stride, columns);
  if (rows > 3) Store(s30, s31, y + 3 * args.y_stride, columns);
  if (rows > 4) Store(s40, s41, y + 4 * args.y_stride, columns);
  if (rows > 5) Store(s50, s51, y + 5 * args.y_stride, columns);
}

void InOrder(const InOrderF32Args& args) {
  const F32 d;
  for (int64_t j = 0; j < args.n; j += kColumns) {
    const int64_t columns = std::min(kColumns, args.n - j);
    for (int64_t l = 0; l < args.k; ++l) {
      const Pair w = Load(args.w + l * args.w_stride + j, columns);
      hn::Store(w.low, d, args.panel + l * kColumns), hn::Store(w.high, d, args.panel + l * kColumns + kLanes);
    }
    for (int64_t i = 0; i < args.m; i += kInOrderRows) Tile(args, i, j, columns);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
namespace octavo::kernels {

const PerArch<void(const InOrderF32Args&)> kInOrderOf = {nullptr, &N_AVX2::InOrder, &N_AVX3::InOrder,
                                                         &N_AVX3_DL::InOrder};

}  // namespace octavo::kernels
#endif  // HWY_ONCE
