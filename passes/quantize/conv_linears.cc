// conv_linears: a convolution over pictures or sequences is a Linear over the channels of its windows, which the passes behind it quantize.
// Before: Conv(x [B,C,...], W [N,C,kernel...], bias)
// After:  x -> Transpose [B,...,C] -> windows [B,out...,positions * C] -> MatMul W^T -> Add bias -> Transpose [B,N,out...]
// Windows are a Pad, a Slice for each position and a Concat (ir/unfold.h); kernel 1 without stride needs none of them.
// The runtime keeps the channels of connected convolutions last (runtime/channels_last.h), so the Transposes cost nothing there, and makes windows of codes
// in one step.
// A convolution that arrives quantized, Conv(DequantizeLinear(x), DequantizeLinear(w)), becomes windows of codes and the same for its matrix.
// Exact for kernel 1: the same products are summed in the same order, then the bias. Other kernels sum channels before positions.
// Untouched: a convolution of one position (the gates of squeeze and excitation), where there are weights to read and nothing else; few channels; large windows;
// without the option `separable`, kernel 1 beside a depthwise convolution: PP-OCR v4 and v5 keep 21 dB in recipe dynamic, whose codes are not fitted to data,
// and 33 with floats there, which take a twelfth of the time at most. In int8 v5 keeps 27 dB and 31, for an eighth of the time.
#include <algorithm>
#include <numeric>

#include "octavo/passes/canonical/util.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/unfold.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::quantize {

using ir::Tensor;

namespace {

bool IsOnePosition(const ir::SymShape& shape) {
  return std::all_of(shape.begin() + 2, shape.end(), [](const ir::Dim& d) { return canonical::IsNumber(d, 1); });
}

// A Conv with weights of floats, or with weights and an activation that are dequantized.
struct Site {
  const Tensor* weights = nullptr;                 // floats or codes
  std::optional<Node> x_codes = {}, w_codes = {};  // DequantizeLinears
  ir::Windows windows = {};
};

// Of one constant scale and zero point; of weights a scale for each filter, and no zero point but 0.
bool IsCoded(const Graph& g, const Node* dq, int64_t filters) {
  if (dq == nullptr || dq->op != Op::kDequantizeLinear || dq->attrs.Int("block_size", 0) != 0) return false;
  const Tensor *scale = g.ConstantOf(dq->input(1)), *zero = g.ConstantOf(dq->input(2));
  const bool each = filters > 0 && scale != nullptr && scale->size() == filters && dq->attrs.Int("axis", 1) == 0;
  if (scale == nullptr || scale->dtype() != ir::DType::kF32 || (scale->size() != 1 && !each)) return false;
  if (!quant::IsInt8(canonical::DTypeOf(g, dq->input(0))) || (dq->input(2).valid() && zero == nullptr)) return false;
  if (zero == nullptr) return true;
  return filters == 0 ? zero->size() == 1 : std::ranges::all_of(zero->ToInts(), [](int64_t z) { return z == 0; });
}

std::optional<Site> SiteOf(const Graph& g, const Node& n) {
  if (n.op != Op::kConv) return {};
  Site site{.weights = g.ConstantOf(n.input(1))};
  if (site.weights == nullptr) {
    const Node *x = g.Producer(n.input(0)), *w = g.Producer(n.input(1));
    site.weights = w == nullptr ? nullptr : g.ConstantOf(w->input(0));
    if (site.weights == nullptr || site.weights->dtype() != ir::DType::kS8 || site.weights->rank() < 3) return {};
    if (!IsCoded(g, x, 0) || !IsCoded(g, w, site.weights->shape()[0])) return {};
    site.x_codes = *x, site.w_codes = *w;
  } else if (site.weights->dtype() != ir::DType::kF32) {
    return {};
  }
  const std::optional<ir::Windows> windows = WindowsOf(g, n, *site.weights);
  if (!windows || windows->positions() > kMostPositionsInCodes) return {};
  if (IsOnePosition(*canonical::ShapeOf(g, n.input(0))) || IsOnePosition(*canonical::ShapeOf(g, n.output()))) return {};
  site.windows = *windows;
  const ir::Shape& w = site.weights->shape();
  return w[0] >= kLeastChannelsInCodes && w[1] >= kLeastChannelsInCodes ? std::optional(site) : std::nullopt;
}

// Whether v is what depthwise convolutions and element-wise ops make of others (up), or goes into one through such ops.
bool IsBesideDepthwise(const Graph& g, ValueId v, bool up, int& left) {
  if (!v.valid() || --left < 0) return false;
  const auto is_one = [&g](const Node& n) {
    const Tensor* w = n.op == Op::kConv ? g.ConstantOf(n.input(1)) : nullptr;
    return w != nullptr && w->rank() >= 3 && w->shape()[1] == 1 && n.attrs.Int("group", 1) > 1;
  };
  if (up) {
    const Node* n = g.Producer(v);
    if (n == nullptr || is_one(*n)) return n != nullptr;
    return canonical::IsElementwise(n->op) &&
           std::ranges::any_of(n->inputs, [&](ValueId in) { return IsBesideDepthwise(g, in, true, left); });
  }
  return std::ranges::any_of(g.value(v).uses, [&](const ir::Use& use) {
    const Node& n = g.node(use.node);
    return is_one(n) || (canonical::IsElementwise(n.op) && IsBesideDepthwise(g, n.output(), false, left));
  });
}

bool IsSeparable(const Graph& g, const Node& n, const Site& site) {
  constexpr int kFewOps = 16;  // an activation of ops of its own, a gate, a sum
  int above = kFewOps, below = kFewOps;
  return !site.x_codes && site.windows.positions() == 1 &&
         (IsBesideDepthwise(g, n.input(0), true, above) || IsBesideDepthwise(g, n.output(), false, below));
}

// DequantizeLinear of these codes by the scale and zero point of another.
ValueId Dequantized(Rewriter& rw, ValueId codes, const Node& like, bool columns) {
  const Graph& g = rw.graph();
  const auto number = [&](ValueId v) {
    const Tensor& t = *g.ConstantOf(v);
    return t.size() == 1 && t.rank() == 1 ? rw.Constant(t.Reshaped({})) : v;
  };
  std::vector<ValueId> in = {codes, number(like.input(1))};
  if (!columns)
    in.push_back(like.input(2).valid() ? number(like.input(2))
                                       : rw.Constant(Tensor::Zeros(g.value(codes).type.dtype, {})));
  const ir::Type type{ir::DType::kF32, g.value(codes).type.shape};
  return canonical::Make(rw, Op::kDequantizeLinear, std::move(in),
                         columns ? ir::Attrs{{"axis", int64_t{1}}} : ir::Attrs{}, type);
}

void ToLinear(Rewriter& rw, NodeId id, const Site& site) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const Tensor matrix = WindowMatrix(*site.weights);
  const size_t rank = site.weights->shape().size();
  std::vector<int64_t> last(rank), first(rank);
  std::iota(last.begin(), last.end(), 1), std::iota(first.begin(), first.end(), -1);
  last.front() = 0, last.back() = 1, first.front() = 0, first[1] = static_cast<int64_t>(rank) - 1;
  const ir::SymShape& result = *canonical::ShapeOf(g, n.output());
  const ir::SymShape out(result.begin() + 2, result.end());
  rw.At(id, {id});
  ValueId x = site.x_codes ? site.x_codes->input(0) : n.input(0), padding;
  if (site.x_codes && site.x_codes->input(2).valid())
    padding = rw.Constant(g.ConstantOf(site.x_codes->input(2))->Reshaped({}));
  x = MakeUnfold(rw, canonical::MakeTranspose(rw, x, last), site.windows, padding, out);
  ValueId w = rw.Constant(matrix, g.value(site.w_codes ? site.w_codes->input(0) : n.input(1)).name + "_matrix");
  if (site.x_codes) x = Dequantized(rw, x, *site.x_codes, false), w = Dequantized(rw, w, *site.w_codes, true);
  ir::Type type = g.value(x).type;
  type.shape->back() = ir::Dim(matrix.shape()[1]);
  ValueId y = canonical::Make(rw, Op::kMatMul, {x, w}, {}, type);
  if (n.input(2).valid()) y = canonical::Make(rw, Op::kAdd, {y, n.input(2)}, {}, type);
  canonical::ReplaceNode(rw, id, canonical::MakeTranspose(rw, y, first));
}

}  // namespace

Result<bool> ConvLinears(Graph& graph, PassRun& run) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "conv_linears");
  const bool separable = run.Option<bool>("separable", true);
  for (const NodeId id : graph.NodesInOrder()) {
    const std::optional<Site> site = SiteOf(graph, graph.node(id));
    if (site && (separable || !IsSeparable(graph, graph.node(id), *site))) ToLinear(rw, id, *site);
  }
  return rw.changed();
}

}  // namespace octavo::passes::quantize
