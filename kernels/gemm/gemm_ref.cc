// The truth of Gemm and Qkv: one output at a time, in the order that quant/numeric/README.md fixes.
#include "octavo/kernels/gemm/gemm_ref.h"

#include <algorithm>
#include <utility>

#include "octavo/quant/numeric/code8.h"
#include "octavo/quant/numeric/float16.h"
#include "octavo/quant/numeric/math.h"
#include "octavo/quant/numeric/math_constants.h"
#include "octavo/quant/numeric/rounding.h"

namespace octavo::kernels {
namespace {

constexpr std::pair<Activation, std::string_view> kNames[] = {
    {Activation::kNone, "none"},
#define OCTAVO_ACTIVATION(Name, name, scalar, vector) {Activation::k##Name, name},
#include "octavo/kernels/gemm/activations.def"
#undef OCTAVO_ACTIVATION
};

int32_t Accumulate(const GemmInput& x, const PackedWeights& w, int64_t m, int64_t n) {
  const int32_t zero_point = x.zero_point + (x.row_zero_point != nullptr ? x.row_zero_point[m] : 0);
  int32_t acc = 0;
  for (int64_t k = 0; k < w.k(); ++k) {
    const int64_t index = m * x.stride + k;
    const int32_t value = x.dtype == quant::DType::kU8 ? static_cast<const uint8_t*>(x.data)[index]
                                                       : static_cast<const int8_t*>(x.data)[index];
    acc += (value - zero_point) * w.At(k, n);
  }
  return acc;
}

void Store(const GemmOutput& y, int64_t index, float value) {
  if (y.dtype == quant::DType::kF32) {
    static_cast<float*>(y.y)[index] = value;
  } else if (y.dtype == quant::DType::kBF16) {
    static_cast<uint16_t*>(y.y)[index] = quant::F32ToBF16(value);
  } else if (quant::IsFp8(y.dtype)) {
    static_cast<uint8_t*>(y.y)[index] = quant::QuantizeFp8One(value, y.scale, y.dtype);
  } else {
    const auto [lo, hi] = quant::RangeOf(y.dtype);
    const int32_t q =
        quant::QuantizeOne(value, y.scale, y.zero_point, static_cast<int32_t>(lo), static_cast<int32_t>(hi));
    static_cast<uint8_t*>(y.y)[index] = static_cast<uint8_t>(q);
  }
}

}  // namespace

std::string_view Name(Activation activation) {
  for (const auto& [value, name] : kNames) {
    if (value == activation) return name;
  }
  return "unknown";
}

bool ActivationFromName(std::string_view name, Activation* activation) {
  for (const auto& [value, text] : kNames) {
    if (text != name) continue;
    *activation = value;
    return true;
  }
  return false;
}

float ApplyActivation(Activation activation, float x) {
  switch (activation) {
    case Activation::kNone:
      return x;
#define OCTAVO_ACTIVATION(Name, name, scalar, vector) \
  case Activation::k##Name:                           \
    return scalar;
#include "octavo/kernels/gemm/activations.def"
#undef OCTAVO_ACTIVATION
  }
  return x;
}

void internal::FinishReference(const GemmOutput& y, int64_t m, int64_t n, float value) {
  if (y.bias != nullptr) value = value + y.bias[n];
  value = ApplyActivation(y.activation, value);
  if (y.post_scale != nullptr) value = value * y.post_scale[n];
  if (y.residual != nullptr) value = value + y.residual[m * y.residual_stride + n];
  Store(y, y.At(m, n), value);
}

void GemmReference(const GemmArgs& args, Range rows, Range blocks) {
  const GemmOutput& y = args.y;
  const int64_t end = std::min(y.w->n(), blocks.end * kColumnBlock);
  for (int64_t m = rows.begin; m < rows.end; ++m) {
    for (int64_t n = blocks.begin * kColumnBlock; n < end; ++n) {
      const float scale =
          (args.x.row_scale != nullptr ? args.x.row_scale[m] : args.x.scale) * y.w_scale[y.w_scale_per_column ? n : 0];
      internal::FinishReference(y, m, n, static_cast<float>(Accumulate(args.x, *y.w, m, n)) * scale);
    }
  }
}

}  // namespace octavo::kernels
