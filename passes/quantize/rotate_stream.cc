// rotate_stream: the residual stream is turned, so that no channel of it is much larger than the others and the rows that norms hand to Linears are even.
// Before: s' = s + (MatMul(u, Wo) [+ bo]) [* c];   MatMul(Norm(s', gamma, beta), W) [+ b]
// After:  t' = t + MatMul(u, Wo c R) [+ bo c R];   MatMul(Norm(t', 1), R' gamma W) + b + beta W     R: one orthogonal matrix, t = s R
// A norm sees the length of a row, and LayerNorm its mean besides, which R keeps (turn.h): the norm of a turned row is the turned norm, once gamma and beta
// are in the Linears behind. The float meaning changes by rounding alone, weights by 2^-24 of their size. R1 of QuaRot and SpinQuant (Ashkboos et al.,
// arXiv 2404.00456; Liu et al., arXiv 2405.16406). Tables of tokens and positions turn, too. Where something else gives to the stream or reads it, one product
// with R or R' stands between. So it does behind a norm whose Linear has the weights of a token table, so that one constant still serves both.
// Left: streams at which such products would be more than a fiftieth of the weights, as in models whose norms stand behind the sum (BERT) or in front of it
// (Gemma 2). Figures: docs/lab/quantization.md.
#include <algorithm>
#include <format>
#include <span>
#include <tuple>

#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/stream.h"
#include "octavo/passes/quantize/tied.h"
#include "octavo/passes/quantize/turn.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

constexpr const char* kTied = "_turn";  // behind the name of a tied head: the product in front of it

// Makes the changes of one stream.
class Turner {
 public:
  Turner(Rewriter& b, Stream& stream, int64_t width, PassRun& run)
      : b_(b), g_(b.graph()), s_(stream), width_(width), run_(run) {}

  void Turn() {
    Tie();
    Betas();
    for (const auto& [slot, norm] : s_.rows) Change(slot, norm.valid() ? GammaOf(norm) : ValueId{}, true);
    for (const auto& [slot, by] : s_.columns) Change(slot, by, false);
    for (const auto& [v, by] : s_.replaced) {
      b_.Replace(v, by);
      b_.EraseDead(g_.value(v).producer);
    }
    for (const Slot& s : s_.entries) Enter(s);
    for (const auto& [v, readers] : s_.exits) Leave(v, readers);
    for (const auto& [y, readers] : s_.ends) End(y, readers);
    for (const NodeId norm : s_.norms) Plain(norm);
  }

 private:
  ValueId GammaOf(NodeId norm) const { return g_.node(norm).input(GammaSlot(g_.node(norm))); }
  const Tensor* BetaOf(NodeId norm) const {
    const ValueId beta = g_.node(norm).input(GammaSlot(g_.node(norm)) + 1);
    return beta.valid() ? g_.ConstantOf(beta) : nullptr;
  }

  // A Linear that has the weights of a table gets rows as the table has them: turned, times gamma.
  void Tie() {
    for (auto& [slot, norm] : s_.rows) {
      if (!norm.valid()) continue;
      const Tensor& w = *g_.ConstantOf(g_.node(slot.node).input(1));
      for (const auto& [table, by] : s_.columns) {
        if (g_.node(table.node).op != Op::kGather || !AreTurned(*g_.ConstantOf(g_.node(table.node).input(0)), w))
          continue;
        tied_.push_back({slot.node, norm});
        norm = {};
        break;
      }
    }
    for (const auto& [linear, norm] : tied_) {
      const ValueId y = g_.node(linear).input(0);
      Tensor m = Turned(Turned(Diagonal(GammaOf(norm)), width_, width_, {}, TurnStream, run_.parallel), width_, 1, {},
                        TurnStream, run_.parallel);
      b_.At(linear, {norm});
      ValueId made = Product(y, std::move(m));
      g_.SetNodeName(g_.value(made).producer, g_.node(linear).name + kTied);
      if (const Tensor* beta = BetaOf(norm))
        made = Sum(made, Turned(*beta, width_, 1, {}, TurnStream, run_.parallel), "_turned");
      b_.SetInput(linear, 0, made);
      run_.keep_float.push_back(g_.node(linear).name + kTied);
    }
  }

  // Beta W joins the bias behind a Linear, or becomes one.
  void Betas() {
    for (const auto& [slot, norm] : s_.rows) {
      const Tensor* beta = norm.valid() ? BetaOf(norm) : nullptr;
      if (beta == nullptr || std::ranges::all_of(beta->as<float>(), [](float x) { return x == 0; })) continue;
      const Tensor& w = *g_.ConstantOf(g_.node(slot.node).input(1));
      const auto n = static_cast<size_t>(w.shape()[1]);
      std::vector<double> sum(n, 0.0);
      for (size_t i = 0; i < static_cast<size_t>(width_); ++i) {
        for (size_t j = 0; j < n; ++j) sum[j] += static_cast<double>(beta->as<float>()[i]) * w.as<float>()[i * n + j];
      }
      const ValueId y = g_.node(slot.node).output();
      if (const auto bias = BiasOf(y, static_cast<int64_t>(n))) {
        const ValueId old = g_.node(bias->node).input(bias->slot);
        for (size_t j = 0; j < n; ++j) sum[j] += g_.ConstantOf(old)->as<float>()[j];
        b_.At(bias->node, {bias->node});
        b_.SetInput(bias->node, bias->slot,
                    b_.Constant(Tensor::F32({w.shape()[1]}, {sum.begin(), sum.end()}), g_.value(old).name + "_turned"));
      } else {
        b_.At(slot.node, {slot.node});
        const ValueId made = Sum(y, Tensor::F32({w.shape()[1]}, {sum.begin(), sum.end()}), "_beta");
        b_.Replace(y, made);
        const NodeId add = g_.value(made).producer;
        b_.SetInput(add, 0, y);
        if (const auto turned = s_.columns.find({slot.node, 1}); turned != s_.columns.end())
          s_.columns[{add, 1}] = turned->second;
      }
    }
  }

  std::optional<Slot> BiasOf(ValueId y, int64_t n) const {
    if (!g_.HasOneUse(y)) return {};
    const ir::Use use = g_.value(y).uses[0];
    const Node& add = g_.node(use.node);
    const Tensor* bias = add.op == Op::kAdd ? Floats(g_, add.input(1 - use.slot)) : nullptr;
    return bias != nullptr && bias->rank() == 1 && bias->size() == n ? std::optional(Slot{use.node, 1 - use.slot})
                                                                     : std::nullopt;
  }

  // A constant turns, once for all that read it.
  void Change(Slot slot, ValueId by, bool rows) {
    const ValueId old = g_.node(slot.node).input(slot.slot);
    auto [made, fresh] = made_.try_emplace({old, by, rows});
    b_.At(slot.node, {slot.node});
    if (fresh) {
      const Tensor& t = *g_.ConstantOf(old);
      const std::span<const float> factors = by.valid() ? g_.ConstantOf(by)->as<float>() : std::span<const float>();
      made->second = b_.Constant(Turned(t, width_, rows ? t.shape()[1] : 1, factors, TurnStream, run_.parallel),
                                 g_.value(old).name + "_turned");
    }
    b_.SetInput(slot.node, slot.slot, made->second);
    if (g_.value(old).uses.empty()) b_.EraseDead(g_.value(old).producer);  // not both at once in memory
  }

  Tensor Diagonal(ValueId by) const {
    Tensor t = Tensor::Zeros(DType::kF32, {width_, width_});
    for (int64_t i = 0; i < width_; ++i)
      t.mutable_as<float>()[static_cast<size_t>(i * width_ + i)] =
          by.valid() ? g_.ConstantOf(by)->as<float>()[static_cast<size_t>(i)] : 1.0f;
    return t;
  }

  ValueId Product(ValueId x, Tensor matrix) {
    const ValueId w = b_.Constant(std::move(matrix), g_.value(x).name + "_turn");
    const ValueId y = b_.Create(Op::kMatMul, {x, w}, {}, g_.value(x).name + "_turned");
    g_.SetType(y, g_.value(x).type);
    return y;
  }
  ValueId Sum(ValueId x, Tensor vector, const char* name) {
    const ValueId y =
        b_.Create(Op::kAdd, {x, b_.Constant(std::move(vector), g_.value(x).name + name)}, {}, g_.value(x).name + name);
    g_.SetType(y, g_.value(x).type);
    return y;
  }

  void Enter(Slot s) {
    const ValueId v = g_.node(s.node).input(s.slot);
    auto [made, fresh] = entered_.try_emplace(v);
    if (fresh) {
      b_.At(s.node, {s.node});
      made->second = Product(v, Turned(Diagonal({}), width_, 1, {}, TurnStream, run_.parallel));
    }
    b_.SetInput(s.node, s.slot, made->second);
  }

  Tensor Back(ValueId by) const { return Turned(Diagonal(by), width_, width_, {}, TurnStream, run_.parallel); }

  void Leave(ValueId v, const std::vector<Slot>& readers) {
    At(v, readers);
    Give(v, Product(v, Back({})), readers);
  }

  void End(ValueId y, const std::vector<Slot>& readers) {
    const NodeId norm = s_.norm_of.at(y);
    At(y, readers);
    ValueId made = Product(y, Back(GammaOf(norm)));
    if (const Tensor* beta = BetaOf(norm)) made = Sum(made, *beta, "_beta");
    Give(y, made, readers);
  }

  // What is made of v stands behind it.
  void At(ValueId v, const std::vector<Slot>& readers) {
    const NodeId from = g_.value(v).producer;
    b_.At(readers.empty() ? NodeId{} : readers[0].node, {from});
  }

  void Give(ValueId old, ValueId made, const std::vector<Slot>& readers) {
    for (const Slot& s : readers) b_.SetInput(s.node, s.slot, made);
    for (size_t i = 0; i < g_.outputs().size(); ++i) {
      if (g_.outputs()[i].value == old) g_.SetOutput(i, made);
    }
  }

  // Without gamma and beta.
  void Plain(NodeId norm) {
    const size_t slot = GammaSlot(g_.node(norm));
    b_.At(norm, {norm});
    if (!ones_.valid())
      ones_ = b_.Constant(Tensor::F32({width_}, std::vector<float>(static_cast<size_t>(width_), 1.0f)), "ones");
    b_.SetInput(norm, slot, ones_);
    if (g_.node(norm).input(slot + 1).valid()) b_.SetInput(norm, slot + 1, {});
  }

  Rewriter& b_;
  Graph& g_;
  Stream& s_;
  int64_t width_;
  PassRun& run_;
  ValueId ones_;
  std::vector<std::pair<NodeId, NodeId>> tied_;
  std::map<std::tuple<ValueId, ValueId, bool>, ValueId> made_;
  std::map<ValueId, ValueId> entered_;
};

}  // namespace

Result<bool> RotateStream(Graph& graph, PassRun& run) {
  Rewriter b(graph, "rotate_stream");
  const int64_t worth = run.Option("worth", kRotationWorth);
  if (worth < 0)
    return run.given_up = true, ir::Fail("its option worth is {}; give 0, where nothing turns, or more", worth);
  if (worth == 0) return false;
  std::set<NodeId> seen;
  for (const NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id) || !IsNorm(graph.node(id)) || seen.contains(id)) continue;
    const int64_t width = WidthOf(graph, graph.node(id).input(0));
    Stream stream(graph, width);
    const bool turns = width > 1 && stream.Follow(id);
    seen.insert(stream.norms.begin(), stream.norms.end());
    if (!turns || stream.norms.size() < 2 || stream.Products() > stream.Weights() / worth) continue;
    Turner(b, stream, width, run).Turn();
    run.log.push_back(std::format("rotate_stream: {} norms from {}", stream.norms.size(), OriginName(graph.node(id))));
  }
  if (b.changed() && !graph.SortTopologically()) return ir::Fail("rotate_stream made a cycle");
  return b.changed();
}

}  // namespace octavo::passes::quantize
