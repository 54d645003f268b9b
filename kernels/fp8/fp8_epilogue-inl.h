// From the sums of 64 columns to the output, in passes over a few rows in L1. Per target.
#if defined(OCTAVO_KERNELS_FP8_FP8_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_FP8_FP8_EPILOGUE_INL_H_
#undef OCTAVO_KERNELS_FP8_FP8_EPILOGUE_INL_H_
#else
#define OCTAVO_KERNELS_FP8_FP8_EPILOGUE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "octavo/kernels/elementwise/activations-inl.h"
#include "octavo/kernels/fp8/fp8.h"
#include "octavo/kernels/gemm/residual-inl.h"
#include "octavo/kernels/simd/fp8-inl.h"
#include "octavo/kernels/simd/requant-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

class Fp8Epilogue {
 public:
  Fp8Epilogue(float x_scale, const Fp8Output& out, int64_t block) : y_(out.y), column_(block * kColumnBlock) {
    columns_ = static_cast<int>(std::min<int64_t>(out.w->n() - column_, kColumnBlock));
    for (int i = 0; i < columns_; ++i) scale_[i] = x_scale * y_.w_scale[y_.w_scale_per_column ? column_ + i : 0];
    // -0 is the one value whose addition changes nothing.
    for (int i = 0; i < columns_; ++i) bias_[i] = y_.bias != nullptr ? y_.bias[column_ + i] : -0.0f;
    for (int i = 0; i < columns_ && y_.post_scale != nullptr; ++i) post_[i] = y_.post_scale[column_ + i];
    if (quant::IsFp8(y_.dtype)) fp8_ = MakeFp8Requant(y_.scale, y_.dtype);
    if (quant::IsInt8(y_.dtype)) requant_ = MakeRequant(y_.scale, y_.zero_point, y_.dtype);
  }

  // acc [rows][64] is overwritten; `row` is the first of y.
  void Run(float* acc, int64_t row, int64_t rows) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const Fp8D d;
    Each(acc, rows,
         [&](Fp8V v, int c) HWY_ATTR { return hn::Add(hn::Mul(v, hn::Load(d, scale_ + c)), hn::Load(d, bias_ + c)); });
    Activate(acc, rows);
    if (y_.post_scale != nullptr) {
      Each(acc, rows, [&](Fp8V v, int c) HWY_ATTR { return hn::Mul(v, hn::Load(d, post_ + c)); });
    }
    if (y_.residual != nullptr) AddResidual(y_, row, column_, rows, columns_, acc);
    for (int64_t r = 0; r < rows; ++r) Store(acc + r * 64, (row + r) * y_.stride + column_);
  }

 private:
  template <class F>
  static HWY_INLINE void Each(float* acc, int64_t rows, F f) {
    namespace hn = hwy::HWY_NAMESPACE;
    const Fp8D d;
    for (int64_t r = 0; r < rows; ++r, acc += 64) {
      for (int c = 0; c < 64; c += static_cast<int>(hn::MaxLanes(d))) hn::Store(f(hn::Load(d, acc + c), c), d, acc + c);
    }
  }

  HWY_NOINLINE void Activate(float* acc, int64_t rows) const {
    const Fp8D d;
    switch (y_.activation) {
      case Activation::kRelu:
        return Each(acc, rows, [&](Fp8V v, int) HWY_ATTR { return Relu(d, v); });
      case Activation::kGelu:
        return Each(acc, rows, [&](Fp8V v, int) HWY_ATTR { return Gelu(d, v); });
      case Activation::kQuickGelu:
        return Each(acc, rows, [&](Fp8V v, int) HWY_ATTR { return QuickGelu(d, v); });
      case Activation::kGeluTanh:
        return Each(acc, rows, [&](Fp8V v, int) HWY_ATTR { return GeluTanh(d, v); });
      case Activation::kSilu:
        return Each(acc, rows, [&](Fp8V v, int) HWY_ATTR { return Silu(d, v); });
      case Activation::kSigmoid:
        return Each(acc, rows, [&](Fp8V v, int) HWY_ATTR { return Sigmoid(d, v); });
      case Activation::kTanh:
        return Each(acc, rows, [&](Fp8V v, int) HWY_ATTR { return Tanh(d, v); });
      case Activation::kNone:
        return;
    }
  }

  void Store(const float* values, int64_t at) const {
    if (y_.dtype == quant::DType::kF32) {
      std::memcpy(static_cast<float*>(y_.y) + at, values, static_cast<size_t>(columns_) * sizeof(float));
    } else if (quant::IsFp8(y_.dtype)) {
      EncodeFp8(fp8_, values, static_cast<size_t>(columns_), static_cast<uint8_t*>(y_.y) + at);
    } else if (requant_.divide) {
      StoreInt8<true>(values, static_cast<uint8_t*>(y_.y) + at);
    } else {
      StoreInt8<false>(values, static_cast<uint8_t*>(y_.y) + at);
    }
  }

  template <bool kDivide>
  HWY_INLINE void StoreInt8(const float* values, uint8_t* y) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const Fp8D d;
    const hn::Rebind<int8_t, Fp8D> d8;
    const hn::Repartition<uint8_t, decltype(d8)> du8;
    constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
    for (int c = 0; c < columns_; c += kLanes) {
      const auto codes = hn::DemoteTo(d8, RequantToInt<kDivide>(d, requant_, hn::Load(d, values + c)));
      hn::StoreN(hn::Xor(hn::BitCast(du8, codes), hn::Set(du8, requant_.flip)), du8, y + c,
                 static_cast<size_t>(std::min(kLanes, columns_ - c)));
    }
  }

  const GemmOutput& y_;
  int64_t column_;
  int columns_;
  alignas(64) float scale_[64] = {};
  alignas(64) float bias_[64] = {};
  alignas(64) float post_[64] = {};
  Requant requant_{};
  Fp8Requant fp8_{};
};

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
