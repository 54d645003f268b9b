#include "octavo/passes/fusions/window_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

class Finder {
 public:
  Finder(Rewriter& b, IndexFacts& facts, Dim queries, Dim keys)
      : b_(b), g_(b.graph()), facts_(facts), queries_(std::move(queries)), keys_(std::move(keys)) {}

  // The bounds of a bool mask; found->mask: what is left of it.
  bool FindKeep(ValueId keep, MaskBounds* found) {
    std::vector<Atom> atoms;
    Split(keep, false, &atoms);
    const auto others = TakeAll(atoms, found);
    if (others) found->mask = Joined(*others);
    return others.has_value();
  }

  // Makes the mask that is left only where a window was found.
  bool Find(ValueId mask, MaskBounds* found) {
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
    } else if (n != nullptr && n->op == Op::kUnsqueeze && AddsAxesInFront(*n)) {
      Split(n->input(0), negated, atoms);
    } else {
      atoms->push_back({v, negated});
    }
  }

  // Which broadcasting adds by itself.
  bool AddsAxesInFront(const Node& n) const {
    const auto axes = canonical::AxesOf(g_, n);
    return axes && !axes->empty() && axes->back() + 1 == static_cast<int64_t>(axes->size());
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

  bool FindWhere(const Node& where, MaskBounds* found) {
    std::vector<Atom> atoms;
    if (!ReadWhere(&where, &found->low, &atoms)) return false;
    const auto others = TakeAll(atoms, found);
    if (!others) return false;
    const ValueId zero = b_.Constant(ir::Tensor::ScalarF32(0.0f)), low = b_.Constant(ir::Tensor::ScalarF32(found->low));
    if (!others->empty()) found->mask = b_.Create(Op::kWhere, {Joined(*others), zero, low});
    return true;
  }

  // The atoms that are no bounds; nothing where none is.
  std::optional<std::vector<Atom>> TakeAll(const std::vector<Atom>& atoms, MaskBounds* found) const {
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
  bool Take(const Bound& bound, bool any, MaskBounds* found) const {
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

}  // namespace

std::optional<MaskBounds> BoundsOfKeep(Rewriter& b, IndexFacts& facts, const Dim& queries, const Dim& keys,
                                       ValueId keep) {
  MaskBounds found;
  return Finder(b, facts, queries, keys).FindKeep(keep, &found) ? std::optional(found) : std::nullopt;
}
std::optional<MaskBounds> BoundsOfMask(Rewriter& b, IndexFacts& facts, const Dim& queries, const Dim& keys,
                                       ValueId mask) {
  MaskBounds found;
  return Finder(b, facts, queries, keys).Find(mask, &found) ? std::optional(found) : std::nullopt;
}

}  // namespace octavo::passes::fusions
