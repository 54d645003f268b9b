// One node of the file: its attributes, its subgraphs with their captures, or the function that it calls.
#include <onnx_messages.pb.h>

#include <algorithm>
#include <unordered_set>

#include "octavo/ir/attr_table.h"
#include "octavo/ir/names.h"
#include "octavo/ir/onnx/import.h"
#include "octavo/ir/onnx/opset.h"
#include "octavo/ir/onnx/tensor_proto.h"
#include "octavo/ir/onnx/upgrade.h"

namespace octavo::ir::onnx {

namespace {

constexpr size_t kMaxFunctionDepth = 64;
constexpr int64_t kNodeBytes = 2000;  // about what a node takes with its values and names

std::string Normalized(const std::string& domain) { return domain == "ai.onnx" ? std::string() : domain; }

// "QuantizedLinear__3" is "QuantizedLinear": the suffix only tells the bodies in one file apart.
std::string WithoutSuffix(const std::string& op_type) {
  const size_t at = op_type.rfind("__");
  if (at == std::string::npos || at + 2 == op_type.size()) return op_type;
  const bool digits = std::all_of(op_type.begin() + static_cast<std::ptrdiff_t>(at) + 2, op_type.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  return digits ? op_type.substr(0, at) : op_type;
}

// What export wrote where the origin is not the node itself (export.cc).
std::vector<std::string> OriginOf(const pb::NodeProto& node, const std::string& domain, Modules& modules) {
  const std::string module = modules.Read(node);
  for (const auto& entry : node.metadata_props()) {
    if (entry.key() != "octavo.origin") continue;
    std::vector<std::string> origin;
    const std::string& text = entry.value();
    for (size_t from = 0; from <= text.size();) {
      const size_t to = std::min(text.find('\n', from), text.size());
      origin.push_back(text.substr(from, to - from));
      from = to + 1;
    }
    return origin;
  }
  const std::string in = module.empty() ? module : module + "/";
  if (!node.name().empty()) return {in + node.name()};
  std::string first;
  for (const std::string& o : node.output()) {
    if (first.empty()) first = o;
  }
  return {in + (domain == "octavo" ? WithoutSuffix(node.op_type()) : node.op_type()) + "(" + first + ")"};
}

// An op of octavo as it is today. A file of an older octavo may hold an op of the same name with fewer outputs: its function says what it
// means.
bool IsOurs(std::string_view domain, const pb::NodeProto& node) {
  if (domain != "octavo") return false;
  const Op op = OpFromName(domain, WithoutSuffix(node.op_type()));
  return op != Op::kOpaque && node.output_size() >= InfoOf(op).min_outputs;
}

// For each of many nodes.
std::vector<std::string> Stems(const std::vector<std::string>& names) {
  std::vector<std::string> stems;
  stems.reserve(names.size());
  for (const std::string& name : names) stems.emplace_back(Stem(name));
  return stems;
}

}  // namespace

Status FileContext::Spend(int64_t nodes) {
  nodes_ += nodes;
  if (nodes < 0 || nodes_ > most_nodes_) {
    return Fail("with its functions inlined the model has more than {} nodes; raise max_nodes if it needs them",
                most_nodes_);
  }
  constexpr int64_t kStep = 10'000;
  for (; charged_nodes_ < nodes_; charged_nodes_ += kStep) memory_.emplace_back(kStep * kNodeBytes);
  return {};
}

Result<Tensor> FileContext::Read(const pb::TensorProto& proto) {
  if (const auto it = tensors_.find(&proto); it != tensors_.end()) return it->second;
  OCTAVO_TRY(Tensor tensor, ReadTensor(proto, files));
  tensors_.emplace(&proto, tensor);
  return tensor;
}

Status GraphBuilder::AddNode(const pb::NodeProto& node, Scope& scope) {
  if (node.op_type().empty()) return Fail("it has no op type");
  Draft d;
  d.domain = Normalized(node.domain());
  d.op_type = node.op_type();
  const bool ours = IsOurs(d.domain, node);
  if (!ours) {
    const auto it = file_.functions.find({d.domain, d.op_type, node.overload()});
    if (it != file_.functions.end()) return Inline(node, it->second, scope);
  }
  if (ours) d.op_type = InfoOf(OpFromName(d.domain, WithoutSuffix(d.op_type))).name;
  d.scope = &scope;
  d.name = scope.in_function && !node.name().empty() ? scope.prefix + std::string(Stem(node.name())) : node.name();
  d.origin = scope.in_function ? scope.origin : OriginOf(node, d.domain, file_.modules);
  const auto version = scope.opsets->find(d.domain);
  if (version == scope.opsets->end() && d.domain.empty()) {
    return Fail("the model imports no opset of ONNX's own domain");
  }
  d.version = version == scope.opsets->end() ? 1 : version->second;
  for (const std::string& input : node.input()) {
    d.inputs.push_back(input.empty() ? ValueId{} : scope.values.at(input));
  }
  for (const std::string& output : node.output()) d.outputs.emplace_back(output);
  std::vector<ValueId> captured;
  OCTAVO_TRY(d.attrs, ReadAttributes(node, scope, captured));
  if (d.domain.empty() && d.version < kMinOpset) OCTAVO_TRY_STATUS(FromBefore7(d, *this));
  OCTAVO_TRY(const bool known, CheckAttributes(d.domain, d.op_type, d.attrs));
  d.captures = captured.size();
  if (!captured.empty()) {
    d.inputs.insert(d.inputs.end(), captured.begin(), captured.end());
    d.attrs.Set("octavo_captures", static_cast<int64_t>(captured.size()));
  }
  if (known) OCTAVO_TRY_STATUS(d.domain.empty() ? Upgrade(d, *this) : FromVendor(d, *this));
  return Finish(d);
}

Result<Attrs> GraphBuilder::ReadAttributes(const pb::NodeProto& node, Scope& scope, std::vector<ValueId>& captured) {
  std::map<std::string_view, const pb::AttributeProto*> given;  // by name, as Attrs keeps them
  for (const auto& attribute : node.attribute()) {
    const pb::AttributeProto* a = Resolve(attribute, scope.bindings);
    if (a == nullptr || attribute.name() == "octavo_captures") continue;
    if (!given.emplace(attribute.name(), a).second)
      return Fail("attribute {} is given twice", Quoted(attribute.name()));
    if (a->has_g() && a != &attribute)
      return Fail("attribute {} hands a graph to a function", Quoted(attribute.name()));
  }
  Attrs attrs;
  std::vector<std::pair<std::string_view, const pb::GraphProto*>> graphs;
  for (const auto& [name, a] : given) {
    if (a->has_g()) {
      graphs.emplace_back(name, &a->g());
      continue;
    }
    OCTAVO_TRY(Attr value, ReadAttribute(*a, file_));
    attrs.Set(name, std::move(value));
  }
  // All subgraphs of a node get the same captures in the same order, whichever of them reads which.
  std::vector<std::string_view> names;
  std::unordered_set<std::string_view> known;
  for (const auto& [name, graph] : graphs) {
    for (std::string_view free : FreeNames(*graph)) {
      if (!known.insert(free).second) continue;
      const auto it = scope.values.find(free);
      if (it == scope.values.end()) return Fail("its subgraph reads {}, which nothing defines", Quoted(free));
      if (!it->second.valid()) return Fail("its subgraph reads {}, which this call leaves out", Quoted(free));
      names.push_back(free);
      captured.push_back(it->second);
    }
  }
  if (graphs.size() > 2) {  // more than an op of ONNX has
    size_t bytes = 0;
    for (const std::string_view name : names) bytes += 200 + name.size();
    OCTAVO_TRY_STATUS(file_.Spend(static_cast<int64_t>(graphs.size() * bytes / kNodeBytes)));
  }
  for (const auto& [name, graph] : graphs) {
    OCTAVO_TRY(GraphRef sub, ReadSubgraph(*graph, scope, names, captured));
    attrs.Set(name, std::move(sub));
  }
  return attrs;
}

Result<GraphRef> GraphBuilder::ReadSubgraph(const pb::GraphProto& proto, Scope& scope,
                                            std::span<const std::string_view> names,
                                            std::span<const ValueId> captured) {
  std::vector<Capture> captures;
  captures.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) captures.push_back({names[i], g_.value(captured[i]).type});
  std::vector<Tensor> constants;
  for (const auto& tensor : proto.initializer()) {
    auto t = ReadTensor(tensor, file_.files);
    if (!t) return Fail("initializer {}: {}", Quoted(tensor.name()), t.error().message);
    constants.push_back(std::move(*t));
  }
  OCTAVO_TRY(Graph g,
             GraphBuilder(file_).Build(proto, std::move(constants), *scope.opsets, scope.bindings, captures, false));
  return std::make_shared<const Graph>(std::move(g));
}

Status GraphBuilder::Inline(const pb::NodeProto& node, const Function& callee, Scope& scope) {
  const pb::FunctionProto& function = *callee.proto;
  if (std::ranges::find(file_.active, &callee) != file_.active.end())
    return Fail("the function {} calls itself", Quoted(function.name()));
  if (file_.active.size() >= kMaxFunctionDepth) {
    return Fail("the function {} is called through {} others, which is deeper than functions are read",
                Quoted(function.name()), file_.active.size());
  }
  if (node.input_size() > function.input_size() || node.output_size() > function.output_size()) {
    return Fail("it passes more inputs or outputs than the function {} has", Quoted(function.name()));
  }
  Bindings bindings;
  for (const auto& fallback : function.attribute_proto()) bindings[fallback.name()] = &fallback;
  for (const auto& attribute : node.attribute()) {
    if (const auto* a = Resolve(attribute, scope.bindings)) bindings[attribute.name()] = a;
  }
  Scope inner;
  inner.opsets = &callee.opsets;
  inner.bindings = &bindings;
  inner.in_function = true;
  inner.origin = scope.in_function ? scope.origin : Stems(OriginOf(node, node.domain(), file_.modules));
  int64_t bytes = 0;
  for (const std::string& name : inner.origin) bytes += static_cast<int64_t>(name.size());
  OCTAVO_TRY_STATUS(file_.Spend(callee.cost * (1 + bytes / kNodeBytes)));
  const std::string_view call = !node.name().empty()      ? node.name()
                                : node.output_size() != 0 ? node.output(0)
                                                          : node.op_type();
  inner.prefix = std::string(Stem(scope.prefix + std::string(Stem(call)))) + "/";
  for (int i = 0; i < function.input_size(); ++i) {
    const bool given = i < node.input_size() && !node.input(i).empty();
    OCTAVO_TRY_STATUS(Define(inner, function.input(i), given ? scope.values.at(node.input(i)) : ValueId{}, "an input"));
  }
  for (int i = 0; i < node.output_size(); ++i) {
    if (!node.output(i).empty()) inner.named.emplace(function.output(i), IrName(scope, node.output(i)));
  }
  file_.active.push_back(&callee);
  const Status built = BuildNodes(function.node(), inner);
  file_.active.pop_back();
  OCTAVO_TRY_STATUS(built);
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    const auto it = inner.values.find(function.output(i));
    if (it == inner.values.end() || !it->second.valid()) {
      return Fail("the function {} does not make its output {}", Quoted(function.name()), Quoted(function.output(i)));
    }
    OCTAVO_TRY_STATUS(Define(scope, node.output(i), it->second, "the call"));
  }
  return {};
}

}  // namespace octavo::ir::onnx
