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

TEST(CanonicalSoftmaxAxis, MasksOfLowerRank) {
  const std::string want = "MatMul Unsqueeze Transpose Add Softmax Transpose";
  for (const SymShape& shape : {SymShape{Sym("l"), Sym("s"), 1}, SymShape{Sym("s"), 1}, SymShape{2}, SymShape{1, 2}}) {
    HeadsLast b;
    b.End(b.Op1(Op::kAdd, {b.Scores(), b.In("mask", shape)}), 2);
    const std::string ops = Check(b.g, SoftmaxAxis, kRounding);
    EXPECT_EQ(std::count(ops.begin(), ops.end(), 'U'), 1) << ops;  // Unsqueeze
    EXPECT_EQ(ops.size(), want.size()) << ops;
  }
  HeadsLast one;  // one number for all needs no dims
  one.End(one.Op1(Op::kAdd, {one.Scores(), one.In("bias", {1})}), 2);
  EXPECT_EQ(Check(one.g, SoftmaxAxis, kRounding), "MatMul Add Softmax Transpose");
}

// tf2onnx: scores [b,2,t,s] of keys and queries, a Softmax over the keys, and probabilities that a Transpose turns.
struct KeysFirst : Builder {
  ValueId q = In("q", {Sym("b"), 2, 4, Sym("s")}), k = In("k", {Sym("b"), 2, Sym("t"), 4});
  ValueId p = Op1(Op::kSoftmax, {Op1(Op::kMul, {Op1(Op::kMatMul, {k, q}), F(0.5f)})}, {{"axis", int64_t{2}}});
};

TEST(CanonicalSoftmaxAxis, KeysBeforeQueries) {
  KeysFirst b, viewed;
  b.Out(b.Transpose(b.p, {0, 1, 3, 2}));
  const std::string want = "MatMul Transpose Mul Softmax Transpose";
  EXPECT_EQ(Check(b.g, SoftmaxAxis, kRounding), want + " Transpose");
  const ValueId flat =
      viewed.Op1(Op::kReshape,
                 {viewed.p, viewed.Concat({viewed.Axis({-1}), viewed.DimOf(viewed.k, 2), viewed.DimOf(viewed.q, 3)})});
  viewed.Out(viewed.Transpose(flat, {0, 2, 1}));
  const std::string ops = Check(viewed.g, SoftmaxAxis, kRounding);
  EXPECT_NE(ops.find("Softmax Transpose"), std::string::npos) << ops;
}

// Non-local attention of channels first: v^T p, the keys of p are its rows.
TEST(CanonicalSoftmaxAxis, ProbabilitiesThatMeetValuesFromTheRight) {
  KeysFirst b, left, weight;
  b.Out(b.Op1(Op::kMatMul, {b.In("v", {Sym("b"), 2, 6, Sym("t")}), b.p}));
  EXPECT_EQ(Check(b.g, SoftmaxAxis, kRounding), "MatMul Transpose Mul Softmax Transpose MatMul");
  left.Out(left.Op1(Op::kMatMul, {left.p, left.In("v", {Sym("b"), 2, Sym("s"), 6})}));
  std::string ops = Ops(left.g);
  EXPECT_EQ(Check(left.g, SoftmaxAxis), ops);
  weight.k = weight.In("k9", {Sym("b"), 2, 9, 4});
  const ValueId scores = weight.Op1(Op::kMatMul, {weight.k, weight.q});
  const ValueId p = weight.Op1(Op::kSoftmax, {scores}, {{"axis", int64_t{2}}});
  weight.Out(weight.Op1(Op::kMatMul, {weight.W({6, 9}), p}));
  ops = Ops(weight.g);
  EXPECT_EQ(Check(weight.g, SoftmaxAxis), ops);
}

TEST(CanonicalSoftmaxAxis, RowsThatNothingTurnsBackStay) {
  const auto stays = [](KeysFirst& b) {
    const std::string ops = Ops(b.g);
    EXPECT_EQ(Check(b.g, SoftmaxAxis), ops);
  };
  KeysFirst slots, heads, twice, flat;
  slots.Out(slots.p);  // slot attention: which slot takes a row
  stays(slots);
  heads.Out(heads.Transpose(heads.p, {0, 2, 1, 3}));
  stays(heads);
  twice.Out(twice.p, "p");
  twice.Out(twice.Transpose(twice.p, {0, 1, 3, 2}));
  stays(twice);
  flat.Out(flat.Transpose(flat.Reshape(flat.p, {0, 0, -1}), {0, 2, 1}));  // other rows
  stays(flat);
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
  low.End(low.Op1(Op::kAdd, {low.Scores(), low.In("wide", {1, 1, 1, 1, 2})}), 2);  // widens the scores
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
  EXPECT_EQ(with({1, 1, 2, 4}), "MatMul Add Reshape");   // JAX
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

// JAX sums and divides; torch takes a mean without the axis and gives it back.
TEST(CanonicalMeans, OfSumsAndWithoutTheAxis) {
  const auto rows = [](Builder& b) { return b.In("x", {Sym("b"), 3, 5, 8}); };
  for (const Op op : {Op::kReduceSum, Op::kReduceSumSquare}) {
    const std::string want = op == Op::kReduceSum ? "ReduceMean" : "Mul ReduceMean";
    Builder over, times, dropped;
    over.Out(over.Op1(Op::kDiv, {over.Op1(op, {rows(over), over.Axis({3})}), over.F(8)}));
    EXPECT_EQ(Check(over.g, Means, kRounding), want);
    times.Out(times.Op1(Op::kMul, {times.Op1(op, {rows(times), times.Axis({-1})}), times.F(0.125f)}));
    EXPECT_EQ(Check(times.g, Means, kRounding), want);
    const ValueId sum = dropped.Op1(op, {rows(dropped), dropped.Axis({-1})}, {{"keepdims", int64_t{0}}});
    dropped.Out(dropped.Op1(Op::kDiv, {dropped.Unsqueeze(sum, {-1}), dropped.F(8)}));
    EXPECT_EQ(Check(dropped.g, Means, kRounding), want);
  }
  Builder given_back;
  const ValueId mean =
      given_back.Op1(Op::kReduceMean, {rows(given_back), given_back.Axis({-1})}, {{"keepdims", int64_t{0}}});
  given_back.Out(given_back.Reshape(mean, {0, 3, 5, 1}));
  EXPECT_EQ(Check(given_back.g, Means, kRounding), "ReduceMean");
  for (const Op op : {Op::kReduceMax, Op::kReduceSum}) {
    Builder b;
    b.Out(b.Unsqueeze(b.Op1(op, {rows(b), b.Axis({3})}, {{"keepdims", int64_t{0}}}), {-1}));
    EXPECT_EQ(Check(b.g, Means), op == Op::kReduceMax ? "ReduceMax" : "ReduceSum");
  }
}

TEST(CanonicalMeans, WhatIsNone) {
  const auto stays = [](Op op, int64_t axis, float by, ir::SymShape shape) {
    Builder b;
    b.Out(b.Op1(Op::kDiv, {b.Op1(op, {b.In("x", std::move(shape)), b.Axis({axis})}), b.F(by)}));
    const std::string ops = Ops(b.g);
    EXPECT_EQ(Check(b.g, Means), ops);
  };
  stays(Op::kReduceSum, -1, 7, {Sym("b"), 8, 8});         // another count
  stays(Op::kReduceSum, 1, 8, {Sym("b"), 8, 8});          // another axis
  stays(Op::kReduceMax, -1, 8, {Sym("b"), 8, 8});         // no sum
  stays(Op::kReduceSum, -1, 8, {Sym("b"), 8, Sym("c")});  // nobody knows how many
  Builder moved;
  const ValueId mean =
      moved.Op1(Op::kReduceMean, {moved.In("x", {3, 5, 8}), moved.Axis({-1})}, {{"keepdims", int64_t{0}}});
  moved.Out(moved.Reshape(mean, {5, 3, 1}));  // other rows
  EXPECT_EQ(Check(moved.g, Means), "ReduceMean Reshape");
}

// jax2onnx: the mask behind the Softmax, and what is left of a row becomes 1 again. Scores [b,2,s,t].
struct Left : Builder {
  ValueId s = In("s", {Sym("b"), 2, Sym("s"), Sym("t")}), m = In("m", {Sym("b"), 1, Sym("s"), Sym("t")}, DType::kBool);
  ValueId Of(ValueId p) { return Op1(Op::kMul, {p, Op1(Op::kCast, {m}, {{"to", int64_t{1}}})}); }
  ValueId Softmax(int64_t axis = -1) { return Op1(Op::kSoftmax, {s}, {{"axis", axis}}); }
  ValueId Half(uint16_t bits) { return g.AddConstant(Tensor::Of<uint16_t>(DType::kF16, {}, std::vector{bits})); }
  ValueId Sum(ValueId w, int64_t axis = -1) { return Op1(Op::kReduceSum, {w, Axis({axis})}); }
  ValueId Ones(float other = 0.0f) {  // and another number, [1,1,1,1,..] of the rows
    Tensor t = Tensor::Zeros(DType::kF32, {2, 1, 1});
    t.mutable_as<float>()[0] = 1.0f, t.mutable_as<float>()[1] = other;
    return g.AddConstant(t);
  }
  ValueId Any(ValueId sum) { return Op1(Op::kGreater, {sum, F(0)}); }
  void Guarded(ValueId w, float one, bool twice) {
    const ValueId sum = Sum(w), by = Op1(Op::kWhere, {Any(sum), sum, F(one)}), p = Op1(Op::kDiv, {w, by});
    Out(twice ? Op1(Op::kWhere, {Any(sum), p, F(0)}) : p);
  }
};

TEST(CanonicalRenormalized, IsAMaskedSoftmax) {
  Left plain, where, by_hand, shifted, guarded, twice;
  const ValueId w = plain.Of(plain.Softmax(3));
  plain.Out(plain.Op1(Op::kDiv, {w, plain.Sum(w, 3)}));
  EXPECT_EQ(Check(plain.g, Renormalized, kRounding), "Where Softmax");
  const ValueId kept = where.Op1(Op::kWhere, {where.m, where.Softmax(), where.F(0)});
  where.Out(where.Op1(Op::kDiv, {kept, where.Sum(kept)}));
  EXPECT_EQ(Check(where.g, Renormalized, kRounding), "Where Softmax");
  by_hand.Guarded(by_hand.Of(by_hand.Op1(Op::kExp, {by_hand.s})), 1, false);
  EXPECT_EQ(Check(by_hand.g, Renormalized, kRounding), "Where Softmax IsNaN Where");
  const ValueId top = shifted.Op1(Op::kReduceMax, {shifted.s, shifted.Axis({-1})});
  shifted.Guarded(shifted.Of(shifted.Op1(Op::kExp, {shifted.Op1(Op::kSub, {shifted.s, top})})), 1, false);
  EXPECT_EQ(Check(shifted.g, Renormalized, kRounding), "Where Softmax IsNaN Where");
  guarded.Guarded(guarded.Of(guarded.Softmax()), 1, false);
  EXPECT_EQ(Check(guarded.g, Renormalized, kRounding), "Where Softmax IsNaN Where");
  Left numbers;
  numbers.Guarded(numbers.Op1(Op::kMul, {numbers.Softmax(), numbers.Ones()}), 1, false);
  EXPECT_EQ(Check(numbers.g, Renormalized, kRounding), "Cast Where Softmax IsNaN Where");
  twice.Guarded(twice.Of(twice.Softmax()), 1, true);
  EXPECT_EQ(Check(twice.g, Renormalized, kRounding), "Where Softmax IsNaN Where");
}

// Of f16, and of a Softmax that widen computes in f32; a row is divided once instead of twice, each time rounded by 2^-11.
TEST(CanonicalRenormalized, OfSixteenBits) {
  const auto mask = [](Left& b) { return b.Cast(b.m, DType::kF16); };
  for (const bool wide : {false, true}) {
    for (const bool guarded : {false, true}) {
      Left b;
      const ValueId p = wide ? b.Cast(b.Softmax(), DType::kF16)
                             : b.Op1(Op::kSoftmax, {b.Cast(b.s, DType::kF16)}, {{"axis", int64_t{-1}}});
      const ValueId w = b.Op1(Op::kMul, {p, mask(b)}), sum = b.Sum(w);
      const auto any = [&] { return b.Op1(Op::kGreater, {sum, b.Half(0)}); };
      b.Out(b.Op1(Op::kDiv, {w, guarded ? b.Op1(Op::kWhere, {any(), sum, b.Half(0x3C00)}) : sum}));
      const std::string ops = Check(b.g, Renormalized, 0x1p-9);
      EXPECT_EQ(Count(ops, "ReduceSum"), 0) << ops;
      EXPECT_EQ(Count(ops, "Where"), guarded ? 2 : 1) << ops;
    }
  }
  Left read;  // the probabilities of 16 bits are an output
  const ValueId p = read.Cast(read.Softmax(), DType::kF16), w = read.Op1(Op::kMul, {p, mask(read)});
  read.Out(p, "p");
  read.Out(read.Op1(Op::kDiv, {w, read.Sum(w)}));
  EXPECT_EQ(Count(Check(read.g, Renormalized), "ReduceSum"), 1);
}

// NeMo's Where(shown, Softmax(Where(shown, s, -1e4)), 0) in f16: Where, Softmax and Where in f32.
TEST(CanonicalWiden, ProbabilitiesThatAreMaskedOnceMore) {
  for (const bool first : {false, true}) {
    Left b;
    const ValueId v = b.In("v", {Sym("b"), 2, Sym("t"), 4}), k = b.In("k", {Sym("b"), 2, 4, Sym("t")}),
                  q = b.In("q", {Sym("b"), 2, Sym("s"), 4});
    const auto half = [&](ValueId x) { return b.Cast(x, DType::kF16); };
    const auto where = [&](ValueId x, uint16_t low) {
      return b.Op1(Op::kWhere, first ? std::vector{b.m, x, b.Half(low)} : std::vector{b.m, b.Half(low), x});
    };
    const ValueId s = where(b.Op1(Op::kMatMul, {half(q), half(k)}), 0xF0E2);  // -1e4
    b.Out(b.Op1(Op::kMatMul, {where(b.Op1(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}), 0), half(v)}));
    Graph after = b.g;
    PassRun run;
    ASSERT_TRUE(ir::Inference::Run(after).has_value());
    ASSERT_TRUE(*Widen(after, run));
    for (const NodeId id : after.NodesInOrder()) {
      const Node& n = after.node(id);
      const bool core = n.op == Op::kMatMul || n.op == Op::kSoftmax || n.op == Op::kWhere;
      EXPECT_TRUE(!core || DTypeOf(after, n.output()) == DType::kF32) << ir::ToText(after);
    }
  }
}

// ONNX's op in 16 bits with caches and a mask: floats inside, what it makes is of 16 bits; not where its scores are read.
TEST(CanonicalWiden, AttentionOfOnnx) {
  for (const bool scores : {false, true}) {
    for (const DType narrow : {DType::kF16, DType::kBF16}) {
      Builder b;
      b.g.info.opsets[""] = 23;
      const auto half = [&](const char* name, int64_t rows) { return b.Cast(b.In(name, {2, 2, rows, 4}), narrow); };
      const ValueId mask = b.Cast(b.In("hidden", {3, 8}), narrow);
      const NodeId id = b.g.AddNode(
          Op::kAttention, {half("q", 3), half("k", 3), half("v", 3), mask, half("past_k", 5), half("past_v", 5)},
          scores ? 4 : 3, {{"softmax_precision", static_cast<int64_t>(narrow)}});
      for (size_t i = 0; i < b.g.node(id).outputs.size(); ++i)
        b.g.AddOutput("y" + std::to_string(i), b.g.node(id).output(i));
      Graph after = b.g;
      PassRun run;
      ASSERT_TRUE(ir::Inference::Run(after).has_value());
      ASSERT_EQ(*Widen(after, run), !scores);
      for (const NodeId node : after.NodesInOrder()) {
        const Node& n = after.node(node);
        if (n.op != Op::kAttention || scores) continue;
        for (const ValueId v : n.inputs) EXPECT_EQ(DTypeOf(after, v), DType::kF32) << ir::ToText(after);
        for (const ValueId v : n.outputs) EXPECT_EQ(DTypeOf(after, v), DType::kF32) << ir::ToText(after);
      }
      ASSERT_TRUE(ir::Inference::Run(after).has_value());
      for (size_t i = 0; i < after.outputs().size(); ++i) {
        EXPECT_EQ(DTypeOf(after, after.outputs()[i].value), narrow);
      }
      if (scores) continue;
      ir::TensorMap in;
      for (const ValueId v : b.g.inputs()) {
        ir::Shape shape;
        for (const Dim& d : *TypeOf(b.g, v).shape) shape.push_back(d.number());
        Tensor t = Tensor::Empty(DType::kF32, shape);
        for (int64_t i = 0; i < t.size(); ++i)
          t.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>((i * 7 + v.index) % 13 - 6) / 8;
        in[b.g.value(v).name] = t;
      }
      const auto want = ir::Interpret(b.g, in), got = ir::Interpret(after, in);
      ASSERT_TRUE(want && got) << got.error().message;
      for (int64_t i = 0; i < (*want)[0].size();
           ++i)  // within -1..1; two roundings of 16 bits inside, and of the result
        EXPECT_NEAR((*got)[0].GetDouble(i), (*want)[0].GetDouble(i), narrow == DType::kF16 ? 0x1p-9 : 0x1p-6);
      for (size_t cache : {1u, 2u}) EXPECT_TRUE((*got)[cache].SameBits((*want)[cache]));
    }
  }
}

TEST(CanonicalRenormalized, WhatStays) {
  const auto stays = [](Left& b) {
    const std::string ops = Ops(b.g);
    EXPECT_EQ(Check(b.g, Renormalized), ops);
  };
  Left queries, other_sum, read, factors, half, wide;
  ValueId w = queries.Of(queries.Softmax(2));  // over queries
  queries.Out(queries.Op1(Op::kDiv, {w, queries.Sum(w)}));
  stays(queries);
  w = other_sum.Of(other_sum.Softmax());
  other_sum.Out(other_sum.Op1(Op::kDiv, {w, other_sum.Sum(w, -2)}));
  stays(other_sum);
  const ValueId p = read.Softmax();
  read.Out(p, "p");
  w = read.Of(p);
  read.Out(read.Op1(Op::kDiv, {w, read.Sum(w)}));
  stays(read);
  w = factors.Op1(Op::kMul, {factors.Softmax(), factors.In("f", {1, 1, 1, Sym("t")})});  // not 0 or 1
  factors.Out(factors.Op1(Op::kDiv, {w, factors.Sum(w)}));
  stays(factors);
  Left halves;
  halves.Guarded(halves.Op1(Op::kMul, {halves.Softmax(), halves.Ones(0.5f)}), 1, false);
  stays(halves);
  half.Guarded(half.Of(half.Softmax()), 0.5f, false);  // 0 / 0.5 is 0 as well, but nobody writes it
  stays(half);
  w = wide.Of(wide.Op1(Op::kSoftmax, {wide.In("narrow", {Sym("b"), 2, Sym("s"), 1})}, {{"axis", int64_t{-1}}}));
  wide.Out(wide.Op1(Op::kDiv, {w, wide.Sum(w)}));  // one probability for all keys
  stays(wide);
}

}  // namespace
}  // namespace octavo::passes::canonical
