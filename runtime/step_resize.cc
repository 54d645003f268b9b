// Resize of f32: sums along one axis after the other, in float, by all threads. Between two Transposes (channels_last.h) the innermost loop runs over channels.
#include <algorithm>

#include "octavo/ir/interpret/resize.h"
#include "octavo/runtime/channels_last.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

using ir::interpret::ResizedAxis;

class ResizeKernel : public Kernel {
 public:
  ResizeKernel(const Graph& graph, const Node& node, bool channels_last, KernelPtr fallback)
      : graph_(graph), node_(node), channels_last_(channels_last), fallback_(std::move(fallback)) {
    needs.Typed(0, DType::kF32);
  }
  std::string name() const override { return "resize"; }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    Shape shape = x.shape();
    if (channels_last_ && shape.size() < 3) return fallback_->Run(call);
    if (channels_last_) std::rotate(shape.begin() + 1, shape.end() - 1, shape.end());
    auto axes = ir::interpret::WeightsOfResize(graph_, node_, shape, call.in);
    if (!axes || x.size() == 0) return fallback_->Run(call);  // it says why, or has other means
    if (channels_last_) std::rotate(axes->begin() + 1, axes->begin() + 2, axes->end());
    Shape result;
    for (const ResizedAxis& axis : *axes) result.push_back(axis.out);
    std::vector<size_t> changed;
    for (size_t d = 0; d < axes->size(); ++d) {
      if (!(*axes)[d].first.empty()) changed.push_back(d);
    }
    // Where nothing is computed, the bits are those of any order: from the innermost axis on, rows are read that are gathered already.
    if (std::ranges::all_of(changed, [&](size_t d) { return Picks((*axes)[d]); })) std::ranges::reverse(changed);
    Tensor& y = call.Allocate(0, DType::kF32, result);
    if (changed.empty()) std::ranges::copy(x.as<float>(), y.mutable_as<float>().begin());
    size_t room = 0;  // bytes of what lies between two axes
    Shape now = x.shape();
    for (size_t i = 0; i + 1 < changed.size(); ++i) {
      now[changed[i]] = result[changed[i]];
      room = std::max(room, static_cast<size_t>(ir::ElementCount(now)) * sizeof(float));
    }
    std::byte* scratch = room == 0 ? nullptr : call.Scratch(std::min<size_t>(changed.size() - 1, 2) * room);
    const float* from = x.as<float>().data();
    now = x.shape();
    for (size_t i = 0; i < changed.size(); ++i) {
      const size_t d = changed[i];
      float* to =
          i + 1 == changed.size() ? y.mutable_as<float>().data() : reinterpret_cast<float*>(scratch + i % 2 * room);
      RunAxis(call, (*axes)[d], ir::ElementCount(std::span(now).first(d)),
              ir::ElementCount(std::span(now).subspan(d + 1)), from, to);
      now[d] = result[d], from = to;
    }
    return {};
  }

 private:
  // Each position is one of the input.
  static bool Picks(const ResizedAxis& axis) {
    for (size_t p = 0; p < axis.first.size(); ++p) {
      if (axis.first[p] != p) return false;
    }
    return std::ranges::all_of(axis.weights, [](float weight) { return weight == 1; });
  }

  // x [in] -> y [out]
  static void RunLine(const ResizedAxis& axis, const float* x, float* y) {
    for (size_t p = 0; p < static_cast<size_t>(axis.out); ++p) {
      const size_t begin = axis.first[p], end = axis.first[p + 1];
      float sum = begin == end ? 0.0f : axis.weights[begin] * x[axis.from[begin]];
      for (size_t k = begin + 1; k < end; ++k) sum += axis.weights[k] * x[axis.from[k]];
      y[p] = sum;
    }
  }

  // x [outer, in, inner] -> y [outer, out, inner]
  static void RunAxis(const StepCall& call, const ResizedAxis& axis, int64_t outer, int64_t inner, const float* x,
                      float* y) {
    if (inner == 1) {
      const int64_t parts = PartsOf(outer, std::max<int64_t>(1, kElementGrain / axis.out), call.threads->count());
      return call.threads->For(parts, [&](int64_t part) {
        const Part p = PartOf(outer, parts, part, 1);
        for (int64_t line = p.begin; line < p.end; ++line) RunLine(axis, x + line * axis.in, y + line * axis.out);
      });
    }
    const int64_t rows = outer * axis.out;
    const int64_t parts = PartsOf(rows, std::max<int64_t>(1, kElementGrain / inner), call.threads->count());
    call.threads->For(parts, [&](int64_t part) {
      const Part p = PartOf(rows, parts, part, 1);
      for (int64_t r = p.begin; r < p.end; ++r) {
        const float* image = x + r / axis.out * axis.in * inner;
        const auto position = static_cast<size_t>(r % axis.out);
        float* to = y + r * inner;
        for (size_t k = axis.first[position]; k < axis.first[position + 1]; ++k) {
          const float *from = image + axis.from[k] * inner, weight = axis.weights[k];
          if (k == axis.first[position]) {
            for (int64_t i = 0; i < inner; ++i) to[i] = weight * from[i];
          } else {
            for (int64_t i = 0; i < inner; ++i) to[i] += weight * from[i];
          }
        }
        if (axis.first[position] == axis.first[position + 1]) std::fill_n(to, inner, 0.0f);
      }
    });
  }

  const Graph& graph_;
  const Node& node_;
  bool channels_last_;
  KernelPtr fallback_;
};

}  // namespace

KernelPtr MakeResize(const Node& node, const CompileContext& c) {
  if (!c.Is(node.input(0), DType::kF32) || c.SumsInOrder()) return nullptr;
  return std::make_unique<ResizeKernel>(c.graph, node, false,
                                        MakeInterpreted(c.graph, c.graph.value(node.output()).producer));
}

Made MakeTurnedResize(ir::NodeId id, const CompileContext& c) {
  const Node& node = c.graph.node(id);
  const std::optional<Turned> turned = TurnedOf(c.graph, id);
  if (!turned || MakeResize(node, c) == nullptr) return {};
  Made made = MadeOf(*turned, c.graph, id);
  made.kernel = std::make_unique<ResizeKernel>(c.graph, node, true, InterpretedOf(made, c, node.op));
  return made;
}

}  // namespace octavo::runtime
