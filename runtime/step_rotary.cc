// RotaryEmbedding over floats: the interpreter's bits on all threads.
#include <algorithm>

#include "octavo/runtime/rotation.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

class RotaryKernel : public Kernel {
 public:
  RotaryKernel(const RotaryOp& op, const Node& node, const CompileContext& c) : op_(op) {
    const auto any = Needs::Size::Any();
    if (op.heads != 0) {
      needs.Exactly(0, DType::kF32, {any, any, op.heads * op.size});
    } else {
      needs.Exactly(0, DType::kF32, {any, any, any, op.size});
    }
    for (const size_t slot : {1, 2}) needs.Typed(slot, DType::kF32);
    if (node.input(3)) needs.Typed(3, DType::kS64);
    otherwise = MakeInterpreted(c.graph, c.graph.value(node.output()).producer);
  }
  std::string name() const override { return "rotary"; }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    const Shape& s = x.shape();
    const bool three = s.size() == 3;
    const int64_t rows = three ? s[1] : s[2], heads = three ? op_.heads : s[1], size = op_.size;
    OCTAVO_TRY(const Angles angles, AnglesOfOp(call.T(1), call.T(2), call.Has(3) ? &call.T(3) : nullptr, s[0], rows,
                                               op_.rotation.columns / 2));
    const float* in = x.as<float>().data();
    float* out = call.Allocate(0, DType::kF32, s).mutable_as<float>().data();
    const int64_t lines = s[0] * rows * heads;
    const int64_t parts = PartsOf(lines, std::max(int64_t{1}, kElementGrain / size), call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part part = PartOf(lines, parts, i, 1);
      for (int64_t line = part.begin; line < part.end; ++line) {
        const int64_t batch = line / (rows * heads), row = three ? line / heads % rows : line % rows;
        Rotate(op_.rotation, in + line * size, angles.Cos(batch, row), angles.Sin(batch, row), size, out + line * size);
      }
    });
    return {};
  }

 private:
  RotaryOp op_;
};

}  // namespace

KernelPtr MakeRotary(const Node& node, const CompileContext& c) {
  const std::optional<RotaryOp> op = RotaryOpOf(node, c);
  return op ? std::make_unique<RotaryKernel>(*op, node, c) : nullptr;
}

}  // namespace octavo::runtime
