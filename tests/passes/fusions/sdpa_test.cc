// sdpa.cc: fires and is exact; other axes, caps, heads and masks keep the decomposed form, with a sentence.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

using ir::Dim;

struct AttentionOptions {
  int64_t softmax_axis = -1;
  bool scores_escape = false;
};
Graphs Attention(const AttentionOptions& o) {
  Graphs b(3, 18);
  const ValueId q = b.Input("q", {2, 3, 5, 4});
  const ValueId k = b.Input("k", {2, 3, 5, 4});
  const ValueId v = b.Input("v", {2, 3, 5, 6});
  const ValueId kt = b.Node(Op::kTranspose, {k}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  const ValueId s = b.Node(Op::kMul, {b.Node(Op::kMatMul, {q, kt}), b.Real(0.5f)});
  const ValueId masked = b.Node(Op::kAdd, {s, b.Input("mask", {2, 1, 1, 5})});
  const ValueId p = b.Node(Op::kSoftmax, {masked}, {{"axis", o.softmax_axis}});
  b.g.AddOutput("y", b.Node(Op::kMatMul, {p, v}));
  if (o.scores_escape) b.g.AddOutput("scores", masked);
  return b;
}

TEST(SdpaRule, FiresAndIsExact) {
  const Graphs b = Attention({});
  const Fused f = Fuse(b.g);
  ASSERT_EQ(CountOf(f.graph, Op::kSdpa), 1);
  EXPECT_EQ(CountOf(f.graph, Op::kSoftmax), 0);
  const double difference = Difference(b.g, f.graph,
                                       {{"q", Random({2, 3, 5, 4}, 3)},
                                        {"k", Random({2, 3, 5, 4}, 4)},
                                        {"v", Random({2, 3, 5, 6}, 5)},
                                        {"mask", Random({2, 1, 1, 5}, 6)}});
  EXPECT_EQ(difference, 0.0);
}

TEST(SdpaRule, RefusesSoftmaxOverTheQueries) {
  const Fused f = Fuse(Attention({.softmax_axis = 2}).g);
  EXPECT_EQ(CountOf(f.graph, Op::kSdpa), 0);
  EXPECT_NE(DeepestReason(f, "sdpa").find("axis 2 is not the last one"), std::string::npos) << DeepestReason(f, "sdpa");
}
// tanh(s / 0) * 0 is 0 for every score; a soft cap of 0 would say that there is none.
TEST(SdpaRule, RefusesASoftCapOfZero) {
  Refuses("scores are divided by 0 before Tanh", Sdpa(), [](Graphs& m) {
    const ValueId s = m.Node(Op::kMatMul, {m.In({1, 2, 5, 4}), m.In({1, 2, 4, 5})});
    const ValueId capped = m.Node(Op::kMul, {m.Node(Op::kTanh, {m.Node(Op::kDiv, {s, m.Real(0)})}), m.Real(0)});
    m.g.AddOutput("y", m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {capped}), m.In({1, 2, 5, 4})}));
  });
}

TEST(SdpaRule, LeavesTheScoresToTheirOtherReaders) {
  const Graphs b = Attention({.scores_escape = true});
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kSdpa), 1);
  EXPECT_EQ(CountOf(f.graph, Op::kSoftmax), 0);
  ASSERT_EQ(f.graph.outputs().size(), 2u);
  const ir::TensorMap inputs{{"q", Random({2, 3, 5, 4}, 3)},
                             {"k", Random({2, 3, 5, 4}, 4)},
                             {"v", Random({2, 3, 5, 6}, 5)},
                             {"mask", Random({2, 1, 1, 5}, 6)}};
  auto before = ir::Interpret(b.g, inputs), after = ir::Interpret(f.graph, inputs);
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_TRUE((*before)[0].SameBits((*after)[0]));
  EXPECT_TRUE((*before)[1].SameBits((*after)[1]));
}

// q, k, v of 4 heads; `scores` varies what stands before the softmax.
std::function<void(Graphs&)> FourHeads(const std::function<ValueId(Graphs&, ValueId)>& scores) {
  return [=](Graphs& m) {
    const ValueId q = m.Input("q", {2, 4, 5, 6}), k = m.Input("k", {2, 4, 5, 6}), v = m.Input("v", {2, 4, 5, 6});
    const ValueId s = scores(m, m.Node(Op::kMatMul, {q, m.Perm(k, {0, 1, 3, 2})}));
    m.g.AddOutput("y", m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}), v}));
  };
}

TEST(SdpaRule, ACapHasOneConstant) {
  const auto cap = [](float by, float times) {
    return FourHeads([=](Graphs& m, ValueId s) {
      return m.Node(Op::kMul, {m.Node(Op::kTanh, {m.Node(Op::kDiv, {s, m.Real(by)})}), m.Real(times)});
    });
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kSdpa, cap(5, 5)), 1);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kSdpa, cap(5, 4)), 0);
}

TEST(SdpaRule, BatchesMayHaveNamesOfTheirOwn) {
  const auto attention = [](ir::SymShape q, ir::SymShape kt, ir::SymShape v) {
    return [=](Graphs& m) { m.Attention(m.In(q), m.In(kt), m.In(v)); };
  };
  const Dim b = Dim::Symbol("b"), c = Dim::Symbol("c"), d = Dim::Symbol("d");
  EXPECT_EQ(CountAfter(FuseFloat, Op::kSdpa, attention({b, 2, 5, 4}, {c, 2, 4, 5}, {d, 2, 5, 4})), 1);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kSdpa, attention({b, 2, 5, 4}, {c, 2, 4, 5}, {3, 2, 5, 4})), 0);
}

TEST(SdpaRule, RefusesWithASentence) {
  Refuses("the mask 'in0' may be wider than the scores: [1,1,5,5] and [1,2,s,5]", Sdpa(), [](Graphs& m) {
    const ValueId mask = m.In({1, 1, 5, 5});
    m.Attention(m.In({1, 2, Dim::Symbol("s"), 4}), m.In({1, 2, 4, 5}), m.In({1, 2, 5, 4}), mask);
  });
  Refuses("the mask 'in0' has type f32[1,1,1,5,5]", Sdpa(), [](Graphs& m) {
    const ValueId mask = m.In({1, 1, 1, 5, 5});
    m.Attention(m.In({1, 2, 5, 4}), m.In({1, 2, 4, 5}), m.In({1, 2, 5, 4}), mask);
  });
  Refuses(
      "q, k^T and v are not known to have rank 4 (batch, heads, rows, columns) or 3: they are f32[5,4], f32[4,5] and "
      "f32[5,4]",
      Sdpa(), [](Graphs& m) { m.Attention(m.In({5, 4}), m.In({4, 5}), m.In({5, 4})); });
  const Dim b = Dim::Symbol("b"), c = Dim::Symbol("c");
  Refuses(
      "dims in front of rows and columns are one batch only where they are known to be the same, as by names of the "
      "model's inputs: q is f32[1,b,2,5,4], k^T f32[1,c,2,4,5] and v f32[1,c,2,5,4]",
      Sdpa(), [=](Graphs& m) { m.Attention(m.In({1, b, 2, 5, 4}), m.In({1, c, 2, 4, 5}), m.In({1, c, 2, 5, 4})); });
  Refuses(
      "known to be the same, as by names of the model's inputs: q is f32[1,b,2,5,4], k^T f32[1,b,2,4,5] and v "
      "f32[1,c,2,5,4]",
      Sdpa(), [=](Graphs& m) { m.Attention(m.In({1, b, 2, 5, 4}), m.In({1, b, 2, 4, 5}), m.In({1, c, 2, 5, 4})); });
  Refuses(
      "q is f32[1,b,2,5,4], and its dims in front of rows and columns are one batch only where the mask 'in0' is known "
      "to have each of them or 1: it is f32[1,c,2,5,5]",
      Sdpa(), [=](Graphs& m) {
        const ValueId mask = m.In({1, c, 2, 5, 5});
        m.Attention(m.In({1, b, 2, 5, 4}), m.In({1, b, 2, 4, 5}), m.In({1, b, 2, 5, 4}), mask);
      });
  Refuses(
      "dims in front of rows and columns did not become one batch (pass cores), for what stands between the products "
      "or for sizes that only a run knows: q is f32[1,b,2,5,4], k^T f32[1,b,2,4,5] and v f32[1,b,2,5,4]",
      Sdpa(), [=](Graphs& m) { m.Attention(m.In({1, b, 2, 5, 4}), m.In({1, b, 2, 4, 5}), m.In({1, b, 2, 5, 4})); });
  Refuses("the number of heads or the head size is no number above 0: q is [1,2,5,4], v is [1,2,5,0]", Sdpa(),
          [](Graphs& m) { m.Attention(m.In({1, 2, 5, 4}), m.In({1, 2, 4, 5}), m.In({1, 2, 5, 0})); });
  Refuses("the number of heads or the head size is no number above 0: q is [1,h,5,4]", Sdpa(), [](Graphs& m) {
    const Dim h = Dim::Symbol("h");
    m.Attention(m.In({1, h, 5, 4}), m.In({1, h, 4, 5}), m.In({1, h, 5, 4}));
  });
  Refuses("heads disagree: q [1,2,5,4], k^T [1,2,4,5], v [1,1,5,4]", Sdpa(),
          [](Graphs& m) { m.Attention(m.In({1, 2, 5, 4}), m.In({1, 2, 4, 5}), m.In({1, 1, 5, 4})); });
  Refuses("the batches of q [b,2,5,4], k^T [1,2,4,5] and v [1,2,5,4] are not known to be the same", Sdpa(),
          [](Graphs& m) { m.Attention(m.In({Dim::Symbol("b"), 2, 5, 4}), m.In({1, 2, 4, 5}), m.In({1, 2, 5, 4})); });
}

}  // namespace
}  // namespace octavo::passes::fusions
