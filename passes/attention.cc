#include "octavo/passes/attention.h"

#include <algorithm>
#include <set>

#include "octavo/ir/functions.h"

namespace octavo::passes {

namespace {

// Through what a softmax's input leads back to the score product, and its output forward to the value product.
bool IsBetweenProducts(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kWhere:
    case Op::kCast:
    case Op::kTanh:
    case Op::kClip:
    case Op::kMax:
    case Op::kReshape:
    case Op::kIdentity:
    case Op::kDropout:
    case Op::kQuantizeLinear:
    case Op::kDequantizeLinear:
    case Op::kIsNaN:
    case Op::kScatterND:  // scores of which a part is added to in place
    case Op::kSlice:
    case Op::kConcat:
    case Op::kSigmoid:
    case Op::kRelu:
    case Op::kSoftplus:
    case Op::kExp:
      return true;
    default:
      return false;
  }
}

// Ops that end the walk back from q, k or v to its projection.
bool EndsProjectionWalk(Op op) {
  switch (op) {
    case Op::kMatMul:
    case Op::kGemm:
    case Op::kSoftmax:
    case Op::kConv:
    case Op::kEinsum:
    case Op::kShape:
      return true;
    default:
      return ir::IsSkipNorm(op);
  }
}

// Inputs that are data. Others say where and how much: targets of a Reshape, indices, the weight of a norm of q and k.
std::vector<ValueId> DataInputs(const Node& n) {
  size_t count = 1;
  switch (n.op) {
    case Op::kScatterND:  // k put together in place: the indices are the second
      return {n.input(0), n.input(2)};
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kCacheAppend:
      count = 2;
      break;
    case Op::kConcat:
      return n.inputs;
    case Op::kWhere:
      count = 3;
      break;
    default:
      if (ir::IsSkipNorm(n.op)) count = 2;
      break;
  }
  count = std::min(count, n.inputs.size());
  return {n.inputs.begin(), n.inputs.begin() + static_cast<std::ptrdiff_t>(count)};
}

const Node* SkipQuantization(const Graph& g, ValueId& v) {
  const Node* p = g.Producer(v);
  while (p != nullptr && (p->op == Op::kDequantizeLinear || p->op == Op::kQuantizeLinear || p->op == Op::kIdentity)) {
    v = p->inputs[0];
    p = g.Producer(v);
  }
  return p;
}

// A fused norm of q or k: a rotary embedding before it is a sum like that of a residual, but its rows are heads. A norm of whole rows stands
// right behind its projection.
bool IsNormOfHeads(const Graph& g, const Node& n) {
  if (!ir::IsSkipNorm(n.op)) return false;
  const auto& shape = g.value(n.input(0)).type.shape;
  if (shape && shape->size() >= 4) return true;
  const Node* before = g.Producer(n.input(0));
  return !n.input(1).valid() && before != nullptr && IsLinear(g, *before);
}

// Codes in blocks lie transposed: Transpose(DequantizeLinear(codes [N,K])).
bool IsConstantMatrix(const Graph& g, ValueId v) {
  const Node* p = SkipQuantization(g, v);
  if (p != nullptr && p->op == Op::kTranspose) {
    v = p->input(0);
    const Node* before = g.Producer(v);
    p = before != nullptr && before->op == Op::kDequantizeLinear ? SkipQuantization(g, v) : nullptr;
  }
  if (p == nullptr || p->op != Op::kConstant) return false;
  const ir::Tensor* t = g.ConstantOf(v);
  return t != nullptr && t->rank() == 2;
}

// The MatMul that a softmax's input comes from, whose right operand no constant is, or one of learned keys; invalid if there is none.
NodeId ScoreProduct(const Graph& g, ValueId scores, bool learned_keys) {
  std::vector<ValueId> work{scores};
  for (int steps = 0; !work.empty() && steps < 64; ++steps) {
    const ValueId v = work.front();
    work.erase(work.begin());
    const Node* p = v.valid() ? g.Producer(v) : nullptr;
    if (p == nullptr) continue;
    // Q may be a constant: the queries that a decoder of pictures has learned.
    const bool product =
        p->op == Op::kMatMul && !IsLinear(g, *p) && (learned_keys || g.ConstantOf(p->inputs[1]) == nullptr);
    if (product) return g.value(v).producer;
    if (IsBetweenProducts(p->op)) work.insert(work.end(), p->inputs.begin(), p->inputs.end());
    if (const ValueId x = BeforeMixedHeads(g, v); x.valid()) work.push_back(x);
  }
  return {};
}

// What `use` makes of v by mixing its heads; invalid: nothing.
ValueId MixedHeadsOf(const Graph& g, ValueId v, const ir::Use& use) {
  ValueId made = g.node(use.node).output();
  for (int i = 0; i < 4 && made.valid(); ++i) {  // Transpose, MatMul, Add, Transpose
    if (BeforeMixedHeads(g, made) == v) return made;
    made = g.HasOneUse(made) ? g.node(g.value(made).uses.front().node).output() : ValueId{};
  }
  return {};
}

// Learned keys count where nothing else was multiplied: beside another product they are positions.
NodeId ScoreProduct(const Graph& g, ValueId scores) {
  const NodeId product = ScoreProduct(g, scores, false);
  return product.valid() ? product : ScoreProduct(g, scores, true);
}

// The MatMul whose first operand is made from the probabilities.
NodeId ValueProduct(const Graph& g, ValueId probabilities) {
  std::vector<ValueId> work{probabilities};
  for (int steps = 0; !work.empty() && steps < 64; ++steps) {
    const ValueId v = work.front();
    work.erase(work.begin());
    if (!v.valid()) continue;
    for (const ir::Use& u : g.value(v).uses) {
      const Node& n = g.node(u.node);
      if (n.op == Op::kMatMul && u.slot == 0) return u.node;
      if (IsBetweenProducts(n.op)) work.insert(work.end(), n.outputs.begin(), n.outputs.end());
      if (n.op == Op::kTranspose || n.op == Op::kConv) work.push_back(MixedHeadsOf(g, v, u));
    }
  }
  return {};
}

}  // namespace

bool IsLinear(const Graph& graph, const Node& node) {
  if (node.op == Op::kQuantizedLinear || node.op == Op::kLinearBlocked) return true;
  return (node.op == Op::kMatMul || node.op == Op::kGemm) && IsConstantMatrix(graph, node.inputs[1]);
}

bool IsAttentionOp(const Node& node) {
  if (node.op == Op::kSdpa || node.op == Op::kQuantizedSdpa || node.op == Op::kAttention) return true;
  if (node.op != Op::kOpaque || node.domain != "com.microsoft") return false;
  static const std::set<std::string, std::less<>> vendor = {"Attention", "QAttention", "MultiHeadAttention",
                                                            "GroupQueryAttention", "DecoderMaskedMultiHeadAttention"};
  return vendor.contains(node.op_type);
}

ValueId BeforeMixedHeads(const Graph& graph, ValueId v) {
  const auto square = [&](ValueId weight) {  // as many heads as before
    const ir::Tensor* w = graph.ConstantOf(weight);
    if (w == nullptr || w->rank() < 2 || w->shape()[0] != w->shape()[1]) return false;
    return w->size() == w->shape()[0] * w->shape()[1];
  };
  const auto rank = [&](ValueId x) { return graph.value(x).type.shape ? graph.value(x).type.shape->size() : 0; };
  const Node* n = graph.Producer(v);
  if (n != nullptr && n->op == Op::kConv) return rank(v) == 4 && square(n->input(1)) ? n->input(0) : ValueId{};
  const Node* last = n;
  if (last == nullptr || last->op != Op::kTranspose || rank(v) != 4) return {};
  n = graph.Producer(last->input(0));
  if (n != nullptr && n->op == Op::kAdd && graph.ConstantOf(n->input(1)) != nullptr) n = graph.Producer(n->input(0));
  if (n == nullptr || n->op != Op::kMatMul || !square(n->input(1))) return {};
  const Node* first = graph.Producer(n->input(0));
  if (first == nullptr || first->op != Op::kTranspose) return {};
  const std::vector<int64_t> there = first->attrs.Ints("perm"), back = last->attrs.Ints("perm");
  if (there.size() != 4 || back.size() != 4 || there[3] != 1) return {};  // heads last, for the Linear
  for (size_t i = 0; i < 4; ++i) {
    if (there[static_cast<size_t>(back[i])] != static_cast<int64_t>(i)) return {};
  }
  return first->input(0);
}

std::vector<AttentionCore> FindAttentionCores(const Graph& graph) {
  std::vector<AttentionCore> cores;
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    if (IsAttentionOp(n)) {
      cores.push_back({id, n.input(0), n.input(1), n.input(2), {}, {}});
    } else if (n.op == Op::kSoftmax) {
      const NodeId qk = ScoreProduct(graph, n.inputs[0]);
      const NodeId pv = ValueProduct(graph, n.output());
      if (!qk.valid() || !pv.valid()) continue;
      const Node& a = graph.node(qk);
      cores.push_back({id, a.inputs[0], a.inputs[1], graph.node(pv).inputs[1], qk, pv});
    }
  }
  return cores;
}

std::vector<NodeId> LinearsBehind(const Graph& graph, ValueId operand) {
  std::vector<NodeId> found;
  std::set<ValueId> seen;
  std::vector<ValueId> work{operand};
  while (!work.empty() && seen.size() < 256) {
    const ValueId v = work.back();
    work.pop_back();
    if (!graph.IsAlive(v) || !seen.insert(v).second) continue;  // a value that a grouping has replaced meanwhile
    const Node* p = graph.Producer(v);
    if (p == nullptr) continue;
    const NodeId id = graph.value(v).producer;
    if (IsLinear(graph, *p) || p->op == Op::kQuantizedQkv) {
      if (std::find(found.begin(), found.end(), id) == found.end()) found.push_back(id);
    } else if ((!EndsProjectionWalk(p->op) || IsNormOfHeads(graph, *p)) && !IsAttentionOp(*p)) {
      const std::vector<ValueId> inputs = DataInputs(*p);
      work.insert(work.end(), inputs.begin(), inputs.end());
    }
  }
  std::sort(found.begin(), found.end(), [&](NodeId a, NodeId b) { return graph.Before(a, b); });
  return found;
}

bool KeepsChannels(const Graph& graph, const Node& node) {
  switch (node.op) {
    case Op::kReshape:
    case Op::kSqueeze:
    case Op::kUnsqueeze:
    case Op::kFlatten:
    case Op::kTranspose:
    case Op::kIdentity:
    case Op::kSplit:
    case Op::kSlice:
      return true;
    case Op::kGather:
      return graph.ConstantOf(node.input(1)) != nullptr;
    case Op::kMul:
    case Op::kDiv: {
      const ir::Tensor* scale = graph.ConstantOf(node.input(1));
      return scale != nullptr && scale->size() == 1;
    }
    default:
      return false;
  }
}

NodeId ConvBehind(const Graph& graph, ValueId operand) {
  ValueId v = operand;
  for (int steps = 0; v.valid() && steps < 64; ++steps) {
    const Node* n = graph.Producer(v);
    if (n == nullptr) break;
    if (n->op == Op::kConv) return graph.value(v).producer;
    if (!KeepsChannels(graph, *n)) break;
    v = n->input(0);
  }
  return {};
}

// Two chained products of activations without a Softmax between: no attention that octavo knows, but its projections may share
// what they read all the same (sigmoid and linear attention).
std::vector<AttentionCore> FindChainedProducts(const Graph& graph, const std::vector<AttentionCore>& cores) {
  std::set<NodeId> known;
  for (const AttentionCore& c : cores) known.insert({c.product_qk, c.product_pv});
  std::vector<AttentionCore> chained;
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    if (n.op != Op::kMatMul || known.contains(id) || IsLinear(graph, n)) continue;
    const NodeId qk = ScoreProduct(graph, n.inputs[0]);
    if (!qk.valid() || known.contains(qk)) continue;
    chained.push_back({id, graph.node(qk).inputs[0], graph.node(qk).inputs[1], n.inputs[1], qk, id});
  }
  return chained;
}

// The Linears behind the operands of one core by what they read, in the order in which they are met; `kind` has the letters of the operands.
std::vector<ProjectionGroup> ByActivation(const Graph& graph, const AttentionCore& core) {
  std::vector<ProjectionGroup> groups;
  for (const auto& [letter, operand] : {std::pair('q', core.q), std::pair('k', core.k), std::pair('v', core.v)}) {
    for (NodeId id : LinearsBehind(graph, operand)) {
      ValueId x = graph.node(id).inputs[0];
      SkipQuantization(graph, x);
      auto it = std::ranges::find(groups, x, &ProjectionGroup::activation);
      if (it == groups.end()) it = groups.insert(groups.end(), {core, "", x, {}});
      if (!it->kind.ends_with(letter)) it->kind += letter;
      if (std::ranges::find(it->linears, id) == it->linears.end()) it->linears.push_back(id);
    }
  }
  return groups;
}

// Parts of what the Linear gives go different ways.
bool IsTakenApart(const Graph& graph, NodeId linear) {
  std::vector<ValueId> work{graph.node(linear).outputs[0]};
  int parts = graph.node(linear).op == Op::kQuantizedQkv ? 2 : 0;
  for (size_t i = 0; i < work.size() && i < 16; ++i) {
    for (const ir::Use& u : graph.value(work[i]).uses) {
      const Node& n = graph.node(u.node);
      if (n.op == Op::kSplit) return true;
      if (n.op == Op::kSlice || n.op == Op::kGather) ++parts;
      const bool passes = n.op == Op::kAdd || n.op == Op::kReshape || n.op == Op::kTranspose ||
                          n.op == Op::kQuantizeLinear || n.op == Op::kDequantizeLinear;
      if (passes) work.push_back(n.output());
    }
  }
  return parts > 1;
}

std::vector<ProjectionGroup> FindProjectionGroups(const Graph& graph) {
  std::vector<ProjectionGroup> groups;
  std::vector<AttentionCore> cores = FindAttentionCores(graph);
  const std::vector<AttentionCore> chained = FindChainedProducts(graph, cores);
  cores.insert(cores.end(), chained.begin(), chained.end());
  for (const AttentionCore& core : cores) {
    for (ProjectionGroup& group : ByActivation(graph, core)) {
      // One Linear makes Q, K and V, or K and V. Behind q and k alone it may as well be the angles of a rotary embedding.
      const bool packed = group.kind == "qkv" || (group.kind == "kv" && IsTakenApart(graph, group.linears[0]));
      if (group.kind.size() < 2 || (group.linears.size() < 2 && !packed)) continue;
      std::ranges::sort(group.linears, [&](NodeId a, NodeId b) { return graph.Before(a, b); });
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace octavo::passes
