// From the sums of 64 columns to the output, in passes over a few rows in L1 (gemm/finish-inl.h). Per target.
#if defined(OCTAVO_KERNELS_FP8_FP8_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_FP8_FP8_EPILOGUE_INL_H_
#undef OCTAVO_KERNELS_FP8_FP8_EPILOGUE_INL_H_
#else
#define OCTAVO_KERNELS_FP8_FP8_EPILOGUE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/fp8/fp8.h"
#include "octavo/kernels/gemm/finish-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

class Fp8Epilogue {
 public:
  // Of the rows `rows` of y.
  Fp8Epilogue(float x_scale, const Fp8Output& out, int64_t block, Range rows) {
    tile_.column = block * kColumnBlock;
    tile_.columns = static_cast<int>(std::min<int64_t>(out.w->n() - tile_.column, kColumnBlock));
    tile_.SetOutput(out.y, rows);
    const float* w_scale = out.y.w_scale;
    const float* bias = out.y.bias;
    for (int i = 0; i < tile_.columns; ++i) {
      const int64_t column = tile_.column + i;
      scale_[i] = x_scale * w_scale[out.y.w_scale_per_column ? column : 0];
      bias_[i] = bias != nullptr ? bias[column] : -0.0f;  // the one value whose addition changes nothing
    }
  }

  // acc [rows][64] is overwritten; `row` is the first of y.
  void Run(float* acc, int64_t row, int64_t rows) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const EpilogueD d;
    constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
    for (float* at = acc; at != acc + rows * 64; at += 64) {
      for (int c = 0; c < 64; c += kLanes) {
        const EpilogueV v = hn::Mul(hn::Load(d, at + c), hn::Load(d, scale_ + c));
        hn::Store(hn::Add(v, hn::Load(d, bias_ + c)), d, at + c);
      }
    }
    OutputTile tile = tile_;
    tile.row = row, tile.rows = static_cast<int>(rows);
    if (!tile.by_heads) return FinishTile(tile, acc);
    for (int64_t r = 0; r < rows; r += 6) {
      tile.row = row + r, tile.rows = static_cast<int>(std::min<int64_t>(rows - r, 6));
      StoreByHeads(tile, [&](const OutputTile& t) HWY_ATTR { FinishTile(t, acc + r * 64); });
    }
  }

 private:
  OutputTile tile_{};
  alignas(64) float scale_[64] = {};
  alignas(64) float bias_[64] = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
