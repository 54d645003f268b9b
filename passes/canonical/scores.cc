// scores: what stands between the score product and its Softmax, in one order: multiply, cap, one additive mask.
// Before: Where(m, Add(bias, Mul(s, 0.25)), -3.4e38)              After: Where(m, Add(Mul(s, 0.25), bias), -3.4e38)
// Before: Add(Where(m, s, -3.4e38), bias)                         After: Add(s, Where(m, 0, -3.4e38) + bias)
// Before: Mul(Add(s, alibi), 0.25)                                After: Add(Mul(s, 0.25), Mul(alibi, 0.25))
// Before: Mul(Tanh(Mul(s, 0.01)), 50)                             After: Mul(Tanh(Div(Mul(s, 0.5), 50)), 50)
// Before: [b*n,h,s,s] -> [b,n,h,s,s] + mask [1,n,1,s,s] -> back   After: the mask repeated b times (shifted windows)
// Before: MatMul(Where(m, 0, Softmax(t = Where(m, -3.4e38, s))), v)  After: MatMul(Where(IsInf(ReduceMax(t)), 0, Softmax(t)), v), -inf in t
// Before: Max(Add(s, mask), -3.4e38)                              After: Add(s, Max(mask, -3.4e38)), or without the Max where the mask has no less
// Before: Add(Mul(Cast(m), s), Mul(Cast(Not(m)), -2.4e38))       After: Where(m, s, -2.4e38)                                first (select.cc)
// Before: Sub(Mul(s, m), Mul(Sub(1, m), 1e4))                    After: Where(Cast(m), s, -1e4)                             so, too; Add(Mul(s, m), Mul(Sub(1, m), -1e4)) as well
// Before: Where(m, -10000, Where(keep, s, -10000))                After: Where(And(keep, Not(m)), s, -10000)       last, behind the rest
// Rounding: sums of masks and products of scales are rounded once more or less, 2^-23 of the terms each. The Wheres that come last keep their form, so what
// they hide stays hidden, a NaN of a row of K, too, as does what one with -inf hides before a scale. One before a sum is a term of the sum, if it writes -inf or -3.4e38, and a Max with -3.4e38 moves to the
// mask: the same bits while |s| < 2^103 (half an ulp); a score that is no finite number is hidden no more and makes its row NaN.
// Only f32, only where nothing else reads the values between, never next to Q/DQ: such a graph keeps its bits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/select.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

constexpr int kMaxSteps = 24;  // ops between product and Softmax that are looked through
constexpr double kMaskedOut = std::numeric_limits<float>::lowest();  // or less: swallows what is added to it
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kHiddenTwice = -1e4;  // or less (NeMo): e^-1e4 is 0 beside any visible score above -9,890
constexpr double kLeastHidden = -std::numeric_limits<float>::denorm_min();  // hidden scores are negative

struct Step {
  enum Kind { kScale, kTanh, kMask, kWhere, kFloor } kind = kScale;
  double scale = 1;      // kScale
  ValueId mask = {};     // kMask: what is added; kWhere: the condition
  double masked = 0;     // kWhere: what stands for masked scores; kFloor: the least score
  bool keep = true;      // kWhere: the condition's value where scores stay
  bool negated = false;  // kMask: subtracted
  int64_t windows = 0;   // kMask: the mask [1,n,...] was added to scores split into [b,n,...]
  bool plain = false;    // written as the canonical form has it
};

bool IsScale(const Step& s) { return s.kind == Step::kScale; }

struct Chain {
  ValueId product;
  std::vector<Step> steps;  // from the product on
  std::vector<Step> hides;  // the Wheres behind them, right before the Softmax; all write the same number
  std::vector<NodeId> nodes;
  bool scaled_behind = false;  // a step comes behind `hides`
};

bool IsScoreProduct(const Graph& g, const Node& n) {
  return n.op == Op::kMatMul && !IsConstantLike(g, n.input(0)) && !IsConstantLike(g, n.input(1));
}

// Follows scores back to their product through ops that this pass knows. What was searched in vain is remembered: both
// operands of an Add may come from the same nodes, and a chain of such Adds has 2^depth ways.
class ProductSearch {
 public:
  explicit ProductSearch(const Graph& g) : g_(g) {}

  // The slot of n whose value comes from a score product; -1: none.
  int DataSlot(const Node& n, int depth = kMaxSteps) {
    switch (n.op) {
      case Op::kMax:
        if (n.inputs.size() != 2) return -1;
        [[fallthrough]];
      case Op::kAdd:
      case Op::kMul:
        return Leads(n.input(0), depth) ? 0 : Leads(n.input(1), depth) ? 1 : -1;
      case Op::kSub:
      case Op::kDiv:
      case Op::kTanh:
      case Op::kReshape:
        return Leads(n.input(0), depth) ? 0 : -1;
      case Op::kWhere:
        return Leads(n.input(1), depth) ? 1 : Leads(n.input(2), depth) ? 2 : -1;
      default:
        return -1;
    }
  }

 private:
  bool Leads(ValueId v, int depth) {
    const Node* n = g_.Producer(v);
    if (n == nullptr || depth <= 0) return false;
    if (IsScoreProduct(g_, *n)) return true;
    int& searched = searched_[v.index];
    if (searched >= depth) return false;
    if (DataSlot(*n, depth - 1) >= 0) return true;
    searched_[v.index] = depth;
    return false;
  }

  const Graph& g_;
  std::map<uint32_t, int> searched_;  // value -> steps that were allowed when it led nowhere
};

// most: the largest number that a Where may write.
std::optional<Step> ReadStep(const Graph& g, const Node& n, size_t slot, double most = kMaskedOut) {
  const ValueId other = n.input(1 - std::min<size_t>(slot, 1));
  switch (n.op) {
    case Op::kTanh:
      return Step{.kind = Step::kTanh};
    case Op::kMul:
    case Op::kDiv: {
      const auto c = ConstScalar(g, other);
      const double s = !c ? 0.0 : n.op == Op::kMul ? *c : 1.0 / *c;
      if (!std::isfinite(s) || s < 0x1p-60 || s > 0x1p60) return {};
      return Step{.kind = Step::kScale, .scale = s, .plain = n.op == Op::kMul && slot == 0};
    }
    case Op::kAdd:
    case Op::kSub:
      if (DTypeOf(g, other) != DType::kF32 || ShapeOf(g, other) == nullptr) return {};
      return Step{.kind = Step::kMask, .mask = other, .negated = n.op == Op::kSub, .plain = n.op == Op::kAdd};
    case Op::kMax: {
      const auto c = ConstScalar(g, other);
      if (!c || !(*c <= kMaskedOut)) return {};
      return Step{.kind = Step::kFloor, .masked = *c};
    }
    case Op::kWhere: {
      const auto c = ConstScalar(g, n.input(3 - slot));
      if (!c || !(*c <= most) || ShapeOf(g, n.input(0)) == nullptr) return {};
      return Step{.kind = Step::kWhere, .mask = n.input(0), .masked = *c, .keep = slot == 1};
    }
    default:
      return {};
  }
}

// Whether no element of a mask is below the number, as far as its constants say.
bool NeverBelow(const Graph& g, ValueId v, double least, int depth = kMaxSteps) {
  constexpr int64_t kMostScanned = 1 << 16;
  const Node* n = g.Producer(v);
  if (n == nullptr || depth <= 0) return false;
  if (const Tensor* t = g.ConstantOf(v)) {
    if (t->size() > kMostScanned || !IsPlainFloat(t->dtype())) return false;
    for (int64_t i = 0; i < t->size(); ++i) {
      if (!(t->GetDouble(i) >= least)) return false;
    }
    return true;
  }
  if (n->op == Op::kWhere)
    return NeverBelow(g, n->input(1), least, depth - 1) && NeverBelow(g, n->input(2), least, depth - 1);
  const bool view = IsReshapeLike(n->op) || n->op == Op::kExpand || n->op == Op::kSlice || n->op == Op::kTranspose;
  return view && NeverBelow(g, n->input(0), least, depth - 1);
}

// v = Reshape(Add(Reshape(x), mask)), back to x's shape: the Add; windows is the dim that the first Reshape parts.
const Node* SplitAdd(const Graph& g, const Node& back, ValueId* x, Step* step) {
  const Node* add = g.Producer(back.input(0));
  if (add == nullptr || add->op != Op::kAdd) return nullptr;
  for (size_t slot : {0u, 1u}) {
    const Node* split = g.Producer(add->input(slot));
    if (split == nullptr || split->op != Op::kReshape) continue;
    const ValueId from = split->input(0), mask = add->input(1 - slot);
    const SymShape *low = ShapeOf(g, from), *high = ShapeOf(g, split->output()), *m = ShapeOf(g, mask),
                   *out = ShapeOf(g, back.output());
    if (low == nullptr || high == nullptr || m == nullptr || out == nullptr || low->size() != 4 || out->size() != 4)
      continue;
    if (high->size() != 5 || m->size() != 5 || !IsNumber((*m)[0], 1) || !(*high)[1].is_number()) continue;
    bool same = true;  // all but the first dim, by number
    for (size_t i = 1; i < 4; ++i) {
      same = same && ProvablyEqual((*low)[i], (*high)[i + 1]) && ProvablyEqual((*low)[i], (*out)[i]) &&
             (*m)[i + 1].is_number();
    }
    if (!same || !ProvablyEqual((*m)[1], (*high)[1])) continue;
    *x = from;
    *step = Step{.kind = Step::kMask, .mask = mask, .windows = (*high)[1].number()};
    return add;
  }
  return nullptr;
}

// Nothing but the Softmax reads v, and perhaps the guard against rows that are masked wholly, which asks for their maximum (GuardByMask).
bool ReadAsScores(const Graph& g, ValueId v) {
  int others = 0;
  for (const ir::Use& use : g.value(v).uses) {
    const Node& n = g.node(use.node);
    const bool guard = n.op == Op::kReduceMax && g.HasOneUse(n.output()) &&
                       g.node(g.value(n.output()).uses.front().node).op == Op::kIsInf;
    others += guard ? 0 : 1;
  }
  return others == 1 && !g.IsGraphOutput(v);
}

std::optional<Chain> ChainOf(const Graph& g, ValueId v) {
  Chain c;
  ProductSearch search(g);
  for (int i = 0; i < kMaxSteps; ++i) {
    const Node* n = g.Producer(v);
    if (n == nullptr || DTypeOf(g, v) != DType::kF32) return {};
    if (IsScoreProduct(g, *n)) {
      c.product = v;
      std::reverse(c.steps.begin(), c.steps.end());
      std::reverse(c.hides.begin(), c.hides.end());
      return c;
    }
    // Where somebody else needs it the rule that looks for attention will say so.
    if (!(i == 0 ? ReadAsScores(g, v) : g.HasOneUse(v))) return {};
    c.nodes.push_back(g.value(v).producer);
    Step step;
    ValueId next;
    if (n->op == Op::kReshape) {
      const Node* add = SplitAdd(g, *n, &next, &step);
      if (add == nullptr || !g.HasOneUse(add->output())) return {};
    } else {
      const int slot = search.DataSlot(*n);
      if (slot < 0) return {};
      const bool last = c.steps.empty();  // nothing is added behind such a Where, so what it writes need not swallow it
      const auto read = ReadStep(g, *n, static_cast<size_t>(slot), last ? kLeastHidden : kMaskedOut);
      next = n->input(static_cast<size_t>(slot));
      if (!read || !SameShape(g, next, v)) return {};  // a mask that widens the scores
      step = *read;
      // -inf stays what it is behind a scale.
      const bool comes_last = last || (step.masked == -kInfinity && std::ranges::all_of(c.steps, IsScale));
      if (comes_last && step.kind == Step::kWhere && (c.hides.empty() || c.hides[0].masked == step.masked)) {
        c.hides.push_back(step);
        c.scaled_behind = !last;
        v = next;
        continue;
      }
      if (step.kind == Step::kWhere && step.masked > kMaskedOut) return {};
    }
    c.steps.push_back(step);
    v = next;
  }
  return {};
}

// [scale] [1/c, Tanh, c] [mask] [one Where that keeps], each as the rules expect it.
bool IsCanonical(const Chain& c) {
  size_t i = 0;
  const auto is = [&](size_t at, Step::Kind kind) { return at < c.steps.size() && c.steps[at].kind == kind; };
  size_t scales = 0;
  while (is(i, Step::kScale)) ++i, ++scales;
  if (is(i, Step::kTanh)) {
    if (scales < 1 || scales > 2 || !is(i + 1, Step::kScale)) return false;
    const Step& down = c.steps[i - 1];
    if (down.plain || std::fabs(down.scale * c.steps[i + 1].scale - 1.0) > 1e-12 || !c.steps[i + 1].plain) return false;
    if (scales == 2 && !c.steps[i - 2].plain) return false;
    i += 2;
    if (is(i, Step::kScale)) return false;
  } else if (scales > 1 || (scales == 1 && !c.steps[0].plain)) {
    return false;
  }
  if (is(i, Step::kMask)) {
    if (!c.steps[i].plain || c.steps[i].windows != 0) return false;
    ++i;
  }
  return i == c.steps.size() && !c.scaled_behind && (c.hides.empty() || (c.hides.size() == 1 && c.hides[0].keep));
}

class Builder {
 public:
  explicit Builder(Rewriter& rw) : rw_(rw) {}
  const Graph& g() const { return rw_.graph(); }
  ValueId Scalar(double v) { return rw_.Constant(Tensor::ScalarF32(static_cast<float>(v))); }
  ValueId Op2(Op op, ValueId a, ValueId b) {
    SymShape shape = BroadcastShapes({ShapeOf(g(), a), ShapeOf(g(), b)});
    return Make(rw_, op, {a, b}, {}, Type{DType::kF32, std::move(shape)});
  }
  ValueId Unary(Op op, ValueId a) { return Make(rw_, op, {a}, {}, Type{DType::kF32, *ShapeOf(g(), a)}); }
  ValueId Scaled(ValueId v, double s) { return s == 1.0 ? v : Op2(Op::kMul, v, Scalar(s)); }

  // `sum` (what is added to the scores so far; invalid: nothing) after one more step.
  ValueId Masked(ValueId sum, const Step& s, ValueId like) {
    if (s.kind == Step::kWhere) {  // nested, not added: a score that two masks hit stays finite
      const ValueId keep = sum.valid() ? sum : Scalar(0), low = Scalar(s.masked);
      SymShape shape = BroadcastShapes({ShapeOf(g(), s.mask), ShapeOf(g(), keep)});
      std::vector<ValueId> in{s.mask, s.keep ? keep : low, s.keep ? low : keep};
      return Make(rw_, Op::kWhere, std::move(in), {}, Type{DType::kF32, std::move(shape)});
    }
    const ValueId m = s.windows != 0 ? Repeated(s, like) : s.negated ? Unary(Op::kNeg, s.mask) : s.mask;
    return sum.valid() ? Op2(Op::kAdd, sum, m) : m;
  }

  ValueId Floored(ValueId mask, double least) {
    return NeverBelow(g(), mask, least) ? mask : Op2(Op::kMax, mask, Scalar(least));
  }

  // Where(keep, scores, masked); keep: what no Where hides.
  ValueId Hidden(ValueId scores, const std::vector<Step>& hides) {
    ValueId all;
    for (const Step& s : hides) {
      const ValueId keep = s.keep ? s.mask : Make(rw_, Op::kNot, {s.mask}, {}, TypeOf(g(), s.mask));
      all = all.valid() ? Both(all, keep) : keep;
    }
    return Make(rw_, Op::kWhere, {all, scores, Scalar(hides[0].masked)}, {}, TypeOf(g(), scores));
  }

 private:
  ValueId Both(ValueId a, ValueId b) {
    SymShape shape = BroadcastShapes({ShapeOf(g(), a), ShapeOf(g(), b)});
    return Make(rw_, Op::kAnd, {a, b}, {}, Type{DType::kBool, std::move(shape)});
  }
  // [1,n,...] for every picture: [b*n,...].
  ValueId Repeated(const Step& s, ValueId like) {
    const auto ints = [&](Ints v) { return MakeInts(rw_, std::move(v)); };
    const Type one{DType::kS64, SymShape{Dim(1)}};
    const ValueId batch = Make(rw_, Op::kShape, {like}, {{"start", int64_t{0}}, {"end", int64_t{1}}}, one);
    const ValueId pictures = Make(rw_, Op::kDiv, {batch, ints({s.windows})}, {}, one);
    const ValueId to = Make(rw_, Op::kConcat, {pictures, ints({1, 1, 1, 1})}, {{"axis", int64_t{0}}},
                            Type{DType::kS64, SymShape{Dim(5)}});
    const SymShape m = *ShapeOf(g(), s.mask);
    SymShape wide = m;
    wide[0] = Dim::Unknown();
    const ValueId repeated = Make(rw_, Op::kExpand, {s.mask, to}, {}, Type{DType::kF32, wide});
    const SymShape flat{(*ShapeOf(g(), like))[0], m[2], m[3], m[4]};
    const ValueId target = ints({-1, m[2].number(), m[3].number(), m[4].number()});
    return Make(rw_, Op::kReshape, {repeated, target}, {}, Type{DType::kF32, flat});
  }

  Rewriter& rw_;
};

bool ComesFromQuantized(const Graph& g, ValueId v) {
  for (int depth = 0; depth < kMaxSteps && v.valid(); ++depth) {
    const Node* n = g.Producer(v);
    if (n == nullptr) return false;
    if (n->op == Op::kDequantizeLinear) return true;
    if (n->op != Op::kTranspose && n->op != Op::kExpand && !IsReshapeLike(n->op) && n->op != Op::kMul) return false;
    v = n->input(0);
  }
  return false;
}

// The scales before and after a cap, and whether the form can say it at all.
struct Sums {
  double before = 1, after = 1;
  bool cap = false, legal = true;
};
Sums SumUp(const Chain& c) {
  Sums s;
  bool masked = false;
  for (const Step& step : c.steps) {
    if (step.kind == Step::kScale) {
      (s.cap ? s.after : s.before) *= step.scale;
    } else if (step.kind == Step::kTanh) {
      s.legal = s.legal && !s.cap && !masked;
      s.cap = true;
    } else if (step.kind != Step::kFloor) {
      masked = true;
    }
  }
  return s;
}

bool ScoresOf(Rewriter& rw, NodeId softmax) {
  const Graph& g = rw.graph();
  const Node& n = g.node(softmax);
  const ValueId old = n.input(0);
  const auto chain = ChainOf(g, old);
  if (!chain || (chain->steps.empty() && chain->hides.empty()) || IsCanonical(*chain)) return false;
  const Node& product = *g.Producer(chain->product);
  if (ComesFromQuantized(g, product.input(0)) || ComesFromQuantized(g, product.input(1))) return false;
  const Sums sums = SumUp(*chain);
  if (!sums.legal) return false;
  const NodeId at = g.value(chain->product).producer;
  std::vector<NodeId> sources = chain->nodes;
  sources.push_back(at);
  rw.At(softmax, std::move(sources));
  Builder b(rw);
  ValueId v = b.Scaled(chain->product, sums.cap ? sums.before * sums.after : sums.before);
  if (sums.cap) {
    const ValueId cap = b.Scalar(sums.after);
    v = b.Op2(Op::kMul, b.Unary(Op::kTanh, b.Op2(Op::kDiv, v, cap)), cap);
  }
  ValueId mask;
  for (const Step& step : chain->steps) {
    if (step.kind == Step::kScale && mask.valid()) mask = b.Scaled(mask, step.scale);
    if (step.kind == Step::kMask || step.kind == Step::kWhere) mask = b.Masked(mask, step, chain->product);
    if (step.kind == Step::kFloor && mask.valid()) mask = b.Floored(mask, step.masked);
  }
  if (mask.valid()) v = b.Op2(Op::kAdd, v, mask);
  if (!chain->hides.empty()) v = b.Hidden(v, chain->hides);
  rw.Replace(old, v);
  rw.EraseDead(g.value(old).producer);
  return true;
}

// Probabilities of masked keys are 0 but in a row of which all keys are masked: there Where(m, 0, .) has zeros too, as has the guard against such
// rows; and Where(shown, ., 0). A NaN in a score that is not masked makes its row of the product NaN before and after; so a product must be what reads the
// probabilities. A row of which all scores are -inf counts as masked.
bool GuardByMask(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  const size_t kept = n.op == Op::kWhere && g.IsFrom(n.input(1), Op::kSoftmax) ? 1 : 2;
  const ValueId p = n.input(kept), zero = n.input(3 - kept);
  const Node* softmax = n.op == Op::kWhere ? g.Producer(p) : nullptr;
  const int64_t rank = RankOf(g, n.output());
  if (softmax == nullptr || softmax->op != Op::kSoftmax || !g.HasOneUse(p) || ConstScalar(g, zero) != 0.0 || rank < 1 ||
      (softmax->attrs.Int("axis", -1) + rank) % rank != rank - 1)
    return false;
  const NodeId inner = g.value(softmax->input(0)).producer;
  if (!inner.valid() || g.node(inner).op != Op::kWhere || g.node(inner).input(0) != n.input(0) ||
      !g.HasOneUse(softmax->input(0)) || !ProductBehind(g, n.output()).valid())
    return false;
  const auto low = ConstScalar(g, g.node(inner).input(3 - kept));
  const SymShape* mask = ShapeOf(g, n.input(0));
  if (!low || !(*low <= kHiddenTwice) || DTypeOf(g, n.output()) != DType::kF32 || mask == nullptr ||
      RankOf(g, p) < static_cast<int64_t>(mask->size()))
    return false;
  const ValueId scores = softmax->input(0);
  rw.At(inner, {inner});
  rw.SetInput(inner, 3 - kept, rw.Constant(Tensor::ScalarF32(-std::numeric_limits<float>::infinity())));
  rw.At(id, {id});
  SymShape rows = *ShapeOf(g, scores);
  rows.back() = Dim(1);
  const ValueId top =
      Make(rw, Op::kReduceMax, {scores, MakeInts(rw, {-1})}, {{"keepdims", int64_t{1}}}, Type{DType::kF32, rows});
  rw.SetInput(id, 0, Make(rw, Op::kIsInf, {top}, {{"detect_positive", int64_t{0}}}, Type{DType::kBool, rows}));
  rw.SetInput(id, 1, zero);
  rw.SetInput(id, 2, p);
  return true;
}

}  // namespace

Result<bool> Scores(Graph& graph, PassRun& run) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "scores");
  int brought = 0;
  for (NodeId id : graph.NodesInOrder()) {
    if (!SelectBySum(rw, id) && !SelectByDifference(rw, id)) GuardByMask(rw, id);
  }
  for (NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id) || graph.node(id).op != Op::kSoftmax ||
        DTypeOf(graph, graph.node(id).output()) != DType::kF32)
      continue;
    brought += ScoresOf(rw, id) ? 1 : 0;
  }
  if (brought > 0)
    run.log.push_back("scores: " + std::to_string(brought) + " chains from product to Softmax in one order");
  if (rw.changed() && !graph.SortTopologically()) return ir::Fail("scores made a cycle");
  return rw.changed();
}

}  // namespace octavo::passes::canonical
