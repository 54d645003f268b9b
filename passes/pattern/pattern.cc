#include "octavo/passes/pattern/pattern.h"

#include <algorithm>
#include <format>
#include <set>
#include <utility>

#include "octavo/ir/attr_table.h"

namespace octavo::passes::pattern {

std::string_view Name(Kind kind) {
  switch (kind) {
    case Kind::kOk:
      return "Ok";
    case Kind::kShape:
      return "Shape";
    case Kind::kIllegal:
      return "Illegal";
    case Kind::kNoKernel:
      return "NoKernel";
    case Kind::kNotWorth:
      return "NotWorth";
  }
  return "?";
}
Verdict Shape(std::string sentence) { return {Kind::kShape, std::move(sentence)}; }
Verdict Illegal(std::string sentence) { return {Kind::kIllegal, std::move(sentence)}; }
Verdict NoKernel(std::string sentence) { return {Kind::kNoKernel, std::move(sentence)}; }
Verdict NotWorth(std::string sentence) { return {Kind::kNotWorth, std::move(sentence)}; }

float Match::scalar(Var v) const {
  const ir::Tensor* c = graph_->ConstantOf((*this)[v]);
  OCTAVO_CHECK(c != nullptr, "not a constant");
  return static_cast<float>(c->GetDouble(0));
}
const ir::SymShape* Match::shape(Var v) const {
  const auto& shape = graph_->value((*this)[v]).type.shape;
  return shape ? &*shape : nullptr;
}
const ir::SymShape* Match::shape(Var v, size_t rank) const {
  const ir::SymShape* s = shape(v);
  return s != nullptr && s->size() == rank ? s : nullptr;
}
int Match::alternative(Var v) const {
  const auto it = alternatives_.find(v);
  return it == alternatives_.end() ? -1 : it->second;
}
ir::Dim Match::dim(const std::string& letter) const {
  const auto it = dims_.find(letter);
  return it == dims_.end() ? ir::Dim::Unknown() : it->second;
}

RuleBuilder::RuleBuilder(std::string name, std::string doc) {
  rule_.name = std::move(name);
  rule_.doc = std::move(doc);
}
Var RuleBuilder::Add(PatternNode node) {
  rule_.nodes.push_back(std::move(node));
  return Var(static_cast<int>(rule_.nodes.size()) - 1);
}
Var RuleBuilder::Input(std::string name, Spec spec) {
  return Add({.what = PatternNode::What::kInput, .name = std::move(name), .spec = std::move(spec)});
}
Var RuleBuilder::Constant(std::string name, Spec spec) {
  return Add({.what = PatternNode::What::kConstant, .name = std::move(name), .spec = std::move(spec)});
}
Var RuleBuilder::Scalar(std::string name, std::optional<double> value, double tolerance) {
  return Add({.what = PatternNode::What::kScalar, .name = std::move(name), .scalar = value, .tolerance = tolerance});
}
Var RuleBuilder::Op(std::string name, ir::Op op, std::vector<Var> inputs,
                    std::function<std::string(const Graph&, const Node&)> attrs) {
  return Add({.what = PatternNode::What::kOp,
              .name = std::move(name),
              .op = op,
              .inputs = std::move(inputs),
              .attrs = std::move(attrs)});
}
Var RuleBuilder::Opaque(std::string name, std::string domain, std::string op_type, std::vector<Var> inputs) {
  return Add({.what = PatternNode::What::kOp,
              .name = std::move(name),
              .domain = std::move(domain),
              .op_type = std::move(op_type),
              .inputs = std::move(inputs)});
}
Var RuleBuilder::Output(Var v, size_t output) {
  rule_.nodes[v.index()].output = output;
  return v;
}
Var RuleBuilder::AnyOrder(std::string name, ir::Op op, Var a, Var b) {
  return Add({.what = PatternNode::What::kOp, .name = std::move(name), .op = op, .inputs = {a, b}, .any_order = true});
}
Var RuleBuilder::Optional(Var step, Var otherwise) {
  return OneOf(rule_.nodes[step.index()].name + "?", {step, otherwise});
}
Var RuleBuilder::OneOf(std::string name, std::vector<Var> alternatives) {
  return Add({.what = PatternNode::What::kOneOf, .name = std::move(name), .inputs = std::move(alternatives)});
}
Var RuleBuilder::MayEscape(Var v) {
  rule_.nodes[v.index()].may_escape = true;
  return v;
}

Var RuleBuilder::Open(Var v) {
  rule_.nodes[v.index()].open = true;
  return v;
}
Var RuleBuilder::Named(Var v, ir::Attrs attrs) {
  rule_.nodes[v.index()].named = std::move(attrs);
  return v;
}

void RuleBuilder::Beside(Var v) {
  const PatternNode& p = rule_.at(v);
  OCTAVO_CHECK(p.what == PatternNode::What::kOp && !p.inputs.empty() && p.inputs[0].valid(),
               "rule {}: '{}' is found by its first operand, and has none", rule_.name, p.name);
  rule_.beside.push_back(MayEscape(v));
}

std::vector<std::string> RuleBuilder::Unreached() const {
  std::vector<bool> reached(rule_.nodes.size(), false);
  std::vector<Var> work = rule_.beside;
  work.push_back(rule_.root);
  while (!work.empty()) {
    const Var v = work.back();
    work.pop_back();
    if (!v.valid() || reached[v.index()]) continue;
    reached[v.index()] = true;
    for (Var in : rule_.at(v).inputs) {
      OCTAVO_CHECK(in != Var(), "rule {}: an operand of '{}' is no part of it", rule_.name, rule_.at(v).name);
      work.push_back(in);
    }
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < reached.size(); ++i) {
    if (!reached[i]) names.push_back(rule_.nodes[i].name);
  }
  return names;
}

namespace {

// Of an op that octavo knows.
std::string WhyWrongOp(const PatternNode& p) {
  const ir::OpInfo& info = ir::InfoOf(p.op);
  const auto given = static_cast<int>(p.inputs.size());
  const auto there = static_cast<int>(std::ranges::count_if(p.inputs, [](Var v) { return v != Absent(); }));
  const bool few = there < info.min_inputs && !p.open, many = info.max_inputs >= 0 && given > info.max_inputs;
  if (few || many)
    return std::format("'{}' has {} operand{}, and {} takes {}{}", p.name, there, there == 1 ? "" : "s", info.name,
                       many && info.min_inputs != info.max_inputs ? "at most " : "",
                       many ? info.max_inputs : info.min_inputs);
  const auto known = ir::CheckAttributes(info.domain, info.name, p.named);
  return known ? "" : std::format("'{}' can match nothing: {}", p.name, known.error().message);
}

}  // namespace

std::string RuleBuilder::WhyWrong() const {
  if (rule_.root.valid()) {
    const PatternNode::What root = rule_.at(rule_.root).what;
    if (root != PatternNode::What::kOp && root != PatternNode::What::kOneOf)
      return std::format("its root '{}' is no op", rule_.at(rule_.root).name);
  }
  std::set<std::string_view> inputs;
  for (const PatternNode& p : rule_.nodes) {
    if (p.what == PatternNode::What::kInput && !inputs.insert(p.name).second)
      return std::format("it has two inputs '{}'; where the same value is meant, it is one", p.name);
    if (p.what != PatternNode::What::kOp || p.op == ir::Op::kOpaque) continue;
    std::string why = WhyWrongOp(p);
    if (!why.empty()) return why;
  }
  return {};
}

Rule RuleBuilder::Finish() {
  OCTAVO_CHECK(rule_.root.valid() && rule_.build, "rule {} has no root or no build step", rule_.name);
  const std::vector<std::string> unreached = Unreached();
  OCTAVO_CHECK(unreached.empty(), "rule {}: '{}' cannot be reached from the root", rule_.name, unreached[0]);
  const std::string wrong = WhyWrong();
  OCTAVO_CHECK(wrong.empty(), "rule {}: {}", rule_.name, wrong);
  return std::move(rule_);
}

std::function<std::string(const Graph&, const Node&)> PermIs(std::vector<int64_t> perm) {
  return [perm = std::move(perm)](const Graph&, const Node& n) -> std::string {
    const std::vector<int64_t> have = n.attrs.Ints("perm");
    return have == perm ? "" : "its perm is " + ir::ToString(have) + ", not " + ir::ToString(perm);
  };
}

std::function<std::string(const Graph&, const Node&)> LastAxis(int64_t fallback) {
  return [fallback](const Graph& g, const Node& n) -> std::string {
    const int64_t axis = n.attrs.Int("axis", fallback);
    const auto& shape = g.value(n.inputs[0]).type.shape;
    const bool last = axis == -1 || (shape && axis == static_cast<int64_t>(shape->size()) - 1);
    return last ? "" : "its axis " + std::to_string(axis) + " is not the last one";
  };
}

}  // namespace octavo::passes::pattern
