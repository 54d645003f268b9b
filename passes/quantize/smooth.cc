// Channels that stick out of what norms and activations hand to Linears are split, and what is left of them pressed down:
// Before: y = Norm(x, gamma, beta);  MatMul(y, W)
// After:  y' = Gather(Norm(x, gamma/d, beta/d), index);  MatMul(y', (s W)[index])       d = n s: n columns of y' for one channel of y
// Before: y = Gelu(x W1 + b1);  MatMul(y, W)                      also y = f(x W1 + b1) * (x W2 + b2) and other element-wise chains
// After:  y' = Gelu(x W1[:, index] + b1[index]) * (1/d)[index];  MatMul(y', (s W)[index])     the division in W2 and b2 where there are such
// One scale serves all channels of an activation, so one that is fifteen times the median takes four bits from all others. As n columns of an n-th of its
// size it takes none, and weights stay as they are (outlier channel splitting: Zhao et al., arXiv 1901.09504). What still sticks out is pressed
// down by s, which the weights make up for (SmoothQuant: Xiao et al., arXiv 2211.10438; its own rule, for all channels, lost: docs/lab/quantization.md). How
// much of both: split.h. MiniLM 22.3 dB with pressing alone, 25.9 so, for 3 % of the time; calibrated on half of the texts, the others 25.2.
// The float meaning changes by rounding only. A norm's other users keep y.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/split.h"
#include "octavo/passes/quantize/stream.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::Tensor;

namespace {

Tensor Divided(const Tensor& t, const std::vector<float>& d) {
  Tensor out = Tensor::Empty(t.dtype(), t.shape());
  for (size_t i = 0; i < d.size(); ++i) out.mutable_as<float>()[i] = t.as<float>()[i] / d[i];
  return out;
}

// The rows [k,n] of the weights, for every column of the activation.
Tensor WeightsOf(const Tensor& w, const Split& s) {
  const auto n = static_cast<size_t>(w.shape()[1]);
  Tensor out = Tensor::Empty(w.dtype(), {static_cast<int64_t>(s.index.size()), w.shape()[1]});
  const auto from = w.as<float>();
  auto to = out.mutable_as<float>();
  for (size_t k = 0; k < s.index.size(); ++k) {
    const auto channel = static_cast<size_t>(s.index[k]);
    for (size_t j = 0; j < n; ++j) to[k * n + j] = from[channel * n + j] * s.pressed[channel];
  }
  return out;
}

bool IsActivation(Op op) { return op == Op::kGelu || op == Op::kRelu || op == Op::kTanh || op == Op::kSigmoid; }

// Parameters of a norm: a vector each, beta only where there is one.
struct Norm {
  size_t gamma_slot;
  const Tensor* gamma;
  const Tensor* beta;  // null: none
};

std::optional<Norm> NormOf(const Graph& g, const Node& n, size_t width) {
  const size_t slot = GammaSlot(n);
  const ValueId beta = n.op == Op::kRMSNormalization ? ValueId{} : n.input(slot + 1);
  const Norm norm{slot, g.ConstantOf(n.input(slot)), beta ? g.ConstantOf(beta) : nullptr};
  const auto fits = [width](const Tensor* t) {
    return t != nullptr && t->dtype() == ir::DType::kF32 && t->rank() == 1 && t->as<float>().size() == width;
  };
  if (!fits(norm.gamma) || (beta.valid() && !fits(norm.beta))) return std::nullopt;
  return norm;
}

// The float Linears that read `y` along their rows.
std::vector<NodeId> LinearUsers(const Graph& g, ValueId y, int64_t width) {
  std::vector<NodeId> users;
  for (const ir::Use& u : g.value(y).uses) {
    const Node& n = g.node(u.node);
    const Tensor* w = n.op == Op::kMatMul && u.slot == 0 ? g.ConstantOf(n.inputs[1]) : nullptr;
    if (w != nullptr && w->dtype() == ir::DType::kF32 && w->rank() == 2 && w->shape()[0] == width)
      users.push_back(u.node);
  }
  return users;
}

ValueId Made(Rewriter& b, Op op, std::vector<ValueId> inputs, ir::Attrs attrs, ValueId like, size_t width) {
  const ValueId v = b.Create(op, std::move(inputs), std::move(attrs));
  Graph& g = b.graph();
  ir::Type type = g.value(like).type;
  if (type.shape && !type.shape->empty()) type.shape->back() = static_cast<int64_t>(width);
  g.SetType(v, std::move(type));
  return v;
}

// Makes a value anew, with the columns of a split, that element-wise ops compute from Linears.
class Widening {
 public:
  Widening(Rewriter& b, ValueId end) : b_(b), g_(b.graph()), end_(end) {}

  // Whether that is possible for so many channels: few ops, none of another kind, nothing on the way that others read.
  bool Possible(size_t channels) {
    channels_ = channels;
    if (!Reach(end_)) return false;
    return std::ranges::all_of(made_, [this](const auto& on_the_way) {
      const ValueId v = on_the_way.first;
      const auto known = [this](const ir::Use& use) { return made_.contains(g_.node(use.node).output()); };
      return v == end_ || (!g_.IsGraphOutput(v) && std::ranges::all_of(g_.value(v).uses, known));
    });
  }
  // Its columns, divided.
  ValueId Make(const Split& split) {
    split_ = &split;
    return Scales(end_) ? Make(end_, true) : Scaled(Make(end_, false));
  }
  // Divided where it stands, with the columns that it has.
  ValueId Divide(const Split& split) {
    split_ = &split;
    return Scaled(end_);
  }

 private:
  bool Reach(ValueId v) {
    if (IsVector(v) || made_.contains(v)) return true;
    const Node* n = g_.Producer(v);
    constexpr size_t kFewOps = 32;  // a gate with biases has 7; a residual stream without norms has no end
    if (n == nullptr || made_.size() >= kFewOps) return false;
    made_[v] = {};
    if (n->op == Op::kMatMul) {
      const Tensor* w = g_.ConstantOf(n->inputs[1]);
      return w != nullptr && w->rank() == 2 && w->dtype() == ir::DType::kF32 &&
             static_cast<size_t>(w->shape()[1]) == channels_;
    }
    if (!IsActivation(n->op) && n->op != Op::kAdd && n->op != Op::kMul) return false;
    return std::ranges::all_of(n->inputs, [this](ValueId in) { return Reach(in); });
  }

  // Whether v divided is what its Linear gives with divided weights, so that it costs nothing.
  bool Scales(ValueId v) const {
    if (IsVector(v)) return true;
    const Node& n = *g_.Producer(v);
    if (v != end_ && g_.value(v).uses.size() > 1) return false;
    if (n.op == Op::kAdd) return Scales(n.inputs[0]) && Scales(n.inputs[1]);
    if (n.op == Op::kMul) return Scales(n.inputs[0]) || Scales(n.inputs[1]);
    return n.op == Op::kMatMul || (n.op == Op::kRelu && Scales(n.inputs[0]));
  }

  ValueId Make(ValueId v, bool divided) {
    if (IsVector(v)) return b_.Constant(Columns(*g_.ConstantOf(v), divided), g_.value(v).name + "_split");
    if (!divided && made_[v].valid()) return made_[v];
    const NodeId id = g_.value(v).producer;
    const Node n = g_.node(id);
    std::vector<ValueId> inputs = n.inputs;
    if (n.op == Op::kMatMul) {
      inputs[1] = b_.Constant(Columns(*g_.ConstantOf(inputs[1]), divided), g_.value(inputs[1]).name + "_split");
    } else {
      const size_t scaled = n.op == Op::kMul && divided && !Scales(inputs[0]) ? 1 : 0;
      for (size_t i = 0; i < inputs.size(); ++i)
        inputs[i] = Make(inputs[i], divided && (n.op != Op::kMul || i == scaled));
    }
    b_.At(id, {id});
    return made_[v] = Made(b_, n.op, std::move(inputs), n.attrs, v, split_->index.size());
  }

  bool IsVector(ValueId v) const {
    const Tensor* t = g_.ConstantOf(v);
    return t != nullptr && t->dtype() == ir::DType::kF32 && t->rank() == 1 && t->as<float>().size() == channels_;
  }
  Tensor Columns(const Tensor& t, bool divided) const {
    ir::Shape shape = t.shape();
    shape.back() = static_cast<int64_t>(split_->index.size());
    Tensor out = Tensor::Empty(t.dtype(), std::move(shape));
    const auto from = t.as<float>();
    auto to = out.mutable_as<float>();
    for (size_t i = 0; i < to.size(); ++i) {
      const auto channel = static_cast<size_t>(split_->index[i % split_->index.size()]);
      to[i] = from[i / split_->index.size() * channels_ + channel] / (divided ? split_->divisor[channel] : 1.0f);
    }
    return out;
  }
  ValueId Scaled(ValueId wide) {
    std::vector<float> inverse;
    inverse.reserve(split_->index.size());
    for (const int64_t channel : split_->index) inverse.push_back(1.0f / split_->divisor[static_cast<size_t>(channel)]);
    const auto width = static_cast<int64_t>(inverse.size());
    const NodeId end = g_.value(end_).producer, next = g_.node(end).next;
    b_.At(next.valid() ? next : end, {end});
    return Made(b_, Op::kMul, {wide, b_.Constant(Tensor::F32({width}, inverse))}, {}, end_, inverse.size());
  }

  Rewriter& b_;
  Graph& g_;
  ValueId end_;
  size_t channels_ = 0;
  const Split* split_ = nullptr;
  std::map<ValueId, ValueId> made_;  // everything on the way
};

// The columns of a norm's output, made behind it.
ValueId SplitNorm(Rewriter& b, NodeId id, const Norm& norm, const Split& s) {
  Graph& g = b.graph();
  const Node old = g.node(id);
  b.At(old.next.valid() ? old.next : id, {id});
  std::vector<ValueId> inputs = old.inputs;
  inputs[norm.gamma_slot] = b.Constant(Divided(*norm.gamma, s.divisor));
  if (norm.beta != nullptr) inputs[norm.gamma_slot + 1] = b.Constant(Divided(*norm.beta, s.divisor));
  const ValueId y = b.Create(old.op, std::move(inputs), old.attrs, old.name + "/smooth");
  g.SetType(y, g.value(old.output()).type);
  if (s.more() == 0) return y;
  const ValueId index = b.Constant(Tensor::S64({static_cast<int64_t>(s.index.size())}, s.index));
  return Made(b, Op::kGather, {y, index}, {{"axis", int64_t{-1}}}, old.output(), s.index.size());
}

// For one norm or the end of one element-wise chain.
bool SmoothOne(Graph& g, NodeId id, PassRun& run) {
  const Node& n = g.node(id);
  if (!IsNorm(n) && !IsActivation(n.op) && n.op != Op::kMul) return false;
  const ValueId y = n.output();
  const ChannelStats stats = run.evidence.channels(g.value(y).name);
  const size_t channels = stats.ranges.size();
  const std::vector<NodeId> linears = LinearUsers(g, y, static_cast<int64_t>(channels));
  if (channels == 0 || linears.empty()) return false;
  // Rows with a scale of their own are better off without: 41.2 dB behind MiniLM's first GELU, 36.4 with it.
  const auto is_static = [&](NodeId linear) {
    return !IsNamed(run.keep_float, g.node(linear)) && !IsNamed(run.dynamic, g.node(linear));
  };
  if (std::ranges::none_of(linears, is_static)) return false;
  Rewriter b(g, "smooth");
  Widening widening(b, y);
  const std::optional<Norm> norm = IsNorm(n) ? NormOf(g, n, channels) : std::nullopt;
  if (!norm && (linears.size() != g.value(y).uses.size() || g.IsGraphOutput(y))) return false;
  const bool widens = norm || widening.Possible(channels);
  if (!widens && !IsActivation(n.op)) return false;
  std::vector<const Tensor*> weights;
  weights.reserve(linears.size());
  for (const NodeId linear : linears) weights.push_back(g.ConstantOf(g.node(linear).inputs[1]));
  const Split s = BestSplit(stats, weights, widens, run.weight_limit);
  if (s.nothing()) return false;
  const ValueId smooth = norm ? SplitNorm(b, id, *norm, s) : widens ? widening.Make(s) : widening.Divide(s);
  const auto [lo, hi] = RangeOf(stats, s);
  run.own_params[g.value(smooth).name] = quant::AffineParams(lo, hi, ir::DType::kU8);
  run.columns[g.value(smooth).name] = {g.value(y).name, static_cast<int64_t>(channels), s.index, s.divisor};
  for (NodeId linear : linears) {
    b.At(linear, {linear});
    const ValueId w = g.node(linear).inputs[1];
    b.SetInput(linear, 1, b.Constant(WeightsOf(*g.ConstantOf(w), s), g.value(w).name + "_smooth"));
    b.SetInput(linear, 0, smooth);
  }
  b.EraseDead(id);
  return true;
}

}  // namespace

Result<bool> Smooth(Graph& graph, PassRun& run) {
  if (!run.evidence.channels) return false;
  int smoothed = 0;
  for (NodeId id : graph.NodesInOrder()) {
    if (graph.IsAlive(id)) smoothed += SmoothOne(graph, id, run) ? 1 : 0;
  }
  if (smoothed > 0) run.log.push_back("smooth: " + std::to_string(smoothed) + " norms and activations");
  if (smoothed > 0 && !graph.SortTopologically()) return ir::Fail("smooth made a cycle");
  return smoothed > 0;
}

}  // namespace octavo::passes::quantize
