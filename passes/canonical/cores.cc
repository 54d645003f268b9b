// cores: attention of any shape, seen through any views, as products of rank 4 (or 3).
// Before: MatMul(q [b,h,w,s,d], kT)  Softmax  MatMul(., v)                                    After: of q [b,h*w,s,d] and so on, the result as before
// Before: Add(Reshape(s [b*w,h,s,s], [b,w,h,s,s]), mask [1,w,1,s,s]), reshaped back          After: s + the mask as [b*w,1,s,s]
// Before: Mul(MatMul(q, kT), scale [h,1,1])                                                  After: MatMul(Mul(q, scale), kT)             (one scale a head)
// Before: Mul(MatMul(q, kT), scale), a number that a run decides                             After: MatMul(Mul(q, scale), kT)
// Before: Exp(x - ReduceMax(x)) divided by its ReduceSum; Softmax(x - ReduceMax(x))          After: Softmax(x)
// Before: Exp(LogSoftmax(x)); Exp(x - ReduceLogSumExp(x))                                    After: Softmax(x)
// Before: Softmax(ReduceMax(x) - x)                                                          After: Softmax(x * -1)
// Before: MatMul(q [1,h,s,d], kT [B,h,d,n])                                                  After: MatMul(Expand(q) [B,h,s,d], kT)                   (one batch)
// What is batch, head or window is the same to attention: batches of products. Exact but for the scale a head, which rounds q instead of the scores: the
// bound is that of scale.cc.
// Only f32, only where nothing else reads the values between, and where the shapes prove that each view keeps rows and keys; never next to Q/DQ.
#include <algorithm>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/regroup.h"
#include "octavo/passes/canonical/sizes.h"

namespace octavo::passes::canonical {

namespace {

constexpr int kMaxSteps = 24;

// Product, what stands between it and the Softmax, the Softmax, the product with the values.
struct Core {
  NodeId product, softmax, values;
  NodeId guard;                 // Where(IsNaN(p), x, p) behind the Softmax, or Where(IsInf(top), x, p); invalid: none
  NodeId top;                   // ReduceMax of what the Softmax reads; invalid: none
  std::vector<NodeId> between;  // from the product on
  std::vector<size_t> slots;    // of the data in each
  std::vector<NodeId> strays;   // Shapes of what stands between whose sizes are used elsewhere
  size_t SlotOf(NodeId step) const {
    return slots[static_cast<size_t>(std::ranges::find(between, step) - between.begin())];
  }
};

bool Passes(const Graph& g, const Node& n) {
  switch (n.op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kWhere:
    case Op::kTanh:
    case Op::kMax:
    case Op::kReshape:
    case Op::kUnsqueeze:
    case Op::kSqueeze:
      return DTypeOf(g, n.output()) == DType::kF32;
    default:
      return false;
  }
}

// Read once, but for its sizes and the guard.
bool HasOneReader(const Graph& g, ValueId v, const Core& core) {
  const auto reads = [&](const ir::Use& use) { return g.node(use.node).op != Op::kShape && use.node != core.top; };
  return !g.IsGraphOutput(v) && std::ranges::count_if(g.value(v).uses, reads) == 1;
}

// The product that v comes from and the nodes on the way, last first; false: there is none.
bool Walk(const Graph& g, ValueId v, int depth, Core& core) {
  const Node* n = g.Producer(v);
  if (n == nullptr || depth <= 0 || !HasOneReader(g, v, core) || ShapeOf(g, v) == nullptr) return false;
  if (n->op == Op::kMatMul && !IsConstantLike(g, n->input(1))) {
    core.product = g.value(v).producer;
    return true;
  }
  if (!Passes(g, *n)) return false;
  const size_t first = n->op == Op::kWhere ? 1 : 0,
               last = n->op == Op::kSub || n->op == Op::kDiv || IsReshapeLike(n->op) || n->op == Op::kTanh
                          ? 1
                          : n->inputs.size();
  for (size_t slot = first; slot < last; ++slot) {
    if (!Walk(g, n->input(slot), depth - 1, core)) continue;
    core.between.push_back(g.value(v).producer);
    core.slots.push_back(slot);
    return true;
  }
  return false;
}

// The guard against rows that are masked wholly, alone with the probabilities or with the product of the values.
void FindGuard(const Graph& g, Core& core) {
  const Node& softmax = g.node(core.softmax);
  const ValueId p = softmax.output();
  for (const ir::Use& use : g.value(p).uses) {
    const Node& n = g.node(use.node);
    const Node* asks = n.op == Op::kWhere && use.slot == 2 ? g.Producer(n.input(0)) : nullptr;
    if (asks == nullptr || g.IsGraphOutput(p) || !g.HasOneUse(n.input(0)) || !ConstScalarBeside(g, n.input(1), p))
      continue;
    if (asks->op == Op::kIsNaN && asks->input(0) == p && g.value(p).uses.size() == 2) core.guard = use.node;
    const Node* top =
        asks->op == Op::kIsInf && asks->attrs.Int("detect_positive", 1) == 0 ? g.Producer(asks->input(0)) : nullptr;
    if (top == nullptr || top->op != Op::kReduceMax || top->input(0) != softmax.input(0) ||
        !g.HasOneUse(asks->input(0)) || !g.HasOneUse(p))
      continue;
    const int64_t rank = RankOf(g, p);
    if (rank < 1 || !ReducesAlong(g, *top, Op::kReduceMax, rank - 1, rank)) continue;
    core.guard = use.node;
    core.top = g.value(asks->input(0)).producer;
  }
}

// What is read of sizes in the core says where its own views go, and goes with them.
bool SizesStayWithin(const Graph& g, const Core& core, NodeId reader, int depth) {
  const Node& n = g.node(reader);
  if (std::ranges::contains(core.between, reader)) return IsReshapeLike(n.op);
  if (depth <= 0) return false;
  for (const ValueId v : n.outputs) {
    if (g.IsGraphOutput(v)) return false;
    for (const ir::Use& use : g.value(v).uses) {
      if (!SizesStayWithin(g, core, use.node, depth - 1)) return false;
    }
  }
  return true;
}

std::optional<Core> CoreAt(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  const SymShape* shape = ShapeOf(g, n.output());
  if (n.op != Op::kSoftmax || shape == nullptr || DTypeOf(g, n.output()) != DType::kF32) return {};
  const int64_t axis = n.attrs.Int("axis", -1);
  if (axis != -1 && axis != static_cast<int64_t>(shape->size()) - 1) return {};
  Core core;
  core.softmax = id;
  FindGuard(g, core);
  core.values = ProductBehind(g, core.guard.valid() ? g.node(core.guard).output() : n.output());
  if (!core.values.valid() || !Walk(g, n.input(0), kMaxSteps, core)) return {};
  // Softmax of old opsets takes all behind an axis together, as a view of one long row: that is no row of keys.
  if (!ProvablyEqual(shape->back(), ShapeOf(g, g.node(core.product).output())->back())) return {};
  for (const ValueId v : {g.node(core.product).input(0), g.node(core.product).input(1), g.node(core.values).input(1)}) {
    if (ShapeOf(g, v) == nullptr || IsDequantized(g, v)) return {};
  }
  constexpr int kMostSizes = 6;  // ops from a Shape to the target of a Reshape
  for (NodeId step : core.between) {
    for (const ir::Use& use : g.value(g.node(step).input(core.SlotOf(step))).uses) {
      if (g.node(use.node).op == Op::kShape && !SizesStayWithin(g, core, use.node, kMostSizes))
        core.strays.push_back(use.node);
    }
  }
  return core;
}

// [batch..., rows, keys] of rank 4, or 3 where no number is known that could be the heads.
SymShape Flat(const SymShape& product) {
  const size_t batch = product.size() - 2;
  if (batch < 2 || (batch == 2 && product[1].is_number())) return product;
  for (size_t cut = 1; cut < batch; ++cut) {
    Dim front(1), heads(1);
    for (size_t i = 0; i < batch; ++i) (i < cut ? front : heads) = (i < cut ? front : heads) * product[i];
    if (heads.is_number()) return {front, heads, product[batch], product[batch + 1]};
  }
  Dim all(1);
  for (size_t i = 0; i < batch; ++i) all = all * product[i];
  return {all, product[batch], product[batch + 1]};
}

// Dims that are not known to be the same; of shapes of another rank all.
size_t Differing(const SymShape& a, const SymShape& b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size());
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += ProvablyEqual(a[i], b[i]) ? 0 : 1;
  return count;
}

// What an operand of a product with this result, or with these probabilities, is broadcast to: its dims in front of the last two become theirs. A size that is not known stands beside a number above
// 1, which it then is, or 1. One head of K and V stays: every rule knows it.
std::optional<SymShape> Broadcast(const Graph& g, const SymShape& own, const SymShape& scores, bool one_head,
                                  std::span<const ValueId> like) {
  if (own.size() < 2 || own.size() > scores.size()) return {};
  const size_t shift = scores.size() - own.size();
  SymShape to(scores.begin(), scores.end() - 2);
  to.insert(to.end(), own.end() - 2, own.end());
  for (size_t i = 0; i + 2 < to.size(); ++i) {
    const Dim now = i < shift ? Dim(1) : own[i - shift];
    if (one_head && i == 1) to[i] = Dim(1);
    if (ProvablyEqual(now, to[i])) continue;
    if (IsNumber(now, 1) && CanRead(g, to, i, like)) continue;
    if (now.is_number() || !to[i].is_number() || to[i].number() < 2) return {};
  }
  return to;
}

// An operand broadcast to `to`. K that was turned for the product is expanded before it is turned, as every rule has it.
ValueId ExpandOperand(Rewriter& rw, ValueId v, const SymShape& to, std::span<const ValueId> like) {
  const Graph& g = rw.graph();
  const SymShape& from = *ShapeOf(g, v);
  SymShape padded(to.size() - from.size(), Dim(1));
  padded.insert(padded.end(), from.begin(), from.end());
  const Node* turned = g.Producer(v);
  const Ints perm = LastTwoSwapped(static_cast<int64_t>(to.size()));
  if (turned == nullptr || turned->op != Op::kTranspose || to.size() != from.size() ||
      PermOf(*turned, static_cast<int64_t>(perm.size())) != perm)
    return ExpandTo(rw, v, padded, to, like);
  return MakeTranspose(rw, ExpandTo(rw, turned->input(0), Permuted(padded, perm), Permuted(to, perm), like), perm);
}

// The operands of both products are expanded to the batch of the scores, where one of them is broadcast to it: queries that are constants, for example.
bool OneBatch(Rewriter& rw, const Core& core) {
  const Graph& g = rw.graph();
  const NodeId nodes[] = {core.product, core.product, core.values};
  const size_t slots[] = {0, 1, 1};
  // Views may stand between the products, so V is broadcast to the probabilities.
  const SymShape scores = *ShapeOf(g, g.node(core.product).output());
  const SymShape* probabilities = ShapeOf(g, g.node(core.values).input(0));
  if (probabilities == nullptr) return false;
  ValueId operands[3];
  SymShape from[3], to[3];
  for (size_t i = 0; i < 3; ++i) {
    operands[i] = g.node(nodes[i]).input(slots[i]);
    from[i] = *ShapeOf(g, operands[i]);
  }
  const auto has_one_head = [](const SymShape& s) { return s.size() == 4 && IsNumber(s[1], 1); };
  const bool one_head = has_one_head(from[1]) && has_one_head(from[2]) && scores.size() == probabilities->size();
  for (size_t i = 0; i < 3; ++i) {
    const auto wide = Broadcast(g, from[i], i == 2 ? *probabilities : scores, one_head && i > 0, operands);
    if (!wide) return false;
    to[i] = *wide;
  }
  bool changed = false;
  for (size_t i = 0; i < 3; ++i) {
    if (ProvablyEqual(from[i], to[i])) continue;
    rw.At(core.values, {core.values, core.softmax, core.product});
    const NodeId old = g.value(operands[i]).producer;
    operands[i] = ExpandOperand(rw, operands[i], to[i], operands);
    rw.SetInput(nodes[i], slots[i], operands[i]);
    if (i == 1 && old.valid()) rw.EraseDead(old);
    changed = true;
  }
  return changed;
}

// A constant, or what `fold` makes one of constants alone.
bool IsFixed(const Graph& g, ValueId v, int depth) {
  if (IsConstantLike(g, v)) return true;
  const Node* n = g.Producer(v);
  if (n == nullptr || depth <= 0) return false;
  return std::ranges::all_of(n->inputs, [&](ValueId in) { return !in.valid() || IsFixed(g, in, depth - 1); });
}

// One core brought to its flat form. Everything is looked at before anything is made.
class Flattening {
 public:
  Flattening(Rewriter& rw, const Core& core) : rw_(rw), core_(core) {
    scores_ = *ShapeOf(g(), g().node(core.product).output());
    flat_ = Flat(scores_);
  }

  // Whether anything is not as the attention rules want it.
  bool Needed() const {
    if (!ProvablyEqual(flat_, scores_)) return true;
    for (size_t i = 0; i < core_.between.size(); ++i) {
      const Node& n = g().node(core_.between[i]);
      if (IsReshapeLike(n.op) || (i == 0 && ScalesHeads(n, core_.slots[i]))) return true;
    }
    return !ProvablyEqual(*ShapeOf(g(), g().node(core_.values).input(0)), scores_);
  }

  bool Run() {
    const Node product = g().node(core_.product), values = g().node(core_.values);
    const SymShape out = *ShapeOf(g(), values.output());
    const ValueId q = product.input(0), k = product.input(1), v = values.input(1);
    if (!Needed() || !Operands(q, k, v, out) || !Masks()) return false;
    rw_.At(core_.values, {core_.values, core_.softmax, core_.product});
    ValueId left = As(q, Batch(2, *ShapeOf(g(), q)));
    const ValueId rows = left;  // whose sizes may be read: the scores are to have one reader
    for (const auto& [op, how] : of_q_) {
      const ValueId scale = Regroup(rw_, how.first, how.second, rows);
      left = Make(rw_, op, {left, scale}, {}, TypeOf(g(), left));
    }
    ValueId s = Make(rw_, Op::kMatMul, {left, Keys(k)}, {}, Type{DType::kF32, flat_});
    for (const Replay& step : steps_) {
      std::vector<ValueId> in = g().node(step.node).inputs;
      for (size_t i = 0; i < in.size(); ++i) in[i] = i == step.slot ? s : Regroup(rw_, in[i], step.operands[i], rows);
      const Node n = g().node(step.node);
      s = Make(rw_, n.op, std::move(in), n.attrs, Type{DType::kF32, flat_});
    }
    ValueId p = Make(rw_, Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}, Type{DType::kF32, flat_});
    if (core_.guard.valid()) {
      const ValueId masked = Masked(s, p), instead = g().node(core_.guard).input(1);  // one number, of any rank
      p = Make(rw_, Op::kWhere, {masked, As(instead, {}), p}, {}, Type{DType::kF32, flat_});
    }
    SymShape flat_out = flat_;
    flat_out.back() = out.back();
    const ValueId o = Make(rw_, Op::kMatMul, {p, As(v, Batch(2, *ShapeOf(g(), v)))}, {}, Type{DType::kF32, flat_out});
    const bool copies = CanReshape(flat_out, out);  // without sizes of q
    ReplaceNode(rw_, core_.values,
                Differing(flat_out, out) <= 1 ? o : MakeReshape(rw_, o, out, copies ? ValueId{} : q));
    return true;
  }

 private:
  // What the guard asks, of the flat scores and probabilities.
  ValueId Masked(ValueId s, ValueId p) {
    if (!core_.top.valid()) return Make(rw_, Op::kIsNaN, {p}, {}, Type{DType::kBool, flat_});
    SymShape rows = flat_;
    rows.back() = Dim(1);
    const ValueId top =
        Make(rw_, Op::kReduceMax, {s, MakeInts(rw_, {-1})}, {{"keepdims", int64_t{1}}}, Type{DType::kF32, rows});
    return Make(rw_, Op::kIsInf, {top}, {{"detect_positive", int64_t{0}}}, Type{DType::kBool, rows});
  }
  struct Replay {
    NodeId node;
    size_t slot;
    std::vector<Regrouping> operands;  // of the other slots
  };

  const Graph& g() const { return rw_.graph(); }

  // The flat batch dims with the last `keep` dims of a shape.
  SymShape Batch(size_t keep, const SymShape& of) const {
    SymShape s(flat_.begin(), flat_.end() - 2);
    s.insert(s.end(), of.end() - static_cast<std::ptrdiff_t>(keep), of.end());
    return s;
  }
  bool CanBe(const SymShape& from, const SymShape& to) const { return ProvablyEqual(from, to) || CanReshape(from, to); }
  ValueId As(ValueId v, const SymShape& to) {
    return ProvablyEqual(*ShapeOf(g(), v), to) ? v : MakeReshape(rw_, v, to);
  }

  // The operands have the batch dims of what they make, none is broadcast, and all can be reshaped. Only views and what keeps the shape stand between the
  // products, so there are as many probabilities as scores: where all dims but one are the same, that one is too.
  bool Operands(ValueId q, ValueId k, ValueId v, const SymShape& out) const {
    const SymShape &qs = *ShapeOf(g(), q), &ks = *ShapeOf(g(), k), &vs = *ShapeOf(g(), v),
                   &ps = *ShapeOf(g(), g().node(core_.values).input(0));
    const auto same_batch = [](const SymShape& a, const SymShape& b) {
      return a.size() == b.size() && std::equal(a.begin(), a.end() - 2, b.begin(),
                                                [](const Dim& x, const Dim& y) { return ProvablyEqual(x, y); });
    };
    const bool as_before = Differing(ps, scores_) <= 1;
    if (qs.size() < 3 || !same_batch(qs, scores_) || !same_batch(ks, scores_) || out.size() != ps.size() ||
        !(same_batch(vs, ps) || (as_before && same_batch(vs, scores_))))
      return false;
    if (!ProvablyEqual(scores_.back(), ps.back()) || !ProvablyEqual(scores_.end()[-2], ps.end()[-2])) return false;
    SymShape flat_out = flat_;
    flat_out.back() = out.back();
    const ValueId keys = Untransposed(k);
    return CanBe(qs, Batch(2, qs)) &&
           CanBe(*ShapeOf(g(), keys.valid() ? keys : k), Batch(2, *ShapeOf(g(), keys.valid() ? keys : k))) &&
           CanBe(vs, Batch(2, vs)) && (Differing(flat_out, out) <= 1 || CanReshape(flat_out, out, qs));
  }

  // K where the operand is K with its last two axes swapped.
  ValueId Untransposed(ValueId k) const {
    const Node* n = g().Producer(k);
    if (n == nullptr || n->op != Op::kTranspose || ShapeOf(g(), n->input(0)) == nullptr) return {};
    const auto rank = static_cast<int64_t>(scores_.size());
    return PermOf(*n, rank) == LastTwoSwapped(rank) ? n->input(0) : ValueId{};
  }
  ValueId Keys(ValueId k) {
    const ValueId plain = Untransposed(k);
    if (!plain.valid()) return As(k, Batch(2, *ShapeOf(g(), k)));
    const ValueId flat = As(plain, Batch(2, *ShapeOf(g(), plain)));
    return MakeTranspose(rw_, flat, LastTwoSwapped(static_cast<int64_t>(flat_.size())));
  }

  // x * scale or x / scale with one scale for each head, or one that is no constant: nothing that depends on the key.
  bool ScalesHeads(const Node& n, size_t slot) const {
    if (n.op != Op::kMul && (n.op != Op::kDiv || slot != 0)) return false;
    const ValueId scale = n.input(1 - slot);
    const SymShape* s = ShapeOf(g(), scale);
    if (s == nullptr || s->size() > scores_.size()) return false;
    const bool one = std::ranges::all_of(*s, [](const Dim& d) { return IsNumber(d, 1); });
    if (one) return !IsFixed(g(), scale, 4);
    return s->size() >= 3 && IsNumber(s->back(), 1);
  }

  // How each operand of what stands between is broadcast to the flat scores.
  bool Masks() {
    bool scales = true;  // so far only scales have been met, which q can take
    for (size_t i = 0; i < core_.between.size(); ++i) {
      const Node& n = g().node(core_.between[i]);
      if (IsReshapeLike(n.op)) continue;
      const SymShape* local = ShapeOf(g(), n.output());
      if (local == nullptr || !ProvablyEqual(*local, *ShapeOf(g(), n.input(core_.slots[i])))) return false;
      if (scales && ScalesHeads(n, core_.slots[i])) {
        SymShape rows = *local, to = flat_;
        rows.back() = to.back() = Dim(1);
        const ValueId scale = n.input(1 - core_.slots[i]);
        const auto how = RegroupingOf(g(), scale, rows, to);
        if (!how) return false;
        of_q_.push_back({n.op, {scale, *how}});
        continue;
      }
      scales = scales && (n.op == Op::kMul || n.op == Op::kDiv);
      Replay step{core_.between[i], core_.slots[i], std::vector<Regrouping>(n.inputs.size())};
      for (size_t j = 0; j < n.inputs.size(); ++j) {
        if (j == step.slot) continue;
        const auto how = RegroupingOf(g(), n.input(j), *local, flat_);
        if (!how) return false;
        step.operands[j] = *how;
      }
      steps_.push_back(std::move(step));
    }
    return true;
  }

  Rewriter& rw_;
  const Core& core_;
  SymShape scores_, flat_;
  std::vector<Replay> steps_;
  std::vector<std::pair<Op, std::pair<ValueId, Regrouping>>> of_q_;  // scales that go to q
};

// e / ReduceSum(e) with e = Exp(x), a Softmax by hand. Rounding: that of a division instead of a multiplication; where Exp overflows, the Softmax does not.
bool HandMadeSoftmax(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const Node* exp = n.op == Op::kDiv ? g.Producer(n.input(0)) : nullptr;
  const Node* sum = exp != nullptr && exp->op == Op::kExp ? g.Producer(n.input(1)) : nullptr;
  const int64_t rank = RankOf(g, n.output());
  if (sum == nullptr || sum->input(0) != n.input(0) || rank < 1 || DTypeOf(g, n.output()) != DType::kF32) return false;
  if (g.value(n.input(0)).uses.size() != 2 || g.IsGraphOutput(n.input(0)) || !g.HasOneUse(n.input(1))) return false;
  if (!ReducesAlong(g, *sum, Op::kReduceSum, rank - 1, rank)) return false;
  rw.At(id, {id, g.value(n.input(0)).producer});
  const Type type = TypeOf(g, n.output());
  ReplaceNode(rw, id, Make(rw, Op::kSoftmax, {exp->input(0)}, {{"axis", int64_t{-1}}}, type));
  return true;
}

// Exp(LogSoftmax(x)) and Exp(x - ReduceLogSumExp(x)). Rounding: that of the logarithm is gone.
bool ExpOfLogarithm(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const Node* log = n.op == Op::kExp && g.HasOneUse(n.input(0)) ? g.Producer(n.input(0)) : nullptr;
  const int64_t rank = RankOf(g, n.output());
  if (log == nullptr || rank < 1 || DTypeOf(g, n.output()) != DType::kF32) return false;
  int64_t axis = -1;
  if (log->op == Op::kLogSoftmax) {
    axis = log->attrs.Int("axis", -1);
  } else {
    const Node* sum = log->op == Op::kSub ? g.Producer(log->input(1)) : nullptr;
    if (sum == nullptr || sum->input(0) != log->input(0) ||
        !ReducesAlong(g, *sum, Op::kReduceLogSumExp, rank - 1, rank))
      return false;
  }
  rw.At(id, {id, g.value(n.input(0)).producer});
  ReplaceNode(rw, id, Make(rw, Op::kSoftmax, {log->input(0)}, {{"axis", axis}}, TypeOf(g, n.output())));
  return true;
}

// Softmax(x - ReduceMax(x)) is Softmax(x), which subtracts it anyway: the same bits. Softmax(ReduceMax(x) - x), over channels in DANet, is Softmax(-x): one
// rounding less.
bool DropMaximum(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const Node* sub = n.op == Op::kSoftmax ? g.Producer(n.input(0)) : nullptr;
  if (sub == nullptr || sub->op != Op::kSub) return false;
  const int64_t rank = RankOf(g, n.output()), axis = n.attrs.Int("axis", -1);
  for (const size_t slot : {0u, 1u}) {
    const ValueId x = sub->input(slot);
    const Node* top = g.Producer(sub->input(1 - slot));
    if (top != nullptr && top->op == Op::kExpand) top = g.Producer(top->input(0));
    if (top == nullptr || top->input(0) != x || rank < 1 || (slot == 1 && DTypeOf(g, x) != DType::kF32)) continue;
    if (!ReducesAlong(g, *top, Op::kReduceMax, (axis + rank) % rank, rank)) continue;
    const NodeId dead = g.value(n.input(0)).producer;
    rw.At(id, {id});
    const ValueId minus =
        slot == 0 ? x : Make(rw, Op::kMul, {x, rw.Constant(Tensor::ScalarF32(-1.0f))}, {}, TypeOf(g, x));
    rw.SetInput(id, 0, minus);
    rw.EraseDead(dead);
    return true;
  }
  return false;
}

}  // namespace

Result<bool> Cores(Graph& graph, PassRun& run) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "cores");
  int brought = 0;
  for (const auto change : {HandMadeSoftmax, ExpOfLogarithm, DropMaximum}) {
    for (NodeId id : graph.NodesInOrder()) {  // asked anew: one may make what the next looks for
      if (graph.IsAlive(id)) change(rw, id);
    }
  }
  for (NodeId id : graph.NodesInOrder()) {
    auto core = graph.IsAlive(id) ? CoreAt(graph, id) : std::nullopt;
    if (core && !core->strays.empty() && !(Flattening(rw, *core).Needed() && ReadSizesOfInputs(rw, core->strays)))
      continue;
    if (core) OneBatch(rw, *core);
    brought += core && Flattening(rw, *core).Run() ? 1 : 0;
  }
  if (brought > 0)
    run.log.push_back("cores: " + std::to_string(brought) + " attentions of other shapes as products of rank 4");
  if (rw.changed() && !graph.SortTopologically()) return ir::Fail("cores made a cycle");
  return rw.changed();
}

}  // namespace octavo::passes::canonical
