#include "octavo/passes/quantize/quantize.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <format>
#include <map>

#include "octavo/ir/functions.h"
#include "octavo/ir/mapped.h"
#include "octavo/passes/experts.h"
#include "octavo/passes/quantize/expert_codes.h"
#include "octavo/passes/quantize/tied.h"
#include "octavo/passes/rewriter.h"
#include "octavo/passes/sources.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

bool IsFloatLinear(const Graph& g, const Node& n) {
  if (n.op != Op::kMatMul) return false;
  const Tensor* w = g.ConstantOf(n.inputs[1]);
  return w != nullptr && w->dtype() == DType::kF32 && w->rank() == 2 && w->size() > 0;
}

// Quantized forms made so far, so that every value and every weight is quantized once.
class Quantizer {
 public:
  Quantizer(Graph& graph, PassRun& run) : g_(graph), run_(run), b_(graph, "quantize") {}

  bool changed() const { return b_.changed(); }

  void Linear(NodeId id) {
    const Node n = g_.node(id);
    const quant::QParams* params = Params(n.inputs[0]);
    if (params == nullptr) return Leave(n, g_.value(n.inputs[0]).name);
    b_.At(id, {id});
    const ValueId x = Activation(n.inputs[0], *params);
    const std::optional<Pair> w = Weight(n.inputs[1], quant::IsFp8(TypeOf(x)) ? TypeOf(x) : DType::kS8);
    if (!w) return Leave(n, g_.value(n.inputs[1]).name + " (not finite)");
    b_.SetInput(id, 0, x);
    b_.SetInput(id, 1, b_.Create(Op::kDequantizeLinear, {w->q, w->scale}, {{"axis", int64_t{1}}}));
  }

  // The node becomes QuantizedSdpa, which is then expanded to the Q/DQ form it means.
  Status Attention(NodeId id) {
    const Node n = g_.node(id);
    std::vector<ValueId> inputs(16);
    const ValueId operands[4] = {n.inputs[0], n.inputs[1], n.inputs[2], n.output()};
    const quant::QParams* params[4];
    for (int i = 0; i < 4; ++i) {
      params[i] = Params(operands[i]);
      if (params[i] == nullptr) {
        Leave(n, g_.value(operands[i]).name);
        return {};
      }
    }
    b_.At(id, {id});
    static constexpr size_t kSlots[4] = {3, 5, 7, 11};  // of the scales in ir/functions.h
    for (size_t i = 0; i < 3; ++i) {                    // an operand that is quantized already keeps its parameters
      const Node& dq = *g_.Producer(Activation(operands[i], *params[i]));
      inputs[i] = dq.inputs[0];
      inputs[kSlots[i]] = dq.inputs[1];
      inputs[kSlots[i] + 1] = dq.inputs[2];
    }
    inputs[kSlots[3]] = Scale(params[3]->scale);
    inputs[kSlots[3] + 1] = Zero(*params[3]);
    const DType type = g_.ConstantOf(inputs[4])->dtype();
    inputs[9] = Scale(quant::IsFp8(type) ? 1.0f / quant::MaxOfFp8(type) : 1.0f / 255.0f);
    inputs[10] = Zero({quant::IsFp8(type) ? type : DType::kU8, 0.0f, 0});
    for (size_t i = 0; i < 3; ++i) inputs[13 + i] = n.input(3 + i);  // masks and slopes
    const ValueId o_scale = inputs[11];
    const ValueId o_zero = inputs[12];
    while (!inputs.back().valid()) inputs.pop_back();
    ir::Attrs attrs = n.attrs;
    // Integers are no NaN, so the guard of masked rows is the plain one, of which there are more forms (relative_probs).
    if (!quant::IsFp8(type) && attrs.Int("nan_guard", 0) == ir::kSdpaGuardMasked) attrs.Set("nan_guard", int64_t{1});
    const ValueId q = b_.Create(Op::kQuantizedSdpa, std::move(inputs), std::move(attrs));
    const ValueId out = b_.Create(Op::kDequantizeLinear, {q, o_scale, o_zero});
    const NodeId made = g_.value(q).producer;
    activations_[out] = out;
    const std::string name = g_.value(n.output()).name;
    b_.Replace(n.output(), out);
    b_.EraseDead(id);
    g_.SetName(out, name);
    return ir::Expand(g_, made);
  }

  void Tables(const std::vector<NodeId>& gathers) {
    for (NodeId id : gathers) {
      const std::optional<Experts> experts = ExpertsAt(g_, id);
      experts ? ExpertTable(*experts) : Table(id);
    }
  }

 private:
  struct Pair {
    ValueId q, scale;
  };

  std::optional<ColumnWeights> Made(const Tensor& table, int64_t summed) {
    if (run_.tables == nullptr) return QuantizeTable(table, summed);
    const auto known = run_.tables->find({table.data(), summed});
    if (known != run_.tables->end()) return known->second.made;
    std::optional<ColumnWeights> made = QuantizeTable(table, summed);
    if (made) run_.tables->emplace(std::pair(table.data(), summed), TableCode{table, *made});
    return made;
  }

  // Codes of the constant that a Gather reads, made once; `summed`: the axis along which elements share a scale. Null: not finite.
  const Pair* Codes(const Node& gather, int64_t summed) {
    const ValueId table = gather.inputs[0];
    auto [it, fresh] = tables_.try_emplace({table, summed});
    if (!fresh) return &it->second;
    const std::string name = g_.value(table).name;
    const std::optional<ColumnWeights> w = Made(*g_.ConstantOf(table), summed);
    if (!w) {
      tables_.erase(it);
      Leave(gather, name + " (not finite)");
      return nullptr;
    }
    it->second = {b_.Constant(w->codes, name + "_quantized"), b_.Constant(w->scale, name + "_scale")};
    return &it->second;
  }
  ValueId AsFloat(ValueId codes) { return b_.Create(Op::kCast, {codes}, {{"to", static_cast<int64_t>(DType::kF32)}}); }

  void Table(NodeId id) {
    const Node n = g_.node(id);
    b_.At(id, {id});
    const Pair* table = Codes(n, 1);
    if (table == nullptr) return;
    const ValueId q = b_.Create(n.op, {table->q, n.inputs[1]}, n.attrs);
    const ValueId s = b_.Create(n.op, {table->scale, n.inputs[1]}, n.attrs);
    b_.Replace(n.output(), b_.Create(Op::kMul, {AsFloat(q), s}));
    b_.EraseDead(id);
  }

  // A scale for each output of the product can stand behind it, where there are fewer elements than in the matrices.
  void ExpertTable(const Experts& experts) {
    const Node n = g_.node(experts.gather);
    b_.At(experts.gather, {experts.gather});
    const Pair* table = Codes(n, experts.summed);
    if (table == nullptr) return;
    const ValueId q = b_.Create(n.op, {table->q, n.inputs[1]}, n.attrs);
    ValueId s = b_.Create(n.op, {table->scale, n.inputs[1]}, n.attrs);
    b_.Replace(n.output(), experts.direct ? AsFloat(q) : b_.Create(Op::kMul, {AsFloat(q), s}));
    b_.EraseDead(experts.gather);
    if (!experts.direct) return;
    b_.At(experts.product, {experts.product});
    for (const ir::Attrs& flip : experts.flips) s = b_.Create(Op::kTranspose, {s}, flip);
    const ValueId y = b_.Create(Op::kMatMul, g_.node(experts.product).inputs);
    b_.Replace(g_.node(experts.product).output(), b_.Create(Op::kMul, {y, s}));
    b_.EraseDead(experts.product);
  }

  const quant::QParams* Params(ValueId v) const {
    if (activations_.contains(v)) return &known_;  // a value that this pass made itself
    const auto own = run_.own_params.find(g_.value(v).name);
    if (own != run_.own_params.end()) return &own->second;
    return run_.evidence.qparams ? run_.evidence.qparams(g_.value(v).name) : nullptr;
  }
  void Leave(const Node& n, const std::string& value) {
    run_.Leave("quantize", n, std::format("stays float: no range for '{}'", value));
  }

  ValueId Scale(float s) { return b_.Constant(Tensor::ScalarF32(s)); }
  ValueId Zero(const quant::QParams& p) {
    Tensor t = Tensor::Zeros(p.dtype, {});
    t.mutable_as<uint8_t>()[0] = static_cast<uint8_t>(p.zero_point);
    return b_.Constant(std::move(t));
  }

  // The dequantized form of v; made on first use, right behind v, because users of v may stand anywhere after it.
  ValueId Activation(ValueId v, const quant::QParams& p) {
    const auto it = activations_.find(v);
    if (it != activations_.end()) return it->second;
    const ValueId s = Scale(p.scale);
    const ValueId z = Zero(p);
    const ValueId q = b_.Create(Op::kQuantizeLinear, {v, s, z});
    const ValueId dq = b_.Create(Op::kDequantizeLinear, {q, s, z});
    const NodeId producer = g_.value(v).producer;
    const NodeId after = producer.valid() ? g_.node(producer).next : g_.first();
    for (ValueId made : {s, z, q, dq}) g_.MoveBefore(g_.value(made).producer, after);
    return activations_[v] = dq;
  }
  // Of the codes behind a dequantized form.
  DType TypeOf(ValueId dequantized) const { return g_.ConstantOf(g_.Producer(dequantized)->inputs[2])->dtype(); }

  std::optional<Pair> Weight(ValueId v, DType dtype) {
    const auto it = weights_.find(v);
    if (it != weights_.end()) return it->second;
    std::optional<ColumnWeights> w = QuantizeWeight(*g_.ConstantOf(v), dtype, run_);
    if (!w) return std::nullopt;
    const std::string name = g_.value(v).name;
    const Pair pair{b_.Constant(std::move(w->codes), name + "_quantized"),
                    b_.Constant(std::move(w->scale), name + "_scale")};
    return weights_[v] = pair;
  }

  Graph& g_;
  PassRun& run_;
  Rewriter b_;
  std::map<ValueId, ValueId> activations_;  // value -> its dequantized form
  std::map<ValueId, Pair> weights_;
  std::map<std::pair<ValueId, int64_t>, Pair> tables_;
  quant::QParams known_;
};

}  // namespace

std::optional<std::vector<float>> ColumnScales(const Tensor& w, DType dtype, int limit) {
  std::vector<float> scales(static_cast<size_t>(w.shape()[1]));
  if (quant::ChannelScales(w.as<float>(), w.shape()[0], w.shape()[1], 1, dtype, scales) >= 0) return std::nullopt;
  if (!quant::IsFp8(dtype) && limit != 127) {
    for (float& s : scales) s *= 127.0f / static_cast<float>(limit);
  }
  return scales;
}

std::optional<ColumnWeights> QuantizeColumns(const Tensor& w, DType dtype, int limit) {
  const std::optional<std::vector<float>> found = ColumnScales(w, dtype, limit);
  if (!found) return std::nullopt;
  const std::vector<float>& scales = *found;
  const int64_t n = w.shape()[1];
  ColumnWeights out{Tensor::Empty(dtype, w.shape()), Tensor::Of<float>(DType::kF32, {n}, scales)};
  const auto from = w.as<float>();
  auto to = out.codes.mutable_as<uint8_t>();
  for (size_t i = 0; i < from.size(); ++i) {
    const float scale = scales[i % static_cast<size_t>(n)];
    to[i] = quant::IsFp8(dtype) ? quant::QuantizeFp8One(from[i], scale, dtype)
                                : static_cast<uint8_t>(quant::QuantizeOne(from[i], scale, 0, -limit, limit));
  }
  ir::ForgetPages(w);
  return out;
}

Result<bool> ReduceRange(Graph&, PassRun& run) {
  run.weight_limit = 64;  // 255 * (64 + 64) is below 2^15
  return false;
}

bool IsNamed(const std::vector<std::string>& names, const Node& node) {
  if (names.empty()) return false;
  const auto fits = [&](const std::string& name) {
    const std::string by_modules = ByModules(name);
    const auto is_like = [](const std::string& pattern, const std::string& text) {
      return fnmatch(pattern.c_str(), text.c_str(), FNM_NOESCAPE) == 0;
    };
    return std::ranges::any_of(names, [&](const std::string& pattern) {
      return pattern == name || is_like(pattern, name) || (!by_modules.empty() && is_like(pattern, by_modules));
    });
  };
  return fits(node.name) || std::ranges::any_of(node.origin, [&](const std::string& source) {
           return fits(source) || fits(std::string(GivenName(source)));
         });
}

Sites FindSites(const Graph& graph, const std::vector<std::string>& keep_float) {
  Sites sites;
  const auto add = [&sites](ValueId v) {
    if (std::find(sites.values.begin(), sites.values.end(), v) == sites.values.end()) sites.values.push_back(v);
  };
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    if (IsNamed(keep_float, n)) continue;
    if (IsFloatLinear(graph, n)) {
      if (IsRouter(graph, id)) continue;
      sites.linears.push_back(id);
      add(n.inputs[0]);
    } else if (n.op == Op::kSdpa) {
      sites.attentions.push_back(id);
      for (ValueId v : {n.inputs[0], n.inputs[1], n.inputs[2], n.output()}) add(v);
    } else if (IsFloatTable(graph, n) || AreFloatExperts(graph, id)) {
      sites.tables.push_back(id);
    }
  }
  return sites;
}

Result<bool> QuantizeTables(Graph& graph, PassRun& run) {
  Quantizer q(graph, run);
  const bool tied = TieBlocks(graph, FindSites(graph, run.keep_float).tables);
  q.Tables(FindSites(graph, run.keep_float).tables);
  const bool changed = TieTables(graph) || tied || q.changed();
  if (changed && !graph.SortTopologically()) return ir::Fail("quantize_tables made a cycle");
  return changed;
}

Result<bool> Quantize(Graph& graph, PassRun& run) {
  const Sites sites = FindSites(graph, run.keep_float);
  Quantizer q(graph, run);
  for (NodeId id : sites.attentions) OCTAVO_TRY_STATUS(q.Attention(id));
  for (NodeId id : sites.linears) {
    if (!IsNamed(run.dynamic, graph.node(id))) q.Linear(id);
  }
  // Tokens that chose an expert are few and of all kinds: each row gets a scale of its own.
  OCTAVO_TRY(const bool experts, ExpertTokens(graph, run));
  q.Tables(FindSites(graph, run.keep_float).tables);
  const bool changed = q.changed() || experts;
  if (changed && !graph.SortTopologically()) return ir::Fail("quantize made a cycle");
  return changed;
}

}  // namespace octavo::passes::quantize
