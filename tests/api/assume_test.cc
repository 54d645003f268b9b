// Inputs that are taken for numbers, and what the report says of attention that passes do not reach.
#include "octavo/api/assume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "octavo/api/optimize.h"
#include "octavo/ir/verify.h"
#include "octavo/runtime/model.h"

namespace octavo::api {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::SymShape;
using ir::Tensor;
using ir::ValueId;
using ::testing::HasSubstr;

OptimizeOptions Of(const char* recipe) {
  OptimizeOptions options;
  options.recipe = recipe;
  return options;
}

// softmax(relu(x) (-x)^T) x, or x, by the input `flag`.
Graph Branches() {
  const auto body = [](bool attends) {
    Graph b;
    const ValueId x = b.AddInput("x", {DType::kF32, SymShape{ir::Dim::Symbol("b"), 2, ir::Dim::Symbol("s"), 4}});
    const auto node = [&b](Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
      return b.node(b.AddNode(op, std::move(in), 1, std::move(attrs), std::string(ir::InfoOf(op).name))).output();
    };
    if (!attends) return b.AddOutput("o", node(Op::kIdentity, {x})), std::make_shared<const Graph>(b);
    const ValueId k = node(Op::kTranspose, {node(Op::kNeg, {x})}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    const ValueId p = node(Op::kSoftmax, {node(Op::kMatMul, {node(Op::kRelu, {x}), k})}, {{"axis", int64_t{-1}}});
    b.AddOutput("o", node(Op::kMatMul, {p, x}));
    return std::make_shared<const Graph>(b);
  };
  Graph g;
  g.info.opsets[""] = 17;
  const ValueId flag = g.AddInput("flag", {DType::kBool, SymShape{1}});
  const ValueId x = g.AddInput("x", {DType::kF32, SymShape{ir::Dim::Symbol("b"), 2, ir::Dim::Symbol("s"), 4}});
  const auto node =
      g.AddNode(Op::kIf, {flag, x}, 1,
                {{"then_branch", body(true)}, {"else_branch", body(false)}, {"octavo_captures", int64_t{1}}}, "choose");
  g.AddOutput("y", g.node(node).output());
  EXPECT_TRUE(ir::VerifyStatus(g));
  return g;
}

TEST(Assume, TakesOneBranch) {
  const Tensor x = Tensor::F32({1, 2, 1, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  for (const char* value : {"true", "false", "1", "0"}) {
    Graph g = Branches();
    ASSERT_TRUE(Assume(g, "flag", value));
    EXPECT_EQ(g.inputs().size(), 1u);
    auto result = Optimize(std::move(g), Of("float"));
    ASSERT_TRUE(result) << result.error().message;
    const bool yes = value[0] == 't' || value[0] == '1';
    EXPECT_EQ(result->report.attention.done, yes ? 1 : 0);
    const auto model = runtime::Model::Compile(result->graph, {.threads = 1});
    ASSERT_TRUE(model);
    const auto y = model->Run({{"x", x}});
    ASSERT_TRUE(y) << y.error().message;
    EXPECT_TRUE((*y)[0].SameBits(x));  // one key: the values themselves
  }
}

TEST(Assume, Refuses) {
  Graph g = Branches();
  EXPECT_EQ(Assume(g, "flag", "maybe").error().message, "assume: 'maybe' is no number, true or false");
  EXPECT_EQ(Assume(g, "flog", "true").error().message,
            "assume: the model has no input 'flog'; its inputs are: flag, x");
  EXPECT_THAT(Assume(g, "x", "1").error().message, HasSubstr("only inputs of one element can be assumed"));
  EXPECT_EQ(g.inputs().size(), 2u);
}

TEST(Assume, BranchesOfAnOptimizedModel) {
  auto result = Optimize(Branches(), Of("float"));
  ASSERT_TRUE(result) << result.error().message;
  const auto whole = runtime::Model::Compile(result->graph, {.threads = 1});
  ASSERT_TRUE(whole);
  const Tensor x = Tensor::F32({1, 2, 2, 4}, {1, 2, -3, 4, 5, -6, 7, 8, .1f, .2f, -.3f, .4f, 1, 2, 3, 4});
  for (const bool flag : {true, false}) {
    const auto branch = BranchOf(result->graph, "flag", flag ? "true" : "false");
    ASSERT_TRUE(branch) << branch.error().message;
    EXPECT_EQ(branch->inputs().size(), 1u);
    for (const ir::NodeId id : branch->NodesInOrder()) EXPECT_NE(branch->node(id).op, Op::kIf);
    const auto part = runtime::Model::Compile(*branch, {.threads = 1});
    ASSERT_TRUE(part);
    const auto want =
        whole->Run({{"flag", Tensor::Of<uint8_t>(DType::kBool, {1}, std::vector<uint8_t>{flag})}, {"x", x}});
    const auto got = part->Run({{"x", x}});
    ASSERT_TRUE(want) << want.error().message;
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_TRUE((*want)[0].SameBits((*got)[0]));
  }
  Graph other;
  other.AddOutput("y", other
                           .node(other.AddNode(Op::kCast, {other.AddInput("flag", {DType::kBool, SymShape{}})}, 1,
                                               {{"to", int64_t{1}}}, "cast"))
                           .output());
  EXPECT_THAT(BranchOf(other, "flag", "true").error().message,
              HasSubstr("split_if: no If is decided by the input 'flag'"));
}

// Every Softmax is in the report: as attention, or as none, with why.
TEST(Inventory, NamesEverySoftmax) {
  Graph g;
  g.info.opsets[""] = 17;
  const ValueId x = g.AddInput("x", {DType::kF32, SymShape{2, 3, 4}});
  const auto node = [&g](Op op, std::vector<ValueId> in, const char* name) {
    return g.node(g.AddNode(op, std::move(in), 1, {}, name)).output();
  };
  g.AddOutput("a", node(Op::kSoftmax, {node(Op::kRelu, {x}, "relu")}, "gate"));
  const ValueId k = node(Op::kTranspose, {x}, "turn");
  g.AddOutput(
      "b",
      node(Op::kSoftmax,
           {node(Op::kMatMul, {x, node(Op::kReshape, {k, g.AddConstant(Tensor::S64({3}, {2, 4, 3}))}, "k")}, "scores")},
           "weights"));
  const auto result = Optimize(std::move(g), Of("float"));
  ASSERT_TRUE(result) << result.error().message;
  std::map<std::string, std::string> reasons;
  for (const passes::Candidate& c : result->report.candidates) {
    if (c.kind == "softmax") reasons[c.nodes[0]] = c.reason;
  }
  EXPECT_EQ(reasons["gate"],
            "not attention: what it normalizes comes from Relu 'relu', not from a product of queries and keys");
  EXPECT_EQ(reasons["weights"], "not attention: its result goes out of the model and meets no values");
  // A product of its result that octavo does not take for one with values.
  Graph other;
  other.info.opsets[""] = 17;
  const ValueId q = other.AddInput("q", {DType::kF32, SymShape{2, 3, 3}});
  const auto add = [&other](Op op, std::vector<ValueId> in, const char* name) {
    return other.node(other.AddNode(op, std::move(in), 1, {}, name)).output();
  };
  const ValueId p = add(Op::kSoftmax, {add(Op::kMatMul, {q, q}, "scores")}, "p");
  other.AddOutput("y", add(Op::kPow, {p, q}, "power"));
  const auto odd = Optimize(std::move(other), Of("float"));
  ASSERT_TRUE(odd);
  EXPECT_THAT(odd->report.candidates.back().reason,
              HasSubstr("its result goes to Pow 'power', which is no product with values that octavo knows"));
}

// Attention that no form here has: scores of a window of keys, written in place; a norm over the heads of the probabilities; not a second Softmax of them.
TEST(Inventory, CountsAttentionOfUnknownForms) {
  const auto found = [](const std::function<ValueId(Graph&, ValueId)>& scores,
                        const std::function<ValueId(Graph&, ValueId)>& behind) {
    Graph g;
    g.info.opsets[""] = 17;
    const auto add = [&g](Op op, std::vector<ValueId> in) {
      return g.node(g.AddNode(op, std::move(in), 1, {}, "")).output();
    };
    const ValueId q = g.AddInput("q", {DType::kF32, SymShape{2, 3, 3}});
    const ValueId p = add(Op::kSoftmax, {scores(g, add(Op::kMatMul, {q, q}))});
    g.AddOutput("y", behind(g, p));
    const auto result = Optimize(std::move(g), Of("float"));
    EXPECT_TRUE(result) << result.error().message;
    std::vector<std::string> all;
    for (const passes::Candidate& c : result->report.candidates) {
      if (c.kind == "attention" || c.kind == "softmax") all.push_back(c.kind + " " + c.status);
    }
    EXPECT_EQ(result->report.attention.found, std::ranges::count(all, "attention left")) << testing::PrintToString(all);
    return all;
  };
  const auto one = [](Op op, ir::Attrs attrs = {}) {
    return [=](Graph& g, ValueId v) { return g.node(g.AddNode(op, {v}, 1, attrs, "")).output(); };
  };
  const auto met = [](Op op) {
    return [op](Graph& g, ValueId p) {
      const ValueId seen = g.node(g.AddNode(op, {p}, 1, {}, "")).output();
      return g.node(g.AddNode(Op::kMatMul, {seen, g.inputs()[0]}, 1, {}, "")).output();
    };
  };
  using Strings = std::vector<std::string>;
  EXPECT_EQ(found(one(Op::kFloor), met(Op::kFloor)), Strings{"attention left"});
  EXPECT_EQ(found(one(Op::kFloor), one(Op::kFloor)), Strings{"softmax left"});
  EXPECT_EQ(found(one(Op::kFloor), one(Op::kSoftmax)), (Strings{"softmax left", "softmax left"}));
}

// The MatMul that a TopK reads stays float, with the reason; the others are quantized.
TEST(Inventory, KeepsRoutersInFloat) {
  Graph g;
  g.info.opsets[""] = 17;
  const ValueId x = g.AddInput("x", {DType::kF32, SymShape{5, 32}});
  const auto product = [&](int64_t n, const char* name) {
    Tensor w = Tensor::Zeros(DType::kF32, {32, n});
    for (int64_t i = 0; i < w.size(); ++i)
      w.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 7) - 3;
    return g.node(g.AddNode(Op::kMatMul, {x, g.AddConstant(std::move(w))}, 1, {}, name)).output();
  };
  const ValueId gate = g.node(g.AddNode(Op::kSoftmax, {product(8, "router")}, 1, {}, "gate")).output();
  const auto top = g.AddNode(Op::kTopK, {gate, g.AddConstant(Tensor::S64({1}, {2}))}, 2, {}, "top");
  const ValueId sum = g.node(g.AddNode(Op::kReduceSum, {g.node(top).output(0)}, 1, {}, "sum")).output();
  g.AddOutput("y", g.node(g.AddNode(Op::kMul, {product(16, "expert"), sum}, 1, {}, "weighed")).output());
  const auto result = Optimize(std::move(g), Of("dynamic"));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->report.linear.found, 2);
  EXPECT_EQ(result->report.linear.done, 1);
  for (const passes::Candidate& c : result->report.candidates) {
    if (c.kind != "linear" || c.nodes[0] != "router") continue;
    EXPECT_EQ(c.reason,
              "it chooses experts (a TopK or ArgMax reads it), where a wrong choice costs more than int8 saves: it "
              "stays float");
  }
}

// An empty table is not a success; where something is in it, there is no such note.
TEST(Inventory, SaysWhereNothingIsFound) {
  for (const bool product : {false, true}) {
    Graph g;
    g.info.opsets[""] = 17;
    const ValueId x = g.AddInput("x", {DType::kF32, SymShape{5, 32}});
    const ValueId w = g.AddConstant(Tensor::Zeros(DType::kF32, {32, 8}));
    const ValueId y = product ? g.node(g.AddNode(Op::kMatMul, {x, w}, 1, {}, "product")).output() : x;
    g.AddOutput("y", g.node(g.AddNode(Op::kRelu, {y}, 1, {}, "relu")).output());
    const auto result = Optimize(std::move(g), Of("float"));
    ASSERT_TRUE(result) << result.error().message;
    const auto says = [](const std::string& n) { return n.starts_with("neither attention nor a Linear was found"); };
    EXPECT_EQ(std::ranges::count_if(result->notes, says), product ? 0 : 1);
  }
}

// A convolution of kernel 1 counts as a Linear where the recipe has made it one.
TEST(Inventory, ConvolutionsInCodesAreLinears) {
  for (const char* recipe : {"dynamic", "float"}) {
    Graph g;
    g.info.opsets[""] = 17;
    const ValueId x = g.AddInput("x", {DType::kF32, SymShape{2, 64, 5, 5}});
    Tensor w = Tensor::Zeros(DType::kF32, {64, 64, 1, 1});
    for (size_t i = 0; i < 64 * 64; i += 65) w.mutable_as<float>()[i] = 1;
    g.AddOutput("y", g.node(g.AddNode(Op::kConv, {x, g.AddConstant(w)}, 1, {}, "expand")).output());
    const auto result = Optimize(std::move(g), Of(recipe));
    ASSERT_TRUE(result) << result.error().message;
    const bool codes = recipe == std::string("dynamic");
    const passes::Report& report = result->report;
    EXPECT_EQ(report.linear.found, codes);
    EXPECT_EQ(report.linear.done, codes);
    ASSERT_EQ(report.candidates.size(), 1u);
    EXPECT_EQ(report.candidates[0].kind, codes ? "linear" : "product");
    EXPECT_EQ(report.candidates[0].status, codes ? "quantized" : "left");
    EXPECT_EQ(report.candidates[0].reason.empty(), codes) << report.candidates[0].reason;
    EXPECT_EQ(result->notes.empty(), codes);
  }
}

}  // namespace
}  // namespace octavo::api
