#include "octavo/passes/canonical/select.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

// A product by 1 where a condition holds and by 0 elsewhere.
struct Share {
  ValueId condition, of;  // the bool; what is multiplied
  ValueId base;           // the condition without its Not
  bool negated = false;
};

std::optional<Share> ShareOf(const Graph& g, ValueId v, size_t slot) {
  const Node* product = g.Producer(v);
  if (product == nullptr || product->op != Op::kMul || !g.HasOneUse(v)) return {};
  const Node* cast = g.Producer(product->input(slot));
  if (cast == nullptr || cast->op != Op::kCast || DTypeOf(g, cast->input(0)) != DType::kBool) return {};
  Share s{cast->input(0), product->input(1 - slot), cast->input(0)};
  if (const Node* no = g.Producer(s.base); no != nullptr && no->op == Op::kNot) s.base = no->input(0), s.negated = true;
  return s;
}

// What is added to `scores` to make v of them, a number below 0; nothing: v is something else.
std::optional<double> Lowered(const Graph& g, ValueId v, ValueId scores) {
  const Node* n = g.Producer(v);
  if (n == nullptr || !g.HasOneUse(v) || n->input(0) != scores || (n->op != Op::kSub && n->op != Op::kAdd)) return {};
  const auto by = ConstScalarBeside(g, n->input(1), scores);
  return by ? std::optional(n->op == Op::kSub ? -*by : *by) : std::nullopt;
}

// Whether a Softmax alone reads v, through views.
bool AreScores(const Graph& g, ValueId v) {
  constexpr int kMostViews = 4;
  for (int i = 0; i < kMostViews && g.HasOneUse(v); ++i) {
    const Node& reader = g.node(g.value(v).uses.front().node);
    if (reader.op == Op::kSoftmax) return true;
    if (!IsReshapeLike(reader.op) && reader.op != Op::kTranspose) return false;
    v = reader.output();
  }
  return false;
}

// A bool as a number, or a constant of zeros and ones, through what moves elements alone.
bool IsZeroOrOne(const Graph& g, ValueId v) {
  constexpr int kMostMoves = 12;
  for (int i = 0; i < kMostMoves; ++i) {
    if (const Tensor* t = g.ConstantOf(v); t != nullptr) {
      if (t->dtype() != DType::kF32) return false;
      return std::ranges::all_of(t->as<float>(), [](float x) { return x == 0.0f || x == 1.0f; });
    }
    const Node* n = g.Producer(v);
    if (n == nullptr) return false;
    if (n->op == Op::kCast && DTypeOf(g, n->input(0)) == DType::kBool) return true;
    if (n->op == Op::kConstantOfShape) {
      const ir::Attr* value = n->attrs.Find("value");
      const Tensor* t = value == nullptr ? nullptr : std::get_if<Tensor>(value);
      return t == nullptr || (t->size() == 1 && (t->GetDouble(0) == 0.0 || t->GetDouble(0) == 1.0));
    }
    if (!IsReshapeLike(n->op) && n->op != Op::kTranspose && n->op != Op::kSlice && n->op != Op::kExpand &&
        n->op != Op::kGather && n->op != Op::kTrilu)
      return false;
    v = n->input(0);
  }
  return false;
}

}  // namespace

bool SelectByDifference(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  const bool sum = n.op == Op::kAdd;
  if ((!sum && n.op != Op::kSub) || DTypeOf(g, n.output()) != DType::kF32 || !AreScores(g, n.output())) return false;
  for (int form = 0; form < (sum ? 8 : 4); ++form) {
    const size_t slot = form & 1, at = form >> 1 & 1, side = form >> 2;
    const Node *kept = g.Producer(n.input(side)), *hidden = g.Producer(n.input(1 - side));
    if (kept == nullptr || hidden == nullptr || kept->op != Op::kMul || hidden->op != Op::kMul ||
        !g.HasOneUse(n.input(side)))
      continue;
    const ValueId mask = kept->input(slot), scores = kept->input(1 - slot);
    const Node* rest = g.Producer(hidden->input(at));
    auto low = ConstScalarBeside(g, hidden->input(1 - at), n.output());
    if (low && sum) low = -*low;
    if (rest == nullptr || rest->op != Op::kSub || rest->input(1) != mask || !low || !(*low > 0) || std::isinf(*low) ||
        ConstScalarBeside(g, rest->input(0), n.output()) != 1.0 || !IsZeroOrOne(g, mask))
      continue;
    rw.At(id, {id});
    const Type type = TypeOf(g, n.output()), is{DType::kBool, TypeOf(g, mask).shape};
    const ValueId shows = Make(rw, Op::kCast, {mask}, {{"to", static_cast<int64_t>(DType::kBool)}}, is);
    const ValueId hides = rw.Constant(Tensor::ScalarF32(static_cast<float>(-*low)));
    rw.Replace(n.output(), Make(rw, Op::kWhere, {shows, scores, hides}, {}, type));
    rw.EraseDead(id);
    return true;
  }
  return false;
}

bool SelectBySum(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  if (n.op != Op::kAdd || DTypeOf(g, n.output()) != DType::kF32 || !AreScores(g, n.output())) return false;
  for (int form = 0; form < 8; ++form) {
    const size_t first = form & 1;
    const auto kept = ShareOf(g, n.input(first), form >> 1 & 1), hidden = ShareOf(g, n.input(1 - first), form >> 2);
    if (!kept || !hidden || kept->base != hidden->base || kept->negated == hidden->negated) continue;
    const auto lowered = Lowered(g, hidden->of, kept->of);
    const auto low = lowered ? lowered : ConstScalarBeside(g, hidden->of, n.output());
    if (!low || !(*low < 0) || std::isinf(*low)) continue;
    rw.At(id, {id});
    const Type type = TypeOf(g, n.output()), mask{DType::kF32, TypeOf(g, kept->condition).shape};
    const auto number = [&](double x) { return rw.Constant(Tensor::ScalarF32(static_cast<float>(x))); };
    const ValueId scores =
        lowered ? Make(rw, Op::kAdd,
                       {kept->of, Make(rw, Op::kWhere, {kept->condition, number(0), number(*low)}, {}, mask)}, {}, type)
                : Make(rw, Op::kWhere, {kept->condition, kept->of, hidden->of}, {}, type);
    rw.Replace(n.output(), scores);
    rw.EraseDead(id);
    return true;
  }
  return false;
}

}  // namespace octavo::passes::canonical
