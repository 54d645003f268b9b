// to_f32: a model in f16 or bf16 becomes one in f32, before it is calibrated and quantized.
// Before: x f16 -> MatMul(x, w f16) -> Gelu -> y f16
// After:  Cast(x) -> MatMul(., w f32) -> Gelu -> Cast f16 -> y f16
// Inputs and outputs keep their types. What was rounded to 16 bits after every op no longer is, so results move towards the exact ones by a few units in
// the last place of the 16-bit type: less than 8-bit codes move them. x86 computes in f32 anyway.
// f16 has no room for what masks want to say, so exporters write its lowest number, -65504, which swallows every score it is added to. In f32 only the
// lowest f32 does that, so constants of one element that hold the one get the other (widen.cc does the same). Where such a number is no mask, the
// model changes by it; a mask that enters the model with -65504 in it hides keys still, but a row in which it hides all is no longer uniform.
// A cache that enters and leaves in 16 bits is appended to in 16 bits, as it was, and read through a Cast: so a state still writes it where it lies.
// Untouched: graphs in which an op that octavo does not know, a subgraph or a BitCast has such values.
#include <algorithm>
#include <format>
#include <limits>

#include "octavo/passes/quantize/quantize.h"

namespace octavo::passes::quantize {

namespace {

using ir::DType;
using ir::Tensor;
using ir::Type;

bool IsHalf(DType t) { return t == DType::kF16 || t == DType::kBF16; }
bool IsHalf(const Graph& g, ValueId v) { return v.valid() && IsHalf(g.value(v).type.dtype); }

bool Touches(const Graph& g, const Node& n) {
  const auto half = [&](ValueId v) { return IsHalf(g, v); };
  return std::ranges::any_of(n.inputs, half) || std::ranges::any_of(n.outputs, half);
}

bool HasSubgraph(const Node& n) {
  return std::ranges::any_of(n.attrs.entries(),
                             [](const auto& e) { return std::holds_alternative<ir::GraphRef>(e.second); });
}

// Masks are made of scalars; a weight that happens to be the lowest number stays.
Tensor Widened(const Tensor& t) {
  std::vector<float> values = t.ToFloats();
  constexpr float kLowestF16 = -65504.0f;
  if (t.dtype() == DType::kF16 && values.size() == 1)
    std::ranges::replace(values, kLowestF16, std::numeric_limits<float>::lowest());
  return Tensor::F32(t.shape(), std::move(values));
}

// Attributes that say a dtype, or are a tensor of it.
void WidenAttrs(Graph& g, NodeId id) {
  if (g.node(id).op == Op::kOpaque) return;  // what they mean there is not known
  const ir::Attrs attrs = g.node(id).attrs;
  for (const auto& [name, attr] : attrs.entries()) {
    const auto* number = std::get_if<int64_t>(&attr);
    const auto* tensor = std::get_if<Tensor>(&attr);
    const bool says = name == "to" || name == "dtype" || name == "output_dtype";
    if (says && number != nullptr && IsHalf(static_cast<DType>(*number))) {
      g.SetAttr(id, name, static_cast<int64_t>(DType::kF32));
    } else if (tensor != nullptr && IsHalf(tensor->dtype())) {
      g.SetAttr(id, name, Widened(*tensor));
    }
  }
}

NodeId CastBefore(Graph& g, ValueId v, DType to, NodeId before) {
  const NodeId cast =
      g.AddNode(Op::kCast, {v}, 1, {{"to", static_cast<int64_t>(to)}}, g.value(v).name + "_cast", before);
  g.SetOrigin(cast, {"pass:to_f32"});
  g.SetType(g.node(cast).output(), Type{to, g.value(v).type.shape});
  return cast;
}

// The Casts behind inputs, which keep reading 16 bits.
std::vector<NodeId> WidenInputs(Graph& g) {
  std::vector<NodeId> casts;
  for (const ValueId input : std::vector<ValueId>(g.inputs())) {
    if (!IsHalf(g, input)) continue;
    casts.push_back(CastBefore(g, input, DType::kF32, g.first()));
    g.ReplaceAllUses(input, g.node(casts.back()).output());
    g.SetInput(casts.back(), 0, input);
  }
  return casts;
}

// Concat(Cast(past), new) -> Cast -> present becomes Concat(past, Cast(new)) -> present, with a Cast for who reads it inside. `present`: output of the graph.
void KeepCache(Graph& g, size_t present, DType type) {
  const ValueId wide = g.outputs()[present].value;
  const NodeId id = g.value(wide).producer;
  const Op op = id.valid() ? g.node(id).op : Op::kOpaque;
  if (op != Op::kConcat && op != Op::kTensorScatter && op != Op::kScatterND) return;
  const std::vector<ValueId> operands = g.node(id).inputs;
  const auto past = [&](ValueId v) {
    const Node* cast = v.valid() ? g.Producer(v) : nullptr;
    const bool enters = cast != nullptr && cast->op == Op::kCast && std::ranges::contains(g.inputs(), cast->input(0)) &&
                        g.value(cast->input(0)).type.dtype == type;
    return enters ? cast->input(0) : ValueId{};
  };
  if (!std::ranges::any_of(operands, [&](ValueId v) { return past(v).valid(); })) return;
  const NodeId reader = CastBefore(g, wide, DType::kF32, {});
  const std::vector<ir::Use> uses = g.value(wide).uses;
  for (const ir::Use& u : uses) {
    if (u.node != reader) g.SetInput(u.node, u.slot, g.node(reader).output());
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const ValueId v = operands[i];
    if (!v.valid() || g.value(v).type.dtype != DType::kF32) continue;
    g.SetInput(id, i, past(v).valid() ? past(v) : g.node(CastBefore(g, v, type, id)).output());
  }
  g.SetType(wide, Type{type, g.value(wide).type.shape});
}

// A Cast between f32 inside and 16 bits outside: what this pass leaves.
bool IsBorder(const Graph& g, const Node& n) {
  if (n.op != Op::kCast) return false;
  const ValueId x = n.input(0), y = n.output();
  const bool enters = std::ranges::contains(g.inputs(), x) && g.value(y).type.dtype == DType::kF32;
  const bool leaves = g.IsGraphOutput(y) && g.value(y).uses.empty() && g.value(x).type.dtype == DType::kF32;
  return enters || leaves;
}

bool HasUntypedOutput(const Graph& g, const Node& n) {
  return std::ranges::any_of(n.outputs,
                             [&](ValueId v) { return v.valid() && g.value(v).type.dtype == DType::kUndefined; });
}

// Empty, or what keeps the model as it is. `any`: there is something to widen.
std::string WhyNot(const Graph& g, bool* any) {
  const auto widens = [&](const Node& n) { return Touches(g, n) && !IsBorder(g, n); };
  const std::vector<NodeId> nodes = g.NodesInOrder();
  *any = std::ranges::any_of(nodes, [&](NodeId id) { return widens(g.node(id)); });
  if (!*any) return {};
  for (const NodeId id : nodes) {
    const Node& n = g.node(id);
    const bool unknown = n.op == Op::kOpaque && HasUntypedOutput(g, n);  // 16 bits, perhaps
    if (!widens(n) && !unknown) continue;
    if (n.op == Op::kOpaque) return std::format("octavo does not know {} at '{}'", n.op_type, OriginName(n));
    if (n.op == Op::kBitCast) return std::format("'{}' reads the bits of its operand", OriginName(n));
    if (HasSubgraph(n)) return std::format("'{}' has a subgraph", OriginName(n));
  }
  return {};
}

}  // namespace

Result<bool> ToF32(Graph& g, PassRun& run) {
  bool any = false;
  if (const std::string why = WhyNot(g, &any); !why.empty()) {
    run.log.push_back(std::format("to_f32: the model stays in 16 bits, and its products with it: {}", why));
    return false;
  }
  if (!any) return false;
  std::vector<DType> outputs;
  for (const ir::GraphOutput& o : g.outputs()) outputs.push_back(g.value(o.value).type.dtype);
  const std::vector<NodeId> casts = WidenInputs(g);
  for (const NodeId id : g.NodesInOrder()) {
    if (std::ranges::contains(casts, id)) continue;
    WidenAttrs(g, id);
    for (const ValueId v : std::vector<ValueId>(g.node(id).outputs)) {
      if (IsHalf(g, v)) g.SetType(v, Type{DType::kF32, g.value(v).type.shape});
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (IsHalf(outputs[i])) KeepCache(g, i, outputs[i]);
    if (IsHalf(outputs[i]) && !IsHalf(g, g.outputs()[i].value))
      g.SetOutput(i, g.node(CastBefore(g, g.outputs()[i].value, outputs[i], {})).output());
  }
  if (!g.SortTopologically()) return ir::Fail("to_f32 made a cycle");
  OCTAVO_TRY_STATUS(ir::Inference::Run(g).transform([](const auto&) {}));
  run.log.emplace_back("to_f32: 16-bit floats became f32");
  return true;
}

}  // namespace octavo::passes::quantize
