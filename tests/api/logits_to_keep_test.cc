// Logits of the last tokens: where the graph allows them, and where it does not.
#include "octavo/api/logits_to_keep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/ir/infer.h"
#include "octavo/ir/text.h"
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

// logits = (x W) op operand, x [1, tokens, 2].
struct Head {
  Graph graph;
  ValueId states, product;
  Head() {
    states = graph.AddInput("x", {DType::kF32, SymShape{1, ir::Dim::Symbol("tokens"), 2}});
    product = Node(Op::kMatMul, {states, graph.AddConstant(Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6}))});
  }
  ValueId Node(Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return graph.node(graph.AddNode(op, std::move(in), 1, std::move(attrs), std::string(ir::InfoOf(op).name))).output();
  }
  // The message of the refusal, or what comes of three tokens where logits are kept of `keep`.
  std::string Kept(ValueId logits, int64_t keep) {
    graph.AddOutput("logits", logits);
    EXPECT_TRUE(ir::Inference::Run(graph));
    if (const ir::Status status = AddLogitsToKeep(graph); !status) return status.error().message;
    EXPECT_TRUE(ir::Verify(graph).empty());
    const auto model = runtime::Model::Compile(graph, {.threads = 1});
    if (!model) return model.error().message;
    ir::TensorMap inputs = {{"x", Tensor::F32({1, 3, 2}, {1, 0, 0, 1, 1, 1})}};
    inputs["logits_to_keep"] = Tensor::ScalarS64(keep);
    const auto run = model->Run(inputs);
    if (!run) return run.error().message;
    std::string text = ir::ToString((*run)[0].shape());
    for (int64_t i = 0; i < (*run)[0].size(); ++i) text += std::format(" {}", (*run)[0].GetDouble(i));
    return text;
  }
};
Tensor Values(ir::Shape shape) {
  std::vector<float> values(static_cast<size_t>(ir::ElementCount(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor::F32(std::move(shape), values);
}

TEST(LogitsToKeep, TheLastTokensOrAll) {
  for (const auto& [keep, want] : {std::pair<int64_t, const char*>{1, "[1,1,3] 5 7 9"},
                                   {2, "[1,2,3] 4 5 6 5 7 9"},
                                   {0, "[1,3,3] 1 2 3 4 5 6 5 7 9"},
                                   {7, "[1,3,3] 1 2 3 4 5 6 5 7 9"}}) {
    Head head;
    EXPECT_EQ(head.Kept(head.product, keep), want);
  }
}

TEST(LogitsToKeep, OpsThatKnowNoNeighboursMayFollow) {
  Head head;
  const ValueId bias = head.Node(Op::kAdd, {head.product, head.graph.AddConstant(Values({3}))});
  EXPECT_EQ(head.Kept(head.Node(Op::kMul, {head.graph.AddConstant(Tensor::ScalarF32(2)), bias}), 1),
            "[1,1,3] 10 16 22");
}

TEST(LogitsToKeep, OthersMayNot) {
  const auto refused = [](auto&& logits) {
    Head head;
    EXPECT_THAT(head.Kept(logits(head), 1),
                HasSubstr("logits_to_keep: output 'logits' comes of no product of each token's state"));
  };
  refused([](Head& h) { return h.Node(Op::kAdd, {h.product, h.graph.AddConstant(Values({3, 3}))}); });  // by places
  refused([](Head& h) {
    return h.Node(Op::kMatMul,
                  {h.states, h.Node(Op::kTranspose, {h.states}, {{"perm", std::vector<int64_t>{0, 2, 1}}})});
  });
  refused([](Head& h) { return h.Node(Op::kAdd, {h.product, h.Node(Op::kAbs, {h.product})}); });
  refused([](Head& h) {
    return h.Node(Op::kMul, {h.Node(Op::kAbs, {h.states}), h.states});  // no product
  });
  refused([](Head& h) {
    h.graph.AddOutput("again", h.product);
    return h.Node(Op::kAbs, {h.product});
  });
  refused([](Head& h) {  // codes whose scales go by tokens
    const ValueId scale = h.graph.AddConstant(Values({3})), zero = h.graph.AddConstant(Tensor::Zeros(DType::kU8, {3}));
    const ir::Attrs axis = {{"axis", int64_t{1}}};
    return h.Node(Op::kDequantizeLinear, {h.Node(Op::kQuantizeLinear, {h.product, scale, zero}, axis), scale, zero},
                  axis);
  });
}

TEST(LogitsToKeep, TheOutputIsNamedOrAlone) {
  Head head;
  head.graph.AddOutput("a", head.product);
  head.graph.AddOutput("b", head.Node(Op::kAbs, {head.states}));
  ASSERT_TRUE(ir::Inference::Run(head.graph));
  const ir::Status status = AddLogitsToKeep(head.graph);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("the model has 2 outputs, none of them called 'logits'"));
  Head alone;
  alone.graph.AddOutput("a", alone.product);
  ASSERT_TRUE(ir::Inference::Run(alone.graph));
  EXPECT_TRUE(AddLogitsToKeep(alone.graph));
}

// If of two heads, which get W and then x. of: what each head's product gives.
struct Merged {
  Graph graph;
  using Of = ValueId (*)(Graph& g, ValueId product);
  Merged(Of then_of, Of else_of, bool constant = true) {
    const auto branch = [](Of of) {
      Graph g;
      const ValueId w = g.AddInput("W", {}), x = g.AddInput("x", {});
      g.AddOutput("y", of(g, g.node(g.AddNode(Op::kMatMul, {x, w}, 1)).output()));
      return std::make_shared<const Graph>(std::move(g));
    };
    const ValueId flag = graph.AddInput("flag", {DType::kBool, SymShape{1}});
    const ValueId x = graph.AddInput("x", {DType::kF32, SymShape{1, ir::Dim::Symbol("tokens"), 2}});
    const ValueId w = constant ? graph.AddConstant(Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6}))
                               : graph.AddInput("W", {DType::kF32, SymShape{2, 3}});
    const ir::Attrs attrs{
        {"then_branch", branch(then_of)}, {"else_branch", branch(else_of)}, {"octavo_captures", int64_t{2}}};
    graph.AddOutput("logits", graph.node(graph.AddNode(Op::kIf, {flag, w, x}, 1, attrs, "choose")).output());
    EXPECT_TRUE(ir::Inference::Run(graph));
  }
  std::string Run(bool flag, int64_t keep) const {
    const auto model = runtime::Model::Compile(graph, {.threads = 1});
    if (!model) return model.error().message;
    ir::TensorMap inputs = {{"x", Tensor::F32({1, 3, 2}, {1, 0, 0, 1, 1, 1})}};
    inputs["flag"] = Tensor::Of<uint8_t>(DType::kBool, {1}, std::vector<uint8_t>{uint8_t{flag}});
    inputs["logits_to_keep"] = Tensor::ScalarS64(keep);
    const auto run = model->Run(inputs);
    if (!run) return run.error().message;
    std::string text = ir::ToString((*run)[0].shape());
    for (int64_t i = 0; i < (*run)[0].size(); ++i) text += std::format(" {}", (*run)[0].GetDouble(i));
    return text;
  }
};
ValueId Same(Graph&, ValueId v) { return v; }
ValueId Negated(Graph& g, ValueId v) { return g.node(g.AddNode(Op::kNeg, {v}, 1)).output(); }
ValueId Swapped(Graph& g, ValueId v) {
  return g.node(g.AddNode(Op::kTranspose, {v}, 1, {{"perm", std::vector<int64_t>{0, 1, 2}}})).output();
}

TEST(LogitsToKeep, BothBranchesOfAnIf) {
  Merged merged(Same, Negated);
  const ir::Status status = AddLogitsToKeep(merged.graph);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_TRUE(ir::Verify(merged.graph).empty());
  EXPECT_EQ(merged.Run(true, 1), "[1,1,3] 5 7 9");
  EXPECT_EQ(merged.Run(false, 2), "[1,2,3] -4 -5 -6 -5 -7 -9");
  EXPECT_EQ(merged.Run(true, 0), "[1,3,3] 1 2 3 4 5 6 5 7 9");
}

TEST(LogitsToKeep, ABranchThatMayNotLeavesTheGraphAsItWas) {
  struct Case {
    Merged::Of then_of, else_of;
    bool constant;
  };
  for (const Case& c : {Case{Same, Swapped, true}, {Swapped, Same, true}, {Same, Same, false}}) {
    Merged merged(c.then_of, c.else_of, c.constant);
    const std::string before = ir::ToText(merged.graph);
    const ir::Status status = AddLogitsToKeep(merged.graph);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("comes of no product of each token's state"));
    EXPECT_EQ(ir::ToText(merged.graph), before);
  }
}

TEST(LogitsToKeep, AValueOfThatNameGetsAnother) {
  Head head;
  head.graph.SetName(head.product, std::string(kLogitsToKeep));
  EXPECT_EQ(head.Kept(head.product, 1), "[1,1,3] 5 7 9");
}

}  // namespace
}  // namespace octavo::api
