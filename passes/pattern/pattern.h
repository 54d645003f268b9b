// A fusion rule declared as data: a tree of value patterns, a guard, a build step.
//
//   RuleBuilder r("gelu_erf", "x * 0.5 * (1 + erf(x / sqrt 2)) -> Gelu(x)");
//   Var x = r.Input("x");
//   Var e = r.Op("erf", Op::kErf, {r.Op("div", Op::kDiv, {x, r.Scalar("sqrt2", 1.41421356f)})});
//   r.Root(r.AnyOrder("out", Op::kMul, x, ...));
//
// Vocabulary: Input, Constant, Scalar, Op, AnyOrder, Optional, OneOf, MayEscape, Root, Beside, Guard, Build. Matching is const and
// complete before anything is rewritten: a Match is a value, the graph is changed by Build only, through a Rewriter.
#ifndef OCTAVO_PASSES_PATTERN_PATTERN_H_
#define OCTAVO_PASSES_PATTERN_PATTERN_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/passes/pass.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::pattern {

// A pattern node of one rule. A default one stands for none: a part that this form of the rule does not have.
class Var {
 public:
  constexpr Var() = default;
  constexpr bool valid() const { return index_ >= 0; }
  constexpr bool is_any() const { return index_ == kAny; }
  constexpr size_t index() const { return static_cast<size_t>(index_); }
  constexpr bool operator==(const Var&) const = default;
  constexpr auto operator<=>(const Var&) const = default;

 private:
  friend class RuleBuilder;
  friend constexpr Var Anything();
  friend constexpr Var Absent();
  static constexpr int kNone = -1, kAny = -2, kAbsent = -3;
  explicit constexpr Var(int index) : index_(index) {}
  int index_ = kNone;
};
// Operands that a pattern does not look at, and operands that must not be there.
constexpr Var Anything() { return Var(Var::kAny); }
constexpr Var Absent() { return Var(Var::kAbsent); }

// What an Input or Constant must be. Letters unify across all tensors of a rule; "..." stands for any leading dims.
struct Spec {
  std::vector<ir::DType> dtypes = {};                  // empty: any
  std::optional<std::vector<std::string>> shape = {};  // letters or numbers; nullopt: any
};

enum class Kind { kOk, kShape, kIllegal, kNoKernel, kNotWorth };
std::string_view Name(Kind kind);

// Ok, or a refusal: one sentence and, through it, a culprit.
struct Verdict {
  Kind kind = Kind::kOk;
  std::string sentence;
  bool ok() const { return kind == Kind::kOk; }
};
inline Verdict Ok() { return {}; }
Verdict Shape(std::string sentence);
Verdict Illegal(std::string sentence);
Verdict NoKernel(std::string sentence);
Verdict NotWorth(std::string sentence);

// A complete match: which value every pattern node stands for.
class Match {
 public:
  explicit Match(const Graph& graph, size_t vars) : graph_(&graph), values_(vars) {}

  const Graph& graph() const { return *graph_; }
  bool Has(Var v) const { return v.valid() && values_[v.index()].valid(); }
  ValueId operator[](Var v) const { return values_[v.index()]; }
  // The node that makes the value of an Op pattern.
  NodeId node(Var v) const { return graph_->value((*this)[v]).producer; }
  const Node& at(Var v) const { return graph_->node(node(v)); }
  ir::DType dtype(Var v) const { return graph_->value((*this)[v]).type.dtype; }
  // Null: not known, or of another rank than asked for.
  const ir::SymShape* shape(Var v) const;
  const ir::SymShape* shape(Var v, size_t rank) const;
  // Value of a matched Scalar.
  float scalar(Var v) const;
  // Which alternative of a OneOf matched (0, 1, ...); -1: it was not reached.
  int alternative(Var v) const;
  // Dim a letter of the shape specs stands for.
  ir::Dim dim(const std::string& letter) const;
  // All nodes matched, root first: the sources of the new node's provenance.
  const std::vector<NodeId>& nodes() const { return nodes_; }

 private:
  friend class Matcher;
  const Graph* graph_;
  std::vector<ValueId> values_;
  std::map<Var, int> alternatives_;
  std::map<std::string, ir::Dim> dims_;
  std::vector<NodeId> nodes_;
};

struct PatternNode {
  enum class What { kInput, kConstant, kScalar, kOp, kOneOf };
  What what = What::kInput;
  std::string name = {};
  Spec spec = {};
  std::optional<double> scalar = {};  // expected value: RuleBuilder::Scalar
  ir::Op op = ir::Op::kOpaque;
  std::string domain = {}, op_type = {};  // of kOpaque: an op that octavo does not know
  size_t output = 0;                      // which output of the op
  std::vector<Var> inputs = {};           // kOp: one per slot; kOneOf: the alternatives, tried in order
  bool any_order = false;                 // kOp with two inputs
  bool may_escape = false;                // the value may be used outside the pattern
  bool open = false;                      // operands and attributes that the pattern does not name may be there
  double tolerance = 0;  // kScalar: relative; 0: the nearest number of the constant's own type or one beside it
  ir::Attrs named = {};  // kOp: attributes that it must have, by value or by default
  std::function<std::string(const Graph&, const Node&)> attrs = {};  // empty: fine, else why the attributes do not fit
};

struct Rule {
  std::string name;
  std::string doc;  // "before -> after"
  std::vector<PatternNode> nodes;
  Var root = {};
  std::vector<Var> beside = {};  // further roots: RuleBuilder::Beside
  std::function<Verdict(const Match&)> guard;
  // Returns what replaces the root's value; invalid: Build has made all replacements itself.
  std::function<ValueId(Rewriter&, const Match&)> build;

  const PatternNode& at(Var v) const { return nodes[v.index()]; }
};
// A tree from the root to the inputs, for `octavo explain --rule`.
std::string Picture(const Rule& rule);

class RuleBuilder {
 public:
  RuleBuilder(std::string name, std::string doc);
  Var Input(std::string name, Spec spec = {});
  Var Constant(std::string name, Spec spec = {});
  // A constant of one element. `value`: what it must be, to the bit where a float holds it (0.5); else the nearest number of the constant's own
  // type or one beside it, as exporters round sqrt(2). The fused op has the true constant: what is farther off is another function, unless a
  // relative tolerance is stated. Match::scalar gives what stands there. A scalar that would give its op more dimensions does not match.
  Var Scalar(std::string name, std::optional<double> value = std::nullopt, double tolerance = 0);
  // Operands and attributes that are not named must not be there, but attributes that say their default: unless it is opened.
  Var Op(std::string name, ir::Op op, std::vector<Var> inputs,
         std::function<std::string(const Graph&, const Node&)> attrs = nullptr);
  Var Opaque(std::string name, std::string domain, std::string op_type, std::vector<Var> inputs);
  Var AnyOrder(std::string name, ir::Op op, Var a, Var b);
  Var Output(Var v, size_t output);  // matches that output of the op, not its first
  // `step`, or, where that does not match, what it is applied to.
  Var Optional(Var step, Var otherwise);
  Var OneOf(std::string name, std::vector<Var> alternatives);
  Var MayEscape(Var v);
  Var Open(Var v);
  Var Named(Var v, ir::Attrs attrs);
  void Root(Var v) { rule_.root = v; }
  // A further root: an op that does not lead to the first one, but reads the same. It is looked for among the readers of its first operand, which
  // the match knows by then; the first that fits, and that the guard takes, is it. It may have other readers, and Build replaces it.
  void Beside(Var v);
  void Guard(std::function<Verdict(const Match&)> guard) { rule_.guard = std::move(guard); }
  void Build(std::function<ValueId(Rewriter&, const Match&)> build) { rule_.build = std::move(build); }
  // Names of the parts that the root does not lead to.
  std::vector<std::string> Unreached() const;
  // Why the rule can match nothing, or anything: "'y' has 1 operand, and Add takes 2". Empty: nothing of that kind was found.
  std::string WhyWrong() const;
  // Checks the declaration: root set, build set, every named part reachable from the root, and the above.
  Rule Finish();

 private:
  Var Add(PatternNode node);
  Rule rule_;
};

// What an attribute of a standard op is where it is not written; null: it has no default, or none that patterns need.
const ir::Attr* DefaultOf(ir::Op op, std::string_view name);

// Attribute checks that rules share.
std::function<std::string(const Graph&, const Node&)> PermIs(std::vector<int64_t> perm);
std::function<std::string(const Graph&, const Node&)> LastAxis(int64_t fallback);

struct Attempt {
  std::optional<Match> match;
  int depth = 0;  // op nodes matched before the refusal
  Kind kind = Kind::kShape;
  std::string reason;
};
// Matches `rule` with its root at `value`; on refusal the deepest reason is told if `explain`.
Attempt TryMatch(const Rule& rule, const Graph& graph, ValueId value, bool explain);

// Applies the rules in order, each over all nodes in order, and reports near misses to the run.
Result<bool> ApplyRules(const std::vector<Rule>& rules, Graph& graph, PassRun& run);

}  // namespace octavo::passes::pattern

#endif  // OCTAVO_PASSES_PATTERN_PATTERN_H_
