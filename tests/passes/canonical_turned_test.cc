// turned and means: what tf2onnx writes of TensorFlow's einsums and means. Sums run in another order: 8 terms below 4 of a product, 2^-22 each.
#include <algorithm>

#include "canonical_support.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {
namespace {

constexpr double kRounding = 1e-5;

// K Q^T of [b*2, t, 4] and [b*2, s, 4], scaled, split into [b, 2, t, s] and transposed before the Softmax.
struct Turn : Builder {
  ValueId q = In("q", {Sym("b") * Dim(2), Sym("s"), 4}), k = In("k", {Sym("b") * Dim(2), Sym("t"), 4});
  ValueId Scores() { return Op1(Op::kMatMul, {k, Transpose(q, {0, 2, 1})}); }
  ValueId Split(ValueId s) { return Op1(Op::kReshape, {s, Concat({Axis({-1, 2}), DimOf(k, 1), DimOf(q, 1)})}); }
  void End(ValueId s, Ints perm) { Out(Op1(Op::kSoftmax, {Transpose(s, std::move(perm))}, {{"axis", int64_t{-1}}})); }
};

TEST(CanonicalTurned, ScoresThatWereComputedTransposed) {
  Turn t;
  t.End(t.Split(t.Op1(Op::kMul, {t.Scores(), t.F(0.5f)})), {0, 1, 3, 2});
  Graph after = t.g;
  Check(t.g, Turned, kRounding);
  PassRun run;
  ASSERT_TRUE(*Turned(after, run));
  for (const NodeId id : after.NodesInOrder()) {  // nothing is transposed behind the product
    const Node& n = after.node(id);
    EXPECT_TRUE(n.op != Op::kSoftmax || after.Producer(n.input(0))->op != Op::kTranspose);
  }
}

TEST(CanonicalTurned, WithoutViews) {
  Turn t;
  t.End(t.Scores(), {0, 2, 1});
  const std::string ops = Check(t.g, Turned, kRounding);
  EXPECT_NE(ops.find("MatMul Softmax"), std::string::npos) << ops;
}

// Ops as before: nothing is turned.
void Stays(Turn& t) {
  const std::string ops = Ops(t.g);
  EXPECT_EQ(Check(t.g, Turned), ops);
}

TEST(CanonicalTurned, WhatStays) {
  Turn heads;  // other axes change places
  heads.End(heads.Split(heads.Scores()), {0, 2, 1, 3});
  Stays(heads);
  Turn read;  // the scores are read by another, too
  const ValueId scores = read.Scores();
  read.Out(read.Op1(Op::kNeg, {scores}), "scores");
  read.End(scores, {0, 2, 1});
  Stays(read);
  Turn factors;  // one factor for each key
  factors.End(factors.Op1(Op::kMul, {factors.Scores(), factors.In("f", {Sym("t"), 1})}), {0, 2, 1});
  Stays(factors);
  Turn linear;  // a product with a weight is a Linear
  linear.End(linear.Op1(Op::kMatMul, {linear.k, linear.W({4, 3})}), {0, 2, 1});
  Stays(linear);
  Turn merged;  // rows of one batch are not those of the other
  merged.End(merged.Op1(Op::kReshape, {merged.Scores(), merged.Concat({merged.Axis({-1}), merged.DimOf(merged.q, 1)})}),
             {1, 0});
  Stays(merged);
  Turn no_softmax;
  no_softmax.Out(no_softmax.Transpose(no_softmax.Scores(), {0, 2, 1}));
  Stays(no_softmax);
}

// LightGlue: two images attend to each other by the same scores.
TEST(CanonicalTurned, ScoresOfBothWays) {
  Turn t;
  const ValueId scores = t.Scores();
  t.Out(t.Op1(Op::kSoftmax, {t.Op1(Op::kMul, {scores, t.F(0.5f)})}, {{"axis", int64_t{-1}}}), "there");
  t.End(scores, {0, 2, 1});
  const std::string ops = Check(t.g, Turned, kRounding);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), 'M'), 5) << ops;  // two products of MatMul, one Mul
}

// LoFTR: scores [n, l, s, h], heads last.
struct HeadsLast : Builder {
  explicit HeadsLast(DType type = DType::kF32)
      : q(In("q", {Sym("n"), 2, Sym("l"), 4}, type)), k(In("k", {Sym("n"), 2, 4, Sym("s")}, type)) {}
  ValueId q, k;
  ValueId Scores(const Ints& perm = {0, 2, 3, 1}) { return Transpose(Op1(Op::kMatMul, {q, k}), perm); }
  void End(ValueId s, int64_t axis) { Out(Op1(Op::kSoftmax, {s}, {{"axis", axis}})); }
};

TEST(CanonicalSoftmaxAxis, HeadsBehindTheKeys) {
  for (const int64_t axis : {2, -2}) {
    HeadsLast b;
    b.End(b.Op1(Op::kMul, {b.Scores(), b.F(0.5f)}), axis);
    EXPECT_EQ(Check(b.g, SoftmaxAxis, kRounding), "MatMul Mul Softmax Transpose");
  }
  HeadsLast half(DType::kF16);
  half.End(half.Scores(), 2);
  EXPECT_EQ(Check(half.g, SoftmaxAxis, 0x1p-9), "MatMul Softmax Transpose");  // each probability is rounded once, 2^-11
  HeadsLast masked;
  const ValueId mask = masked.In("mask", {Sym("n"), Sym("l"), Sym("s"), 1});
  masked.End(masked.Op1(Op::kAdd, {mask, masked.Scores()}), 2);
  EXPECT_EQ(Check(masked.g, SoftmaxAxis, kRounding), "MatMul Transpose Add Softmax Transpose");
}

TEST(CanonicalSoftmaxAxis, WhatStays) {
  const auto stays = [](HeadsLast& b) {
    const std::string ops = Ops(b.g);
    EXPECT_EQ(Check(b.g, SoftmaxAxis), ops);
  };
  HeadsLast last, queries, read, low, other;
  last.End(last.Scores(), 3);  // over heads
  stays(last);
  queries.End(queries.Scores(), 1);  // over queries
  stays(queries);
  const ValueId scores = read.Scores();
  read.Out(read.Op1(Op::kNeg, {scores}), "scores");
  read.End(scores, 2);
  stays(read);
  low.End(low.Op1(Op::kAdd, {low.Scores(), low.W({2})}), 2);  // a bias for each head, of rank 1
  stays(low);
  other.End(other.Transpose(other.Op1(Op::kNeg, {other.q}), {0, 2, 3, 1}), 2);  // no scores
  stays(other);
}

TEST(CanonicalTurned, ValuesTimesTransposedProbabilities) {
  Builder b;
  const ValueId p = b.Op1(Op::kSoftmax, {b.In("s", {Sym("b"), 2, Sym("s"), Sym("t")})}, {{"axis", int64_t{-1}}});
  b.Out(b.Op1(Op::kMatMul, {b.In("v", {Sym("b"), 2, 4, Sym("t")}), b.Transpose(p, {0, 1, 3, 2})}));
  EXPECT_EQ(Check(b.g, Turned, kRounding), "Softmax Transpose MatMul Transpose");
}

TEST(CanonicalViews, UnsqueezeBehindTheTranspose) {
  Builder fixed;
  const ValueId rows = fixed.In("x", {Sym("b"), 5, 2, 4});
  fixed.Out(fixed.Reshape(fixed.Transpose(fixed.Unsqueeze(rows, {2}), {0, 3, 1, 2, 4}), {-1, 5, 4}));
  EXPECT_EQ(Check(fixed.g, Views), "Transpose Reshape");
  Builder ends;  // first and last, and nothing else moves
  ends.Out(ends.Transpose(ends.Unsqueeze(ends.In("x", {Sym("b"), Sym("s")}), {0, 3}), {3, 1, 2, 0}));
  EXPECT_EQ(Check(ends.g, Views), "Unsqueeze");
}

// tf2onnx's einsum: dims of 1 where the other operand has its rows.
TEST(CanonicalViews, DimsOfOneBehindTheTranspose) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 8});
  b.Out(b.Transpose(b.Reshape(x, {0, 1, -1, 2, 4}), {0, 3, 1, 2, 4}));
  const std::string ops = Check(b.g, Views);
  EXPECT_EQ(ops.substr(0, 17), "Reshape Transpose") << ops;
  Graph after = b.g;
  PassRun run;
  ASSERT_TRUE(*Views(after, run));
  for (const NodeId id : after.NodesInOrder()) {
    const Node& n = after.node(id);
    EXPECT_TRUE(n.op != Op::kTranspose || RankOf(after, n.output()) == 4);
  }
  Builder head;  // one head stays where it is
  head.Out(head.Transpose(head.Reshape(head.In("x", {Sym("b"), Sym("s"), 8}), {0, 0, 1, 8}), {0, 2, 1, 3}));
  EXPECT_EQ(Check(head.g, Views), "Reshape Transpose");
}

// Keras has a bias for each head.
TEST(CanonicalLinear, BiasByHeadsStandsBeforeTheSplit) {
  const auto with = [](ir::Shape bias, bool constant = true) {
    Builder b;
    const ValueId y =
        b.Op1(Op::kMatMul, {b.In("x", {Sym("b"), Sym("s"), 8}), constant ? b.W({8, 8}) : b.In("w", {8, 8})});
    b.Out(b.Op1(Op::kAdd, {b.Reshape(y, {0, 0, 2, 4}), b.W(std::move(bias))}));
    return Check(b.g, Linear);
  };
  EXPECT_EQ(with({2, 4}), "MatMul Add Reshape");
  EXPECT_EQ(with({4}), "MatMul Reshape Add");            // the same for each head
  EXPECT_EQ(with({2, 1}), "MatMul Reshape Add");         // one number a head
  EXPECT_EQ(with({2, 4}, false), "MatMul Reshape Add");  // no Linear
}

TEST(CanonicalMeans, OfTheLastOfThreeAxes) {
  Builder b;
  b.Out(b.Op1(Op::kGlobalAveragePool, {b.In("x", {Sym("b"), Sym("s"), 8})}));
  EXPECT_EQ(Check(b.g, Means, kRounding), "ReduceMean");
  Builder four;
  four.Out(four.Op1(Op::kGlobalAveragePool, {four.In("x", {Sym("b"), 3, 8, 8})}));
  EXPECT_EQ(Check(four.g, Means), "GlobalAveragePool");
}

}  // namespace
}  // namespace octavo::passes::canonical
