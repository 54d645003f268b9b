#include "octavo/ir/vendor/site.h"

#include <algorithm>

namespace octavo::ir::vendor {

Site::Site(Graph& graph, const Graph& typed, NodeId node)
    : graph_(graph), typed_(typed), id_(node), node_(graph.node(node)), constants_before_(graph.first()) {
  // Constants stand before everything else, as import places them.
  while (constants_before_ != id_ && graph_.node(constants_before_).op == Op::kConstant) {
    constants_before_ = graph_.node(constants_before_).next;
  }
}

bool Site::Wants(size_t i) const {
  const ValueId v = node_.output(i);
  return v.valid() && (!graph_.value(v).uses.empty() || graph_.IsGraphOutput(v));
}

Type Site::TypeOf(ValueId v) const {
  if (!v.valid()) return {};
  Type type = graph_.value(v).type;
  if (v.index >= typed_.value_capacity() || !typed_.IsAlive(v)) return type;
  const Type& inferred = typed_.value(v).type;
  if (type.dtype == DType::kUndefined) type.dtype = inferred.dtype;
  if (inferred.shape) type.shape = inferred.shape;
  return type;
}

int64_t Site::Rank(ValueId v) const {
  const Type type = TypeOf(v);
  return type.shape ? static_cast<int64_t>(type.shape->size()) : -1;
}

bool Site::SameSize(ValueId a, ValueId b, size_t axis) const {
  const Type x = TypeOf(a), y = TypeOf(b);
  return x.shape && y.shape && axis < x.shape->size() && axis < y.shape->size() &&
         ProvablyEqual((*x.shape)[axis], (*y.shape)[axis]);
}

int64_t Site::SizeOf(ValueId v, int axis) const {
  const Type type = TypeOf(v);
  if (!type.shape) return -1;
  const int at = axis < 0 ? axis + static_cast<int>(type.shape->size()) : axis;
  if (at < 0 || at >= static_cast<int>(type.shape->size())) return -1;
  const ir::Dim& dim = (*type.shape)[static_cast<size_t>(at)];
  return dim.is_number() ? dim.number() : -1;
}

std::unexpected<Error> Site::RefuseText(const std::string& text) const {
  std::string name = node_.name;
  if (name.empty() && node_.output().valid()) name = graph_.value(node_.output()).name;
  const std::string op =
      node_.op == Op::kOpaque ? node_.domain + "." + node_.op_type : std::string(InfoOf(node_.op).name);
  return Fail("node '{}' ({}): {}", name, op, text);
}

Status Site::CheckInputs(size_t known, std::span<const size_t> needed) const {
  for (const size_t i : needed) {
    if (!Has(i)) return Refuse("it leaves out input {}, which it needs", i);
  }
  for (size_t i = known; i < node_.inputs.size(); ++i) {
    if (Has(i)) return Refuse("it has input {}; octavo knows the op with {}", i, known);
  }
  return {};
}
Status Site::CheckOutputs() const {
  for (size_t i = 0; i < node_.outputs.size(); ++i) {
    const bool made = std::ranges::any_of(returned_, [i](const auto& r) { return r.first == i; });
    if (Wants(i) && !made) return Refuse("its output {} is used, which octavo's form of the op does not have", i);
  }
  return {};
}

std::vector<ValueId> Site::MakeN(Op op, std::vector<ValueId> inputs, size_t outputs, Attrs attrs) {
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
  // Names of nodes in a file are unique.
  std::string name = node_.name;
  if (!name.empty()) name += std::format("/{}_{}", InfoOf(op).name, made_.size());
  const NodeId id = graph_.AddNode(op, std::move(inputs), outputs, std::move(attrs), std::move(name), id_);
  graph_.SetOrigin(id, node_.origin);
  made_.push_back(id);
  return graph_.node(id).outputs;
}
ValueId Site::Make(Op op, std::vector<ValueId> inputs, Attrs attrs) {
  return MakeN(op, std::move(inputs), 1, std::move(attrs)).front();
}

ValueId Site::Constant(Tensor tensor) {
  const ValueId v = graph_.AddConstant(std::move(tensor), {}, constants_before_);
  made_.push_back(graph_.value(v).producer);
  return v;
}
ValueId Site::Ints(std::vector<int64_t> v) {
  const auto n = static_cast<int64_t>(v.size());
  return Constant(Tensor::S64({n}, std::move(v)));
}
ValueId Site::Transpose(ValueId x, std::vector<int64_t> perm) {
  return Make(Op::kTranspose, {x}, {{"perm", std::move(perm)}});
}
ValueId Site::Cast(ValueId x, DType to) {
  return DTypeOf(x) == to ? x : Make(Op::kCast, {x}, {{"to", static_cast<int64_t>(to)}});
}
ValueId Site::Dim(ValueId x, int64_t axis) { return Make(Op::kShape, {x}, {{"end", axis + 1}, {"start", axis}}); }

ValueId Site::AsScalar(ValueId v) {
  if (!v.valid()) return v;
  if (const Tensor* t = Const(v)) return t->rank() == 0 || t->size() != 1 ? v : Constant(t->Reshaped({}));
  return Rank(v) == 1 && SizeOf(v, 0) == 1 ? Reshape(v, {}) : v;
}
ValueId Site::Dequantize(ValueId x, ValueId scale, ValueId zero, int64_t axis) {
  return Make(Op::kDequantizeLinear, {x, AsScalar(scale), AsScalar(zero)}, {{"axis", axis}});
}
ValueId Site::Quantize(ValueId x, ValueId scale, ValueId zero) {
  return Make(Op::kQuantizeLinear, {x, AsScalar(scale), AsScalar(zero)});
}

void Site::Commit() {
  for (const auto& [i, to] : returned_) {
    const ValueId from = node_.output(i);
    if (!from.valid()) continue;
    // Numbers of an inferred shape hold anyway; its symbols are inferred anew.
    Type type = TypeOf(from);
    const bool declared = graph_.value(from).type.shape.has_value();
    if (declared) type = graph_.value(from).type;
    if (type.shape && !declared) {
      for (ir::Dim& dim : *type.shape) dim = dim.is_number() ? dim : ir::Dim();
    }
    if (!graph_.value(to).type.shape) graph_.SetType(to, type);
    graph_.ReplaceAllUses(from, to);
  }
  std::vector<std::pair<ValueId, std::string>> names;
  for (const auto& [i, to] : returned_) {
    const NodeId producer = graph_.value(to).producer;
    const bool ours = std::find(made_.begin(), made_.end(), producer) != made_.end();
    if (node_.output(i).valid() && ours) names.emplace_back(to, graph_.value(node_.output(i)).name);
  }
  graph_.Erase(id_);
  for (const auto& [value, name] : names) graph_.SetName(value, name);
}

void Site::Undo() {
  for (auto it = made_.rbegin(); it != made_.rend(); ++it) {
    if (graph_.IsAlive(*it)) graph_.Erase(*it);
  }
  made_.clear();
  returned_.clear();
}

}  // namespace octavo::ir::vendor
