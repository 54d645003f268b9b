#include "octavo/passes/canonical/select.h"

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

}  // namespace

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
