// f32 Conv with constant weights through oneDNN: patch embeddings of ViTs, the front of speech models, and whole stacks of convolutions, whose channels
// stand last (channels_last.h).
#include "octavo/runtime/channels_last.h"
#include "octavo/runtime/prepared_conv.h"

namespace octavo::runtime {

namespace {

class ConvKernel : public Kernel {
 public:
  ConvKernel(Tensor weights, kernels::ConvShape shape, bool bias, KernelPtr fallback)
      : conv_(std::move(weights), std::move(shape)), bias_(bias), fallback_(std::move(fallback)) {
    needs.Typed(0, DType::kF32);
    if (bias_) needs.Typed(2, DType::kF32);
  }
  std::string name() const override { return "conv_f32" + (tail_ == nullptr ? "" : "+" + tail_->name()) + " onednn"; }

  // Element-wise nodes behind the convolution. Their operands are inputs of the step, by slot; 0: what the convolution has just made.
  void EndIn(std::unique_ptr<Tail> tail, std::vector<size_t> operands) {
    tail_ = std::move(tail), operands_ = std::move(operands);
    for (const size_t slot : operands_) {
      if (slot != 0) needs.EndsIn(slot, DType::kUndefined, {conv_.shape().filters});
    }
  }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    const kernels::ConvShape& shape = conv_.shape();
    const size_t dims = shape.kernel.size(), at = shape.channels_last ? 1 : 2;
    const bool fits = x.shape().size() == dims + 2 && x.shape()[shape.channels_last ? dims + 1 : 1] == shape.channels &&
                      (!bias_ || call.T(2).size() == shape.filters);
    if (!fits) return fallback_->Run(call);  // it says why
    const auto first = x.shape().begin() + static_cast<int64_t>(at);
    const auto parts = conv_.For({first, first + static_cast<int64_t>(dims)}, bias_);
    if (parts == nullptr) return fallback_->Run(call);
    Shape result = {x.shape()[0]};
    result.insert(result.end(), parts->out.begin(), parts->out.end());
    result.insert(result.begin() + (shape.channels_last ? static_cast<int64_t>(dims) + 1 : 1), shape.filters);
    for (const size_t slot : operands_) {
      if (slot != 0 && call.T(slot).shape() != result) return fallback_->Run(call);
    }
    std::byte* y = call.Allocate(0, tail_ == nullptr ? DType::kF32 : tail_->output(), result).mutable_data();
    const auto count = static_cast<int64_t>(parts->parts.size());
    std::vector<std::string> problems(static_cast<size_t>(result[0] * count));
    call.threads->For(result[0] * count, [&](int64_t i) {
      const PreparedConv::Part& part = parts->parts[static_cast<size_t>(i % count)];
      problems[static_cast<size_t>(i)] = RunPart(call, part, *parts, i / count, y);
    });
    for (const std::string& problem : problems) {
      if (!problem.empty()) return ir::Fail("{}", problem);
    }
    return {};
  }

 private:
  std::string RunPart(const StepCall& call, const PreparedConv::Part& part, const PreparedConv::Parts& parts,
                      int64_t image, std::byte* y) const {
    const kernels::ConvShape& shape = conv_.shape();
    const int64_t x_size = call.T(0).size() / call.T(0).shape()[0],
                  y_size = ir::ElementCount(parts.out) * shape.filters;
    const float* x = call.T(0).as<float>().data() + image * x_size + part.x;
    const float* bias = bias_ ? call.T(2).as<float>().data() + part.first_filter : nullptr;
    const int64_t begin = image * y_size + part.y;
    if (tail_ == nullptr) return part.conv->Run(x, bias, reinterpret_cast<float*>(y) + begin);
    // Floats go where the result lies, and become it there: every tile is read before it is written.
    const bool in_place = tail_->output() == DType::kF32;
    const TaskScratch own(in_place ? 0 : static_cast<size_t>(part.size) * sizeof(float));
    std::byte* out = y + begin * quant::BitsOf(tail_->output()) / 8;
    std::byte* made = in_place ? out : own.data();
    if (std::string problem = part.conv->Run(x, bias, reinterpret_cast<float*>(made)); !problem.empty()) return problem;
    std::vector<const std::byte*> in;
    in.reserve(operands_.size());
    for (const size_t slot : operands_)
      in.push_back(slot == 0 ? made : call.T(slot).data() + begin * quant::BitsOf(call.T(slot).dtype()) / 8);
    tail_->RunPiece(in, shape.filters, {0, part.size / shape.filters}, {0, shape.filters}, out);
    return {};
  }

  PreparedConv conv_;
  bool bias_;  // input 2
  std::unique_ptr<Tail> tail_ = nullptr;
  std::vector<size_t> operands_ = {};
  KernelPtr fallback_;
};

}  // namespace

KernelPtr MakeConv(const Node& node, const CompileContext& c) {
  const Tensor* w = c.Constant(node.input(1));
  if (w == nullptr || w->dtype() != DType::kF32 || w->size() == 0) return nullptr;
  if (!c.Is(node.input(0), DType::kF32) || !c.Is(node.input(2), DType::kF32)) return nullptr;
  if (c.SumsInOrder()) return nullptr;
  auto shape = ConvShapeOf(node, w->shape());
  if (!shape) return nullptr;
  return std::make_unique<ConvKernel>(*w, std::move(*shape), node.input(2).valid(),
                                      MakeInterpreted(c.graph, c.graph.value(node.output()).producer));
}

Made MakeTurnedConv(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains) {
  const Node& node = c.graph.node(id);
  const std::optional<Turned> turned = TurnedOf(c.graph, id);
  if (!turned || MakeConv(node, c) == nullptr) return {};
  const Tensor& w = *c.Constant(node.input(1));
  auto shape = ConvShapeOf(node, w.shape());
  shape->channels_last = true;
  Made made = MadeOf(*turned, c.graph, id);
  const std::vector<Chain> tails = FindTails(c, std::span(&turned->behind, 1), chains);
  std::vector<size_t> operands;
  if (!tails.empty()) {
    const std::vector<ir::NodeId>& behind = tails[0].nodes;
    made.nodes.insert(made.nodes.end(), behind.begin(), behind.end());
    made.outputs = {c.graph.node(behind.back()).output()};
    for (const ValueId v : tails[0].inputs) {
      operands.push_back(v == turned->y ? 0 : made.inputs.size());
      if (v != turned->y) made.inputs.push_back(v);
    }
  }
  auto kernel =
      std::make_unique<ConvKernel>(w, std::move(*shape), node.input(2).valid(), InterpretedOf(made, c, node.op));
  if (!tails.empty()) kernel->EndIn(MakeTail(tails[0], c), std::move(operands));
  made.kernel = std::move(kernel);
  return made;
}

}  // namespace octavo::runtime
