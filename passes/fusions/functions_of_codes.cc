#include "octavo/passes/fusions/functions_of_codes.h"

#include "octavo/ir/interpret.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::fusions {

using ir::DType;
using ir::Tensor;

namespace {

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

// In a row: more is another kind of graph, and the stack has an end.
constexpr int kMostOps = 200;

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

}  // namespace

bool IsCoding(const Graph& g, const Node& n, Op op) {
  if (n.op != op || !IsOneNumber(g, n.input(1)) || !IsOneNumber(g, n.input(2))) return false;
  const ValueId codes = op == Op::kQuantizeLinear ? n.output() : n.input(0);
  const ValueId real = op == Op::kQuantizeLinear ? n.input(0) : n.output();
  return quant::IsInt8(g.value(codes).type.dtype) && g.value(real).type.dtype == DType::kF32;
}

ValueId CodeSources::Find(ValueId v, int depth) {
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

std::optional<Tensor> TableOf(const Graph& g, const Node& quantize, ValueId source) {
  Tensor all = Tensor::Empty(g.value(source).type.dtype, {256});
  for (int i = 0; i < 256; ++i) all.mutable_as<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
  std::map<ValueId, ir::RtValue> done{{source, {all, nullptr}}};
  const auto value = Evaluate(g, quantize.output(), source, done);
  if (!value || value->tensor.size() != 256 || value->tensor.rank() != 1) return {};
  return value->tensor;
}

}  // namespace octavo::passes::fusions
