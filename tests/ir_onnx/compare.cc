#include "octavo/tests/ir_onnx/compare.h"

#include <format>
#include <set>

namespace octavo::tests {

using ir::Graph;
using ir::Node;
using ir::ValueId;

namespace {

std::string NameOf(const Graph& g, ValueId v) { return v.valid() ? g.value(v).name : "(none)"; }
std::string Describe(const Graph& g, ValueId v) {
  return v.valid() ? g.value(v).name + ":" + ToString(g.value(v).type) : "(none)";
}

std::string AttrDifference(const ir::Attr& a, const ir::Attr& b) {
  if (a.index() != b.index()) return "kind";
  if (const auto* t = std::get_if<ir::Tensor>(&a)) return t->SameBits(std::get<ir::Tensor>(b)) ? "" : "tensor";
  if (const auto* s = std::get_if<ir::GraphRef>(&a)) return Difference(**s, *std::get<ir::GraphRef>(b));
  if (const auto* f = std::get_if<float>(&a)) {
    return std::memcmp(f, &std::get<float>(b), sizeof(float)) == 0 ? "" : "float";
  }
  return a == b ? "" : "value";
}

std::string NodeDifference(const Graph& ga, const Node& a, const Graph& gb, const Node& b) {
  if (a.op != b.op || a.domain != b.domain || a.op_type != b.op_type) return "op";
  if (a.name != b.name) return std::format("name '{}' and '{}'", a.name, b.name);
  if (a.origin != b.origin) {
    return std::format("origin '{}' and '{}'", a.origin.empty() ? "" : a.origin[0],
                       b.origin.empty() ? "" : b.origin[0]);
  }
  if (a.inputs.size() != b.inputs.size()) return "number of inputs";
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    if (NameOf(ga, a.inputs[i]) != NameOf(gb, b.inputs[i])) {
      return std::format("input {}: {} and {}", i, NameOf(ga, a.inputs[i]), NameOf(gb, b.inputs[i]));
    }
  }
  if (a.outputs.size() != b.outputs.size()) return "number of outputs";
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    if (Describe(ga, a.outputs[i]) != Describe(gb, b.outputs[i])) {
      return std::format("output {}: {} and {}", i, Describe(ga, a.outputs[i]), Describe(gb, b.outputs[i]));
    }
  }
  if (a.attrs.entries().size() != b.attrs.entries().size()) return "number of attributes";
  for (size_t i = 0; i < a.attrs.entries().size(); ++i) {
    const auto& [na, va] = a.attrs.entries()[i];
    const auto& [nb, vb] = b.attrs.entries()[i];
    const std::string what = na != nb ? "name" : AttrDifference(va, vb);
    if (!what.empty()) return std::format("attribute {}: {}", na, what);
  }
  return {};
}

}  // namespace

std::string Difference(const Graph& a, const Graph& b) {
  if (a.name != b.name || a.doc != b.doc) return "name or doc of the graph";
  if (a.info.opsets != b.info.opsets) return "opsets";
  if (a.info.metadata != b.info.metadata) return "metadata";
  if (a.info.producer_name != b.info.producer_name || a.info.doc != b.info.doc) return "producer or doc";
  if (a.info.ir_version != b.info.ir_version || a.info.model_version != b.info.model_version) return "versions";
  if (a.inputs().size() != b.inputs().size()) return "number of graph inputs";
  for (size_t i = 0; i < a.inputs().size(); ++i) {
    const std::string x = Describe(a, a.inputs()[i]), y = Describe(b, b.inputs()[i]);
    if (x != y) return std::format("graph input {} and {}", x, y);
  }
  if (a.node_count() != b.node_count()) return std::format("{} and {} nodes", a.node_count(), b.node_count());
  const auto na = a.NodesInOrder(), nb = b.NodesInOrder();
  for (size_t i = 0; i < na.size(); ++i) {
    const std::string d = NodeDifference(a, a.node(na[i]), b, b.node(nb[i]));
    if (!d.empty())
      return std::format("node {} ({}, makes {}): {}", i, ir::InfoOf(a.node(na[i]).op).name,
                         NameOf(a, a.node(na[i]).output()), d);
  }
  if (a.outputs().size() != b.outputs().size()) return "number of graph outputs";
  for (size_t i = 0; i < a.outputs().size(); ++i) {
    const auto& x = a.outputs()[i];
    const auto& y = b.outputs()[i];
    if (x.name != y.name || NameOf(a, x.value) != NameOf(b, y.value) || ToString(x.declared) != ToString(y.declared)) {
      return std::format("graph output {}:{} and {}:{}", x.name, ToString(x.declared), y.name, ToString(y.declared));
    }
  }
  return {};
}

std::string Defect(const Graph& g) {
  std::set<uint32_t> made;
  std::set<std::string> names;
  for (ValueId v : g.inputs()) made.insert(v.index);
  for (ir::NodeId id : g.NodesInOrder()) {
    const Node& n = g.node(id);
    for (uint32_t i = 0; i < n.inputs.size(); ++i) {
      if (!n.inputs[i].valid()) continue;
      if (!made.contains(n.inputs[i].index)) return "read before it is made: " + g.value(n.inputs[i]).name;
      const auto& uses = g.value(n.inputs[i]).uses;
      if (std::count(uses.begin(), uses.end(), ir::Use{id, i}) != 1) return "uses of " + g.value(n.inputs[i]).name;
    }
    for (ValueId v : n.outputs) {
      if (!v.valid()) continue;
      if (!made.insert(v.index).second) return "made twice: " + g.value(v).name;
      if (!names.insert(g.value(v).name).second) return "name twice: " + g.value(v).name;
    }
    const auto& info = ir::InfoOf(n.op);
    const auto in = static_cast<int>(n.inputs.size()), out = static_cast<int>(n.outputs.size());
    if (in < info.min_inputs || (info.max_inputs >= 0 && in > info.max_inputs)) return "inputs of " + n.name;
    if (out < info.min_outputs || (info.max_outputs >= 0 && out > info.max_outputs)) return "outputs of " + n.name;
    if (n.origin.empty() && n.op != ir::Op::kConstant) return "no origin: " + n.name;
    for (const auto& [name, attr] : n.attrs.entries()) {
      const auto* sub = std::get_if<ir::GraphRef>(&attr);
      if (sub == nullptr) continue;
      if (const std::string d = Defect(**sub); !d.empty()) return n.name + "." + name + ": " + d;
      if ((*sub)->inputs().size() < static_cast<size_t>(n.attrs.Int("octavo_captures", 0)))
        return "captures of " + n.name;
    }
  }
  for (const auto& o : g.outputs()) {
    if (!made.contains(o.value.index)) return "output not made: " + o.name;
  }
  return {};
}

}  // namespace octavo::tests
