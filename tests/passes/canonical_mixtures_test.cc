// mixtures: products of sums of probabilities. Each product is rounded by itself: 5 keys, 2^-22 each.
#include "canonical_support.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {
namespace {

constexpr double kRounding = 1e-5;

// Probabilities p1 and p2 of two heads each, and values.
struct Mix : Builder {
  ValueId q = In("q", {Sym("b"), 2, Sym("s"), 4}), k = In("k", {Sym("b"), 2, 4, Sym("t")});
  ValueId v = In("v", {Sym("b"), 2, Sym("t"), 3}), row = In("row", {Sym("b"), 2, Sym("s"), 1});
  ValueId Probabilities(ValueId x, float scale = 0.5f, int64_t axis = -1) {
    return Op1(Op::kSoftmax, {Op1(Op::kMul, {Op1(Op::kMatMul, {x, k}), F(scale)})}, {{"axis", axis}});
  }
  ValueId p1 = Probabilities(q), p2 = Probabilities(Op1(Op::kNeg, {q}));
  void End(ValueId p) { Out(Op1(Op::kMatMul, {p, v})); }
  std::string Mixed() { return Check(g, Mixtures, kRounding); }
  void Stays() {
    const std::string ops = Ops(g);
    EXPECT_EQ(Check(g, Mixtures), ops);
  }
};

const char* const kProbabilities = "MatMul Mul Softmax Neg MatMul Mul Softmax ";

TEST(CanonicalMixtures, DifferenceOfProbabilities) {
  Mix plain, scaled, turned;
  plain.End(plain.Op1(Op::kSub, {plain.p1, plain.p2}));
  EXPECT_EQ(plain.Mixed(), std::string(kProbabilities) + "MatMul MatMul Sub");
  const ValueId l = scaled.In("l", {2, 1, 1});
  scaled.End(scaled.Op1(Op::kSub, {scaled.p1, scaled.Op1(Op::kMul, {l, scaled.p2})}));
  EXPECT_EQ(scaled.Mixed(), std::string(kProbabilities) + "MatMul MatMul Mul Sub");
  turned.End(turned.Op1(Op::kSub, {turned.Op1(Op::kDiv, {turned.p2, turned.row}), turned.p1}));
  EXPECT_EQ(turned.Mixed(), std::string(kProbabilities) + "MatMul Div MatMul Sub");
}

TEST(CanonicalMixtures, FactorsOfRows) {
  Mix one, two;
  one.Out(one.p2, "read");
  one.End(one.Op1(Op::kMul, {one.row, one.p1}));
  EXPECT_EQ(one.Mixed(), std::string(kProbabilities) + "MatMul Mul");
  two.Out(two.p2, "read");
  two.End(two.Op1(Op::kDiv, {two.Op1(Op::kMul, {two.p1, two.row}), two.In("n", {})}));
  EXPECT_EQ(two.Mixed(), std::string(kProbabilities) + "MatMul Mul Div");
}

TEST(CanonicalMixtures, OfConstants) {
  Builder b;  // positions, the same for each picture
  const ValueId q = b.In("q", {Sym("b"), 2, 5, 4}), k = b.In("k", {Sym("b"), 2, 4, 5}),
                v = b.In("v", {Sym("b"), 2, 5, 3});
  const ValueId p = b.Op1(Op::kSoftmax, {b.Op1(Op::kMatMul, {q, k})}, {{"axis", int64_t{-1}}});
  const ValueId mixture = b.Op1(Op::kAdd, {b.Op1(Op::kMul, {p, b.W({1, 2, 1, 1}, 2.0f)}), b.W({1, 2, 5, 5}, 2.0f)});
  const ValueId sum = b.Op1(Op::kReduceSum, {mixture, b.Axis({-1})}, {{"keepdims", int64_t{0}}});
  b.Out(b.Op1(Op::kMatMul, {b.Op1(Op::kDiv, {mixture, b.Unsqueeze(sum, {3})}), v}));
  EXPECT_EQ(Check(b.g, Mixtures, 1e-4), "MatMul Softmax Mul ReduceSum Add MatMul Mul MatMul Add Div");
}

TEST(CanonicalMixtures, DividedByItsSum) {
  Mix m;
  const ValueId gate = m.Op1(Op::kSigmoid, {m.In("gate", {1, 2, 1, 1})});
  const ValueId rest = m.Op1(Op::kSub, {m.F(1.0f), gate});
  const ValueId mixture = m.Op1(Op::kAdd, {m.Op1(Op::kMul, {m.p1, rest}), m.Op1(Op::kMul, {m.p2, gate})});
  const ValueId sum = m.Op1(Op::kReduceSum, {mixture, m.Axis({-1})}, {{"keepdims", int64_t{1}}});
  m.End(m.Op1(Op::kDiv, {mixture, sum}));
  const std::string ops = m.Mixed();
  EXPECT_EQ(Count(ops, "ReduceSum"), 0) << ops;
  EXPECT_EQ(Count(ops, "MatMul"), 4) << ops;
}

// Differential attention as its authors wrote it: heads by twos.
struct Twos : Builder {
  ValueId q = In("q", {Sym("b"), 4, Sym("s"), 4}), k = In("k", {Sym("b"), 4, 4, Sym("t")}),
          v = In("v", {Sym("b"), 2, Sym("t"), 3}), l = In("l", {});
  ValueId p = Op1(Op::kSoftmax, {Op1(Op::kMatMul, {q, k})}, {{"axis", int64_t{-1}}});
  ValueId five = Op1(Op::kReshape, {p, Concat({DimOf(q, 0), Axis({2, 2}), DimOf(q, 2), DimOf(k, 3)})});
  ValueId Of(int64_t i, int64_t axis = 2) { return Op1(Op::kGather, {five, I(i)}, {{"axis", axis}}); }
};

TEST(CanonicalMixtures, GroupsOfHeads) {
  Twos t;
  t.Out(t.Op1(Op::kMatMul, {t.Op1(Op::kSub, {t.Of(0), t.Op1(Op::kMul, {t.Of(1), t.l})}), t.v}));
  const std::string ops = Check(t.g, Mixtures, kRounding);
  EXPECT_EQ(Count(ops, "Expand"), 2) << ops;  // which `cse` makes one
  EXPECT_NE(ops.find("MatMul Reshape Gather"), std::string::npos) << ops;
}

TEST(CanonicalMixtures, WhatStays) {
  Mix read, keys, first, queries, other, outer;
  read.Out(read.p1, "read");
  read.End(read.Op1(Op::kSub, {read.p1, read.p2}));
  read.Stays();
  keys.Out(keys.p2, "read");  // a factor for each key is a mask of V
  keys.End(keys.Op1(Op::kMul, {keys.p1, keys.In("keep", {Sym("b"), 1, 1, Sym("t")})}));
  keys.Stays();
  first.Out(first.p2, "read");
  first.End(first.Op1(Op::kMul, {first.In("keep", {Sym("b"), 1, 1, Sym("t")}), first.p1}));
  first.Stays();
  queries.End(queries.Op1(Op::kSub, {queries.p1, queries.Probabilities(queries.q, 0.3f, 2)}));
  queries.Stays();
  other.End(other.Op1(Op::kSub, {other.p1, other.Op1(Op::kTanh, {other.p2})}));
  other.Stays();
  outer.Out(outer.p2, "read");  // a factor with more dims than the probabilities
  outer.End(outer.Op1(Op::kMul, {outer.p1, outer.In("wide", {3, 1, 1, 1, 1})}));
  outer.Stays();
}

TEST(CanonicalMixtures, OfAWeightStay) {
  Builder b;
  const ValueId p =
      b.Op1(Op::kSoftmax, {b.Op1(Op::kMatMul, {b.In("q", {Sym("b"), 2, 5, 4}), b.In("k", {Sym("b"), 2, 4, 5})})});
  b.Out(b.Op1(Op::kMatMul, {b.Op1(Op::kMul, {p, b.In("f", {2, 1, 1})}), b.W({1, 2, 5, 3})}));
  const std::string ops = Ops(b.g);
  EXPECT_EQ(Check(b.g, Mixtures), ops);
}

TEST(CanonicalMixtures, GatesThatAreNoScoresStay) {
  Builder b;  // a Softmax over what a Linear gives is no attention
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 4}), v = b.In("v", {Sym("b"), 3, 4});
  const ValueId p = b.Op1(Op::kSoftmax, {b.Op1(Op::kMatMul, {x, b.W({4, 3})})}, {{"axis", int64_t{-1}}});
  b.Out(b.Op1(Op::kMatMul, {b.Op1(Op::kMul, {p, b.In("f", {Sym("b"), Sym("s"), 1})}), v}));
  const std::string ops = Ops(b.g);
  EXPECT_EQ(Check(b.g, Mixtures), ops);
}

}  // namespace
}  // namespace octavo::passes::canonical
