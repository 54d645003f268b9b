#include "octavo/ir/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/ir/graph.h"
#include "octavo/ir/text.h"

namespace octavo::ir {
namespace {

using ::testing::HasSubstr;

// The Graph's own members cannot break it; a bug would. These reach behind them.
Node& Broken(Graph& g, NodeId id) { return const_cast<Node&>(g.node(id)); }
Value& Broken(Graph& g, ValueId id) { return const_cast<Value&>(g.value(id)); }

// x -> Relu a -> Add b(a, c) -> y
struct Sample {
  Graph g;
  ValueId x, c;
  NodeId a, b;
  Sample() {
    x = g.AddInput("x", {DType::kF32, SymShape{Dim::Symbol("n"), 4}});
    a = g.AddNode(Op::kRelu, {x}, 1, {}, "a");
    c = g.AddConstant(Tensor::F32({4}, {1, 2, 3, 4}), "c");
    b = g.AddNode(Op::kAdd, {Out(a), c}, 1, {}, "b");
    g.AddOutput("y", Out(b));
  }
  ValueId Out(NodeId n) const { return g.node(n).outputs[0]; }
  // "culprit: message" of each violation.
  std::string All() const {
    std::string out;
    for (const Violation& v : Verify(g)) out += v.node + ": " + v.message + "\n";
    return out;
  }
};

TEST(Verify, LegalGraphHasNoViolations) {
  Sample s;
  EXPECT_EQ(s.All(), "");
  EXPECT_TRUE(VerifyStatus(s.g).has_value());
  EXPECT_TRUE(Verify(Graph()).empty());
}

TEST(Verify, DeadInput) {
  Sample s;
  const NodeId gone = s.g.AddNode(Op::kRelu, {s.x}, 1, {}, "gone");
  const ValueId dead = s.Out(gone);
  s.g.Erase(gone);
  Broken(s.g, s.b).inputs[0] = dead;
  EXPECT_THAT(s.All(), HasSubstr("b: input 0 is the dead value"));
}

TEST(Verify, UseListsThatDisagree) {
  Sample missing;
  Broken(missing.g, missing.x).uses.clear();
  EXPECT_EQ(missing.All(), "x: its use list has 0 entries that do not agree with its 1 uses\n");
  Sample twice;
  Broken(twice.g, twice.x).uses.push_back(twice.g.value(twice.x).uses[0]);
  EXPECT_EQ(twice.All(), "x: its use list has 2 entries that do not agree with its 1 uses\n");
  Sample wrong;
  Broken(wrong.g, wrong.x).uses[0].slot = 1;
  EXPECT_EQ(wrong.All(), "x: its use list has 1 entries that do not agree with its 1 uses\n");
}

TEST(Verify, Order) {
  Sample s;
  s.g.MoveBefore(s.b, s.a);
  const std::string all = s.All();
  EXPECT_THAT(all, HasSubstr("b: input 0 ('a:0') is produced by 'a', which does not stand before it"));
  EXPECT_THAT(all, HasSubstr("b: input 1 ('c') is produced by 'c', which does not stand before it"));
  Sample cycle;
  cycle.g.SetInput(cycle.a, 0, cycle.Out(cycle.b));
  EXPECT_THAT(cycle.All(), HasSubstr("a: input 0 ('b:0') is produced by 'b', which does not stand before it"));
}

TEST(Verify, BrokenList) {
  Sample s;
  Broken(s.g, s.b).next = s.a;
  EXPECT_THAT(s.All(), HasSubstr("the list of nodes comes to this node twice"));
  Sample back;
  Broken(back.g, back.b).prev = back.a;
  EXPECT_THAT(back.All(), HasSubstr("b: its link to the node before it is wrong"));
  Sample shorter;
  Broken(shorter.g, shorter.a).next = {};
  const std::string all = shorter.All();
  EXPECT_THAT(all, HasSubstr("the list of nodes does not end at its last node"));
  EXPECT_THAT(all, HasSubstr("the list holds 1 nodes, but 3 are alive"));
}

TEST(Verify, Producers) {
  Sample orphan;
  Broken(orphan.g, orphan.c).producer = {};
  EXPECT_THAT(orphan.All(), HasSubstr("c: nothing produces it, and it is no graph input"));
  Sample stolen;
  Broken(stolen.g, stolen.x).producer = stolen.a;
  EXPECT_THAT(stolen.All(), HasSubstr("x: it is a graph input, but a node produces it"));
  Sample index;
  Broken(index.g, index.c).output_index = 3;
  EXPECT_THAT(index.All(), HasSubstr("c: its producer does not have it as output 3"));
  Sample other;
  Broken(other.g, other.Out(other.b)).producer = other.a;
  EXPECT_THAT(other.All(), HasSubstr("b: output 0 ('b:0') names another producer"));
}

TEST(Verify, Names) {
  Sample s;
  Broken(s.g, s.c).name = "x";
  const std::string all = s.All();
  EXPECT_THAT(all, HasSubstr("x: two values have this name"));
  EXPECT_THAT(all, HasSubstr("x: the index of names does not lead to it"));
  Sample outputs;
  outputs.g.AddOutput("y", outputs.x);
  EXPECT_EQ(outputs.All(), "y: two graph outputs have this name\n");
}

TEST(Verify, Arity) {
  Sample s;
  s.g.AddNode(Op::kRelu, {s.x, s.x}, 1, {}, "two");
  s.g.AddNode(Op::kAdd, {s.x}, 1, {}, "one");
  s.g.AddNode(Op::kAdd, {s.x, ValueId{}}, 1, {}, "absent");
  s.g.AddNode(Op::kConcat, {s.x, ValueId{}}, 1, {{"axis", int64_t{0}}}, "hole");
  s.g.AddNode(Op::kRelu, {s.x}, 2, {}, "many");
  s.g.AddNode(Op::kClip, {s.x, ValueId{}, ValueId{}}, 1, {}, "fine");
  s.g.AddOpaque("d", "", {s.x}, 1, {}, "nameless");
  EXPECT_EQ(s.All(),
            "two: Relu has 2 inputs; it takes 1\n"
            "one: Add has 1 inputs; it takes 2\n"
            "absent: input 1 of Add is absent, but it is not optional\n"
            "hole: input 1 of Concat is absent, but it is not optional\n"
            "many: Relu has 2 outputs; it gives 1\n"
            "nameless: an opaque node has no op type\n");
}

TEST(Verify, Constants) {
  Sample s;
  s.g.SetType(s.c, {DType::kF32, SymShape{5}});
  EXPECT_EQ(s.All(), "c: the constant holds f32[4], but its type is f32[5]\n");
  Sample none;
  none.g.EraseAttr(none.g.value(none.c).producer, "value");
  EXPECT_EQ(none.All(), "c: a Constant needs a tensor attribute 'value'\n");
  Sample kind;
  kind.g.SetAttr(kind.g.value(kind.c).producer, "value", int64_t{3});
  EXPECT_EQ(kind.All(), "c: a Constant needs a tensor attribute 'value'\n");
}

TEST(Verify, TypesThatContradictInference) {
  Sample rank;
  rank.g.SetType(rank.Out(rank.a), {DType::kF32, SymShape{4}});
  EXPECT_THAT(rank.All(), HasSubstr("types contradict each other: node 'a' (Relu): output 'a:0': its shape is [n,4]"));
  Sample number;
  number.g.SetType(number.Out(number.b), {DType::kF32, SymShape{Dim(), 5}});
  EXPECT_THAT(number.All(), HasSubstr("node 'b' (Add)"));
  Sample dtype;
  dtype.g.SetType(dtype.Out(dtype.b), {DType::kS8, std::nullopt});
  EXPECT_THAT(dtype.All(), HasSubstr("its element type is f32, but the file says s8"));
  Sample vague;
  vague.g.SetType(vague.Out(vague.b), {DType::kF32, SymShape{Dim(), Dim()}});
  EXPECT_EQ(vague.All(), "");
}

TEST(Verify, Outputs) {
  Sample s;
  s.g.SetOutput(0, {});
  EXPECT_EQ(s.All(), "y: the graph output is not bound to a value\n");
  Sample dead;
  const NodeId gone = dead.g.AddNode(Op::kRelu, {dead.x}, 1);
  const ValueId value = dead.Out(gone);
  dead.g.Erase(gone);
  dead.g.SetOutput(0, value);
  EXPECT_THAT(dead.All(), HasSubstr("y: the graph output is bound to the dead value"));
}

TEST(Verify, Subgraphs) {
  const auto branch = [](const char* body) {
    auto g = ParseText(body);
    EXPECT_TRUE(g.has_value());
    return std::make_shared<const Graph>(std::move(*g));
  };
  const GraphRef good = branch("graph \"t\" { input %a : ? %b = Relu(%a) : ? output \"o\" = %b : ? }");
  const GraphRef bare = branch("graph \"e\" { output \"o\" = _ : ? }");
  Sample s;
  const ValueId c = s.g.AddInput("cond", {DType::kBool, SymShape{}});
  s.g.AddNode(Op::kIf, {c, s.x}, 1, {{"octavo_captures", int64_t{1}}, {"then_branch", good}, {"else_branch", bare}},
              "if");
  EXPECT_EQ(s.All(),
            "if: in its graph 'else_branch': 'o': the graph output is not bound to a value\n"
            "if: its graph 'else_branch' has 0 inputs, but the node gives it 1\n");
  Sample count;
  const ValueId d = count.g.AddInput("cond", {DType::kBool, SymShape{}});
  count.g.AddNode(Op::kIf, {d, count.x}, 1, {{"then_branch", good}, {"else_branch", good}}, "if");
  EXPECT_THAT(count.All(), HasSubstr("if: octavo_captures is 0, but the node has 2 inputs"));
  Sample null;
  const ValueId e = null.g.AddInput("cond", {DType::kBool, SymShape{}});
  null.g.AddNode(Op::kIf, {e}, 1, {{"then_branch", GraphRef()}}, "if");
  EXPECT_THAT(null.All(), HasSubstr("if: its graph 'then_branch' is missing"));
}

TEST(Verify, StatusShowsThreeAndCountsTheRest) {
  Sample s;
  for (int i = 0; i < 5; ++i) s.g.AddNode(Op::kAdd, {s.x}, 1, {}, "n" + std::to_string(i));
  const Status status = VerifyStatus(s.g);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().message,
            "the graph is not legal: 'n0': Add has 1 inputs; it takes 2; 'n1': Add has 1 inputs; it takes 2; "
            "'n2': Add has 1 inputs; it takes 2; and 2 more");
}

}  // namespace
}  // namespace octavo::ir
