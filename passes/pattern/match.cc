#include <algorithm>
#include <cmath>
#include <format>

#include "octavo/passes/pattern/pattern.h"

namespace octavo::passes::pattern {

using ir::Dim;
using What = PatternNode::What;

namespace {

std::string Where(const Graph& graph, ValueId v) {
  if (!v.valid()) return "an absent input";
  const Node* p = graph.Producer(v);
  if (p == nullptr) return std::format("graph input '{}'", graph.value(v).name);
  const std::string_view op = p->op == ir::Op::kOpaque ? std::string_view(p->op_type) : ir::InfoOf(p->op).name;
  return std::format("{} '{}'", op, p->name.empty() ? graph.value(v).name : p->name);
}

std::string_view OpName(const PatternNode& p) {
  return p.op == ir::Op::kOpaque ? std::string_view(p.op_type) : ir::InfoOf(p.op).name;
}

// Bits of the mantissa, the leading one included; 0: no float.
int MantissaBits(ir::DType type) {
  switch (type) {
    case ir::DType::kF64:
      return 53;
    case ir::DType::kF32:
      return 24;
    case ir::DType::kF16:
      return 11;
    case ir::DType::kBF16:
      return 8;
    default:
      return 0;
  }
}

// As RuleBuilder::Scalar says.
bool IsConstant(double x, double expected, ir::DType type) {
  const int bits = MantissaBits(type);
  if (bits == 0 || expected == static_cast<float>(expected)) return x == expected;
  constexpr double kUlps = 1.5;
  return std::fabs(x - expected) <= std::ldexp(kUlps, std::ilogb(expected) + 1 - bits);
}

std::string Digits(double x, ir::DType type) {
  return type == ir::DType::kF64 ? std::format("{}", x) : std::format("{}", static_cast<float>(x));
}

}  // namespace

// One obligation after the other, depth first; alternatives restart from a copy of the bindings.
class Matcher {
 public:
  Matcher(const Rule& rule, const Graph& graph, bool explain) : rule_(rule), graph_(graph), explain_(explain) {}

  Attempt Run(ValueId root) {
    Match m(graph_, rule_.nodes.size());
    root_ = root;
    std::vector<Obligation> todo{{rule_.root, root}};
    if (Step(todo, m)) best_.match = std::move(found_);
    return std::move(best_);
  }

 private:
  struct Obligation {
    Var var;
    ValueId value;
  };

  template <typename... Args>
  bool Refuse(const Match& m, Kind kind, std::format_string<Args...> fmt, Args&&... args) {
    const int depth = static_cast<int>(m.nodes_.size());
    if (explain_ && depth >= best_.depth && (best_.reason.empty() || depth > best_.depth)) {
      best_.depth = depth;
      best_.kind = kind;
      best_.reason = std::format(fmt, std::forward<Args>(args)...);
    }
    return false;
  }

  // `todo` and `m` by value: each alternative continues from its own copy.
  bool Step(std::vector<Obligation> todo, Match m) {
    while (!todo.empty()) {
      const auto [var, value] = todo.back();
      todo.pop_back();
      const PatternNode& p = rule_.nodes[var.index()];
      ValueId& bound = m.values_[var.index()];
      if (p.what != What::kOneOf && bound.valid()) {
        if (bound == value) continue;
        return Refuse(m, Kind::kShape, "'{}' is {} here but {} there", p.name, Where(graph_, bound),
                      Where(graph_, value));
      }
      if (!value.valid()) return Refuse(m, Kind::kShape, "'{}' is absent", p.name);
      if (p.what == What::kOneOf) return Alternatives(p, var, value, todo, m);
      bound = value;
      if (p.what == What::kOp) {
        if (!MatchOp(p, value, m)) return false;
        const Node& n = *graph_.Producer(value);
        if (p.any_order) return BothOrders(p, n, todo, m);
        // Pushed in reverse: the first input is matched first.
        for (size_t i = p.inputs.size(); i-- > 0;) {
          if (p.inputs[i].valid()) todo.push_back({p.inputs[i], n.input(i)});
        }
      } else if (!MatchLeaf(p, value, m)) {
        return false;
      }
    }
    return OtherRoots(m);
  }

  // Further roots that are not matched yet, among the readers of what they read first; then the end.
  bool OtherRoots(Match& m) {
    const auto next = std::ranges::find_if(rule_.beside, [&m](Var v) { return !m.Has(v); });
    if (next == rule_.beside.end()) return Finish(m);
    const PatternNode& p = rule_.at(*next);
    for (const ir::Use& use : graph_.value(m[p.inputs[0]]).uses) {
      const ValueId value = graph_.node(use.node).output(p.output);
      const bool known = std::ranges::find(m.nodes_, use.node) != m.nodes_.end();
      if (!known && value.valid() && Step({{*next, value}}, m)) return true;
    }
    return Refuse(m, Kind::kShape, "there is no '{}' beside it", p.name);
  }

  bool Alternatives(const PatternNode& p, Var var, ValueId value, const std::vector<Obligation>& todo, const Match& m) {
    for (size_t i = 0; i < p.inputs.size(); ++i) {
      std::vector<Obligation> next = todo;
      next.push_back({p.inputs[i], value});
      Match copy = m;
      copy.alternatives_[var] = static_cast<int>(i);
      if (Step(std::move(next), std::move(copy))) return true;
    }
    return false;
  }

  bool BothOrders(const PatternNode& p, const Node& n, const std::vector<Obligation>& todo, const Match& m) {
    for (int swap = 0; swap < 2; ++swap) {
      std::vector<Obligation> next = todo;
      next.push_back({p.inputs[1], n.input(swap == 0 ? 1 : 0)});
      next.push_back({p.inputs[0], n.input(swap == 0 ? 0 : 1)});
      if (Step(std::move(next), m)) return true;
    }
    return false;
  }

  bool MatchOp(const PatternNode& p, ValueId value, Match& m) {
    const Node* n = graph_.Producer(value);
    if (n == nullptr || n->op != p.op || graph_.value(value).output_index != p.output ||
        (p.op == ir::Op::kOpaque && (n->op_type != p.op_type || n->domain != p.domain))) {
      return Refuse(m, Kind::kShape, "'{}' should be {} but is {}", p.name, OpName(p), Where(graph_, value));
    }
    m.nodes_.push_back(graph_.value(value).producer);  // the right op counts as matched, whatever its attributes say
    std::string why = p.attrs ? p.attrs(graph_, *n) : std::string();
    if (why.empty()) why = WhyOtherAttrs(p, *n);
    if (why.empty()) why = WhyOtherOperands(p, *n);
    return why.empty() || Refuse(m, Kind::kShape, "'{}' ({}): {}", p.name, Where(graph_, value), why);
  }

  static bool SameAttr(const ir::Attr& a, const ir::Attr& b) {
    ir::Attrs x, y;
    x.Set("a", a), y.Set("a", b);
    return x.Same(y);
  }

  // Empty, or which attribute is another one than the pattern's, or one that the pattern does not know.
  static std::string WhyOtherAttrs(const PatternNode& p, const Node& n) {
    for (const auto& [name, value] : p.named.entries()) {
      const ir::Attr* have = n.attrs.Find(name);
      if (have == nullptr) have = DefaultOf(n.op, name);
      if (have == nullptr || !SameAttr(*have, value)) return std::format("its attribute {} is another one", name);
    }
    if (p.open || p.attrs) return {};
    for (const auto& [name, value] : n.attrs.entries()) {
      const ir::Attr* otherwise = DefaultOf(n.op, name);
      if (!p.named.Has(name) && (otherwise == nullptr || !SameAttr(*otherwise, value)))
        return std::format("it has the attribute {}, which the pattern does not name", name);
    }
    return {};
  }

  static std::string WhyOtherOperands(const PatternNode& p, const Node& n) {
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const bool named = i < p.inputs.size();
      if (n.input(i).valid() && (named ? p.inputs[i] == Absent() : !p.open))
        return std::format("it has an operand {}, which the pattern does not name", i);
    }
    return {};
  }

  bool MatchLeaf(const PatternNode& p, ValueId value, Match& m) {
    const ir::Tensor* c = graph_.ConstantOf(value);
    if (p.what != What::kInput && c == nullptr) {
      return Refuse(m, Kind::kShape, "'{}' is not a constant: it is {}", p.name, Where(graph_, value));
    }
    if (p.what == What::kScalar) {
      if (c->size() != 1) return Refuse(m, Kind::kShape, "'{}' has {} elements, not one", p.name, c->size());
      const double x = c->GetDouble(0);
      const bool is = !p.scalar || (p.tolerance > 0 ? std::fabs(x - *p.scalar) <= p.tolerance * std::fabs(*p.scalar)
                                                    : IsConstant(x, *p.scalar, c->dtype()));
      if (!is) {
        return Refuse(m, Kind::kShape, "'{}' is {}, not {}", p.name, Digits(x, c->dtype()),
                      Digits(*p.scalar, c->dtype()));
      }
    }
    return MatchSpec(p, value, m);
  }

  bool MatchSpec(const PatternNode& p, ValueId value, Match& m) {
    const ir::Type& type = graph_.value(value).type;
    if (!p.spec.dtypes.empty() &&
        std::find(p.spec.dtypes.begin(), p.spec.dtypes.end(), type.dtype) == p.spec.dtypes.end()) {
      return Refuse(m, Kind::kShape, "'{}' ({}) has dtype {}", p.name, Where(graph_, value), quant::Name(type.dtype));
    }
    if (!p.spec.shape) return true;
    if (!type.shape) return Refuse(m, Kind::kShape, "the rank of '{}' ({}) is not known", p.name, Where(graph_, value));
    std::vector<std::string> letters = *p.spec.shape;
    size_t skip = 0;
    if (!letters.empty() && letters[0] == "...") {
      letters.erase(letters.begin());
      if (type.shape->size() < letters.size()) return Refuse(m, Kind::kShape, "'{}' has too few dimensions", p.name);
      skip = type.shape->size() - letters.size();
    }
    if (type.shape->size() - skip != letters.size()) {
      return Refuse(m, Kind::kShape, "'{}' ({}) has shape {}", p.name, Where(graph_, value), ir::ToString(*type.shape));
    }
    for (size_t i = 0; i < letters.size(); ++i) {
      const Dim& d = (*type.shape)[skip + i];
      const auto [it, fresh] = m.dims_.try_emplace(letters[i], d);
      if (!fresh && !ProvablyEqual(it->second, d)) {
        return Refuse(m, Kind::kShape, "dimension {} of '{}' is {}, elsewhere {}", letters[i], p.name, d.ToString(),
                      it->second.ToString());
      }
    }
    return true;
  }

  // A constant [1,1,1] makes three dims of two, which the fused op does not.
  bool KeepsRank(const PatternNode& p, ValueId v, const Match& m) {
    for (const Var in : p.inputs) {
      const bool scalar = in.valid() && rule_.at(in).what == What::kScalar;
      const ir::Tensor* c = scalar ? graph_.ConstantOf(m.values_[in.index()]) : nullptr;
      if (c == nullptr || c->rank() == 0) continue;
      const auto& inputs = graph_.Producer(v)->inputs;
      const bool fits = std::ranges::any_of(inputs, [&](ValueId other) {
        const auto* shape = other.valid() && graph_.ConstantOf(other) != c ? &graph_.value(other).type.shape : nullptr;
        return shape != nullptr && *shape && static_cast<int64_t>((*shape)->size()) >= c->rank();
      });
      if (fits) continue;
      return Refuse(m, Kind::kIllegal, "'{}' has the shape {}, which may give '{}' more dimensions than it has without",
                    rule_.nodes[in.index()].name, ir::ToString(c->shape()), p.name);
    }
    return true;
  }

  // Inner values must not be used outside; then the guard.
  bool Finish(Match& m) {
    for (size_t i = 0; i < rule_.nodes.size(); ++i) {
      const PatternNode& p = rule_.nodes[i];
      const ValueId v = m.values_[i];
      if (p.what != What::kOp || !v.valid()) continue;
      if (!KeepsRank(p, v, m)) return false;
      if (p.may_escape || v == root_) continue;
      if (graph_.IsGraphOutput(v)) {
        return Refuse(m, Kind::kIllegal, "'{}' ({}) is also a graph output and must be kept", p.name, Where(graph_, v));
      }
      for (const ir::Use& u : graph_.value(v).uses) {
        if (std::find(m.nodes_.begin(), m.nodes_.end(), u.node) == m.nodes_.end()) {
          return Refuse(m, Kind::kIllegal, "'{}' ({}) is also used by {}", p.name, Where(graph_, v),
                        Where(graph_, graph_.node(u.node).output()));
        }
      }
    }
    if (rule_.guard) {
      const Verdict verdict = rule_.guard(m);
      if (!verdict.ok()) {
        // All nodes matched: that tells more than an alternative that did not, however many had matched before it.
        if (static_cast<int>(m.nodes_.size()) == best_.depth) best_.reason.clear();
        return Refuse(m, verdict.kind, "{}", verdict.sentence);
      }
    }
    found_ = std::move(m);
    return true;
  }

  const Rule& rule_;
  const Graph& graph_;
  bool explain_;
  ValueId root_;
  Attempt best_;
  std::optional<Match> found_;
};

Attempt TryMatch(const Rule& rule, const Graph& graph, ValueId value, bool explain) {
  return Matcher(rule, graph, explain).Run(value);
}

}  // namespace octavo::passes::pattern
