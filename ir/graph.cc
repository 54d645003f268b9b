#include "octavo/ir/graph.h"

#include <algorithm>
#include <set>
#include <utility>

#include "octavo/ir/names.h"

namespace octavo::ir {

namespace {
constexpr uint64_t kGap = uint64_t{1} << 20;  // room between neighbours, so that an insertion rarely renumbers
}  // namespace

std::string ToString(const Type& type) {
  if (type.dtype == DType::kUndefined && !type.shape) return "?";
  return std::string(quant::Name(type.dtype)) + (type.shape ? ToString(*type.shape) : "[*]");
}

std::string OriginName(const Node& node) {
  for (const std::string& o : node.origin) {
    if (!o.starts_with("pass:")) return o;
  }
  return node.name;
}
std::string DisplayName(const Node& node) { return node.name.empty() ? OriginName(node) : node.name; }

const Node& Graph::node(NodeId id) const {
  OCTAVO_CHECK(IsAlive(id), "stale or foreign node handle {}", id.index);
  return nodes_[id.index];
}
const Value& Graph::value(ValueId id) const {
  OCTAVO_CHECK(IsAlive(id), "stale or foreign value handle {}", id.index);
  return values_[id.index];
}
Node& Graph::mutable_node(NodeId id) { return const_cast<Node&>(node(id)); }
Value& Graph::mutable_value(ValueId id) { return const_cast<Value&>(value(id)); }

std::vector<NodeId> Graph::NodesInOrder() const {
  std::vector<NodeId> order;
  order.reserve(live_nodes_);
  for (NodeId id = first_; id.valid(); id = nodes_[id.index].next) order.push_back(id);
  return order;
}

const Node* Graph::Producer(ValueId v) const {
  if (!v.valid()) return nullptr;
  const NodeId p = value(v).producer;
  return p.valid() ? &node(p) : nullptr;
}
bool Graph::IsFrom(ValueId v, Op op) const {
  const Node* p = Producer(v);
  return p != nullptr && p->op == op;
}
const Tensor* Graph::ConstantOf(ValueId v) const {
  const Node* p = Producer(v);
  if (p == nullptr || p->op != Op::kConstant) return nullptr;
  const Attr* a = p->attrs.Find("value");
  return a == nullptr ? nullptr : std::get_if<Tensor>(a);
}
bool Graph::IsGraphOutput(ValueId v) const {
  return std::any_of(outputs_.begin(), outputs_.end(), [v](const GraphOutput& o) { return o.value == v; });
}
bool Graph::HasOneUse(ValueId v) const { return value(v).uses.size() == 1 && !IsGraphOutput(v); }
ValueId Graph::FindValue(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? ValueId{} : it->second;
}

void Graph::Renumber() const {
  position_.resize(nodes_.size());
  uint64_t at = kGap;
  for (NodeId id = first_; id.valid(); id = nodes_[id.index].next, at += kGap) position_[id.index] = at;
  numbered_ = true;
}
bool Graph::Before(NodeId a, NodeId b) const {
  if (!numbered_) Renumber();
  return position_[a.index] < position_[b.index];
}

std::string Graph::UniqueName(std::string_view wish) const {
  std::string base = wish.empty() ? "v" : std::string(wish);
  if (!by_name_.contains(base)) return base;
  int64_t& next = next_suffix_[base];
  std::string name;
  do {
    name = base + "_" + std::to_string(++next);
  } while (by_name_.contains(name));
  return name;
}

ValueId Graph::NewValue(std::string name, NodeId producer, uint32_t index) {
  const ValueId id{static_cast<uint32_t>(values_.size())};
  Value v;
  v.name = UniqueName(name);
  v.producer = producer;
  v.output_index = index;
  by_name_[v.name] = id;
  values_.push_back(std::move(v));
  return id;
}

ValueId Graph::AddInput(std::string input_name, Type type) {
  const ValueId id = NewValue(std::move(input_name), {}, 0);
  values_[id.index].type = std::move(type);
  inputs_.push_back(id);
  return id;
}
void Graph::AddOutput(std::string output_name, ValueId v, Type declared) {
  outputs_.push_back({std::move(output_name), v, std::move(declared)});
}
void Graph::SetOutput(size_t i, ValueId v) { outputs_.at(i).value = v; }
void Graph::DeclareOutput(size_t i, Type declared) { outputs_.at(i).declared = std::move(declared); }

void Graph::Link(NodeId id, NodeId before) {
  Node& n = nodes_[id.index];
  n.next = before;
  n.prev = before.valid() ? nodes_[before.index].prev : last_;
  (n.prev.valid() ? nodes_[n.prev.index].next : first_) = id;
  (before.valid() ? nodes_[before.index].prev : last_) = id;
  if (!numbered_) return;
  position_.resize(nodes_.size());
  const uint64_t low = n.prev.valid() ? position_[n.prev.index] : 0;
  const uint64_t high = before.valid() ? position_[before.index] : low + 2 * kGap;
  if (high - low < 2) {
    numbered_ = false;
  } else {
    position_[id.index] = low + (high - low) / 2;
  }
}
void Graph::Unlink(NodeId id) {
  Node& n = nodes_[id.index];
  (n.prev.valid() ? nodes_[n.prev.index].next : first_) = n.next;
  (n.next.valid() ? nodes_[n.next.index].prev : last_) = n.prev;
  n.prev = n.next = {};
}

NodeId Graph::AddNode(Op op, std::vector<ValueId> inputs, size_t output_count, Attrs attrs, std::string node_name,
                      NodeId before) {
  const NodeId id{static_cast<uint32_t>(nodes_.size())};
  nodes_.emplace_back();
  Node& n = nodes_.back();
  n.op = op;
  n.name = std::move(node_name);
  n.inputs = std::move(inputs);
  n.attrs = std::move(attrs);
  for (uint32_t slot = 0; slot < n.inputs.size(); ++slot) {
    if (n.inputs[slot].valid()) mutable_value(n.inputs[slot]).uses.push_back({id, slot});
  }
  const std::string stem(n.name.empty() ? InfoOf(op).name : Stem(n.name));
  for (uint32_t i = 0; i < output_count; ++i) n.outputs.push_back(NewValue(stem + ":" + std::to_string(i), id, i));
  ++live_nodes_;
  Link(id, before);
  return id;
}
NodeId Graph::AddOpaque(std::string op_domain, std::string op_type, std::vector<ValueId> inputs, size_t output_count,
                        Attrs attrs, std::string node_name, NodeId before) {
  const NodeId id =
      AddNode(Op::kOpaque, std::move(inputs), output_count, std::move(attrs), std::move(node_name), before);
  nodes_[id.index].domain = std::move(op_domain);
  nodes_[id.index].op_type = std::move(op_type);
  return id;
}
ValueId Graph::AddConstant(Tensor tensor, std::string value_name, NodeId before) {
  Type type{tensor.dtype(), SymShape(tensor.shape().begin(), tensor.shape().end())};
  const NodeId id = AddNode(Op::kConstant, {}, 1, {{"value", std::move(tensor)}}, {}, before);
  const ValueId v = nodes_[id.index].outputs[0];
  if (!value_name.empty()) SetName(v, std::move(value_name));
  values_[v.index].type = std::move(type);
  return v;
}

void Graph::SetInput(NodeId id, size_t slot, ValueId v) {
  Node& n = mutable_node(id);
  if (slot == n.inputs.size()) n.inputs.emplace_back();
  ValueId& old = n.inputs.at(slot);
  if (old == v) return;
  const Use use{id, static_cast<uint32_t>(slot)};
  if (old.valid()) std::erase(mutable_value(old).uses, use);
  old = v;
  if (v.valid()) mutable_value(v).uses.push_back(use);
}
void Graph::SetAttr(NodeId id, std::string_view attr, Attr v) { mutable_node(id).attrs.Set(attr, std::move(v)); }
void Graph::EraseAttr(NodeId id, std::string_view attr) { mutable_node(id).attrs.Erase(attr); }
void Graph::SetType(ValueId v, Type type) { mutable_value(v).type = std::move(type); }
void Graph::SetName(ValueId id, std::string wish) {
  Value& v = mutable_value(id);
  if (v.name == wish) return;
  by_name_.erase(v.name);
  v.name = UniqueName(wish);
  by_name_[v.name] = id;
}
void Graph::SetNodeName(NodeId id, std::string node_name) { mutable_node(id).name = std::move(node_name); }
void Graph::SetOrigin(NodeId id, std::vector<std::string> origin) { mutable_node(id).origin = std::move(origin); }

void Graph::DropInput(ValueId input) {
  const auto it = std::ranges::find(inputs_, input);
  OCTAVO_CHECK(it != inputs_.end() && value(input).uses.empty() && !IsGraphOutput(input), "{} is no input, or used",
               value(input).name);
  by_name_.erase(values_[input.index].name);
  values_[input.index].alive = false;
  inputs_.erase(it);
}

void Graph::DropOutput(NodeId id, size_t i) {
  Node& n = mutable_node(id);
  const ValueId v = n.outputs.at(i);
  if (!v.valid()) return;
  OCTAVO_CHECK(value(v).uses.empty() && !IsGraphOutput(v), "output {} of {} is used", i, n.name);
  by_name_.erase(values_[v.index].name);
  values_[v.index].alive = false;
  n.outputs[i] = {};
}

void Graph::ReplaceAllUses(ValueId from, ValueId to) {
  if (from == to) return;
  // All at once: one after the other would search the list of uses for each.
  const std::vector<Use> uses = std::exchange(mutable_value(from).uses, {});
  for (const Use& u : uses) mutable_node(u.node).inputs[u.slot] = to;
  if (to.valid()) mutable_value(to).uses.insert(mutable_value(to).uses.end(), uses.begin(), uses.end());
  for (GraphOutput& o : outputs_) {
    if (o.value == from) o.value = to;
  }
}

void Graph::Erase(NodeId id) {
  Node& n = mutable_node(id);
  for (size_t i = 0; i < n.outputs.size(); ++i) DropOutput(id, i);
  for (size_t slot = 0; slot < n.inputs.size(); ++slot) SetInput(id, slot, {});
  Unlink(id);
  n.alive = false;
  n.attrs = {};  // frees tensors and subgraphs
  --live_nodes_;
}

void Graph::MoveBefore(NodeId id, NodeId before) {
  if (id == before || node(id).next == before) return;
  Unlink(id);
  Link(id, before);
}

bool Graph::SortTopologically() {
  // Kahn's algorithm that always takes the ready node that stood first: stable, so a sorted graph does not change.
  const std::vector<NodeId> old = NodesInOrder();
  std::vector<uint32_t> rank(nodes_.size(), 0);
  std::vector<uint32_t> waiting(nodes_.size(), 0);
  for (uint32_t i = 0; i < old.size(); ++i) rank[old[i].index] = i;
  std::set<uint32_t> ready;
  for (NodeId id : old) {
    uint32_t producers = 0;
    for (ValueId v : nodes_[id.index].inputs) producers += v.valid() && value(v).producer.valid() ? 1 : 0;
    waiting[id.index] = producers;
    if (producers == 0) ready.insert(rank[id.index]);
  }
  std::vector<NodeId> sorted;
  while (!ready.empty()) {
    const NodeId id = old[*ready.begin()];
    ready.erase(ready.begin());
    sorted.push_back(id);
    for (ValueId v : nodes_[id.index].outputs) {
      if (!v.valid()) continue;
      for (const Use& u : values_[v.index].uses) {
        if (--waiting[u.node.index] == 0) ready.insert(rank[u.node.index]);
      }
    }
  }
  if (sorted.size() != old.size()) return false;
  if (sorted == old) return true;
  first_ = last_ = {};
  numbered_ = false;
  for (NodeId id : sorted) Link(id, {});
  return true;
}

}  // namespace octavo::ir
