// masks: a mask is computed at its smallest shape.
// Before: Add(scores [B,H,S,S], Where(Expand(And(all true [1,1,S,1], m [B,1,1,S]), [B,1,S,S]), 0, -inf))
// After:  Add(scores, Where(m, 0, -inf))                                                    the mask is [B,1,1,S]
// Element-wise ops broadcast by themselves, so an Expand in front of one is needed only where it gives the result its
// shape; operands that are true everywhere do nothing but widen. Where the consumer has the wide shape from another
// operand, the mask is computed narrow. Exact: every element is computed by the same operations. Untouched: results
// whose shape would change, ops that are not element-wise.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/mask_indices.h"

namespace octavo::passes::canonical {

namespace {

constexpr int kMaxDepth = 64;  // of element-wise ops above a consumer

// How to compute a value narrower, so that broadcasting gives the value again.
struct Narrow {
  enum Kind { kSame, kAlias, kScalar, kRebuild };
  Kind kind = kSame;
  ValueId alias;       // kAlias: the narrow form of that value
  bool truth = false;  // kScalar: a bool
  SymShape shape;      // of the narrow form
};

class Narrower {
 public:
  Narrower(Rewriter& rw, IndexFacts& facts) : rw_(rw), facts_(facts) {}

  // Null where the shape is not known.
  const Narrow* Plan(ValueId v, int depth = 0) {
    const auto known = plans_.find(v.index);
    if (known != plans_.end()) return &known->second;
    const SymShape* shape = ShapeOf(rw_.graph(), v);
    if (shape == nullptr) return nullptr;
    Narrow same{Narrow::kSame, {}, false, *shape};
    Narrow plan = depth > kMaxDepth ? same : Compute(v, *shape, depth);
    return &(plans_[v.index] = std::move(plan));
  }

  // Makes the nodes of the plan before the Rewriter's anchor.
  ValueId Build(ValueId v) {
    const auto made = built_.find(v.index);
    if (made != built_.end()) return made->second;
    return built_[v.index] = BuildNew(v);
  }

 private:
  Narrow Compute(ValueId v, const SymShape& shape, int depth);
  Narrow Rebuilt(const Node& n, ValueId v, const SymShape& shape, int depth);
  ValueId BuildNew(ValueId v);

  Narrow Alias(ValueId to, const Narrow& same, int depth) {
    const Narrow* p = to.valid() ? Plan(to, depth + 1) : nullptr;
    return p == nullptr ? same : Narrow{Narrow::kAlias, to, false, p->shape};
  }

  Rewriter& rw_;
  IndexFacts& facts_;
  std::unordered_map<uint32_t, Narrow> plans_;
  std::unordered_map<uint32_t, ValueId> built_;
};

Narrow Narrower::Compute(ValueId v, const SymShape& shape, int depth) {
  const Graph& g = rw_.graph();
  const Narrow same{Narrow::kSame, {}, false, shape};
  const Node* n = g.Producer(v);
  if (n == nullptr || n->op == Op::kConstant) return same;
  if (DTypeOf(g, v) == DType::kBool && !shape.empty()) {
    const Truth t = facts_.TruthOf(v);
    if (t != Truth::kUnknown) return Narrow{Narrow::kScalar, {}, t == Truth::kTrue, {}};
  }
  const auto truth = [&](size_t slot) { return facts_.TruthOf(n->input(slot)); };
  switch (n->op) {
    case Op::kExpand:
      return Alias(n->input(0), same, depth);
    case Op::kAnd:
      if (truth(0) == Truth::kTrue) return Alias(n->input(1), same, depth);
      if (truth(1) == Truth::kTrue) return Alias(n->input(0), same, depth);
      break;
    case Op::kOr:
      if (truth(0) == Truth::kFalse) return Alias(n->input(1), same, depth);
      if (truth(1) == Truth::kFalse) return Alias(n->input(0), same, depth);
      break;
    case Op::kWhere:
      if (truth(0) == Truth::kTrue) return Alias(n->input(1), same, depth);
      if (truth(0) == Truth::kFalse) return Alias(n->input(2), same, depth);
      break;
    default:
      break;
  }
  if (IsElementwise(n->op)) return Rebuilt(*n, v, shape, depth);
  if (n->op != Op::kUnsqueeze && n->op != Op::kTranspose) return same;
  const Narrow* in = Plan(n->input(0), depth + 1);
  if (in == nullptr || in->kind == Narrow::kSame) return same;
  if (in->shape.empty()) return Narrow{Narrow::kAlias, n->input(0), false, {}};
  const SymShape& wide = *ShapeOf(g, n->input(0));
  if (in->shape.size() != wide.size() || ProvablyEqual(in->shape, wide)) return same;
  Narrow plan{Narrow::kRebuild, {}, false, {}};
  if (n->op == Op::kTranspose) {
    plan.shape = Permuted(in->shape, PermOf(*n, static_cast<int64_t>(wide.size())));
    return plan;
  }
  const auto axes = AxesOf(g, *n);
  if (!axes) return same;
  size_t from = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool added = std::binary_search(axes->begin(), axes->end(), static_cast<int64_t>(i));
    plan.shape.push_back(added ? Dim(1) : in->shape[from++]);
  }
  return plan;
}

Narrow Narrower::Rebuilt(const Node& n, ValueId, const SymShape& shape, int depth) {
  std::vector<const SymShape*> shapes;
  for (ValueId v : n.inputs) {
    if (!v.valid()) continue;
    const Narrow* p = Plan(v, depth + 1);
    if (p == nullptr) return Narrow{Narrow::kSame, {}, false, shape};
    shapes.push_back(&p->shape);
  }
  SymShape narrow = BroadcastShapes(shapes);
  const bool smaller = !ProvablyEqual(narrow, shape) &&
                       std::all_of(narrow.begin(), narrow.end(), [](const Dim& d) { return d.known(); });
  if (!smaller) return Narrow{Narrow::kSame, {}, false, shape};
  return Narrow{Narrow::kRebuild, {}, false, std::move(narrow)};
}

ValueId Narrower::BuildNew(ValueId v) {
  const auto planned = plans_.find(v.index);
  if (planned == plans_.end()) return v;  // made by this sweep: narrow already
  const Narrow plan = planned->second;
  switch (plan.kind) {
    case Narrow::kSame:
      return v;
    case Narrow::kAlias:
      return Build(plan.alias);
    case Narrow::kScalar:
      return rw_.Constant(
          Tensor::Of<uint8_t>(DType::kBool, {}, std::vector<uint8_t>{plan.truth ? uint8_t{1} : uint8_t{0}}));
    case Narrow::kRebuild:
      break;
  }
  const Node n = *rw_.graph().Producer(v);
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    const bool data = i == 0 || IsElementwise(n.op);  // the axes of an Unsqueeze stay
    inputs.push_back(n.inputs[i].valid() && data ? Build(n.inputs[i]) : n.inputs[i]);
  }
  return Make(rw_, n.op, std::move(inputs), n.attrs, Type{DTypeOf(rw_.graph(), v), plan.shape});
}

// An operand that decides nothing, where the shape does not need it either.
bool DropConstantLogic(Rewriter& rw, NodeId id, IndexFacts& facts) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  ValueId kept;
  const auto truth = [&](size_t slot) { return facts.TruthOf(n.input(slot)); };
  if (n.op == Op::kAnd || n.op == Op::kOr) {
    const Truth neutral = n.op == Op::kAnd ? Truth::kTrue : Truth::kFalse;
    kept = truth(0) == neutral ? n.input(1) : truth(1) == neutral ? n.input(0) : ValueId{};
  } else if (n.op == Op::kWhere) {
    kept = truth(0) == Truth::kTrue ? n.input(1) : truth(0) == Truth::kFalse ? n.input(2) : ValueId{};
  }
  const SymShape* small = ShapeOf(g, kept);
  const SymShape* out = ShapeOf(g, n.output());
  if (small == nullptr || out == nullptr || !ProvablyEqual(*small, *out)) return false;
  ReplaceNode(rw, id, kept);
  return true;
}

// Operands of an element-wise op in their narrow form, as far as the result keeps its shape.
bool NarrowOperands(Rewriter& rw, NodeId id, Narrower& narrower) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (!IsElementwise(n.op) || n.inputs.size() < 2) return false;
  const SymShape* out = ShapeOf(g, n.output());
  if (out == nullptr) return false;
  bool changed = false;
  for (size_t slot = 0; slot < g.node(id).inputs.size(); ++slot) {
    const ValueId v = g.node(id).inputs[slot];
    const Narrow* plan = v.valid() ? narrower.Plan(v) : nullptr;
    if (plan == nullptr || plan->kind == Narrow::kSame) continue;
    std::vector<const SymShape*> shapes;
    bool known = true;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const SymShape* s = i == slot ? &plan->shape : ShapeOf(g, n.inputs[i]);
      if (n.inputs[i].valid() && s == nullptr) known = false;
      if (s != nullptr) shapes.push_back(s);
    }
    if (!known || !ProvablyEqual(BroadcastShapes(shapes), *out)) continue;
    const ValueId narrow = narrower.Build(v);
    if (narrow == v) continue;
    rw.SetInput(id, slot, narrow);
    changed = true;
  }
  return changed;
}

}  // namespace

Result<bool> Masks(Graph& graph, PassRun&) {
  bool changed = false;
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    OCTAVO_TRY(const ir::Inference inference, ir::Inference::Run(graph));
    Rewriter rw(graph, "masks");
    IndexFacts facts(graph, inference);
    for (NodeId id : graph.NodesInOrder()) {
      if (!graph.IsAlive(id)) continue;
      rw.At(id, {id});
      IndexedWhole(rw, id, facts) || DropConstantLogic(rw, id, facts);
    }
    if (!rw.changed()) {  // plans stand on facts: made when the graph is at rest
      Narrower narrower(rw, facts);
      for (NodeId id : graph.NodesInOrder()) {
        if (!graph.IsAlive(id)) continue;
        rw.At(id, {id});
        NarrowOperands(rw, id, narrower);
      }
    }
    if (!rw.changed()) break;
    changed = true;
  }
  if (changed) {
    PassRun quiet;
    OCTAVO_TRY([[maybe_unused]] const bool dead, Dce(graph, quiet));  // the wide masks
  }
  return changed;
}

}  // namespace octavo::passes::canonical
