// center_keys: what all keys have in common is taken off them, so that their codes tell keys apart.
// Before: Sdpa(q, Add(MatMul(x, Wk), b), v)                    also where k is a part of one packed projection
// After:  Sdpa(q, Add(MatMul(x, Wk), b - m), v)                m: the middle of each channel's calibrated range
// q (k - m)^T = q k^T - q m^T: every score of a row changes by the same, which Softmax does not see, so the float meaning changes by rounding alone. A large
// bias of K, or keys that are mostly alike, else take the range of all: +-100 on one channel a head cost MiniLM 4.5 dB.
// Left: attention with a soft cap, which does see it; keys behind a rotary embedding or a norm, or from a cache; where less than a seventh of the range is
// gained.
#include <algorithm>

#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::Tensor;

namespace {

struct Columns {
  int64_t begin, end;
};

// The columns of its operand that this value is, where it is a part of the last axis.
std::optional<Columns> ColumnsOf(const Graph& g, ValueId v) {
  const Node* n = g.Producer(v);
  const auto& shape = g.value(n->input(0)).type.shape;
  if (!shape || !shape->back().is_number()) return {};
  const auto rank = static_cast<int64_t>(shape->size());
  const int64_t width = shape->back().number();
  const auto numbers = [&g, n](size_t slot) -> std::vector<int64_t> {
    const Tensor* t = n->input(slot).valid() ? g.ConstantOf(n->input(slot)) : nullptr;
    return t != nullptr && t->dtype() == ir::DType::kS64
               ? std::vector<int64_t>(t->as<int64_t>().begin(), t->as<int64_t>().end())
               : std::vector<int64_t>();
  };
  if (n->op == Op::kSplit) {
    const std::vector<int64_t> sizes = numbers(1);
    if ((n->attrs.Int("axis", 0) + rank) % rank != rank - 1 || sizes.size() != n->outputs.size()) return {};
    int64_t at = 0;
    for (size_t i = 0; n->outputs[i] != v; ++i) at += sizes[i];
    return Columns{at, at + sizes[g.value(v).output_index]};
  }
  const std::vector<int64_t> starts = numbers(1), ends = numbers(2), axes = numbers(3), steps = numbers(4);
  if (n->op != Op::kSlice || starts.size() != 1 || ends.size() != 1 || axes.size() != 1 ||
      (axes[0] + rank) % rank != rank - 1)
    return {};
  if (n->input(4).valid() && (steps.size() != 1 || steps[0] != 1)) return {};
  const auto inside = [width](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + width : i, 0, width); };
  return Columns{inside(starts[0]), inside(ends[0])};
}

struct Bias {
  NodeId add;
  size_t slot;
  Columns columns;  // those of K
};

// The bias that K gets, if K alone gets those columns of it.
std::optional<Bias> BiasOf(const Graph& g, ValueId k) {
  ValueId sum = k;
  std::optional<Columns> own;
  if (g.IsFrom(k, Op::kSplit) || g.IsFrom(k, Op::kSlice)) {
    own = ColumnsOf(g, k);
    sum = g.Producer(k)->input(0);
    if (!own || g.IsGraphOutput(sum)) return {};
    for (const ir::Use& use : g.value(sum).uses) {
      const Node& reader = g.node(use.node);
      for (const ValueId part : reader.outputs) {
        if (reader.op != Op::kSplit && reader.op != Op::kSlice) return {};
        if (!part.valid() || part == k) continue;
        const auto other = ColumnsOf(g, part);
        if (!other || (other->begin < own->end && own->begin < other->end)) return {};
      }
    }
  }
  const Node* add = g.Producer(sum);
  if (add == nullptr || add->op != Op::kAdd) return {};
  for (size_t slot = 0; slot < 2; ++slot) {
    const Tensor* bias = g.ConstantOf(add->input(slot));
    if (bias == nullptr || bias->dtype() != ir::DType::kF32 || bias->rank() != 1 ||
        !g.IsFrom(add->input(1 - slot), Op::kMatMul))
      continue;
    const Columns columns = own.value_or(Columns{0, bias->size()});
    if (columns.end <= bias->size()) return Bias{g.value(sum).producer, slot, columns};
  }
  return {};
}

}  // namespace

Result<bool> CenterKeys(Graph& graph, PassRun& run) {
  constexpr double kWorthIt = 7.0 / 6;
  if (!run.evidence.channels || !run.evidence.qparams) return false;
  Rewriter b(graph, "center_keys");
  for (NodeId id : FindSites(graph, run.keep_float).attentions) {
    const ValueId k = graph.node(id).input(1);
    const quant::QParams* params = run.evidence.qparams(graph.value(k).name);
    if (params == nullptr || params->dtype != ir::DType::kU8 || !graph.HasOneUse(k)) continue;
    if (graph.node(id).attrs.Int("k_rank", 4) != 3 || graph.node(id).attrs.Float("softcap", 0.0f) != 0.0f) continue;
    const auto bias = BiasOf(graph, k);
    const auto ranges = run.evidence.channels(graph.value(k).name).ranges;
    if (!bias || ranges.size() != static_cast<size_t>(bias->columns.end - bias->columns.begin)) continue;
    float half = 0;
    for (const auto& [lo, hi] : ranges) half = std::max(half, (hi - lo) / 2);
    if (!(half > 0) || 2 * half * kWorthIt > 255 * params->scale) continue;
    const ValueId old = graph.node(bias->add).input(bias->slot);
    Tensor shifted = Tensor::F32(graph.ConstantOf(old)->shape(), {graph.ConstantOf(old)->as<float>().begin(),
                                                                  graph.ConstantOf(old)->as<float>().end()});
    for (size_t c = 0; c < ranges.size(); ++c)
      shifted.mutable_as<float>()[static_cast<size_t>(bias->columns.begin) + c] -=
          (ranges[c].first + ranges[c].second) / 2;
    b.At(bias->add, {bias->add});
    b.SetInput(bias->add, bias->slot, b.Constant(std::move(shifted), graph.value(old).name + "_centred"));
    run.own_params[graph.value(k).name] = quant::AffineParams(-half, half, ir::DType::kU8);
    run.log.push_back("center_keys: " + OriginName(graph.node(id)));
  }
  return b.changed();
}

}  // namespace octavo::passes::quantize
