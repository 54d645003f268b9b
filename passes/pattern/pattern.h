// A fusion rule declared as data: a tree of value patterns, a guard, a build step.
//
//   RuleBuilder r("gelu_erf", "x * 0.5 * (1 + erf(x / sqrt 2)) -> Gelu(x)");
//   Var x = r.Input("x");
//   Var e = r.Op("erf", Op::kErf, {r.Op("div", Op::kDiv, {x, r.Scalar("sqrt2", 1.41421356f)})});
//   r.Root(r.AnyOrder("out", Op::kMul, x, ...));
//
// Vocabulary: Input, Constant, Scalar, Op, AnyOrder, Optional, OneOf, MayEscape, Root, Guard, Build. Matching is const and
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

// Index of a pattern node inside its rule.
using Var = int;

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
  bool Has(Var v) const { return v >= 0 && values_[static_cast<size_t>(v)].valid(); }
  ValueId operator[](Var v) const { return values_[static_cast<size_t>(v)]; }
  // The node that makes the value of an Op pattern.
  NodeId node(Var v) const { return graph_->value((*this)[v]).producer; }
  const Node& at(Var v) const { return graph_->node(node(v)); }
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
  size_t output = 0;             // which output of the op
  std::vector<Var> inputs = {};  // kOp: one per slot, -1 anything; kOneOf: the alternatives, tried in order
  bool any_order = false;        // kOp with two inputs
  bool may_escape = false;       // the value may be used outside the pattern
  std::function<std::string(const Graph&, const Node&)> attrs = {};  // empty: fine, else why the attributes do not fit
};

struct Rule {
  std::string name;
  std::string doc;  // "before -> after"
  std::vector<PatternNode> nodes;
  Var root = -1;
  std::function<Verdict(const Match&)> guard;
  // Returns what replaces the root's value; invalid: Build has made all replacements itself.
  std::function<ValueId(Rewriter&, const Match&)> build;
};

class RuleBuilder {
 public:
  RuleBuilder(std::string name, std::string doc);
  Var Input(std::string name, Spec spec = {});
  Var Constant(std::string name, Spec spec = {});
  // A constant of one element. `value`: what it must be, to the bit where a float holds it (0.5); else the nearest number of the constant's own
  // type or one beside it, as exporters round sqrt(2). The fused op has the true constant: what is farther off is another function.
  Var Scalar(std::string name, std::optional<double> value = std::nullopt);
  Var Op(std::string name, ir::Op op, std::vector<Var> inputs,
         std::function<std::string(const Graph&, const Node&)> attrs = nullptr);
  Var AnyOrder(std::string name, ir::Op op, Var a, Var b);
  // `step`, or, where that does not match, what it is applied to.
  Var Optional(Var step, Var otherwise);
  Var OneOf(std::string name, std::vector<Var> alternatives);
  Var MayEscape(Var v);
  void Root(Var v) { rule_.root = v; }
  void Guard(std::function<Verdict(const Match&)> guard) { rule_.guard = std::move(guard); }
  void Build(std::function<ValueId(Rewriter&, const Match&)> build) { rule_.build = std::move(build); }
  // Checks the declaration: root set, build set, every named part reachable from the root.
  Rule Finish();

 private:
  Var Add(PatternNode node);
  Rule rule_;
};

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

// Applies the rules in order, each over all nodes in order, and reports near misses to the context.
Result<bool> ApplyRules(const std::vector<Rule>& rules, Graph& graph, PassContext& context);

}  // namespace octavo::passes::pattern

#endif  // OCTAVO_PASSES_PATTERN_PATTERN_H_
