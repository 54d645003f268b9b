// Graphviz source of a graph. Subgraphs are named in their node's box, not drawn.
#include <format>

#include "octavo/ir/text.h"

namespace octavo::ir {

namespace {

// Labels are quoted; Graphviz reads backslashes itself.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += ' ';
    } else {
      out += c;
    }
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
  out += std::format("  {} -> {} [label={}];\n", source, target, Quoted(ToString(value.type)));
}

}  // namespace

std::string ToDot(const Graph& graph) {
  std::string out = "digraph " + Quoted(graph.name) + " {\n  node [shape=box];\n";
  for (const ValueId v : graph.inputs()) {
    out += std::format("  {} [shape=ellipse, label={}];\n", InputKey(v), Quoted(graph.value(v).name));
  }
  for (const NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    out += std::format("  {} [label={}];\n", NodeKey(id), Quoted(NodeLabel(graph, n)));
    for (const ValueId v : n.inputs) AppendEdge(out, graph, v, NodeKey(id));
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const std::string key = std::format("o{}", i);
    out += std::format("  {} [shape=ellipse, label={}];\n", key, Quoted(graph.outputs()[i].name));
    AppendEdge(out, graph, graph.outputs()[i].value, key);
  }
  return out + "}\n";
}

}  // namespace octavo::ir
