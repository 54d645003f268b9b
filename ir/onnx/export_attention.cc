// Sdpa as ONNX Attention (opset 23), for runtimes that have a kernel for it. Standard bodies stay where the two do not
// mean the same: an additive mask that may rule out a whole row gives NaN in the graph (no guard), and zeros in
// Attention as ONNX 1.23 has it. The op scales Q and K by sqrt(scale) each, the body the scores by scale: float results
// differ by rounding.
#include <cmath>

#include "octavo/ir/onnx/export.h"

namespace octavo::ir::onnx {

namespace {

// Every element is finite whatever the inputs are: constants, choices between such, and what only moves them.
bool IsFinite(const Graph& g, ValueId v, int depth = 0) {
  if (const Tensor* t = g.ConstantOf(v)) {
    for (int64_t i = 0; i < t->size(); ++i) {
      if (!std::isfinite(t->GetDouble(i))) return false;
    }
    return true;
  }
  const Node* p = g.Producer(v);
  if (p == nullptr || depth > 32) return false;
  switch (p->op) {
    case Op::kWhere:
      return IsFinite(g, p->input(1), depth + 1) && IsFinite(g, p->input(2), depth + 1);
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kExpand:
    case Op::kSlice:
    case Op::kGather:
    case Op::kUnsqueeze:
    case Op::kSqueeze:
    case Op::kIdentity:
      return IsFinite(g, p->input(0), depth + 1);
    default:
      return false;
  }
}

bool MeansTheSame(const Graph& g, const Node& n) {
  if (n.input(4) || n.input(5) || n.attrs.Int("window_left", -1) >= 0 || n.attrs.Int("window_right", -1) >= 0)
    return false;
  // Attention takes the root of its scale, and knows no negative soft cap.
  if (!(n.attrs.Float("scale", 1.0f) >= 0.0f) || !(n.attrs.Float("softcap", 0.0f) >= 0.0f)) return false;
  const ValueId mask = n.input(3);
  if (!mask.valid()) return true;
  const Type& type = g.value(mask).type;
  // One column for all keys: since opset 24 a mask that is shorter than the keys is filled up with -inf.
  const bool fits = type.shape && type.shape->size() >= 2 && type.shape->size() <= 4 && type.dtype == DType::kF32 &&
                    !ProvablyEqual(type.shape->back(), Dim(1));
  return fits && (n.attrs.Int("nan_guard", 0) != 0 || IsFinite(g, mask));
}

class Rewrite {
 public:
  Rewrite(Graph& g, NodeId id) : g_(g), id_(id), node_(g.node(id)) {}

  void Run() {
    const int64_t heads = node_.attrs.Int("num_heads", 0), groups = node_.attrs.Int("kv_num_heads", heads);
    const int64_t ranks[] = {Rank("q_rank"), Rank("k_rank"), Rank("v_rank")};
    const bool flat = ranks[0] == 3 && ranks[1] == 3 && ranks[2] == 3 && Rank("out_rank") == 3;
    Attrs attrs = {{"scale", node_.attrs.Float("scale", 1.0f)}};
    if (const float cap = node_.attrs.Float("softcap", 0.0f); cap != 0) attrs.Set("softcap", cap);
    if (flat) {
      attrs.Set("q_num_heads", heads);
      attrs.Set("kv_num_heads", groups);
    }
    std::vector<ValueId> in;
    for (size_t i = 0; i < 3; ++i) {
      const bool split = !flat && ranks[i] == 3;
      in.push_back(split ? Split(node_.input(i), i == 0 ? heads : groups) : node_.input(i));
    }
    if (node_.input(3).valid()) in.push_back(OneRowPerQuery(node_.input(3)));
    ValueId y = Make(Op::kAttention, std::move(in), std::move(attrs));
    if (!flat && Rank("out_rank") == 3) {
      y = Make(Op::kReshape,
               {Make(Op::kTranspose, {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}), Ints({0, 0, -1})});
    }
    const std::string name = g_.value(node_.output()).name;
    g_.SetType(y, g_.value(node_.output()).type);
    g_.ReplaceAllUses(node_.output(), y);
    g_.Erase(id_);
    g_.SetName(y, name);
  }

 private:
  int64_t Rank(const char* name) const { return node_.attrs.Int(name, 4); }
  ValueId Make(Op op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    const NodeId id = g_.AddNode(op, std::move(inputs), 1, std::move(attrs), node_.name, id_);
    g_.SetOrigin(id, node_.origin);
    return g_.node(id).output();
  }
  ValueId Ints(std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return g_.AddConstant(Tensor::S64({n}, std::move(v)), {}, g_.first());
  }
  // ONNX broadcasts the mask, ONNX Runtime 1.31 wants a row for every query.
  ValueId OneRowPerQuery(ValueId mask) {
    const ValueId q = node_.input(0);
    const int64_t axis = Rank("q_rank") == 3 ? 1 : 2;
    const auto &rows = g_.value(mask).type.shape, &queries = g_.value(q).type.shape;
    if (rows && queries && ProvablyEqual((*rows)[rows->size() - 2], (*queries)[static_cast<size_t>(axis)])) return mask;
    const ValueId length = Make(Op::kShape, {q}, {{"end", axis + 1}, {"start", axis}});
    const ValueId target = Make(Op::kConcat, {length, Ints({1})}, {{"axis", int64_t{0}}});
    return Make(Op::kExpand, {mask, target});
  }
  ValueId Split(ValueId x, int64_t heads) {
    return Make(Op::kTranspose, {Make(Op::kReshape, {x, Ints({0, 0, heads, -1})})},
                {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  }

  Graph& g_;
  NodeId id_;
  Node node_;
};

}  // namespace

Graph WithOnnxAttention(const Graph& graph) {
  Graph g = graph;
  for (NodeId id : g.NodesInOrder()) {
    if (g.node(id).op != Op::kSdpa || !MeansTheSame(g, g.node(id))) continue;
    Rewrite(g, id).Run();
    g.info.metadata[kAttentionOrderKey] = "1.22";
  }
  return g;
}

}  // namespace octavo::ir::onnx
