// EvalNode, Interpret and the table of evaluators.
#include "octavo/ir/interpret.h"

#include <set>

#include "octavo/ir/closed.h"
#include "octavo/ir/interpret/call.h"
#include "octavo/ir/names.h"
#include "octavo/ir/vendor/lower.h"
#include "octavo/ir/verify.h"

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
                         RegisterControl,   RegisterOctavo,   RegisterUnfold,   RegisterLp,
                         RegisterGrid,      RegisterRegions,  RegisterOrder,    RegisterRecurrent,
                         RegisterState,     RegisterFlex,     RegisterSignal,   RegisterLoss,
                         RegisterRandom,    RegisterText,     RegisterTables,   RegisterTraining}) {
      family(*t);
    }
    return t;
  }();
  return *table;
}

namespace {

std::string Where(const Node& node, std::span<const RtValue> inputs) {
  std::string s(node.op == Op::kOpaque ? std::string_view(node.op_type) : InfoOf(node.op).name);
  if (node.op == Op::kOpaque) s = Clean(s);
  s += " " + Quoted(DisplayName(node)) + " (";
  for (size_t i = 0; i < inputs.size(); ++i) s += (i != 0 ? ", " : "") + Describe(inputs[i].tensor);
  return s + ")";
}

Status CheckInputs(const Node& node, std::span<const RtValue> inputs) {
  const OpInfo& info = InfoOf(node.op);
  if (inputs.size() < static_cast<size_t>(info.min_inputs) ||
      (info.max_inputs >= 0 && inputs.size() > static_cast<size_t>(info.max_inputs))) {
    return Fail("{} inputs, but the op takes {} to {}", inputs.size(), info.min_inputs,
                info.max_inputs < 0 ? std::string("any number") : std::to_string(info.max_inputs));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].tensor.defined() && !MayBeAbsent(node.op, i)) return Fail("required input {} is absent", i);
  }
  return {};
}

Status CheckArity(const Node& node, std::span<const RtValue> inputs) {
  const OpInfo& info = InfoOf(node.op);
  const auto outputs = static_cast<int>(node.outputs.size());
  if (outputs < info.min_outputs || (info.max_outputs >= 0 && outputs > info.max_outputs)) {
    return Fail("{} outputs, but the op gives {} to {}", outputs, info.min_outputs,
                info.max_outputs < 0 ? std::string("any number") : std::to_string(info.max_outputs));
  }
  OCTAVO_TRY_STATUS(CheckInputs(node, inputs));
  for (const RtValue& v : inputs) OCTAVO_TRY_STATUS(CheckShape(v.tensor.dtype(), v.tensor.shape()));
  return {};
}

// Element type and rank, as far as the graph knows them.
bool Fits(const Graph& graph, ValueId v, const Tensor& t) {
  const Type& type = graph.value(v).type;
  return (type.dtype == DType::kUndefined || type.dtype == t.dtype()) &&
         (!type.shape || type.shape->size() == t.shape().size());
}

// What the graph says of an output holds, or it is an error: kernels behind it were chosen by it. Given operands other than the graph
// says (a pass that asks for the values of a function), it says nothing of the outputs.
Status CheckOutputs(const Call& call) {
  bool as_said = true;
  for (size_t i = 0; i < call.node.inputs.size() && i < call.in.size(); ++i) {
    const ValueId v = call.node.inputs[i];
    as_said = as_said && (!v.valid() || !call.Has(i) || Fits(call.graph, v, call.T(i)));
  }
  for (size_t i = 0; i < call.out.size(); ++i) {
    if (!call.Wants(i)) continue;
    const Tensor& t = call.out[i].tensor;
    const Type& type = call.graph.value(call.node.outputs[i]).type;
    if (!t.defined()) return Fail("it gives no output {}", i);
    if (as_said && !Fits(call.graph, call.node.outputs[i], t))
      return Fail("output {} is {}, but the graph says {}", i, Describe(t), ToString(type));
    OCTAVO_TRY_STATUS(CheckShape(t.dtype(), t.shape()));
  }
  return {};
}

// Why an op without an evaluator has none, and what to do.
std::string WhyNot(const Node& node) {
  const auto is = [&](std::string_view start) { return node.domain.empty() && node.op_type.starts_with(start); };
  if (is("ImageDecoder")) return "octavo reads no picture files; decode the picture before the model";
  if (is("RegexFullMatch")) return "octavo has no regular expressions; match the texts before the model";
  if (is("Sequence") || is("SplitToSequence") || is("ConcatFromSequence") || is("Optional"))
    return "octavo's values are tensors; of sequences it knows those whose elements the file tells by number, so export "
           "with tensors, as Split, Concat and If give them";
  const std::string domain = node.domain.empty() ? "" : node.domain + ".";
  return std::format("octavo has no meaning for this op ({}{}); the graph can be converted but not run", domain,
                     node.op_type);
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
    return Fail("input {} is {}, the graph declares {}", Quoted(value.name), Describe(t), ToString(type));
  }
  if (!type.shape) return {};
  bool fits = type.shape->size() == t.shape().size();
  for (size_t i = 0; fits && i < t.shape().size(); ++i) {
    const Dim& d = (*type.shape)[i];
    fits = !d.is_number() || d.number() == t.shape()[i];
  }
  if (!fits) return Fail("input {} is {}, the graph declares {}", Quoted(value.name), Describe(t), ToString(type));
  return {};
}

}  // namespace

Result<std::vector<RtValue>> RunGraph(const Graph& graph, std::span<const RtValue> inputs,
                                      const InterpretOptions& options) {
  if (inputs.size() != graph.inputs().size()) {
    return Fail("graph {} takes {} inputs, {} were given", Quoted(graph.name), graph.inputs().size(), inputs.size());
  }
  std::vector<RtValue> values(graph.value_capacity());
  std::vector<size_t> pending(graph.value_capacity(), 0);  // uses to come; the value is freed after the last
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = graph.value(graph.inputs()[i]);
    const DType dtype = inputs[i].tensor.dtype();
    if (value.type.dtype != DType::kUndefined && dtype != DType::kUndefined && value.type.dtype != dtype) {
      return Fail("input {} of graph {} is {}, but the graph says {}", Quoted(value.name), Quoted(graph.name),
                  Describe(inputs[i].tensor), ToString(value.type));
    }
    values[graph.inputs()[i].index] = inputs[i];
  }
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
    OCTAVO_TRY(std::vector<RtValue> results, EvalNode(graph, node, operands, options.interrupted));
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
    if (!o.value.valid()) return Fail("output {} of graph {} is bound to no value", Quoted(o.name), Quoted(graph.name));
    outputs.push_back(values[o.value.index]);
  }
  return outputs;
}

}  // namespace interpret

namespace {

Result<std::vector<RtValue>> Evaluate(const interpret::Evaluator evaluate, interpret::Call& call) {
  using namespace interpret;
  const WorkScope work;
  Status status = CheckArity(call.node, call.in);
  if (status) status = EvaluateMoved(call, evaluate);
  if (status) status = CheckOutputs(call);
  if (!status) return Fail("{}: {}", Where(call.node, call.in), status.error().message);
  if (CarriesQuantForm(call.node.op)) CarryQuantForms(call, evaluate);
  return std::move(call.out);
}

Result<std::vector<RtValue>> Eval(const Graph& graph, const Node& node, std::span<const RtValue> inputs,
                                  const Interrupted& interrupted, const interpret::RunBody* run_body) {
  using namespace interpret;
  const Evaluator evaluate = Evaluators().Find(node.op);
  if (evaluate == nullptr) {
    if (const std::string why = vendor::WhyOpaque(graph, node); !why.empty()) return Fail("{}", why);
    return Fail("{}: {}", Where(node, inputs), WhyNot(node));
  }
  try {
    Call call{graph, node, inputs, std::vector<RtValue>(node.outputs.size()), interrupted, run_body};
    return Evaluate(evaluate, call);
  } catch (...) {  // memory that lacks, above all
    return std::unexpected(ErrorOf(std::current_exception(), Where(node, inputs)));
  }
}

}  // namespace

bool CanEval(Op op) { return interpret::Evaluators().Find(op) != nullptr; }

Result<std::vector<RtValue>> EvalNode(const Graph& graph, const Node& node, std::span<const RtValue> inputs,
                                      const Interrupted& interrupted) {
  return Eval(graph, node, inputs, interrupted, nullptr);
}

Result<std::vector<RtValue>> interpret::EvalControl(const Graph& graph, const Node& node,
                                                    std::span<const RtValue> inputs, const Interrupted& interrupted,
                                                    const RunBody& run_body) {
  return Eval(graph, node, inputs, interrupted, &run_body);
}

Result<std::vector<Tensor>> Interpret(const Graph& graph, const TensorMap& inputs, const InterpretOptions& options) {
  using namespace interpret;
  std::vector<RtValue> values;
  std::set<std::string_view> names;
  for (ValueId v : graph.inputs()) {
    names.insert(graph.value(v).name);
    const Value& value = graph.value(v);
    const auto it = inputs.find(value.name);
    if (it == inputs.end() || !it->second.defined()) {
      return Fail("input {} ({}) is missing", Quoted(value.name), ToString(value.type));
    }
    OCTAVO_TRY_STATUS(CheckDeclared(value, it->second));
    values.push_back({it->second, nullptr});
  }
  for (const auto& [name, tensor] : inputs) {
    if (!names.contains(name)) return Fail("the graph has no input {}", Quoted(name));
  }
  OCTAVO_TRY(std::vector<RtValue> results, RunGraph(graph, values, options));
  std::vector<Tensor> outputs;
  for (RtValue& r : results) outputs.push_back(std::move(r.tensor));
  return outputs;
}

}  // namespace octavo::ir
