#include "octavo/ir/onnx/export.h"

#include <onnx_messages.pb.h>

#include <algorithm>
#include <optional>

#include "octavo/ir/functions.h"
#include "octavo/ir/names.h"
#include "octavo/ir/onnx/fp8_views.h"
#include "octavo/ir/onnx/opset.h"
#include "octavo/ir/onnx/symbols.h"
#include "octavo/ir/onnx/tensor_proto.h"

namespace octavo::ir::onnx {

namespace {

// Smaller constants stay in the model: shapes and scalars, which shape inference of other tools wants to see.
constexpr size_t kExternalFrom = 1024;
// Page-aligned pieces can be mapped alone; small ones only need a cache line.
constexpr int64_t kPage = 4096;
constexpr int64_t kPageFrom = 65536;

void SetString(const char* key, std::string value, pb::TensorProto* proto) {
  auto* entry = proto->add_external_data();
  entry->set_key(key);
  entry->set_value(std::move(value));
}

std::string OpType(const Node& n) { return n.op == Op::kOpaque ? n.op_type : std::string(InfoOf(n.op).name); }
std::string Domain(const Node& n) { return n.op == Op::kOpaque ? n.domain : std::string(InfoOf(n.op).domain); }

// Expanded copies of the octavo ops, for WriteOptions::functions == false.
Status ExpandAll(Graph& g) {
  for (NodeId id : g.NodesInOrder()) {
    if (g.IsAlive(id) && HasBody(g.node(id).op)) OCTAVO_TRY_STATUS(Expand(g, id));
  }
  return {};
}

}  // namespace

void DataFile::Place(const Tensor& tensor, pb::TensorProto* proto) {
  const auto bytes = static_cast<int64_t>(tensor.byte_size());
  const auto [it, fresh] = placed_.try_emplace({tensor.data(), tensor.byte_size()}, 0);
  if (fresh) {
    const int64_t alignment = bytes >= kPageFrom ? kPage : 64;
    it->second = (end_ + alignment - 1) / alignment * alignment;
    pieces_.push_back({tensor, it->second});
    end_ = it->second + bytes;
  }
  proto->set_data_location(pb::TensorProto::EXTERNAL);
  SetString("location", location_, proto);
  SetString("offset", std::to_string(it->second), proto);
  SetString("length", std::to_string(bytes), proto);
}

int64_t ConstantBytes(const Graph& g) {
  int64_t bytes = 0;
  for (NodeId id = g.first(); id.valid(); id = g.node(id).next) {
    const Node& n = g.node(id);
    if (const Tensor* t = g.ConstantOf(n.output()); t != nullptr) bytes += static_cast<int64_t>(t->byte_size());
    ForEachSubgraph(n, [&](const std::string&, const GraphRef& sub) { bytes += ConstantBytes(*sub); });
  }
  return bytes;
}

bool Exporter::Names::Taken(const std::string& name) const {
  for (const Names* n = this; n != nullptr; n = n->outer) {
    if (n->taken.contains(name)) return true;
  }
  return false;
}
std::string Exporter::Names::Take(std::string_view wish) {
  for (;;) {
    std::string name = taken.Take(std::string(wish.empty() ? "v" : wish));
    if (outer == nullptr || !outer->Taken(name)) return name;
  }
}

Status Exporter::Model(const Graph& graph, pb::ModelProto* model) {
  std::optional<Graph> changed;
  if (!options_.functions) {
    changed = graph;
    OCTAVO_TRY_STATUS(ExpandAll(*changed));
  }
  if (MovesFp8(changed ? *changed : graph)) {
    if (!changed) changed = graph;
    CastMovedFp8(*changed);
  }
  const Graph& g = changed ? *changed : graph;
  model_ = model;
  modules_ = Modules(g.info.metadata);
  const Needs needs = NeedsOf(g);
  const auto it = g.info.opsets.find("");
  opset_ = std::max(it == g.info.opsets.end() ? int64_t{0} : it->second, needs.opset);
  model->set_ir_version(std::max(g.info.ir_version, needs.ir_version));
  std::map<std::string, int64_t> opsets = g.info.opsets;
  opsets[""] = opset_;
  opsets.erase("octavo");
  if (options_.functions && UsesOctavo(g)) opsets["octavo"] = kOctavoVersion;
  for (const auto& [domain, version] : opsets) {
    auto* entry = model->add_opset_import();
    entry->set_domain(domain);
    entry->set_version(version);
  }
  if (!g.info.producer_name.empty()) model->set_producer_name(g.info.producer_name);
  if (!g.info.producer_version.empty()) model->set_producer_version(g.info.producer_version);
  if (!g.info.domain.empty()) model->set_domain(g.info.domain);
  if (!g.info.doc.empty()) model->set_doc_string(g.info.doc);
  if (g.info.model_version != 0) model->set_model_version(g.info.model_version);
  for (const auto& [key, value] : g.info.metadata) {
    auto* entry = model->add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  }
  pb::GraphProto* proto = model->mutable_graph();
  if (!g.doc.empty()) proto->set_doc_string(g.doc);
  return WriteGraph(g, nullptr, {}, proto);
}

Status Exporter::WriteGraph(const Graph& g, const Names* outer, std::span<const std::string> captured,
                            pb::GraphProto* proto) {
  proto->set_name(g.name.empty() ? "graph" : g.name);
  Names names;
  names.outer = outer;
  Aliases aliases;
  OCTAVO_TRY_STATUS(SettleNames(g, captured, names, aliases, proto));
  OCTAVO_TRY_STATUS(WriteNodes(g, names, proto));
  for (const auto& [name, value] : aliases) {
    auto* node = proto->add_node();
    node->set_op_type("Identity");
    node->add_input(names.of[value.index]);
    node->add_output(name);
  }
  return {};
}

Status Exporter::SettleNames(const Graph& g, std::span<const std::string> captured, Names& names, Aliases& aliases,
                             pb::GraphProto* proto) {
  names.of.resize(g.value_capacity());
  const bool main = names.outer == nullptr;
  const size_t own = g.inputs().size() - captured.size();
  for (size_t i = 0; i < g.inputs().size(); ++i) {
    const ValueId v = g.inputs()[i];
    if (i >= own) {
      names.of[v.index] = captured[i - own];
      continue;
    }
    names.of[v.index] = names.Take(g.value(v).name);
    auto* info = proto->add_input();
    info->set_name(names.of[v.index]);
    const Type& type = g.value(v).type;
    if (type.dtype != DType::kUndefined) WriteType(type, info->mutable_type());
  }
  // An output's name is the model's interface, a value's is not: the value takes the name of the output it is bound to,
  // preferably its own. What is bound to a second name, and inputs under another name, pass through an Identity.
  const std::set<std::string_view> captives(captured.begin(), captured.end());
  std::vector<std::string> wanted;
  for (const GraphOutput& o : g.outputs()) {
    const std::string& name = names.of[o.value.index];
    // A subgraph must make what it gives: a captured value is none of its own.
    const bool same_as_input = !name.empty() && name == o.name && !captives.contains(name);
    if (main && !same_as_input && names.Taken(o.name)) {
      return Fail("output {} has the name of another input or output", Quoted(o.name));
    }
    wanted.push_back(same_as_input ? o.name : names.Take(o.name));
  }
  for (const bool own_name : {true, false}) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      const ValueId v = g.outputs()[i].value;
      if (names.of[v.index].empty() && (!own_name || g.value(v).name == wanted[i])) names.of[v.index] = wanted[i];
    }
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    const GraphOutput& o = g.outputs()[i];
    if (names.of[o.value.index] != wanted[i]) aliases.emplace_back(wanted[i], o.value);
    auto* info = proto->add_output();
    info->set_name(wanted[i]);
    const Type& type = o.declared.dtype != DType::kUndefined ? o.declared : g.value(o.value).type;
    if (type.dtype != DType::kUndefined) WriteType(type, info->mutable_type());
  }
  for (NodeId id = g.first(); id.valid(); id = g.node(id).next) {
    for (ValueId v : g.node(id).outputs) {
      if (v.valid() && names.of[v.index].empty()) names.of[v.index] = names.Take(g.value(v).name);
    }
  }
  return {};
}

void Exporter::WriteConstant(const Tensor& tensor, const std::string& name, pb::TensorProto* proto) {
  proto->set_name(name);
  if (data_ != nullptr && tensor.dtype() != DType::kString && tensor.byte_size() >= kExternalFrom) {
    WriteHeader(tensor, proto);
    data_->Place(tensor, proto);
  } else {
    WriteTensor(tensor, proto);
  }
}

Status Exporter::WriteNodes(const Graph& g, const Names& names, pb::GraphProto* proto) {
  std::set<std::string_view> outputs;
  UniqueNames node_names;
  for (const auto& o : proto->output()) outputs.insert(o.name());
  for (NodeId id = g.first(); id.valid(); id = g.node(id).next) {
    const Node& n = g.node(id);
    if (n.op == Op::kConstant) {
      if (!n.output().valid()) continue;
      const Tensor* t = g.ConstantOf(n.output());
      if (t == nullptr) return Fail("the Constant that makes {} holds no tensor", Quoted(g.value(n.output()).name));
      WriteConstant(*t, names.of[n.output().index], proto->add_initializer());
      continue;
    }
    OCTAVO_TRY_STATUS(WriteNode(g, n, names, node_names, proto->add_node()));
    for (ValueId v : n.outputs) {
      if (!v.valid() || g.value(v).type.dtype == DType::kUndefined) continue;
      const std::string& name = names.of[v.index];
      if (outputs.contains(name)) continue;
      auto* info = proto->add_value_info();
      info->set_name(name);
      WriteType(g.value(v).type, info->mutable_type());
    }
  }
  return {};
}

Status Exporter::WriteNode(const Graph& g, const Node& n, const Names& names, UniqueNames& node_names,
                           pb::NodeProto* proto) {
  const auto captures = static_cast<size_t>(std::max<int64_t>(0, n.attrs.Int("octavo_captures", 0)));
  if (captures > n.inputs.size()) return Fail("{} has more captures than inputs", Quoted(n.name));
  const size_t own = n.inputs.size() - captures;
  std::vector<std::string> captured;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    const ValueId v = n.inputs[i];
    const std::string name = v.valid() ? names.of[v.index] : std::string();
    if (i < own) {
      proto->add_input(name);
    } else {
      captured.push_back(name);
    }
  }
  std::string first;
  for (ValueId v : n.outputs) {
    proto->add_output(v.valid() ? names.of[v.index] : std::string());
    if (v.valid() && first.empty()) first = names.of[v.index];
  }
  while (proto->output_size() > 0 && proto->output(proto->output_size() - 1).empty()) {
    proto->mutable_output()->RemoveLast();
  }
  const std::string name = n.name.empty() ? std::string() : node_names.Take(n.name);
  if (!name.empty()) proto->set_name(name);
  proto->set_op_type(OpType(n));
  if (!Domain(n).empty()) proto->set_domain(Domain(n));
  if (HasBody(n.op)) {
    OCTAVO_TRY(const std::string function, FunctionOf(g, n));
    proto->set_op_type(function);
  }
  // Where a node came from survives only if it can be told from the node itself, or is written down.
  const std::vector<std::string> plain = {!name.empty() ? name : OpType(n) + "(" + first + ")"};
  if (!n.origin.empty() && n.origin != plain) {
    std::string text;
    for (const std::string& o : n.origin) text += (text.empty() ? "" : "\n") + o;
    auto* entry = proto->add_metadata_props();
    entry->set_key("octavo.origin");
    entry->set_value(text);
  }
  modules_.Write(n.origin, proto);
  return WriteAttributes(n, names, captured, proto);
}

Status Exporter::WriteAttributes(const Node& n, const Names& names, std::span<const std::string> captured,
                                 pb::NodeProto* proto) {
  for (const auto& [name, attr] : n.attrs.entries()) {
    if (name == "octavo_captures") continue;
    auto* a = proto->add_attribute();
    a->set_name(name);
    if (const auto* i = std::get_if<int64_t>(&attr)) {
      a->set_type(pb::AttributeProto::INT);
      a->set_i(*i);
    } else if (const auto* f = std::get_if<float>(&attr)) {
      a->set_type(pb::AttributeProto::FLOAT);
      a->set_f(*f);
    } else if (const auto* s = std::get_if<std::string>(&attr)) {
      a->set_type(pb::AttributeProto::STRING);
      a->set_s(*s);
    } else if (const auto* is = std::get_if<std::vector<int64_t>>(&attr)) {
      a->set_type(pb::AttributeProto::INTS);
      a->mutable_ints()->Add(is->begin(), is->end());
    } else if (const auto* fs = std::get_if<std::vector<float>>(&attr)) {
      a->set_type(pb::AttributeProto::FLOATS);
      a->mutable_floats()->Add(fs->begin(), fs->end());
    } else if (const auto* ss = std::get_if<std::vector<std::string>>(&attr)) {
      a->set_type(pb::AttributeProto::STRINGS);
      for (const std::string& one : *ss) a->add_strings(one);
    } else if (const auto* t = std::get_if<Tensor>(&attr)) {
      a->set_type(pb::AttributeProto::TENSOR);
      WriteTensor(*t, a->mutable_t());
    } else if (const auto* raw = std::get_if<RawAttr>(&attr)) {
      if (!a->ParseFromString(raw->bytes)) return Fail("attribute {} of {} is damaged", Quoted(name), Quoted(n.name));
      a->set_name(name);
    } else {
      const Graph& sub = *std::get<GraphRef>(attr);
      if (captured.size() > sub.inputs().size()) {
        return Fail("subgraph {} of {} has fewer inputs than captures", Quoted(name), Quoted(n.name));
      }
      a->set_type(pb::AttributeProto::GRAPH);
      std::optional<Graph> expanded;
      if (!options_.functions) {
        expanded = sub;
        OCTAVO_TRY_STATUS(ExpandAll(*expanded));
      }
      OCTAVO_TRY_STATUS(WriteGraph(expanded ? *expanded : sub, &names, captured, a->mutable_g()));
    }
  }
  return {};
}

}  // namespace octavo::ir::onnx
