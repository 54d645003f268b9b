// RotaryEmbedding with positions, over floats: the interpreter's bits on all threads.
#include <algorithm>

#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

struct Rotation {
  int64_t heads;  // of [B,S,H*D]; 0: x is [B,H,S,D]
  int64_t dim, half;
  bool interleaved;
};

// One head of one row: pairs at a distance of `half`, or side by side; what is behind them stays as it is.
void Rotate(const Rotation& r, const float* x, const float* cos, const float* sin, float* y) {
  for (int64_t i = 0; i < r.half; ++i) {
    const int64_t p = r.interleaved ? 2 * i : i, q = r.interleaved ? 2 * i + 1 : i + r.half;
    y[p] = cos[i] * x[p] - sin[i] * x[q];
    y[q] = sin[i] * x[p] + cos[i] * x[q];
  }
  std::copy(x + 2 * r.half, x + r.dim, y + 2 * r.half);
}

class RotaryKernel : public Kernel {
 public:
  RotaryKernel(const Rotation& rotation, const Node& node, const CompileContext& c) : rotation_(rotation) {
    const auto batch = Needs::Size::Same(0), rows = Needs::Size::Same(1), most = Needs::Size::Same(2);
    if (rotation.heads != 0) {
      needs.Exactly(0, DType::kF32, {batch, rows, rotation.heads * rotation.dim});
    } else {
      needs.Exactly(0, DType::kF32, {batch, Needs::Size::Any(), rows, rotation.dim});
    }
    for (const size_t slot : {1, 2}) needs.Exactly(slot, DType::kF32, {most, rotation.half});
    needs.Exactly(3, DType::kS64, {batch, rows});
    otherwise = MakeInterpreted(c.graph, c.graph.value(node.output()).producer);
  }
  std::string name() const override { return "rotary"; }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    const Shape& s = x.shape();
    const auto positions = call.T(3).as<int64_t>();
    const int64_t most = call.T(1).shape()[0];
    // Such positions count from the end, or are an error.
    if (std::ranges::any_of(positions, [&](int64_t at) { return at < 0 || at >= most; })) return otherwise->Run(call);
    const int64_t rows = s.size() == 3 ? s[1] : s[2], heads = s.size() == 3 ? rotation_.heads : s[1];
    const auto *cos = call.T(1).as<float>().data(), *sin = call.T(2).as<float>().data(), *in = x.as<float>().data();
    float* out = call.Allocate(0, DType::kF32, s).mutable_as<float>().data();
    const int64_t lines = s[0] * rows * heads;
    const int64_t parts = PartsOf(lines, std::max(int64_t{1}, kElementGrain / rotation_.dim), call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part part = PartOf(lines, parts, i, 1);
      for (int64_t line = part.begin; line < part.end; ++line) {
        const int64_t batch = line / (rows * heads), row = s.size() == 3 ? line / heads % rows : line % rows;
        const int64_t at = positions[static_cast<size_t>(batch * rows + row)] * rotation_.half;
        Rotate(rotation_, in + line * rotation_.dim, cos + at, sin + at, out + line * rotation_.dim);
      }
    });
    return {};
  }

 private:
  Rotation rotation_;
};

}  // namespace

KernelPtr MakeRotary(const Node& node, const CompileContext& c) {
  const auto& shape = c.graph.value(node.input(0)).type.shape;
  for (size_t i = 0; i < 3; ++i) {
    if (!c.Is(node.input(i), DType::kF32)) return nullptr;
  }
  if (!node.input(3) || !c.Is(node.input(3), DType::kS64)) return nullptr;
  if (!shape || (shape->size() != 3 && shape->size() != 4) || !shape->back().is_number()) return nullptr;
  const int64_t columns = shape->back().number();
  const int64_t heads = shape->size() == 3 ? node.attrs.Int("num_heads", 0) : 0;
  if (shape->size() == 3 && (heads < 1 || columns % heads != 0)) return nullptr;
  const int64_t dim = heads > 0 ? columns / heads : columns, wanted = node.attrs.Int("rotary_embedding_dim", 0);
  const int64_t rotated = wanted == 0 ? dim : wanted;
  if (dim < 1 || rotated < 1 || rotated > dim || rotated % 2 != 0) return nullptr;
  const Rotation rotation = {heads, dim, rotated / 2, node.attrs.Int("interleaved", 0) != 0};
  return std::make_unique<RotaryKernel>(rotation, node, c);
}

}  // namespace octavo::runtime
