#include "octavo/passes/rewriter.h"

#include <algorithm>
#include <utility>

#include "octavo/passes/guard.h"

namespace octavo::passes {

using ir::NodeId;
using ir::ValueId;

void Rewriter::At(NodeId anchor, std::vector<NodeId> sources) {
  anchor_ = anchor;
  origin_.clear();
  const auto add = [this](const std::string& o) {
    if (std::find(origin_.begin(), origin_.end(), o) == origin_.end()) origin_.push_back(o);
  };
  for (NodeId s : sources) {
    const ir::Node& n = graph_.node(s);
    if (n.origin.empty() && !n.name.empty()) add(n.name);  // a graph built by hand
    for (const std::string& o : n.origin) add(o);
  }
  const std::string mark = "pass:" + pass_;
  if (std::find(origin_.begin(), origin_.end(), mark) == origin_.end()) origin_.push_back(mark);
}

NodeId Rewriter::CreateN(ir::Op op, std::vector<ValueId> inputs, size_t outputs, ir::Attrs attrs, std::string name) {
  if (name.empty() && anchor_.valid()) name = graph_.node(anchor_).name;
  const NodeId id = graph_.AddNode(op, std::move(inputs), outputs, std::move(attrs), std::move(name), anchor_);
  graph_.SetOrigin(id, origin_);
  changed_ = true;
  return id;
}
NodeId Rewriter::CreateOpaque(std::string domain, std::string op_type, std::vector<ValueId> inputs, size_t outputs,
                              ir::Attrs attrs) {
  const NodeId id = graph_.AddOpaque(std::move(domain), std::move(op_type), std::move(inputs), outputs,
                                     std::move(attrs), anchor_.valid() ? graph_.node(anchor_).name : "", anchor_);
  graph_.SetOrigin(id, origin_);
  changed_ = true;
  return id;
}
ValueId Rewriter::Create(ir::Op op, std::vector<ValueId> inputs, ir::Attrs attrs, std::string name) {
  return graph_.node(CreateN(op, std::move(inputs), 1, std::move(attrs), std::move(name))).output();
}
ValueId Rewriter::Constant(ir::Tensor tensor, std::string name) {
  const ValueId v = graph_.AddConstant(std::move(tensor), std::move(name), anchor_);
  graph_.SetOrigin(graph_.value(v).producer, origin_);
  changed_ = true;
  return v;
}

void Rewriter::Replace(ValueId from, ValueId to) {
  if (from == to) return;
  changed_ = true;
  const ir::Type& old_type = graph_.value(from).type;
  const ir::Type& new_type = graph_.value(to).type;
  const std::string wrong = Contradiction(old_type, new_type);
  OCTAVO_CHECK(wrong.empty(), "{} replaces '{}' by {}", pass_, graph_.value(from).name, wrong);
  if (new_type.dtype == ir::DType::kUndefined || !new_type.shape) graph_.SetType(to, old_type);
  graph_.ReplaceAllUses(from, to);
}
void Rewriter::SetInput(NodeId node, size_t slot, ValueId value) {
  graph_.SetInput(node, slot, value);
  changed_ = true;
}
void Rewriter::SetAttr(NodeId node, std::string_view name, ir::Attr value) {
  graph_.SetAttr(node, name, std::move(value));
  changed_ = true;
}

void Rewriter::EraseDead(NodeId node) {
  std::vector<NodeId> work{node};
  while (!work.empty()) {
    const NodeId id = work.back();
    work.pop_back();
    if (!graph_.IsAlive(id)) continue;
    const ir::Node& n = graph_.node(id);
    const bool used = std::any_of(n.outputs.begin(), n.outputs.end(), [this](ValueId v) {
      return v.valid() && (!graph_.value(v).uses.empty() || graph_.IsGraphOutput(v));
    });
    if (used) continue;
    for (ValueId v : n.inputs) {
      if (v.valid() && graph_.value(v).producer.valid()) work.push_back(graph_.value(v).producer);
    }
    graph_.Erase(id);
    changed_ = true;
  }
}

}  // namespace octavo::passes
