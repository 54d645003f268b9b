// Graphviz source of a graph. Subgraphs are named in their node's box, not drawn.
#include <algorithm>
#include <format>

#include "octavo/ir/names.h"
#include "octavo/ir/text.h"

namespace octavo::ir {

namespace {

// A quoted label; Graphviz reads backslashes itself.
std::string Label(std::string_view text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const size_t shown = ShownAsIs(text.substr(at));
    if (c == '"' || c == '\\') out += '\\';
    out += shown != 0 ? text.substr(at, shown) : c == '\n' ? "\\n" : " ";
    at += std::max<size_t>(shown, 1);
  }
  return out + '"';
}

std::string NodeKey(NodeId id) { return std::format("n{}", id.index); }
std::string InputKey(ValueId id) { return std::format("i{}", id.index); }

std::string NodeLabel(const Graph& g, const Node& n) {
  std::string label = n.op == Op::kOpaque ? n.domain + "." + n.op_type : std::string(InfoOf(n.op).name);
  if (const Tensor* t = n.op == Op::kConstant ? g.ConstantOf(n.output()) : nullptr) {
    label += std::format(" {}{}", quant::Name(t->dtype()), ToString(t->shape()));
  }
  if (!n.name.empty()) label += "\n" + n.name;
  for (const auto& [name, attr] : n.attrs.entries()) {
    if (std::holds_alternative<GraphRef>(attr)) label += "\n" + name + ": a graph";
  }
  return label;
}

void AppendEdge(std::string& out, const Graph& g, ValueId v, const std::string& target) {
  if (!g.IsAlive(v)) return;
  const Value& value = g.value(v);
  const std::string source = value.producer.valid() ? NodeKey(value.producer) : InputKey(v);
  out += std::format("  {} -> {} [label={}];\n", source, target, Label(ToString(value.type)));
}

}  // namespace

std::string ToDot(const Graph& graph) {
  std::string out = "digraph " + Label(graph.name) + " {\n  node [shape=box];\n";
  for (const ValueId v : graph.inputs()) {
    out += std::format("  {} [shape=ellipse, label={}];\n", InputKey(v), Label(graph.value(v).name));
  }
  for (const NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    out += std::format("  {} [label={}];\n", NodeKey(id), Label(NodeLabel(graph, n)));
    for (const ValueId v : n.inputs) AppendEdge(out, graph, v, NodeKey(id));
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const std::string key = std::format("o{}", i);
    out += std::format("  {} [shape=ellipse, label={}];\n", key, Label(graph.outputs()[i].name));
    AppendEdge(out, graph, graph.outputs()[i].value, key);
  }
  return out + "}\n";
}

}  // namespace octavo::ir
