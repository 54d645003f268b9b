#include "octavo/passes/bodies.h"

#include <algorithm>
#include <format>
#include <functional>
#include <map>

#include "octavo/ir/infer.h"
#include "octavo/ir/names.h"
#include "octavo/ir/subgraph.h"

namespace octavo::passes {

using ir::Graph;
using ir::GraphRef;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

namespace {

template <typename F>
void ForEachBody(const Node& n, F&& visit) {
  for (const auto& [name, attr] : n.attrs.entries()) {
    const auto* body = std::get_if<GraphRef>(&attr);
    if (body != nullptr && *body != nullptr) visit(name, **body);
  }
}

// By op alone: whether a product has a constant weight shows when captured constants are sunk.
bool HasWork(const Graph& graph) {
  return AnyNode(graph, [](const Node& n) {
    switch (n.op) {
      case Op::kMatMul:
      case Op::kGemm:
      case Op::kEinsum:
      case Op::kConv:
      case Op::kMatMulInteger:
      case Op::kQLinearMatMul:
      case Op::kSoftmax:
      case Op::kExp:
      case Op::kAttention:
      case Op::kLayerNormalization:
      case Op::kReduceMean:
        return true;
      default:
        return false;
    }
  });
}

// The node anew with these inputs and attributes, under the names that it had.
NodeId Renew(Graph& g, NodeId id, std::vector<ValueId> inputs, ir::Attrs attrs) {
  const Node old = g.node(id);
  const NodeId made = g.AddNode(old.op, std::move(inputs), old.outputs.size(), std::move(attrs), old.name, id);
  g.SetOrigin(made, old.origin);
  std::vector<std::string> names;
  for (size_t i = 0; i < old.outputs.size(); ++i) {
    const ValueId from = old.outputs[i], to = g.node(made).output(i);
    names.push_back(from.valid() ? g.value(from).name : "");
    if (!from.valid()) {
      g.DropOutput(made, i);
      continue;
    }
    g.SetType(to, g.value(from).type);
    g.ReplaceAllUses(from, to);
  }
  g.Erase(id);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) g.SetName(g.node(made).output(i), names[i]);
  }
  return made;
}

// Captures that `sunk` has a tensor for, or that no graph of the node reads, are no captures any more.
NodeId WithoutCaptures(Graph& g, NodeId id, const std::map<size_t, Tensor>& sunk) {
  const Node n = g.node(id);
  const size_t captures = ir::CapturesOf(n), first = n.inputs.size() - captures;
  std::map<std::string, Graph> bodies;
  ForEachBody(n, [&](const std::string& name, const Graph& body) { bodies.emplace(name, body); });
  std::vector<ValueId> inputs(n.inputs.begin(), n.inputs.begin() + static_cast<std::ptrdiff_t>(first));
  std::vector<std::vector<ValueId>> gone(bodies.size());
  for (size_t i = 0; i < captures; ++i) {
    bool read = false;
    for (auto& [name, body] : bodies) {
      const ValueId in = body.inputs()[body.inputs().size() - captures + i];
      const auto it = sunk.find(first + i);
      const bool used = !body.value(in).uses.empty() || body.IsGraphOutput(in);
      if (it != sunk.end() && used) body.ReplaceAllUses(in, body.AddConstant(it->second, {}, body.first()));
      read = read || (it == sunk.end() && used);
    }
    if (read) {
      inputs.push_back(n.inputs[first + i]);
      continue;
    }
    size_t b = 0;
    for (auto& [name, body] : bodies) gone[b++].push_back(body.inputs()[body.inputs().size() - captures + i]);
  }
  if (inputs.size() == n.inputs.size()) return id;
  ir::Attrs attrs = n.attrs;
  attrs.Set("octavo_captures", static_cast<int64_t>(inputs.size() - first));
  size_t b = 0;
  for (auto& [name, body] : bodies) {
    for (const ValueId v : gone[b]) body.DropInput(v);
    ++b;
    attrs.Set(name, std::make_shared<const Graph>(std::move(body)));
  }
  return Renew(g, id, std::move(inputs), std::move(attrs));
}

struct Place {
  std::string body;  // empty: the graph itself
  ValueId value;
};

}  // namespace

std::vector<Body> BodiesOf(const Graph& graph) {
  std::vector<Body> bodies;
  for (const NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    ForEachBody(n, [&](const std::string& name, const Graph& body) {
      if (HasWork(body))
        bodies.push_back(
            {id, name, std::format("{} of {} {}", name, ir::InfoOf(n.op).name, ir::Quoted(OriginName(n)))});
    });
  }
  return bodies;
}

bool AnyNode(const Graph& graph, const std::function<bool(const Node&)>& wanted) {
  return std::ranges::any_of(graph.NodesInOrder(), [&](NodeId id) {
    bool any = wanted(graph.node(id));
    ForEachBody(graph.node(id), [&](const std::string&, const Graph& body) { any = any || AnyNode(body, wanted); });
    return any;
  });
}

NodeId SinkConstants(Graph& graph, NodeId node) {
  const Node& n = graph.node(node);
  std::map<size_t, Tensor> sunk;
  for (size_t i = n.inputs.size() - ir::CapturesOf(n); i < n.inputs.size(); ++i) {
    if (const Tensor* t = graph.ConstantOf(n.inputs[i])) sunk[i] = *t;
  }
  return WithoutCaptures(graph, node, sunk);
}

Graph AsModel(const Graph& graph, const Body& body) {
  const Node& n = graph.node(body.node);
  Graph model = *n.attrs.Subgraph(body.attr);
  for (size_t i = 0; i < model.inputs().size(); ++i)
    model.SetType(model.inputs()[i], ir::TypeOfBodyInput(graph, n, model, i));
  model.info = graph.info;
  model.info.metadata.clear();
  return model;
}

void PutBack(Graph& graph, const Body& body, Graph model) {
  (void)ir::Inference::Run(
      model);  // a writer asks for the types of what passes made; where they are not known, it does without
  const GraphRef before = graph.node(body.node).attrs.Subgraph(body.attr);
  model.info = before->info;
  graph.SetAttr(body.node, body.attr, std::make_shared<const Graph>(std::move(model)));
}

void ShareConstants(Graph& graph) {
  constexpr size_t kWorthIt = 1024;
  const auto key = [](const Tensor& t) {
    return std::pair(t.byte_size(),
                     std::hash<std::string_view>()({reinterpret_cast<const char*>(t.data()), t.byte_size()}));
  };
  // ONNX Runtime 1.32 looks for the codes of a block-wise weight in the graph of their node alone, and refuses the file where they are not.
  const auto must_stay = [](const Graph& g, ValueId v) {
    return std::ranges::any_of(g.value(v).uses, [&g](const ir::Use& use) {
      return g.node(use.node).op == Op::kDequantizeLinear || g.node(use.node).op == Op::kLinearBlocked;
    });
  };
  const auto large = [](const Graph& g, auto&& visit) {
    for (const NodeId id : g.NodesInOrder()) {
      const Node& n = g.node(id);
      const Tensor* t = n.op == Op::kConstant ? g.ConstantOf(n.output()) : nullptr;
      if (t != nullptr && t->dtype() != ir::DType::kString && t->byte_size() >= kWorthIt) visit(n.output(), *t);
    }
  };
  for (const NodeId id : graph.NodesInOrder()) {
    ir::Attrs attrs = graph.node(id).attrs;
    std::map<std::string, Graph> bodies;
    ForEachBody(graph.node(id), [&](const std::string& name, const Graph& body) { bodies.emplace(name, body); });
    if (bodies.empty()) continue;
    std::map<std::pair<size_t, size_t>, std::vector<Place>> places;
    for (auto& [name, body] : bodies) {
      ShareConstants(body);
      large(body, [&](ValueId v, const Tensor& t) {
        if (!must_stay(body, v)) places[key(t)].push_back({name, v});
      });
    }
    large(graph, [&](ValueId v, const Tensor& t) {
      const auto it = places.find(key(t));
      if (it != places.end() && graph.Before(graph.value(v).producer, id)) it->second.push_back({"", v});
    });
    std::vector<ValueId> inputs = graph.node(id).inputs;
    for (auto& [unused, same] : places) {
      const auto tensor = [&](const Place& p) -> const Tensor& {
        return *(p.body.empty() ? graph : bodies.at(p.body)).ConstantOf(p.value);
      };
      std::erase_if(same, [&](const Place& p) { return !tensor(p).SameBits(tensor(same.front())); });
      if (same.size() < 2) continue;
      const Tensor t = tensor(same.front());
      const std::string name = bodies.at(same.front().body).value(same.front().value).name;
      const ValueId outer = same.back().body.empty() ? same.back().value : graph.AddConstant(t, name, id);
      inputs.push_back(outer);
      for (auto& [body_name, body] : bodies) {
        const ValueId in = body.AddInput(body.UniqueName(graph.value(outer).name), graph.value(outer).type);
        for (const Place& p : same) {
          if (p.body == body_name) body.ReplaceAllUses(p.value, in), body.Erase(body.value(p.value).producer);
        }
      }
    }
    attrs.Set("octavo_captures",
              static_cast<int64_t>(ir::CapturesOf(graph.node(id)) + inputs.size() - graph.node(id).inputs.size()));
    for (auto& [name, body] : bodies) attrs.Set(name, std::make_shared<const Graph>(std::move(body)));
    WithoutCaptures(graph, Renew(graph, id, std::move(inputs), std::move(attrs)), {});
  }
}

}  // namespace octavo::passes
