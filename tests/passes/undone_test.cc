// A rewrite that does not stand for what it replaces is undone, where it stood, and the rest goes on: rules of one's own that are wrong in every way that a
// rule can be, passes that fail, and the graphs on which octavo's rules were.
#include <gtest/gtest.h>

#include <algorithm>
#include <format>

#include "octavo/ir/interpret.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/guard.h"
#include "octavo/passes/pipelines.h"
#include "octavo/tests/passes/maker.h"

namespace octavo::passes {
namespace {

using ir::DType;
using pattern::Match;
using pattern::Rule;
using pattern::RuleBuilder;
using pattern::Var;

int CountOf(const Graph& g, Op op) {
  const auto nodes = g.NodesInOrder();
  return static_cast<int>(std::ranges::count_if(nodes, [&](NodeId id) { return g.node(id).op == op; }));
}

// y0 = Relu(x), y1 = Relu(y0), ... each [2,3].
Graph Relus(int count) {
  Maker m(1);
  ValueId v = m.g.AddInput("x", {DType::kF32, ir::SymShape{2, 3}});
  for (int i = 0; i < count; ++i) {
    v = m.Node(Op::kRelu, {v});
    m.g.AddOutput(std::format("y{}", i), v);
  }
  return std::move(m.g);
}

// Relu -> Abs; at the nodes of these names `wrong` makes something else.
Rule ReluToAbs(std::vector<std::string> names, std::function<ValueId(Rewriter&, ValueId)> wrong) {
  RuleBuilder r("relu_to_abs", "a rule that is wrong in places");
  const Var x = r.Input("x");
  const Var relu = r.Op("relu", Op::kRelu, {x});
  r.Root(relu);
  r.Build([=](Rewriter& b, const Match& m) {
    if (std::ranges::contains(names, m.at(relu).name)) return wrong(b, m[x]);
    return b.Create(Op::kAbs, {m[x]});
  });
  return r.Finish();
}

struct Applied {
  Graph graph;
  std::vector<NearMiss> misses;
};
Applied Apply(Graph g, const std::vector<Rule>& rules) {
  Applied a{std::move(g), {}};
  EXPECT_TRUE(ir::Inference::Run(a.graph));
  PassRun context;
  context.misses = &a.misses;
  const Result<bool> changed = pattern::ApplyRules(rules, a.graph, context);
  EXPECT_TRUE(changed) << changed.error().message;
  return a;
}

void ExpectUndone(const std::function<ValueId(Rewriter&, ValueId)>& wrong, const std::string& reason) {
  SCOPED_TRACE(reason);
  const Graph g = Relus(5);
  const std::string first = g.node(g.NodesInOrder()[1]).name, second = g.node(g.NodesInOrder()[3]).name;
  const Applied a = Apply(g, {ReluToAbs({first, second}, wrong)});
  EXPECT_EQ(CountOf(a.graph, Op::kAbs), 3);
  EXPECT_EQ(CountOf(a.graph, Op::kRelu), 2);
  EXPECT_EQ(a.graph.node_count(), 5u) << "something is left of what was undone";
  ASSERT_EQ(a.misses.size(), 2u);
  EXPECT_EQ(a.misses[0].root, first);
  EXPECT_EQ(a.misses[1].root, second);
  for (const NearMiss& m : a.misses) {
    EXPECT_EQ(m.kind, "Illegal");
    EXPECT_NE(m.reason.find("the fused form does not stand for what it replaces: "), std::string::npos) << m.reason;
    EXPECT_NE(m.reason.find(reason), std::string::npos) << m.reason;
  }
}

TEST(Undone, WhereItStood) {
  ExpectUndone([](Rewriter& b, ValueId x) { return b.Create(Op::kCast, {x}, {{"to", int64_t{10}}}); },
               "it would give f16[2,3] instead of f32[2,3]");
  ExpectUndone(
      [](Rewriter& b, ValueId x) { return b.Create(Op::kUnsqueeze, {x, b.Constant(ir::Tensor::S64({1}, {0}))}); },
      "[1,2,3]");
  ExpectUndone([](Rewriter& b, ValueId x) { return b.Create(Op::kTranspose, {x}); }, "[3,2]");
  ExpectUndone([](Rewriter& b, ValueId x) { return b.Create(Op::kMatMul, {x, x}); }, "MatMul");
  ExpectUndone([](Rewriter& b, ValueId) { return b.graph().node(NodeId{12345}).output(); }, "octavo is at fault");
  ExpectUndone(
      [](Rewriter& b, ValueId x) {  // another value of the graph, of another type
        const ValueId other = b.Create(Op::kCast, {x}, {{"to", int64_t{6}}});
        b.graph().SetType(other, {DType::kS32, ir::SymShape{2, 3}});
        return other;
      },
      "replaces");
}

TEST(Undone, EverywhereWhereItMakesACycle) {
  RuleBuilder r("cycle", "reads what reads it");
  const Var x = r.Input("x");
  const Var relu = r.MayEscape(r.Op("relu", Op::kRelu, {x}));
  r.Root(relu);
  r.Build([=](Rewriter& b, const Match& m) {
    const auto& uses = b.graph().value(m[relu]).uses;
    if (uses.empty()) return ValueId{};
    return b.Create(Op::kAdd, {m[x], b.graph().node(uses[0].node).output()});
  });
  const Graph g = Relus(3);
  const Applied a = Apply(g, {r.Finish()});
  EXPECT_EQ(CountOf(a.graph, Op::kRelu), 3);
  EXPECT_EQ(a.graph.node_count(), g.node_count());
}

// --- passes ---

Result<bool> HalvesTheType(Graph& g, PassRun& context) {
  context.log.emplace_back("half");
  context.own_params["x"] = {};
  g.SetAttr(g.NodesInOrder().back(), "to", int64_t{10});
  return true;
}
Result<bool> BreaksAnInvariant(Graph& g, PassRun&) {
  Rewriter b(g, "wrong");
  b.EraseDead(g.NodesInOrder()[0]);
  g.Erase(g.NodesInOrder()[0]);
  return true;
}
Result<bool> Refuses(Graph& g, PassRun&) {
  g.SetNodeName(g.NodesInOrder()[0], "touched");
  return ir::Fail("it cannot");
}
Result<bool> TheCallersFault(Graph&, PassRun& context) {
  context.given_up = true;
  return ir::Fail("interrupted");
}
Result<bool> WrongUnlessCareful(Graph& g, PassRun& context) {
  if (!context.careful) return HalvesTheType(g, context);
  g.SetNodeName(g.NodesInOrder()[0], "careful");
  return true;
}

Graph CastAtTheEnd() {
  Maker m(1);
  const ValueId x = m.g.AddInput("x", {DType::kF32, ir::SymShape{2}});
  m.g.AddOutput("y", m.Node(Op::kCast, {m.Node(Op::kRelu, {x})}, {{"to", int64_t{1}}}), {DType::kF32, ir::SymShape{2}});
  EXPECT_TRUE(ir::Inference::Run(m.g));
  return std::move(m.g);
}

TEST(Undone, PassesToo) {
  for (const auto& [run, reason] : {std::pair<Result<bool> (*)(Graph&, PassRun&), const char*>{HalvesTheType, "f16"},
                                    {BreaksAnInvariant, "is used"},
                                    {Refuses, "it cannot"}}) {
    Graph g = CastAtTheEnd();
    PassRun context;
    const Result<bool> changed = RunPass(FunctionPass({.name = "wrong"}, run), g, context);
    ASSERT_TRUE(changed) << changed.error().message;
    EXPECT_FALSE(*changed);
    EXPECT_EQ(g.node(g.NodesInOrder()[1]).attrs.Int("to", 0), 1);
    EXPECT_NE(g.node(g.NodesInOrder()[0]).name, "touched");
    EXPECT_TRUE(context.log.empty() && context.own_params.empty());
    ASSERT_EQ(context.notes.size(), 1u);
    EXPECT_NE(context.notes[0].find("the pass wrong was undone"), std::string::npos) << context.notes[0];
    EXPECT_NE(context.notes[0].find(reason), std::string::npos) << context.notes[0];
  }
}

// "approximate" it should be: the op would take its default in silence.
TEST(Undone, AttributesThatAnOpDoesNotHave) {
  Graph g = Relus(1);
  ASSERT_TRUE(ir::Inference::Run(g));
  const FunctionPass pass({.name = "to_gelu", .what = "", .version = "1"}, [](Graph& graph, PassRun&) -> Result<bool> {
    const NodeId last = graph.last();
    Rewriter b(graph, "to_gelu");
    b.At(last, {last});
    const ValueId made = b.Create(Op::kGelu, {graph.node(last).input(0)}, {{"approximte", std::string("tanh")}});
    b.Replace(graph.node(last).output(), made);
    b.EraseDead(last);
    return true;
  });
  PassRun run;
  const Result<bool> changed = RunPass(pass, g, run);
  ASSERT_TRUE(changed);
  EXPECT_FALSE(*changed);
  EXPECT_EQ(CountOf(g, Op::kRelu), 1);
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_NE(run.notes[0].find("it has the attribute 'approximte', which Gelu does not know"), std::string::npos)
      << run.notes[0];
}

TEST(Undone, PartsOfAPassForThemselves) {
  Graph g = CastAtTheEnd();
  PassRun context;
  const Result<bool> changed = RunPass(FunctionPass({.name = "careful"}, WrongUnlessCareful), g, context);
  ASSERT_TRUE(changed);
  EXPECT_TRUE(*changed);
  EXPECT_EQ(g.node(g.NodesInOrder()[0]).name, "careful");
  EXPECT_TRUE(context.notes.empty());
}

TEST(Undone, NotWhatTheCallerCaused) {
  Graph g = CastAtTheEnd();
  PassRun context;
  const Result<bool> changed = RunPass(FunctionPass({.name = "waits"}, TheCallersFault), g, context);
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().message, "interrupted");
}

// --- octavo's rules ---

// Two GELUs, of which the second has a half of this shape.
Graph TwoGelus(const ir::Shape& shape, std::optional<ir::SymShape> x) {
  Maker m(2);
  ValueId v = m.g.AddInput("x", {DType::kF32, std::move(x)});
  for (const ir::Shape& half : {ir::Shape{}, shape}) {
    const ValueId erf = m.Node(Op::kErf, {m.Node(Op::kDiv, {v, m.Real(1.41421356f)})});
    const ValueId sum = m.Node(Op::kMul, {v, m.Node(Op::kAdd, {erf, m.Real(1)})});
    v = m.Node(Op::kMul, {sum, m.g.AddConstant(ir::Tensor::F32(half, {0.5f}))});
  }
  m.g.AddOutput("y", v);
  return std::move(m.g);
}

TEST(Undone, ScalarsThatWidenTheResult) {
  const std::vector<Rule> rules{fusions::GeluErf()};
  for (const ir::Shape& shape : {ir::Shape{1, 1, 1}, ir::Shape{1, 1, 1, 1}}) {
    const Graph g = TwoGelus(shape, ir::SymShape{2, 3});
    const Applied a = Apply(g, rules);
    EXPECT_EQ(CountOf(a.graph, Op::kGelu), 1);
    ASSERT_FALSE(a.misses.empty());
    EXPECT_NE(a.misses.back().reason.find("which may give 'x_t_half' more dimensions than it has without"),
              std::string::npos)
        << a.misses.back().reason;
    const ir::TensorMap inputs{{"x", ir::Tensor::F32({2, 3}, {-2, -1, -0.5f, 0.5f, 1, 2})}};
    const auto want = ir::Interpret(g, inputs), got = ir::Interpret(a.graph, inputs);
    ASSERT_TRUE(want && got);
    EXPECT_EQ((*want)[0].shape(), (*got)[0].shape());
  }
  EXPECT_EQ(CountOf(Apply(TwoGelus({1}, ir::SymShape{2, 3}), rules).graph, Op::kGelu), 2);
  EXPECT_EQ(CountOf(Apply(TwoGelus({1, 1}, ir::SymShape{2, 3}), rules).graph, Op::kGelu), 2);
  EXPECT_EQ(CountOf(Apply(TwoGelus({1}, std::nullopt), rules).graph, Op::kGelu), 1);  // x may have rank 0
}

// (x - mean) / deviation * gamma + beta with parameters of these shapes.
int NormsOf(ir::SymShape x_shape, ir::Shape gamma, ir::Shape beta, DType type, std::string* reason) {
  Maker m(3);
  const auto filled = [&](const ir::Shape& s) {
    ir::Tensor t = ir::Tensor::Zeros(DType::kF32, s);
    std::ranges::fill(t.mutable_as<float>(), 0.5f);
    const ValueId v = m.g.AddConstant(std::move(t));
    return type == DType::kF32 ? v : m.Node(Op::kCast, {v}, {{"to", static_cast<int64_t>(type)}});
  };
  const ValueId x = m.g.AddInput("x", {type, std::move(x_shape)});
  const ValueId d = m.Node(Op::kSub, {x, m.Node(Op::kReduceMean, {x, m.Ints({-1})})});
  const ValueId var = m.Node(Op::kReduceMean, {m.Node(Op::kMul, {d, d}), m.Ints({-1})});
  const ValueId root = m.Node(Op::kSqrt, {m.Node(Op::kAdd, {var, filled({})})});
  m.g.AddOutput("y", m.Node(Op::kAdd, {m.Node(Op::kMul, {m.Node(Op::kDiv, {d, root}), filled(gamma)}), filled(beta)}));
  PassRun context;
  std::vector<NearMiss> misses;
  context.misses = &misses;
  EXPECT_TRUE(RunPasses({"fold", "fuse_float"}, m.g, context));
  EXPECT_TRUE(context.notes.empty());
  reason->clear();
  for (const NearMiss& miss : misses) {
    if (miss.rule == "layer_norm") *reason += miss.reason + "\n";
  }
  return CountOf(m.g, Op::kLayerNormalization);
}

TEST(Undone, NormsWithOtherVectors) {
  std::string reason;
  const ir::Dim d = ir::Dim::Symbol("d");
  EXPECT_EQ(NormsOf({2, 8}, {8}, {8}, DType::kF32, &reason), 1);
  EXPECT_EQ(NormsOf({2, 8}, {8}, {8}, DType::kF16, &reason), 1);
  for (const auto& [x, gamma, beta] : {std::tuple{ir::SymShape{2, 8}, ir::Shape{1}, ir::Shape{8}},
                                       {ir::SymShape{2, 8}, ir::Shape{8}, ir::Shape{1}},
                                       {ir::SymShape{2, 8}, ir::Shape{8}, ir::Shape{}},
                                       {ir::SymShape{2, 8}, ir::Shape{2, 1}, ir::Shape{8}},
                                       {ir::SymShape{2, 8}, ir::Shape{8}, ir::Shape{3, 1, 8}},
                                       {ir::SymShape{2, 1}, ir::Shape{8}, ir::Shape{8}},
                                       {ir::SymShape{2, d}, ir::Shape{8}, ir::Shape{8}}}) {
    const int without = x.back().is_number() ? 1 : 0;  // the norm alone fuses where its ones can be counted
    EXPECT_EQ(NormsOf(x, gamma, beta, DType::kF32, &reason), without);
    EXPECT_NE(reason.find("gamma or beta is no vector of the last dimension"), std::string::npos) << reason;
  }
  EXPECT_EQ(NormsOf({2, 8}, {8}, {8}, DType::kF64, &reason), 0);
  EXPECT_NE(reason.find("has dtype f64"), std::string::npos) << reason;
}

}  // namespace
}  // namespace octavo::passes
