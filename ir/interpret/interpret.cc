// EvalNode, Interpret and the table of evaluators.
#include "octavo/ir/interpret.h"

#include <new>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/vendor/lower.h"

namespace octavo::ir {

namespace interpret {

const Table& Evaluators() {
  static const Table* const table = [] {
    auto* t = new Table;
    for (auto* family : {RegisterUnary,     RegisterBinary,   RegisterLogic,    RegisterVariadic,
                         RegisterCast,      RegisterViews,    RegisterMovement, RegisterGather,
                         RegisterScatter,   RegisterGenerate, RegisterPad,      RegisterResize,
                         RegisterReduce,    RegisterArg,      RegisterSoftmax,  RegisterMatMul,
                         RegisterEinsum,    RegisterConv,     RegisterPool,     RegisterNorm,
                         RegisterAttention, RegisterRotary,   RegisterQuantize, RegisterQuantizedProducts,
                         RegisterControl,   RegisterOctavo}) {
      family(*t);
    }
    return t;
  }();
  return *table;
}

namespace {

std::string Where(const Node& node, std::span<const RtValue> inputs) {
  std::string s(node.op == Op::kOpaque ? std::string_view(node.op_type) : InfoOf(node.op).name);
  s += " '" + DisplayName(node) + "' (";
  for (size_t i = 0; i < inputs.size(); ++i) s += (i != 0 ? ", " : "") + Describe(inputs[i].tensor);
  return s + ")";
}

// The optional inputs that stand before required ones or whose number depends on the subgraph.
bool MayBeAbsent(Op op, size_t slot) {
  return InfoOf(op).domain == "octavo" || op == Op::kScan || (op == Op::kLoop && slot < 2);
}

Status CheckInputs(const Node& node, std::span<const RtValue> inputs) {
  const OpInfo& info = InfoOf(node.op);
  const auto least = static_cast<size_t>(info.min_inputs);
  if (inputs.size() < least || (info.max_inputs >= 0 && inputs.size() > static_cast<size_t>(info.max_inputs))) {
    return Fail("{} inputs, but the op takes {} to {}", inputs.size(), info.min_inputs,
                info.max_inputs < 0 ? std::string("any number") : std::to_string(info.max_inputs));
  }
  for (size_t i = 0; i < least; ++i) {
    if (!inputs[i].tensor.defined() && !MayBeAbsent(node.op, i)) return Fail("required input {} is absent", i);
  }
  return {};
}

// Working memory of an evaluator (std::vector) that the machine does not have is an error like any other.
Status EvaluateInMemory(Call& call, Evaluator evaluate) {
  try {
    return EvaluateMoved(call, evaluate);
  } catch (const std::bad_alloc&) {
    return Fail("there is not enough memory");
  }
}

bool CarriesQuantForm(Op op) {
  switch (op) {
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kSlice:
    case Op::kSplit:
    case Op::kConcat:
    case Op::kExpand:
    case Op::kSqueeze:
    case Op::kUnsqueeze:
    case Op::kFlatten:
    case Op::kGather:
    case Op::kIdentity:
      return true;
    default:
      return false;
  }
}

// Checks a graph input against its declared type.
Status CheckDeclared(const Value& value, const Tensor& t) {
  const Type& type = value.type;
  if (type.dtype != DType::kUndefined && type.dtype != t.dtype()) {
    return Fail("input '{}' is {}, the graph declares {}", value.name, Describe(t), ToString(type));
  }
  if (!type.shape) return {};
  bool fits = type.shape->size() == t.shape().size();
  for (size_t i = 0; fits && i < t.shape().size(); ++i) {
    const Dim& d = (*type.shape)[i];
    fits = !d.is_number() || d.number() == t.shape()[i];
  }
  if (!fits) return Fail("input '{}' is {}, the graph declares {}", value.name, Describe(t), ToString(type));
  return {};
}

}  // namespace

Result<std::vector<RtValue>> RunGraph(const Graph& graph, std::span<const RtValue> inputs,
                                      const InterpretOptions& options) {
  if (inputs.size() != graph.inputs().size()) {
    return Fail("graph '{}' takes {} inputs, {} were given", graph.name, graph.inputs().size(), inputs.size());
  }
  std::vector<RtValue> values(graph.value_capacity());
  std::vector<size_t> pending(graph.value_capacity(), 0);  // uses to come; the value is freed after the last
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].index] = inputs[i];
  for (const GraphOutput& o : graph.outputs()) {
    if (o.value.valid()) ++pending[o.value.index];
  }
  const std::vector<NodeId> order = graph.NodesInOrder();
  for (NodeId id : order) {
    for (ValueId v : graph.node(id).inputs) {
      if (v.valid()) ++pending[v.index];
    }
  }
  std::vector<RtValue> operands;
  for (NodeId id : order) {
    const Node& node = graph.node(id);
    operands.clear();
    for (ValueId v : node.inputs) operands.push_back(v.valid() ? values[v.index] : RtValue{});
    OCTAVO_TRY(std::vector<RtValue> results, EvalNode(graph, node, operands));
    if (options.on_node) options.on_node(node, results);
    for (ValueId v : node.inputs) {
      if (v.valid() && --pending[v.index] == 0) values[v.index] = {};
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId v = node.outputs[i];
      if (v.valid() && pending[v.index] > 0) values[v.index] = std::move(results[i]);
    }
  }
  std::vector<RtValue> outputs;
  for (const GraphOutput& o : graph.outputs()) {
    if (!o.value.valid()) return Fail("output '{}' of graph '{}' is bound to no value", o.name, graph.name);
    outputs.push_back(values[o.value.index]);
  }
  return outputs;
}

}  // namespace interpret

bool CanEval(Op op) { return interpret::Evaluators().Find(op) != nullptr; }

Result<std::vector<RtValue>> EvalNode(const Graph& graph, const Node& node, std::span<const RtValue> inputs) {
  using namespace interpret;
  const Evaluator evaluate = Evaluators().Find(node.op);
  if (evaluate == nullptr) {
    if (const std::string why = vendor::WhyOpaque(graph, node); !why.empty()) return Fail("{}", why);
    return Fail("{}: octavo has no meaning for this op ({}); the graph can be converted but not run",
                Where(node, inputs),
                node.op == Op::kOpaque ? node.domain + "." + node.op_type : std::string(InfoOf(node.op).name));
  }
  Call call{graph, node, inputs, std::vector<RtValue>(node.outputs.size())};
  Status status = CheckInputs(node, inputs);
  if (status) status = EvaluateInMemory(call, evaluate);
  if (!status) return Fail("{}: {}", Where(node, inputs), status.error().message);
  if (CarriesQuantForm(node.op)) CarryQuantForms(call, evaluate);
  return std::move(call.out);
}

Result<std::vector<Tensor>> Interpret(const Graph& graph, const TensorMap& inputs, const InterpretOptions& options) {
  using namespace interpret;
  std::vector<RtValue> values;
  for (ValueId v : graph.inputs()) {
    const Value& value = graph.value(v);
    const auto it = inputs.find(value.name);
    if (it == inputs.end() || !it->second.defined()) {
      return Fail("input '{}' ({}) is missing", value.name, ToString(value.type));
    }
    OCTAVO_TRY_STATUS(CheckDeclared(value, it->second));
    values.push_back({it->second, nullptr});
  }
  for (const auto& [name, tensor] : inputs) {
    bool known = false;
    for (ValueId v : graph.inputs()) known |= graph.value(v).name == name;
    if (!known) return Fail("the graph has no input '{}'", name);
  }
  OCTAVO_TRY(std::vector<RtValue> results, RunGraph(graph, values, options));
  std::vector<Tensor> outputs;
  for (RtValue& r : results) outputs.push_back(std::move(r.tensor));
  return outputs;
}

}  // namespace octavo::ir
