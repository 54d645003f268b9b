// Before: q = Q(Mul(DQ(Q(Mul(DQ(x), DQ(Q(Add(DQ(Q(Erf(DQ(Q(Div(DQ(x), 1.41)))))), 1)))))), 0.5))      x u8 or s8
// After:  q = Lookup(x, table)                                                                        table [256]
// Exact: whatever stands between, a function of one code has 256 values, and the interpreter computes them. Static quantization
// that puts codes behind every op (ONNX Runtime's default) makes such chains of each activation function.
// Refuses: more than one tensor of codes, constants of more than one element, ops that are not element-wise.
#include <map>
#include <ranges>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::fusions {

namespace {

using ir::DType;
using ir::Tensor;

bool IsElementwise(Op op) {
  switch (op) {
    case Op::kAbs:
    case Op::kAdd:
    case Op::kCeil:
    case Op::kCelu:
    case Op::kClip:
    case Op::kCos:
    case Op::kDiv:
    case Op::kElu:
    case Op::kErf:
    case Op::kExp:
    case Op::kFloor:
    case Op::kGelu:
    case Op::kHardSigmoid:
    case Op::kHardSwish:
    case Op::kLeakyRelu:
    case Op::kLog:
    case Op::kMax:
    case Op::kMin:
    case Op::kMish:
    case Op::kMul:
    case Op::kNeg:
    case Op::kPow:
    case Op::kReciprocal:
    case Op::kRelu:
    case Op::kRound:
    case Op::kSelu:
    case Op::kSigmoid:
    case Op::kSin:
    case Op::kSoftplus:
    case Op::kSoftsign:
    case Op::kSqrt:
    case Op::kSub:
    case Op::kSwish:
    case Op::kTanh:
      return true;
    default:
      return false;
  }
}

bool IsOneNumber(const Graph& g, ValueId v) {
  const Tensor* t = v.valid() ? g.ConstantOf(v) : nullptr;
  return t != nullptr && t->size() == 1 && t->rank() <= 1;
}

// Quantize- or DequantizeLinear between f32 and u8 or s8 with constant numbers.
bool IsCoding(const Graph& g, const Node& n, Op op) {
  if (n.op != op || !IsOneNumber(g, n.input(1)) || !IsOneNumber(g, n.input(2))) return false;
  const ValueId codes = op == Op::kQuantizeLinear ? n.output() : n.input(0);
  const ValueId real = op == Op::kQuantizeLinear ? n.input(0) : n.output();
  return quant::IsInt8(g.value(codes).type.dtype) && g.value(real).type.dtype == DType::kF32;
}

// In a row: more is another kind of graph, and the stack has an end.
constexpr int kMostOps = 200;

// The codes that each value is a function of.
class Sources {
 public:
  explicit Sources(const Graph& g) : g_(g) {}

  // Invalid: there is no such tensor, or more than one.
  ValueId Of(ValueId v, int depth = 0) {
    const auto [it, fresh] = known_.try_emplace(v, ValueId{});
    if (!fresh) return it->second;
    const ValueId source = Find(v, depth + 1);
    return known_[v] = source;
  }

 private:
  ValueId Find(ValueId v, int depth) {
    const Node* n = v.valid() ? g_.Producer(v) : nullptr;
    if (n == nullptr || depth > kMostOps || g_.ConstantOf(v) != nullptr) return {};
    if (IsCoding(g_, *n, Op::kDequantizeLinear)) {  // the function may begin before these codes
      const ValueId codes = n->input(0);
      const Node* q = g_.Producer(codes);
      const ValueId before = q != nullptr && IsCoding(g_, *q, Op::kQuantizeLinear) ? Of(q->input(0), depth) : ValueId{};
      return before.valid() ? before : g_.ConstantOf(codes) != nullptr ? ValueId{} : codes;
    }
    if (!IsElementwise(n->op) || n->outputs.size() != 1 || g_.value(v).type.dtype != DType::kF32) return {};
    ValueId source;
    for (ValueId in : n->inputs) {
      if (!in.valid() || IsOneNumber(g_, in)) continue;
      const ValueId one = Of(in, depth);
      if (!one.valid() || (source.valid() && source != one)) return {};
      source = one;
    }
    return source;
  }

  const Graph& g_;
  std::map<ValueId, ValueId> known_;
};

// The value of v for all codes of `source`; nullopt where the interpreter refuses.
std::optional<ir::RtValue> Evaluate(const Graph& g, ValueId v, ValueId source, std::map<ValueId, ir::RtValue>& done) {
  if (!v.valid()) return ir::RtValue{};
  if (const auto it = done.find(v); it != done.end()) return it->second;
  if (const Tensor* t = g.ConstantOf(v)) return ir::RtValue{*t, nullptr};
  const Node& n = *g.Producer(v);
  std::vector<ir::RtValue> inputs;
  for (ValueId in : n.inputs) {
    auto value = Evaluate(g, in, source, done);
    if (!value) return {};
    inputs.push_back(std::move(*value));
  }
  auto results = ir::EvalNode(g, n, inputs);
  if (!results || results->empty()) return {};
  return done[v] = results->front();
}

std::optional<Tensor> TableOf(const Graph& g, const Node& quantize, ValueId source) {
  Tensor all = Tensor::Empty(g.value(source).type.dtype, {256});
  for (int i = 0; i < 256; ++i) all.mutable_as<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
  std::map<ValueId, ir::RtValue> done{{source, {all, nullptr}}};
  const auto value = Evaluate(g, quantize.output(), source, done);
  if (!value || value->tensor.size() != 256 || value->tensor.rank() != 1) return {};
  return value->tensor;
}

}  // namespace

Result<bool> FuseTables(Graph& graph, PassRun& run) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter b(graph, "tables");
  Sources sources(graph);
  int made = 0;
  const std::vector<NodeId> nodes = graph.NodesInOrder();
  for (NodeId id : std::views::reverse(nodes)) {  // the longest functions first
    if (!graph.IsAlive(id) || !IsCoding(graph, graph.node(id), Op::kQuantizeLinear)) continue;
    const Node q = graph.node(id);
    const ValueId source = sources.Of(q.input(0));
    if (!source.valid() || !SameShape(graph, source, q.output())) continue;
    const auto table = TableOf(graph, q, source);
    if (!table) continue;
    b.At(id, {id});
    const ValueId y = b.Create(Op::kLookup, {source, b.Constant(*table)});
    graph.SetType(y, graph.value(q.output()).type);
    b.Replace(q.output(), y);
    b.EraseDead(id);
    ++made;
  }
  if (made > 0) run.log.push_back("tables: " + std::to_string(made) + " functions of codes became tables");
  return made > 0;
}

}  // namespace octavo::passes::fusions
