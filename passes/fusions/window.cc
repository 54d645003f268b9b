// Before: o = Sdpa(q, k, v, Where(And(key <= query [+ past], key > query - w, m), 0, low))          (SdpaInt8 alike)
// After:  o = Sdpa(q, k, v, Where(m, 0, low)) {window_left, window_right, bottom_right, hidden_value = low}
// Also:   the bounds in a bool mask;  Where(Equal(Trilu(ones), 0), low, 0);  the sum of two such masks where low is -inf.
// The kernel leaves out what the window hides, and the mask keeps the shape of what is left, [B,1,1,Sk] or nothing.
// Exact for scores below 2^103, where s + low is low; hidden scores of infinity or NaN no longer reach their row.
// Refuses: other values of low (-10000 + s is no constant), index arithmetic that is not affine, masks whose dims are not known
// to be those of the scores. Looks through arithmetic on indices and not at a fixed shape: a pass and not a Rule.
#include <cmath>
#include <limits>

#include "octavo/ir/functions.h"
#include "octavo/passes/canonical/mask_indices.h"
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

namespace {

using canonical::Affine;
using canonical::IndexFacts;
using ir::Dim;

// A condition that holds where a key is visible.
struct Atom {
  ValueId value;
  bool negated = false;
};

// key <= query + at (right) or key >= query + at.
struct Bound {
  bool right = false;
  Dim at;
};

struct Found {
  int64_t left = -1, right = -1;
  bool bottom_right = false;
  float low = 0;
  ValueId mask;  // what is left; invalid: nothing
};

class Finder {
 public:
  Finder(Rewriter& b, IndexFacts& facts, Dim queries, Dim keys)
      : b_(b), g_(b.graph()), facts_(facts), queries_(std::move(queries)), keys_(std::move(keys)) {}

  // The bounds of a bool mask; found->mask: what is left of it.
  bool FindKeep(ValueId keep, Found* found) {
    std::vector<Atom> atoms;
    Split(keep, false, &atoms);
    const auto others = TakeAll(atoms, found);
    if (others) found->mask = Joined(*others);
    return others.has_value();
  }

  // Makes the mask that is left only where a window was found.
  bool Find(ValueId mask, Found* found) {
    const Node* n = g_.Producer(mask);
    if (n == nullptr) return false;
    if (n->op == Op::kWhere) return FindWhere(*n, found);
    if (n->op != Op::kAdd) return false;
    for (size_t slot : {0u, 1u}) {
      const ValueId other = n->input(1 - slot);
      const Node* where = g_.Producer(n->input(slot));
      float low = 0;
      std::vector<Atom> atoms;
      if (!ReadWhere(g_.Producer(other), &low, &atoms) || !ReadWhere(where, &low, &atoms) || !std::isinf(low)) continue;
      if (!FindWhere(*where, found)) continue;
      found->mask = found->mask ? b_.Create(Op::kAdd, {found->mask, other}) : other;
      return true;
    }
    return false;
  }

 private:
  std::optional<double> Scalar(ValueId v) const { return canonical::ConstScalar(g_, v); }

  void Split(ValueId v, bool negated, std::vector<Atom>* atoms) const {
    const Node* n = g_.Producer(v);
    if (n != nullptr && n->op == (negated ? Op::kOr : Op::kAnd)) {
      Split(n->input(0), negated, atoms);
      Split(n->input(1), negated, atoms);
    } else if (n != nullptr && n->op == Op::kNot) {
      Split(n->input(0), !negated, atoms);
    } else {
      atoms->push_back({v, negated});
    }
  }

  // Where(c, 0, low) or Where(c, low, 0) with a low that swallows every score.
  bool ReadWhere(const Node* n, float* low, std::vector<Atom>* atoms) const {
    if (n == nullptr || n->op != Op::kWhere) return false;
    const auto yes = Scalar(n->input(1)), no = Scalar(n->input(2));
    if (!yes || !no || (*yes != 0.0 && *no != 0.0)) return false;
    const bool negated = *yes != 0.0;
    *low = static_cast<float>(negated ? *yes : *no);
    Split(n->input(0), negated, atoms);
    return *low <= std::numeric_limits<float>::lowest();
  }

  bool FindWhere(const Node& where, Found* found) {
    std::vector<Atom> atoms;
    if (!ReadWhere(&where, &found->low, &atoms)) return false;
    const auto others = TakeAll(atoms, found);
    if (!others) return false;
    const ValueId zero = b_.Constant(ir::Tensor::ScalarF32(0.0f)), low = b_.Constant(ir::Tensor::ScalarF32(found->low));
    if (!others->empty()) found->mask = b_.Create(Op::kWhere, {Joined(*others), zero, low});
    return true;
  }

  // The atoms that are no bounds; nothing where none is.
  std::optional<std::vector<Atom>> TakeAll(const std::vector<Atom>& atoms, Found* found) const {
    std::vector<Atom> others;
    for (const Atom& atom : atoms) {
      const auto bound = BoundOf(atom);
      if (!bound || !Take(*bound, found->left >= 0 || found->right >= 0, found)) others.push_back(atom);
    }
    if (others.size() == atoms.size()) return {};
    return others;
  }

  ValueId Joined(const std::vector<Atom>& atoms) {
    ValueId keep;
    for (const Atom& atom : atoms) {
      const ValueId c = atom.negated ? b_.Create(Op::kNot, {atom.value}) : atom.value;
      keep = keep ? b_.Create(Op::kAnd, {keep, c}) : c;
    }
    return keep;
  }

  // Joins a bound to those found so far, if it is aligned as they are.
  bool Take(const Bound& bound, bool any, Found* found) const {
    const Dim past = keys_ - queries_;
    for (const bool bottom_right : {false, true}) {
      if (any && bottom_right != found->bottom_right && !ProvablyEqual(queries_, keys_)) continue;
      const Dim at = bottom_right ? bound.at - past : bound.at;
      if (!at.is_number()) continue;
      const int64_t width = bound.right ? at.number() : -at.number();
      if (width < 0) continue;
      int64_t& now = bound.right ? found->right : found->left;
      now = now < 0 ? width : std::min(now, width);
      if (!any) found->bottom_right = bottom_right;
      return true;
    }
    return false;
  }

  bool HasDimsOfScores(ValueId v) const {
    const ir::SymShape* s = canonical::ShapeOf(g_, v);
    return s != nullptr && s->size() >= 2 && ProvablyEqual(s->back(), keys_) &&
           ProvablyEqual((*s)[s->size() - 2], queries_);
  }

  std::optional<Bound> BoundOf(const Atom& atom) const {
    const Node* n = g_.Producer(atom.value);
    if (n == nullptr || !HasDimsOfScores(atom.value)) return {};
    if (n->op == Op::kEqual) {
      for (size_t slot : {0u, 1u}) {
        const Node* triangle = g_.Producer(n->input(slot));
        if (triangle != nullptr && triangle->op == Op::kTrilu && Scalar(n->input(1 - slot)) == 0.0) {
          return Triangle(*triangle, !atom.negated);
        }
      }
      return {};
    }
    if (n->op == Op::kTrilu) return Triangle(*n, atom.negated);
    return Comparison(*n, atom.negated);
  }

  // Not zero in the triangle: visible there, or (`outside`) beside it.
  std::optional<Bound> Triangle(const Node& n, bool outside) const {
    if (facts_.TruthOf(n.input(0)) != canonical::Truth::kTrue) return {};
    const auto k = n.input(1) ? Scalar(n.input(1)) : 0.0;
    if (!k) return {};
    const auto at = static_cast<int64_t>(*k);
    const bool upper = n.attrs.Int("upper", 1) != 0;
    if (upper) return outside ? Bound{true, Dim(at - 1)} : Bound{false, Dim(at)};
    return outside ? Bound{false, Dim(at + 1)} : Bound{true, Dim(at)};
  }

  // a OP b with a - b = +-(key - query) + offset.
  std::optional<Bound> Comparison(const Node& n, bool negated) const {
    const bool less = n.op == Op::kLess || n.op == Op::kLessOrEqual,
               greater = n.op == Op::kGreater || n.op == Op::kGreaterOrEqual;
    if (!less && !greater) return {};
    const bool strict = (n.op == Op::kLess || n.op == Op::kGreater) != negated;
    const Affine *a = facts_.AffineOf(n.input(0)), *b = facts_.AffineOf(n.input(1));
    if (a == nullptr || b == nullptr) return {};
    const size_t rank = std::max(a->step.size(), b->step.size());
    const auto step = [&](const Affine& x, size_t from_end) {
      return from_end < x.step.size() ? x.step[x.step.size() - 1 - from_end] : Dim(0);
    };
    for (size_t i = 2; i < rank; ++i) {
      if (!canonical::IsNumber(step(*a, i) - step(*b, i), 0)) return {};
    }
    const Dim key = step(*a, 0) - step(*b, 0), query = step(*a, 1) - step(*b, 1), offset = a->offset - b->offset;
    const bool plus = canonical::IsNumber(key, 1) && canonical::IsNumber(query, -1);
    if (!plus && !(canonical::IsNumber(key, -1) && canonical::IsNumber(query, 1))) return {};
    // key - query <= at, or >= at
    const bool right = (less != negated) == plus;
    Dim at = plus ? Dim(0) - offset : offset;
    if (strict) at = right ? at - Dim(1) : at + Dim(1);
    return Bound{right, at};
  }

  Rewriter& b_;
  const Graph& g_;
  IndexFacts& facts_;
  Dim queries_, keys_;
};

Dim LengthOf(const Graph& g, const Node& n, size_t slot, const char* rank) {
  const ir::SymShape* s = canonical::ShapeOf(g, n.input(slot));
  if (s == nullptr || static_cast<int64_t>(s->size()) != n.attrs.Int(rank, 4)) return Dim();
  return s->size() == 3 ? (*s)[1] : s->size() == 4 ? (*s)[2] : Dim();
}

bool Lift(Rewriter& b, NodeId id, IndexFacts& facts) {
  Graph& g = b.graph();
  const Node n = g.node(id);
  const size_t mask = n.op == Op::kSdpa ? 3 : 13, keep = mask + 1;
  const bool has_window = n.attrs.Int("window_left", -1) >= 0 || n.attrs.Int("window_right", -1) >= 0;
  const Dim queries = LengthOf(g, n, 0, "q_rank"), keys = LengthOf(g, n, 1, "k_rank");
  if (has_window || !queries.known() || !keys.known()) return false;
  b.At(id, {id});
  Found found;
  Finder finder(b, facts, queries, keys);
  const bool in_keep = n.input(keep).valid();
  // Slopes join the sum that low has to swallow: only a bool mask is independent of them.
  if (!in_keep && (!n.input(mask) || n.input(mask + 2))) return false;
  // Masked scores become codes: hidden keys do not get low, but its code.
  if (!in_keep && n.op == Op::kSdpaInt8 && n.input(ir::kSdpaMaskedCodes)) return false;
  if (in_keep ? !finder.FindKeep(n.input(keep), &found) : !finder.Find(n.input(mask), &found)) return false;
  std::vector<ValueId> in = n.inputs;
  in[in_keep ? keep : mask] = found.mask;
  while (!in.back().valid()) in.pop_back();
  ir::Attrs attrs = n.attrs;
  if (found.left >= 0) attrs.Set("window_left", found.left);
  if (found.right >= 0) attrs.Set("window_right", found.right);
  if (found.bottom_right) attrs.Set("bottom_right", int64_t{1});
  if (!in_keep) attrs.Set("hidden_value", found.low);
  const std::string name = g.value(n.output()).name;
  const ValueId made = b.Create(n.op, std::move(in), std::move(attrs));
  g.SetType(made, g.value(n.output()).type);
  b.Replace(n.output(), made);
  b.EraseDead(id);
  g.SetName(made, name);
  return true;
}

}  // namespace

Result<bool> FuseWindows(Graph& graph, PassRun& run) {
  OCTAVO_TRY(const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter b(graph, "windows");
  IndexFacts facts(graph, inference);
  int lifted = 0;
  for (NodeId id : graph.NodesInOrder()) {
    if (!graph.IsAlive(id) || (graph.node(id).op != Op::kSdpa && graph.node(id).op != Op::kSdpaInt8)) continue;
    lifted += Lift(b, id, facts) ? 1 : 0;
  }
  if (lifted > 0)
    run.log.push_back("windows: " + std::to_string(lifted) +
                          " causal or window masks became attributes of their attention");
  return b.changed();
}

}  // namespace octavo::passes::fusions
