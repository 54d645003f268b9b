// DynamicQuantizeLinear: the range of the whole tensor, then one scale and zero point for it. QuantizeTokens: the same a row.
// Bits are the interpreter's.
#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/kernels/quantize/quantize.h"
#include "octavo/quant/numeric/rounding.h"
#include "octavo/runtime/step_linear.h"

namespace octavo::runtime {

namespace {

constexpr int64_t kGrain = 32768;

uint8_t ZeroPoint(float lo, float scale) {
  return static_cast<uint8_t>(quant::RoundHalfEven(std::fmin(255.0f, std::fmax(0.0f, 0.0f - lo / scale))));
}

class DynamicQuantizeKernel : public Kernel {
 public:
  explicit DynamicQuantizeKernel(kernels::Arch arch) : arch_(arch) { needs.Typed(0, DType::kF32); }
  std::string name() const override { return "dynamic_quantize " + std::string(Name(arch_)); }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    const float* in = x.as<float>().data();
    const int64_t parts = PartsOf(x.size(), kGrain, call.threads->count());
    std::vector<kernels::MinMax> ranges(static_cast<size_t>(parts));
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(x.size(), parts, i, 64);
      ranges[static_cast<size_t>(i)] = kernels::FindMinMax(arch_, in + p.begin, p.end - p.begin);
    });
    float lo = 0.0f, hi = 0.0f;  // zero is always in the range
    for (const kernels::MinMax& r : ranges) {
      lo = std::min(lo, r.min);
      hi = std::max(hi, r.max);
    }
    const float spread = (hi - lo) / 255.0f;
    const float scale = spread == 0.0f ? 1.0f : spread;
    const uint8_t zero = ZeroPoint(lo, scale);
    Tensor& y = call.Allocate(0, DType::kU8, x.shape());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(x.size(), parts, i, 64);
      kernels::QuantizeLinear(arch_, in + p.begin, p.end - p.begin, scale, zero, DType::kU8,
                              y.mutable_data() + p.begin);
    });
    *call.Allocate(1, DType::kF32, {}).mutable_as<float>().data() = scale;
    *call.Allocate(2, DType::kU8, {}).mutable_as<uint8_t>().data() = zero;
    return {};
  }

 private:
  kernels::Arch arch_;
};

class QuantizeTokensKernel : public Kernel {
 public:
  explicit QuantizeTokensKernel(kernels::Arch arch) : arch_(arch) {
    needs.EndsIn(0, DType::kF32, {Needs::Size::Any()});
    by_rows = true;
  }
  std::string name() const override { return "quantize_tokens " + std::string(Name(arch_)); }

  Status Execute(StepCall& call) const override {
    QuantizeRows(arch_, call, 0);
    return {};
  }

 private:
  kernels::Arch arch_;
};

}  // namespace

// A row is read twice, the second time from L1.
void QuantizeRows(kernels::Arch arch, StepCall& call, size_t first) {
  const Tensor& x = call.T(0);
  const int64_t n = x.shape().back(), rows = LeadingRows(x.shape());
  Shape of_scale = x.shape();
  of_scale.back() = 1;
  const float* in = x.as<float>().data();
  std::byte* codes = call.Allocate(first, DType::kU8, x.shape()).mutable_data();
  float* scale = call.Allocate(first + 1, DType::kF32, of_scale).mutable_as<float>().data();
  auto* zero = call.Allocate(first + 2, DType::kU8, std::move(of_scale)).mutable_as<uint8_t>().data();
  const int64_t parts = PartsOf(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n)), call.threads->count());
  call.threads->For(parts, [&](int64_t i) {
    const Part p = PartOf(rows, parts, i, 1);
    for (int64_t r = p.begin; r < p.end; ++r) {
      const kernels::MinMax range = kernels::FindMinMax(arch, in + r * n, n);
      const float lo = std::min(range.min, 0.0f), hi = std::max(range.max, 0.0f);
      scale[r] = std::max(hi / 255.0f - lo / 255.0f, 0x1p-100f);
      zero[r] = ZeroPoint(lo, scale[r]);
      kernels::QuantizeLinear(arch, in + r * n, n, scale[r], zero[r], DType::kU8, codes + r * n);
      // Codes have no NaN: the row's products get it from here.
      if (range.has_nan) scale[r] = std::numeric_limits<float>::quiet_NaN();
    }
  });
}

KernelPtr MakeQuantizeTokens(const Node& node, const CompileContext& c) {
  if (!node.output(0).valid() || !node.output(1).valid() || !node.output(2).valid()) return nullptr;
  if (c.graph.value(node.input(0)).type.dtype != DType::kF32) return nullptr;
  return std::make_unique<QuantizeTokensKernel>(c.arch);
}

KernelPtr MakeDynamicQuantize(const Node& node, const CompileContext& c) {
  const bool wanted = node.output(0).valid() && node.output(1).valid() && node.output(2).valid();
  if (!wanted || c.graph.value(node.input(0)).type.dtype != DType::kF32) return nullptr;
  return std::make_unique<DynamicQuantizeKernel>(c.arch);
}

}  // namespace octavo::runtime
