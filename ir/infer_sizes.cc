// Sizes that only a run knows: quotients that do not come out even, and what one node tells of the sizes of another.
#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

constexpr std::string_view kQuotient =
    "?(";                          // begins the names of quotients: as that of Dim::Nameless, no name of a file
constexpr size_t kMostText = 160;  // of a quotient's name, which holds that of its dividend

bool IsNameless(std::string_view name) { return name.starts_with('?'); }

// The symbols of a dim as Evaluate asks for them: one for each factor of each term.
std::vector<std::string> Factors(const Dim& d) {
  std::vector<std::string> names;
  d.Evaluate([&](std::string_view name) {
    names.emplace_back(name);
    return std::optional<int64_t>(1);
  });
  return names;
}

std::optional<int64_t> At(const Dim& d, int64_t x) {
  return d.Evaluate([&](std::string_view) { return std::optional(x); });
}

// The name where the dim is one symbol; else empty.
std::string SymbolOf(const Dim& d) {
  if (!d.known() || d.is_number()) return {};
  const std::vector<std::string> names = Factors(d);
  return names.size() == 1 && At(d, 0) == 0 && At(d, 1) == 1 ? names[0] : std::string();
}

// A text that no other dim has; empty where that is not easily told.
std::string TextOf(const Dim& d) {
  const std::vector<std::string> names = Factors(d);
  if (std::ranges::none_of(names, IsNameless)) return d.ToString();
  if (names.size() == 1) {  // a * name + b
    const auto zero = At(d, 0), one = At(d, 1);
    return zero && one ? std::format("{}*{}+{}", *one - *zero, names[0], *zero) : std::string();
  }
  // a * name * name...: a polynomial of degree n that is a * x^n in more than n places. More terms have a lower degree.
  const auto a = At(d, 1);
  if (!a || *a == 0) return {};
  int64_t power = 1;
  for (size_t i = 0; i < names.size(); ++i) {
    if (__builtin_mul_overflow(power, int64_t{2}, &power)) return {};
  }
  for (int64_t x = 0; x <= static_cast<int64_t>(names.size()); ++x) {
    int64_t want = *a;
    for (size_t i = 0; i < names.size(); ++i) {
      if (__builtin_mul_overflow(want, x, &want)) return {};
    }
    if (At(d, x) != want) return {};
  }
  std::string product = std::to_string(*a);
  for (const std::string& name : names) product += "*" + name;
  return product;
}

}  // namespace

Dim Quotient(const Dim& a, const Dim& b) {
  if (a.is_number() && b.is_number() && b.number() != 0 && a.number() != INT64_MIN) return Dim(a.number() / b.number());
  if (Dim exact = ExactDiv(a, b); exact.known()) return exact;
  const auto constant = At(a, 0);
  if (!constant || !b.is_number() || b.number() < 1) return {};
  // (s + 5) / 2 is (s + 1) / 2 + 2, and (4*s + 3) / 4 is s.
  int64_t under = b.number(), rest = *constant % under;
  rest += rest < 0 ? under : 0;
  const Dim whole((*constant - rest) / under), moving = a - Dim(*constant);
  if (const Dim exact = ExactDiv(moving, b); exact.known()) return exact + whole;
  Dim over = moving + Dim(rest);
  for (int64_t p = 2; p <= 64 && p <= under; ++p) {  // 4*s / 8 is s / 2
    for (Dim less = ExactDiv(over, Dim(p)); under % p == 0 && less.known(); less = ExactDiv(over, Dim(p))) {
      over = less;
      under /= p;
    }
  }
  if (over.LowerBound().value_or(-1) < 0) return {};  // symbols are sizes
  const std::string text = TextOf(over);
  if (text.empty() || text.size() > kMostText) return {};
  return Dim::Symbol(std::format("{}{})/{}", kQuotient, text, under)) + whole;
}

namespace {

// Sizes of which nobody says what they are, and that turned out to be others.
class Sizes {
 public:
  explicit Sizes(Graph& g) : g_(g) {
    for (const ValueId v : g.inputs()) {
      if (!g.value(v).type.shape) continue;
      for (const Dim& d : *g.value(v).type.shape) {
        for (std::string& name : Factors(d)) of_inputs_.insert(std::move(name));
      }
    }
  }

  // The name of a size that is in no input and no quotient: of Dim::Nameless, or that a file has for what a node makes. Else empty.
  std::string FreeOf(const Dim& d) const {
    std::string name = SymbolOf(d);
    return name.starts_with(kQuotient) || of_inputs_.contains(name) ? std::string() : name;
  }

  // The run fails where the two differ.
  void Equal(const Dim& a, const Dim& b) {
    const Dim x = Of(a), y = Of(b);
    if (!x.known() || !y.known() || ProvablyEqual(x, y)) return;
    for (const auto& [free, other] : {std::pair(&x, &y), std::pair(&y, &x)}) {
      const std::string name = FreeOf(*free);
      const auto holds = [&](const std::string& factor) { return factor.find(name) != std::string::npos; };
      if (name.empty() || std::ranges::any_of(Factors(*other), holds)) continue;
      known_.emplace(name, *other);
      return;
    }
  }
  Dim Of(Dim d) const {
    for (size_t i = 0; i <= known_.size(); ++i) {
      const auto found = known_.empty() ? known_.end() : known_.find(FreeOf(d));
      if (found == known_.end()) break;
      d = found->second;
    }
    return d;
  }

  // True: some were found, and stand in the types now.
  bool Write() {
    if (known_.empty()) return false;
    for (NodeId id = g_.first(); id.valid(); id = g_.node(id).next) {
      for (const ValueId v : g_.node(id).outputs) {
        if (!v.valid() || !g_.value(v).type.shape) continue;
        Type type = g_.value(v).type;
        bool changed = false;
        for (Dim& d : *type.shape) {
          Dim is = Of(d);
          if (SameRepresentation(is, d)) continue;
          d = std::move(is);
          changed = true;
        }
        if (changed) g_.SetType(v, std::move(type));
      }
    }
    return true;
  }

 private:
  Graph& g_;
  std::set<std::string> of_inputs_;
  std::map<std::string, Dim> known_;
};

const SymShape* ShapeOf(const Graph& g, ValueId v) {
  return v.valid() && g.value(v).type.shape ? &*g.value(v).type.shape : nullptr;
}

bool Broadcasts(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
    case Op::kMax:
    case Op::kMin:
    case Op::kWhere:
      return true;
    default:
      return false;
  }
}

// Dim `back` from the last of what an op that broadcasts makes is `size` for sure. So is that of an operand that is itself broadcast from an operand of
// that size: it has that size or, where that is 1, no more than its result.
void ThroughBroadcast(const Graph& g, const Node& n, size_t back, const Dim& size, Sizes& sizes) {
  for (const ValueId v : n.inputs) {
    const SymShape* s = ShapeOf(g, v);
    const Node* maker = g.Producer(v);
    if (s == nullptr || s->size() <= back || maker == nullptr || !Broadcasts(maker->op)) continue;
    const Dim mine = s->end()[-1 - static_cast<std::ptrdiff_t>(back)];
    if (sizes.FreeOf(mine).empty()) continue;
    for (const ValueId w : maker->inputs) {
      const SymShape* from = ShapeOf(g, w);
      if (from == nullptr || from->size() <= back) continue;
      if (!ProvablyEqual(sizes.Of(from->end()[-1 - static_cast<std::ptrdiff_t>(back)]), size)) continue;
      sizes.Equal(mine, size);
      break;
    }
  }
}

// Where joined parts differ in other axes than the joint, the run fails.
void OfParts(const Graph& g, const Node& n, Sizes& sizes) {
  const SymShape* first = ShapeOf(g, n.input(0));
  if (first == nullptr) return;
  const auto rank = static_cast<int64_t>(first->size());
  const int64_t axis = n.attrs.Int("axis", 0) + (n.attrs.Int("axis", 0) < 0 ? rank : 0);
  for (const ValueId v : n.inputs) {
    const SymShape* s = ShapeOf(g, v);
    if (s == nullptr || s->size() != first->size()) continue;
    for (int64_t i = 0; i < rank; ++i) {
      if (i != axis) sizes.Equal((*s)[static_cast<size_t>(i)], (*first)[static_cast<size_t>(i)]);
    }
  }
}

// A Reshape keeps the number of elements (and tensors without any are as good as none): one size without a name on either side follows from the rest.
void OfElements(const SymShape& in, const SymShape& out, Sizes& sizes) {
  SymShape sides[2] = {in, out};
  for (Dim& d : sides[0]) d = sizes.Of(d);
  for (Dim& d : sides[1]) d = sizes.Of(d);
  for (Dim& d : sides[0]) {  // what both have says nothing
    const auto same = std::ranges::find_if(sides[1], [&](const Dim& x) { return ProvablyEqual(x, d); });
    if (same != sides[1].end()) d = *same = Dim(1);
  }
  for (const size_t side : {0u, 1u}) {
    for (const Dim& d : sides[side]) {
      if (sizes.FreeOf(d).empty()) continue;
      const Dim rest = ExactDiv(ProductOf(sides[side]), d), whole = ProductOf(sides[1 - side]);
      if (whole.is_number() && whole.number() == 0) return;  // any size may be the 0
      return sizes.Equal(d, ExactDiv(whole, rest));
    }
  }
}

}  // namespace

bool UnifySizes(Graph& g) {
  Sizes sizes(g);
  for (NodeId id = g.last(); id.valid(); id = g.node(id).prev) {  // what reads a value tells of it: backwards
    const Node& n = g.node(id);
    const SymShape *a = ShapeOf(g, n.input(0)), *b = ShapeOf(g, n.input(1));
    const SymShape* out = n.outputs.empty() ? nullptr : ShapeOf(g, n.output());
    if (n.op == Op::kMatMul && a != nullptr && b != nullptr && !a->empty() && !b->empty()) {
      sizes.Equal(a->back(), b->size() == 1 ? b->front() : b->end()[-2]);
    } else if (n.op == Op::kReshape && a != nullptr && out != nullptr) {
      OfElements(*a, *out, sizes);
    } else if (n.op == Op::kConcat) {
      OfParts(g, n, sizes);
    } else if (Broadcasts(n.op) && out != nullptr) {
      for (size_t back = 0; back < out->size(); ++back) {
        const Dim size = sizes.Of(out->end()[-1 - static_cast<std::ptrdiff_t>(back)]);
        if (size.known()) ThroughBroadcast(g, n, back, size, sizes);
      }
    }
  }
  return sizes.Write();
}

}  // namespace octavo::ir
