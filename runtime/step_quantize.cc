// QuantizeLinear from f32 and DequantizeLinear to f32, per tensor with constant parameters, 8 bits.
#include "octavo/kernels/quantize/quantize.h"
#include "octavo/quant/numeric/code8.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

constexpr int64_t kElementGrain = 32768;

class QuantizeKernel : public Kernel {
 public:
  QuantizeKernel(kernels::Arch arch, float scale, Tensor scale_tensor, Tensor zero, bool dequantize)
      : arch_(arch),
        scale_(scale),
        zero_value_(quant::IsFp8(zero.dtype()) ? 0 : ScalarInt(zero)),
        scale_tensor_(std::move(scale_tensor)),
        zero_(std::move(zero)),
        dequantize_(dequantize) {
    needs.Typed(0, dequantize_ ? zero_.dtype() : DType::kF32);
  }
  std::string name() const override {
    return std::string(dequantize_ ? "dequantize " : "quantize ") + std::string(Name(arch_));
  }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    Tensor& y = call.Allocate(0, dequantize_ ? DType::kF32 : zero_.dtype(), x.shape());
    const int64_t parts = PartsOf(x.size(), kElementGrain, call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(x.size(), parts, i, 64);
      const int64_t n = p.end - p.begin;
      if (dequantize_) {
        kernels::DequantizeLinear(arch_, x.data() + p.begin, x.dtype(), n, scale_, zero_value_,
                                  y.mutable_as<float>().data() + p.begin);
      } else {
        kernels::QuantizeLinear(arch_, x.as<float>().data() + p.begin, n, scale_, zero_value_, zero_.dtype(),
                                y.mutable_data() + p.begin);
      }
    });
    if (dequantize_) {
      call.out[0].quant = std::make_shared<ir::QuantForm>(ir::QuantForm{x, scale_tensor_, zero_, -1});
    }
    return {};
  }

 private:
  kernels::Arch arch_;
  float scale_;
  int32_t zero_value_;
  Tensor scale_tensor_;
  Tensor zero_;
  bool dequantize_;
};

}  // namespace

KernelPtr MakeQuantize(const Node& node, const CompileContext& c) {
  const bool dequantize = node.op == Op::kDequantizeLinear;
  const Tensor* scale = c.Constant(node.input(1));
  const Tensor* zero = c.Constant(node.input(2));
  const DType x = c.graph.value(node.inputs[0]).type.dtype;
  if (scale == nullptr || zero == nullptr || scale->size() != 1 || zero->size() != 1) return nullptr;
  if (scale->dtype() != DType::kF32 || !quant::IsCode8(zero->dtype())) return nullptr;
  if (dequantize ? x != zero->dtype() : x != DType::kF32) return nullptr;
  if (node.attrs.Int("block_size", 0) != 0 || node.attrs.Int("saturate", 1) == 0) return nullptr;
  return std::make_unique<QuantizeKernel>(c.arch, ScalarF32(*scale), *scale, *zero, dequantize);
}

}  // namespace octavo::runtime
