// InstanceNormalization and GroupNormalization of f32: groups of channels side by side, on all threads, with the interpreter's bits.
#include <algorithm>
#include <cmath>

#include "octavo/quant/numeric/math.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

class GroupNormKernel : public Kernel {
 public:
  // groups: 0: each channel is one.
  GroupNormKernel(const Node& node, int64_t groups, KernelPtr fallback)
      : groups_(groups), epsilon_(node.attrs.Float("epsilon", 1e-5f)), fallback_(std::move(fallback)) {
    for (const size_t slot : {0, 1, 2}) needs.Typed(slot, DType::kF32);
  }
  std::string name() const override { return groups_ == 0 ? "instance_norm" : "group_norm"; }

  Status Execute(StepCall& call) const override {
    const Tensor &x = call.T(0), &scale = call.T(1), &bias = call.T(2);
    const int64_t channels = x.rank() < 2 ? 0 : x.shape()[1], groups = groups_ == 0 ? channels : groups_;
    const Shape each{channels};
    const bool plain = x.rank() >= 3 && x.size() > 0 && groups > 0 && channels % groups == 0 && scale.shape() == each &&
                       bias.shape() == each;
    if (!plain) return fallback_->Run(call);  // it says why, or has one scale a group
    const int64_t rows = x.shape()[0] * groups, n = x.size() / rows, of_group = channels / groups, inner = n / of_group;
    const float *from = x.as<float>().data(), *by = scale.as<float>().data(), *plus = bias.as<float>().data();
    float* to = call.Allocate(0, DType::kF32, x.shape()).mutable_as<float>().data();
    const int64_t parts = PartsOf(rows, std::max<int64_t>(1, kElementGrain / n), call.threads->count());
    call.threads->For(parts, [&](int64_t part) {
      const Part p = PartOf(rows, parts, part, 1);
      for (int64_t r = p.begin; r < p.end; ++r) {
        const float* row = from + r * n;
        float* out = to + r * n;
        const float mean = quant::Sum16(row, n) / static_cast<float>(n);
        for (int64_t i = 0; i < n; ++i) out[i] = row[i] - mean;
        const float variance = quant::SumSquares16(out, n) / static_cast<float>(n);
        const float inverse = 1.0f / std::sqrt(variance + epsilon_);
        for (int64_t c = 0; c < of_group; ++c) {
          const float factor = by[r % groups * of_group + c], shift = plus[r % groups * of_group + c];
          float* channel = out + c * inner;
          for (int64_t i = 0; i < inner; ++i) channel[i] = channel[i] * inverse * factor + shift;
        }
      }
    });
    return {};
  }

 private:
  int64_t groups_;
  float epsilon_;
  KernelPtr fallback_;
};

}  // namespace

KernelPtr MakeGroupNorm(const Node& node, const CompileContext& c) {
  for (const ValueId v : node.inputs) {
    if (!v.valid() || !c.Is(v, DType::kF32)) return nullptr;
  }
  const int64_t groups = node.op == Op::kInstanceNormalization ? 0 : node.attrs.Int("num_groups", 0);
  if (node.inputs.size() != 3 || groups < 0 || (node.op == Op::kGroupNormalization && groups == 0)) return nullptr;
  return std::make_unique<GroupNormKernel>(node, groups,
                                           MakeInterpreted(c.graph, c.graph.value(node.output()).producer));
}

}  // namespace octavo::runtime
