// GraphBuilder: inputs, constants, nodes in order, outputs. Functions and subgraphs: import_inline.cc.
#include <onnx_messages.pb.h>

#include <algorithm>
#include <optional>
#include <queue>
#include <utility>

#include "octavo/ir/names.h"
#include "octavo/ir/onnx/import.h"
#include "octavo/ir/onnx/tensor_proto.h"
#include "octavo/ir/vendor/lower.h"

namespace octavo::ir::onnx {

namespace {

std::string DescribeNode(std::string_view name, std::string_view op_type, std::string_view first_output) {
  if (!name.empty()) return "node " + Quoted(name) + " (" + Clean(op_type) + ")";
  return "the " + Clean(op_type) + " node that makes " + Quoted(first_output);
}
std::string DescribeNode(const pb::NodeProto& n) {
  return DescribeNode(n.name(), n.op_type(), n.output_size() != 0 ? n.output(0) : std::string());
}
bool IsStandard(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }
bool IsConstant(const pb::NodeProto& n) { return IsStandard(n.domain()) && n.op_type() == "Constant"; }

// A node of the unsorted remainder that lies on a cycle: following one unmet input after the other must come back.
uint32_t OnCycle(uint32_t start, const std::vector<std::vector<uint32_t>>& reads, const std::vector<bool>& done) {
  std::vector<bool> seen(reads.size());
  uint32_t at = start;
  while (!seen[at]) {
    seen[at] = true;
    for (uint32_t producer : reads[at]) {
      if (!done[producer]) {
        at = producer;
        break;
      }
    }
  }
  return at;
}

}  // namespace

std::string Draft::Describe() const {
  std::string_view first;
  for (std::string_view o : outputs) {
    if (first.empty()) first = o;
  }
  return DescribeNode(name, op_type, first);
}

Result<Graph> GraphBuilder::Build(const pb::GraphProto& proto, std::vector<Tensor> constants, const Opsets& opsets,
                                  const Bindings* bindings, std::span<const Capture> captures, bool main) {
  if (proto.sparse_initializer_size() != 0) {
    return Fail("initializer {} is sparse, which octavo does not read; store it dense",
                Quoted(proto.sparse_initializer(0).values().name()));
  }
  if (bindings == nullptr) OCTAVO_TRY_STATUS(file_.Spend(proto.initializer_size()));
  g_.name = proto.name();
  top_.opsets = &opsets;
  top_.bindings = bindings;
  top_.in_function = false;
  for (const auto& info : proto.value_info()) types_[info.name()] = &info.type();
  for (const auto& info : proto.output()) types_[info.name()] = &info.type();
  for (const auto& node : proto.node()) {
    for (const std::string& output : node.output()) names_.Add(output);
  }
  for (const auto& tensor : proto.initializer()) names_.Add(tensor.name());
  OCTAVO_TRY_STATUS(AddInputs(proto, captures, main));
  OCTAVO_TRY_STATUS(AddInitializers(proto, std::move(constants)));
  OCTAVO_TRY_STATUS(BuildNodes(proto.node(), top_));
  OCTAVO_TRY_STATUS(AddOutputs(proto, main));
  ResolveSequences(g_);
  OCTAVO_TRY_STATUS(vendor::Lower(g_, {.attention_before_122 = file_.attention_before_122}));
  ResolveSoftmax(g_);  // last, since ranks come of what the others make
  return std::move(g_);
}

Status GraphBuilder::AddInputs(const pb::GraphProto& proto, std::span<const Capture> captures, bool main) {
  // Old files list every initializer as an input too, with the initializer as its default. Such an input is a
  // constant here: a caller who wants to replace weights writes another file.
  std::unordered_set<std::string_view> defaults;
  for (const auto& tensor : proto.initializer()) defaults.insert(tensor.name());
  for (const auto& input : proto.input()) {
    if (defaults.contains(input.name())) continue;
    const auto unnamed = main ? Symbols::Unnamed::kFreshSymbol : Symbols::Unnamed::kUnknown;
    auto type = file_.symbols.Read(input.type(), input.name(), unnamed);
    if (!type) {
      // In a subgraph the caller gives the type.
      if (main) {
        return Fail("input {} is {}; octavo takes tensors only", Quoted(input.name()), DescribeType(input.type()));
      }
      type.emplace();
    }
    if (input.name().empty()) return Fail("an input has no name");
    OCTAVO_TRY_STATUS(Define(top_, input.name(), g_.AddInput(input.name(), std::move(*type)), "an input"));
    names_.Add(input.name());
  }
  for (const Capture& c : captures) {
    const std::string name = names_.Take(std::string(c.name), "_outer");
    const ValueId v = g_.AddInput(name, c.type);
    if (name == c.name) top_.values[c.name] = v;  // a name that this graph defines itself hides the outer one
  }
  return {};
}

Status GraphBuilder::AddInitializers(const pb::GraphProto& proto, std::vector<Tensor> constants) {
  for (int i = 0; i < proto.initializer_size(); ++i) {
    const std::string& name = proto.initializer(i).name();
    if (name.empty()) return Fail("an initializer has no name");
    const ValueId v = g_.AddConstant(std::move(constants[static_cast<size_t>(i)]), name);
    OCTAVO_TRY_STATUS(Define(top_, name, v, "an initializer"));
  }
  return {};
}

Status GraphBuilder::AddOutputs(const pb::GraphProto& proto, bool main) {
  std::unordered_set<std::string_view> seen;
  for (const auto& output : proto.output()) {
    const auto it = top_.values.find(output.name());
    if (it == top_.values.end() || !it->second.valid()) {
      return Fail("output {} is made by no node", Quoted(output.name()));
    }
    const bool again = !seen.insert(output.name()).second;
    if (main && again) return Fail("output {} is declared twice", Quoted(output.name()));
    auto type = file_.symbols.Read(output.type(), output.name(), Symbols::Unnamed::kUnknown);
    if (!type && main && !output.type().has_tensor_type() && output.has_type()) {
      return Fail("output {} is {}; octavo gives tensors only", Quoted(output.name()), DescribeType(output.type()));
    }
    // Outputs of a body are told apart by their places; one may be given twice.
    g_.AddOutput(again ? names_.Take(output.name()) : output.name(), it->second, type.value_or(Type{}));
  }
  if (main && proto.output_size() == 0) return Fail("the graph has no outputs");
  return {};
}

Status GraphBuilder::Define(Scope& scope, std::string_view name, ValueId value, std::string_view by) {
  if (name.empty()) return {};
  if (scope.values.emplace(name, value).second) return {};
  return Fail("{} is defined twice, the second time by {}; names of values must be unique", Quoted(name), by);
}

Status GraphBuilder::Order(std::span<const pb::NodeProto* const> nodes, const Scope& scope,
                           std::vector<uint32_t>& order) {
  std::unordered_map<std::string_view, uint32_t> maker;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    for (const std::string& output : nodes[i]->output()) {
      if (output.empty()) continue;
      if (!maker.emplace(output, i).second || scope.values.contains(output)) {
        return Fail("{} is defined twice, the second time by {}; names of values must be unique", Quoted(output),
                    DescribeNode(*nodes[i]));
      }
    }
  }
  std::vector<std::vector<uint32_t>> reads(nodes.size()), feeds(nodes.size());
  std::vector<size_t> waiting(nodes.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const auto add = [&](std::string_view name) {
      const auto it = maker.find(name);
      if (it == maker.end()) return name.empty() || scope.values.contains(name);
      reads[i].push_back(it->second);
      feeds[it->second].push_back(i);
      ++waiting[i];
      return true;
    };
    const auto unknown = [&](std::string_view name) {
      return Fail("{} reads {}, which nothing defines", DescribeNode(*nodes[i]), Quoted(name));
    };
    for (const std::string& input : nodes[i]->input()) {
      if (!add(input)) return unknown(input);
    }
    for (const auto& attribute : nodes[i]->attribute()) {
      if (!attribute.has_g()) continue;
      for (std::string_view name : FreeNames(attribute.g())) {
        if (!add(name)) return unknown(name);
      }
    }
  }
  // Always the first node of the file that is ready: a sorted file keeps its order.
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  std::vector<bool> done(nodes.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    if (waiting[i] == 0) ready.push(i);
  }
  while (!ready.empty()) {
    const uint32_t i = ready.top();
    ready.pop();
    done[i] = true;
    order.push_back(i);
    for (uint32_t next : feeds[i]) {
      if (--waiting[next] == 0) ready.push(next);
    }
  }
  if (order.size() == nodes.size()) return {};
  const auto stuck = static_cast<uint32_t>(std::ranges::find(done, false) - done.begin());
  return Fail("the graph has a cycle through {}", DescribeNode(*nodes[OnCycle(stuck, reads, done)]));
}

// Of functions that call functions the first call and the node in the last body are named, not all between them.
Status GraphBuilder::At(const pb::NodeProto& node, const Scope& scope, const Status& status) {
  if (scope.in_function && std::exchange(file_.placed, true)) return status;
  return Fail("{}: {}", DescribeNode(node), status.error().message);
}

Status GraphBuilder::BuildNodes(const NodeList& list, Scope& scope) {
  if (scope.bindings == nullptr) OCTAVO_TRY_STATUS(file_.Spend(list.size()));  // a call has paid for the body's
  std::vector<const pb::NodeProto*> nodes;
  nodes.reserve(static_cast<size_t>(list.size()));
  for (const pb::NodeProto& node : list) {
    if (!IsConstant(node)) {
      nodes.push_back(&node);
      continue;
    }
    if (const Status s = AddConstantNode(node, scope); !s) return At(node, scope, s);
  }
  std::vector<uint32_t> order;
  order.reserve(nodes.size());
  OCTAVO_TRY_STATUS(Order(nodes, scope, order));
  for (uint32_t i : order) {
    if (const Status s = AddNode(*nodes[i], scope); !s) return At(*nodes[i], scope, s);
  }
  return {};
}

// Constant nodes and initializers are one thing in the graph: both stand first and lose their node name.
Status GraphBuilder::AddConstantNode(const pb::NodeProto& node, Scope& scope) {
  if (node.output_size() != 1 || node.input_size() != 0) return Fail("a Constant has one output and no input");
  std::optional<Tensor> tensor;
  for (const auto& attribute : node.attribute()) {
    const auto* a = Resolve(attribute, scope.bindings);
    if (a == nullptr) continue;
    if (tensor) return Fail("it holds more than one value");
    OCTAVO_TRY(tensor, ReadConstant(*a, attribute.name(), file_));
  }
  if (!tensor) return Fail("it holds no value");
  if (scope.values.contains(node.output(0))) {
    return Fail("{} is defined twice; names of values must be unique", Quoted(node.output(0)));
  }
  const ValueId v = g_.AddConstant(std::move(*tensor), IrName(scope, node.output(0)), first_node_);
  return Define(scope, node.output(0), v, "a Constant node");
}

std::string GraphBuilder::IrName(const Scope& scope, std::string_view name) {
  if (!scope.in_function) return std::string(name);
  if (const auto it = scope.named.find(name); it != scope.named.end()) return it->second;
  return names_.Take(scope.prefix + std::string(Stem(name)));
}

std::string GraphBuilder::Fresh(const Draft& d, std::string_view hint) {
  const auto named = std::ranges::find_if(d.outputs, [](std::string_view o) { return !o.empty(); });
  std::string base(named == d.outputs.end() ? std::string_view() : Stem(*named));
  if (d.scope->in_function) base = d.scope->prefix + base;
  return names_.Take(base + "/" + std::string(hint));
}
std::string GraphBuilder::NodeName(const Draft& d, std::string_view hint) {
  return d.name.empty() ? std::string() : std::string(Stem(d.name)) + "/" + std::string(hint);
}

void GraphBuilder::NameOutputs(NodeId id, const std::vector<std::string>& names) {
  const auto rename = [&] {
    bool all = true;
    for (size_t i = 0; i < names.size(); ++i) {
      const ValueId v = g_.node(id).output(i);
      if (!v.valid() || names[i].empty()) continue;
      g_.SetName(v, names[i]);
      all = all && g_.value(v).name == names[i];
    }
    return all;
  };
  // A first name may still be held by a sibling output under its provisional name; then the second round succeeds.
  if (!rename()) {
    for (ValueId v : g_.node(id).outputs) {
      if (v.valid()) g_.SetName(v, g_.UniqueName("\x01"));
    }
    rename();
  }
}

NodeId GraphBuilder::Place(NodeId id) {
  if (!first_node_.valid()) first_node_ = id;
  return id;
}

ValueId GraphBuilder::Constant(const Draft& d, std::string_view hint, Tensor tensor) {
  return g_.AddConstant(std::move(tensor), Fresh(d, hint), first_node_);
}
ValueId GraphBuilder::Ints(const Draft& d, std::string_view hint, std::vector<int64_t> values) {
  const auto n = static_cast<int64_t>(values.size());
  return Constant(d, hint, Tensor::S64({n}, std::move(values)));
}
ValueId GraphBuilder::Emit(const Draft& d, std::string_view hint, Op op, std::vector<ValueId> inputs, Attrs attrs) {
  return EmitOutput(d, SIZE_MAX, hint, op, std::move(inputs), std::move(attrs));
}
ValueId GraphBuilder::EmitOutput(const Draft& d, size_t i, std::string_view hint, Op op, std::vector<ValueId> inputs,
                                 Attrs attrs) {
  const std::string name = d.wants(i) ? IrName(*d.scope, d.outputs[i]) : Fresh(d, hint);
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
  if (emitted_) emitted_ = CheckInputs(op, inputs);
  const NodeId id = Place(g_.AddNode(op, std::move(inputs), 1, std::move(attrs), NodeName(d, hint)));
  NameOutputs(id, {name});
  g_.SetOrigin(id, d.origin);
  const ValueId v = g_.node(id).output();
  if (d.wants(i)) {
    d.scope->values.emplace(d.outputs[i], v);
    SetDeclaredType(v);
  }
  return v;
}
int64_t GraphBuilder::RankOf(ValueId v) const {
  return v.valid() && g_.value(v).type.shape ? static_cast<int64_t>(g_.value(v).type.shape->size()) : -1;
}

// Everything behind this trusts that an input which is not optional is there.
Status GraphBuilder::CheckInputs(Op op, std::span<const ValueId> inputs) {
  const OpInfo& info = InfoOf(op);
  const auto given = static_cast<int>(inputs.size());
  if (given < info.min_inputs || (info.max_inputs >= 0 && given > info.max_inputs)) {
    return Fail("it has {} inputs, which {} does not take", given, info.name);
  }
  const bool variadic = op == Op::kConcat || op == Op::kMax || op == Op::kMin || op == Op::kSum || op == Op::kMean ||
                        op == Op::kEinsum || op == Op::kLoop || op == Op::kScan;
  const Operands& own = OperandsOf(op);
  for (int i = 0; i < (variadic || !own.each.empty() ? given : info.min_inputs); ++i) {
    const Operand* operand = own.At(static_cast<size_t>(i));
    const bool optional = operand != nullptr ? operand->optional : op == Op::kLoop && i < 2;
    if (!optional && !inputs[static_cast<size_t>(i)].valid()) return Fail("it leaves out input {}, which it needs", i);
  }
  return {};
}

// Inference looks into the branch alone that is taken, where that is known.
Status GraphBuilder::CheckSubgraphs(Op op, const Draft& d) {
  if (op != Op::kIf && op != Op::kLoop && op != Op::kScan) return {};
  const size_t expected = op == Op::kIf ? d.captures : d.inputs.size();
  for (const auto& [name, attr] : d.attrs.entries()) {
    const auto* body = std::get_if<GraphRef>(&attr);
    if (body != nullptr && (*body)->inputs().size() != expected) {
      return Fail("its graph {} has {} inputs of its own, {} are given", Quoted(name),
                  (*body)->inputs().size() - d.captures, expected - d.captures);
    }
  }
  return {};
}

Status GraphBuilder::Finish(Draft& d) {
  OCTAVO_TRY_STATUS(emitted_);
  while (d.captures == 0 && !d.inputs.empty() && !d.inputs.back().valid()) d.inputs.pop_back();
  while (!d.outputs.empty() && d.outputs.back().empty()) d.outputs.pop_back();
  const Op op = OpFromName(d.domain, d.op_type);
  if (op != Op::kOpaque) {
    OCTAVO_TRY_STATUS(CheckInputs(op, std::span(d.inputs).first(d.inputs.size() - d.captures)));
    OCTAVO_TRY_STATUS(CheckSubgraphs(op, d));
    const OpInfo& info = InfoOf(op);
    const auto made = static_cast<int>(d.outputs.size());
    // The remaining outputs of an op that must have them are simply not wanted.
    if (info.max_outputs >= 0 && made > info.max_outputs) return Fail("it has {} outputs, too many", made);
    d.outputs.resize(static_cast<size_t>(std::max(made, info.min_outputs)));
  }
  const NodeId id = Place(
      op == Op::kOpaque ? g_.AddOpaque(d.domain, d.op_type, d.inputs, d.outputs.size(), std::move(d.attrs), d.name)
                        : g_.AddNode(op, d.inputs, d.outputs.size(), std::move(d.attrs), d.name));
  g_.SetOrigin(id, d.origin);
  std::vector<std::string> names;
  for (std::string_view o : d.outputs) names.push_back(o.empty() ? std::string() : IrName(*d.scope, o));
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) g_.DropOutput(id, i);
  }
  NameOutputs(id, names);
  const std::string by = d.Describe();
  for (size_t i = 0; i < d.outputs.size(); ++i) {
    if (d.outputs[i].empty()) continue;
    const ValueId v = g_.node(id).outputs[i];
    OCTAVO_TRY_STATUS(Define(*d.scope, d.outputs[i], v, by));
    SetDeclaredType(v);
  }
  return {};
}

void GraphBuilder::SetDeclaredType(ValueId v) {
  const std::string& name = g_.value(v).name;
  const auto it = types_.find(name);
  if (it == types_.end()) return;
  if (auto type = file_.symbols.Read(*it->second, name, Symbols::Unnamed::kUnknown)) g_.SetType(v, *type);
}

}  // namespace octavo::ir::onnx
