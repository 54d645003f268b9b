// views, linear, qdq: the canonical forms that the fusion rules expect, bit for bit the same results.
#include "canonical_support.h"

namespace octavo::passes::canonical {
namespace {

// The perm of the only Transpose, or nothing.
Ints OnlyPerm(const Graph& g) {
  Ints perm;
  for (NodeId id : g.NodesInOrder()) {
    if (g.node(id).op == Op::kTranspose) perm = g.node(id).attrs.Ints("perm");
  }
  return perm;
}
Ints PermAfter(Graph g, PassFn pass) {
  PassRun context;
  EXPECT_TRUE(pass(g, context));
  return OnlyPerm(g);
}

ValueId Heads(Builder& b, ValueId x) { return b.Transpose(b.Reshape(x, {0, 0, 3, 4}), {0, 2, 1, 3}); }

TEST(CanonicalViews, DynamoKeyTransposeBecomesOneTransposeOfTheSplit) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 12});
  const ValueId k = Heads(b, x);
  const ValueId folded = b.Op1(Op::kReshape, {k, b.Concat({b.Axis({-1}), b.DimOf(x, 1), b.Axis({4})})});
  const ValueId back = b.Concat({b.DimOf(x, 0), b.Axis({3}), b.Axis({4}), b.DimOf(x, 1)});
  b.Out(b.Op1(Op::kReshape, {b.Transpose(folded, {0, 2, 1}), back}));
  EXPECT_EQ(Check(b.g, Canonicalize), "Reshape Transpose");
  EXPECT_EQ(PermAfter(b.g, Canonicalize), (Ints{0, 2, 3, 1}));
}

TEST(CanonicalViews, ABatchOfOneThatWasMergedWithTheHeadsComesBack) {
  Builder b;
  const ValueId k = b.Transpose(b.Reshape(b.In("x", {1, 7, 12}), {1, 7, 3, 4}), {0, 2, 1, 3});
  const ValueId folded = b.Transpose(b.Reshape(k, {3, 7, 4}), {0, 2, 1});
  b.Out(b.Reshape(folded, {1, 3, 4, 7}));
  EXPECT_EQ(Check(b.g, Canonicalize), "Reshape Transpose");
  EXPECT_EQ(PermAfter(b.g, Canonicalize), (Ints{0, 2, 3, 1}));
}

TEST(CanonicalViews, TransposesMergeAndCancel) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 12});
  b.Out(b.Transpose(Heads(b, x), {0, 1, 3, 2}));
  EXPECT_EQ(Check(b.g, Views), "Reshape Transpose");
  EXPECT_EQ(PermAfter(b.g, Views), (Ints{0, 2, 3, 1}));
  Builder c;
  const ValueId y = c.In("x", {Sym("b"), Sym("s"), 12});
  c.Out(c.Reshape(c.Transpose(Heads(c, y), {0, 2, 1, 3}), {0, 0, 12}));
  c.Out(c.Op1(Op::kNeg, {y}), "z");
  EXPECT_EQ(Check(c.g, Views), "Neg");
}

TEST(CanonicalViews, HeadMergeAndHeadSplitStayAsTheyAre) {
  for (const int64_t heads : {1, 3}) {  // one head: a dim of 1 in the middle
    Builder b;
    const ValueId x = b.In("x", {Sym("b"), Sym("s"), 4 * heads});
    const ValueId h = b.Transpose(b.Reshape(x, {0, 0, heads, 4}), {0, 2, 1, 3});
    b.Out(b.Reshape(b.Transpose(b.Op1(Op::kExp, {h}), {0, 2, 1, 3}), {0, 0, 4 * heads}));
    EXPECT_EQ(Check(b.g, Canonicalize), "Reshape Transpose Exp Transpose Reshape");
  }
}

TEST(CanonicalViews, SplitBehindATransposeMovesInFront) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 12});
  const ValueId t = b.Transpose(x, {0, 2, 1});
  b.Out(b.Op1(Op::kReshape, {t, b.Concat({b.DimOf(x, 0), b.Axis({3, 4}), b.DimOf(x, 1)})}));
  EXPECT_EQ(Check(b.g, Canonicalize), "Reshape Transpose");
  EXPECT_EQ(PermAfter(b.g, Canonicalize), (Ints{0, 2, 3, 1}));
}

TEST(CanonicalViews, SequenceFirstAttentionGetsBatchAndHeadsApart) {
  Builder b;  // torch's MultiheadAttention: [s,b,E] -> [s,b*H,D] -> [b*H,s,D] -> [b,H,s,D]
  const ValueId x = b.In("x", {Sym("s"), Sym("b"), 12});
  const ValueId bh = b.Op1(Op::kMul, {b.DimOf(x, 1), b.Axis({3})});
  const ValueId h = b.Op1(Op::kReshape, {x, b.Concat({b.DimOf(x, 0), bh, b.Axis({4})})});
  const ValueId t = b.Transpose(h, {1, 0, 2});
  b.Out(b.Op1(Op::kReshape, {t, b.Concat({b.DimOf(x, 1), b.Axis({3}), b.DimOf(x, 0), b.Axis({4})})}));
  EXPECT_EQ(Check(b.g, Canonicalize), "Reshape Transpose");
  EXPECT_EQ(PermAfter(b.g, Canonicalize), (Ints{1, 2, 0, 3}));
}

TEST(CanonicalViews, RepeatedHeadsKeepTheirMergeInFrontOfTheTranspose) {
  Builder b;
  const ValueId k = b.In("k", {Sym("b"), 2, Sym("s"), 4});
  const ValueId five = b.Unsqueeze(k, {2});
  const ValueId wide =
      b.Op1(Op::kExpand, {five, b.Concat({b.DimOf(k, 0), b.Axis({2, 3}), b.DimOf(k, 2), b.Axis({4})})});
  const ValueId six = b.Op1(Op::kReshape, {wide, b.Concat({b.DimOf(k, 0), b.Axis({6}), b.DimOf(k, 2), b.Axis({4})})});
  b.Out(b.Transpose(six, {0, 1, 3, 2}));
  EXPECT_EQ(Check(b.g, Canonicalize), "Unsqueeze Expand Reshape Transpose");
}

TEST(CanonicalViews, UnsqueezesMerge) {
  Builder b;
  const ValueId m = b.In("m", {Sym("b"), Sym("s")});
  b.Out(b.Unsqueeze(b.Unsqueeze(m, {1}), {2}));
  b.Out(b.Op1(Op::kSqueeze, {b.Unsqueeze(m, {-1}), b.Axis({-1})}), "same");
  EXPECT_EQ(Check(b.g, Views), "Unsqueeze");
}

TEST(CanonicalViews, BatchedThreeDimensionalAttentionGetsItsHeadsBack) {
  Builder b;
  const ValueId q = b.In("q", {Sym("b"), Sym("s"), 12});
  const ValueId k = b.In("k", {Sym("b"), Sym("t"), 12});
  const auto flat = [&](ValueId x) {
    return b.Op1(Op::kReshape, {Heads(b, x), b.Concat({b.Axis({-1}), b.DimOf(x, 1), b.Axis({4})})});
  };
  const ValueId scores = b.Op1(Op::kMatMul, {flat(q), b.Transpose(flat(k), {0, 2, 1})});
  const ValueId p = b.Op1(Op::kSoftmax, {b.Op1(Op::kMul, {scores, b.F(0.5f)})}, Attrs{{"axis", int64_t{-1}}});
  const ValueId o = b.Op1(Op::kMatMul, {p, flat(k)});
  b.Out(b.Op1(Op::kReshape, {o, b.Concat({b.DimOf(q, 0), b.Axis({3}), b.DimOf(q, 1), b.Axis({4})})}));
  const std::string ops = Check(b.g, Canonicalize);
  EXPECT_EQ(Count(ops, "Reshape"), 2u) << ops;  // the two head splits
  EXPECT_EQ(Count(ops, "Transpose"), 3u) << ops;
}

// Experts and convolutions as products merge batch and sequence before a norm. Each of its readers takes the Reshape below it, so the mean of the rows must, too,
// or x and its mean end in different ranks; a mean over the merged axis is another one, and stays.
// Cross-attention of Keras: queries and keys of batches under two names, each merged with three heads. Where the sizes differ the graph does not run.
TEST(CanonicalViews, BatchesUnderTwoNamesAreOneBehindTheirHeads) {
  const auto product = [](Dim batch_of_k) {
    Builder b;
    const ValueId q = b.In("q", {Sym("b"), 3, Sym("s"), 4}), k = b.In("k", {std::move(batch_of_k), 3, 4, Sym("t")});
    const ValueId rows = b.Op1(Op::kReshape, {q, b.Concat({b.Axis({-1}), b.DimOf(q, 2), b.Axis({4})})}),
                  columns = b.Op1(Op::kReshape, {k, b.Concat({b.Axis({-1, 4}), b.DimOf(k, 3)})});
    const ValueId s = b.Op1(Op::kMatMul, {rows, columns});
    b.Out(b.Op1(Op::kReshape, {s, b.Concat({b.Axis({-1, 3}), b.DimOf(q, 2), b.DimOf(k, 3)})}));
    Graph after = b.g;
    PassRun run;
    EXPECT_TRUE(Fold(after, run).has_value() && Views(after, run).has_value() && Dce(after, run).has_value());
    const ir::TensorMap in = RandomInputs(b.g, {{"b", 3}, {"c", 3}, {"s", 5}, {"t", 2}}, 1);
    const auto want = ir::Interpret(b.g, in), got = ir::Interpret(after, in);
    EXPECT_TRUE(want && got && (*want)[0].SameBits((*got)[0]));
    return Ops(after);
  };
  EXPECT_EQ(product(Sym("c")), "MatMul");
  EXPECT_EQ(product(Sym("b")), "MatMul");
  EXPECT_NE(product(3), "MatMul");  // a number is no name
}

TEST(CanonicalViews, AMergeSinksBelowTheMeanOfRowsAlone) {
  const auto norm = [](int64_t axis) {
    Builder b;
    const ValueId x = b.In("x", {Sym("b"), Sym("s"), 6});
    const ValueId rows = b.Op1(Op::kReshape, {x, b.Axis({-1, 6})});
    const ValueId mean = b.Op1(Op::kReduceMean, {b.Op1(Op::kMul, {rows, rows}), b.Axis({axis})});
    const ValueId root = b.Op1(Op::kSqrt, {b.Op1(Op::kAdd, {mean, b.F(1e-5f)})});
    b.Out(b.Op1(Op::kReshape, {b.Op1(Op::kDiv, {rows, root}), b.Concat({b.DimOf(x, 0), b.DimOf(x, 1), b.Axis({6})})}));
    return Check(b.g, Canonicalize);
  };
  EXPECT_EQ(norm(-1), "Mul ReduceMean Add Sqrt Div");
  const std::string other = norm(0);
  EXPECT_EQ(Count(other, "Reshape"), 2u) << other;
}

TEST(CanonicalLinear, GemmBetweenReshapesIsAMatMulOfTheFullRank) {
  for (const bool transposed : {false, true}) {
    Builder b;
    const ValueId x = b.In("x", {Sym("b"), Sym("s"), 3});
    const ValueId rows = b.Op1(Op::kReshape, {x, b.Axis({-1, 3})});
    const ValueId y = b.Op1(Op::kGemm, {rows, b.W(transposed ? ir::Shape{5, 3} : ir::Shape{3, 5}), b.W({5})},
                            Attrs{{"transB", int64_t{transposed}}});
    b.Out(b.Op1(Op::kReshape, {y, b.Concat({b.DimOf(x, 0), b.DimOf(x, 1), b.Axis({5})})}));
    EXPECT_EQ(Check(b.g, Canonicalize), "MatMul Add");
  }
}

TEST(CanonicalLinear, AlphaAndBetaBecomeExplicit) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), 3});
  b.Out(b.Op1(Op::kGemm, {x, b.W({3, 5}), b.W({5})}, Attrs{{"alpha", 0.5f}, {"beta", 0.25f}}));
  EXPECT_EQ(Check(b.g, Canonicalize, 1e-6), "MatMul Mul Add");
}

TEST(CanonicalLinear, BiasComesSecondAndFlat) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 3});
  const ValueId w = b.Transpose(b.W({5, 3}), {1, 0});
  b.Out(b.Op1(Op::kAdd, {b.W({1, 1, 5}), b.Op1(Op::kMatMul, {x, w})}));
  EXPECT_EQ(Check(b.g, Canonicalize), "MatMul Add");
  PassRun context;
  ASSERT_TRUE(Canonicalize(b.g, context));
  const Node& add = b.g.node(b.g.last());
  EXPECT_TRUE(b.g.IsFrom(add.input(0), Op::kMatMul));
  EXPECT_EQ(b.g.ConstantOf(add.input(1))->shape(), (ir::Shape{5}));
  EXPECT_EQ(b.g.ConstantOf(b.g.Producer(add.input(0))->input(1))->shape(), (ir::Shape{3, 5}));
}

TEST(CanonicalLinear, PerChannelWeightsAreTransposedWithTheirAxis) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), 3}, DType::kU8);
  const ValueId a = b.Op1(Op::kDequantizeLinear, {x, b.F(0.1f), b.g.AddConstant(Tensor::Zeros(DType::kU8, {}))});
  const ValueId q = b.g.AddConstant(Tensor::Of<int8_t>(DType::kS8, {2, 3}, std::vector<int8_t>{1, -2, 3, 4, -5, 6}));
  const ValueId w =
      b.Op1(Op::kDequantizeLinear,
            {q, b.g.AddConstant(Tensor::F32({2}, {0.5f, 0.3f})), b.g.AddConstant(Tensor::Zeros(DType::kS8, {2}))},
            Attrs{{"axis", int64_t{0}}});
  b.Out(b.Op1(Op::kGemm, {a, w, b.W({2})}, Attrs{{"transB", int64_t{1}}}));
  EXPECT_EQ(Check(b.g, Canonicalize), "DequantizeLinear DequantizeLinear MatMul Add");
}

ValueId Zp(Builder& b, uint8_t z) {
  return b.g.AddConstant(Tensor::Of<uint8_t>(DType::kU8, {}, std::vector<uint8_t>{z}));
}

TEST(CanonicalQdq, QuantizeMovesUpAndDequantizeDown) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 12});
  const ValueId y = b.Op1(Op::kExp, {x});
  const ValueId s = b.F(0.03f), z = Zp(b, 3);
  const ValueId q = b.Op1(Op::kQuantizeLinear, {Heads(b, y), s, z});
  const ValueId d = b.Op1(Op::kDequantizeLinear, {q, s, z});
  b.Out(b.Op1(Op::kMatMul, {d, b.Transpose(d, {0, 1, 3, 2})}));
  EXPECT_EQ(Check(b.g, Qdq), "Exp QuantizeLinear Reshape Transpose DequantizeLinear Transpose DequantizeLinear MatMul");
}

TEST(CanonicalQdq, EqualRoundTripsGoAndUnequalOnesStay) {
  for (const float second : {0.03f, 0.031f}) {
    Builder b;
    const ValueId x = b.In("x", {Sym("b"), 6});
    const ValueId q1 = b.Op1(Op::kQuantizeLinear, {x, b.F(0.03f), Zp(b, 3)});
    const ValueId v = b.Reshape(b.Op1(Op::kDequantizeLinear, {q1, b.F(0.03f), Zp(b, 3)}), {0, 2, 3});
    const ValueId q2 = b.Op1(Op::kQuantizeLinear, {v, b.F(second), Zp(b, 3)});
    b.Out(b.Op1(Op::kDequantizeLinear, {q2, b.F(second), Zp(b, 3)}));
    EXPECT_EQ(Check(b.g, Qdq), second == 0.03f
                                   ? "QuantizeLinear Reshape DequantizeLinear"
                                   : "QuantizeLinear Reshape DequantizeLinear QuantizeLinear DequantizeLinear");
  }
}

TEST(CanonicalQdq, RoundTripIsExactForEveryByteAndManyScales) {
  // The claim behind dropping Q(DQ(q)), on the interpreter's own arithmetic.
  std::mt19937 rng(Seed());
  std::vector<uint8_t> all(256);
  for (int i = 0; i < 256; ++i) all[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
  for (int round = 0; round < 2000; ++round) {
    const float scale =
        std::ldexp(1.0f + static_cast<float>(rng() % (1 << 23)) / (1 << 23), static_cast<int>(rng() % 60) - 30);
    const int zero = static_cast<int>(rng() % 256);
    for (int i = 0; i < 256; ++i) {
      const float value = static_cast<float>(i - zero) * scale;
      ASSERT_EQ(std::nearbyint(value / scale) + zero, i) << "scale " << scale;
    }
  }
}

TEST(CanonicalQdq, PerAxisFollowsTheAxisOrStays) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), 2, 6}, DType::kU8);
  const ValueId s = b.g.AddConstant(Tensor::F32({2}, {0.5f, 0.25f}));
  const ValueId z = b.g.AddConstant(Tensor::Of<uint8_t>(DType::kU8, {2}, std::vector<uint8_t>{1, 9}));
  const ValueId d = b.Op1(Op::kDequantizeLinear, {x, s, z}, Attrs{{"axis", int64_t{1}}});
  b.Out(b.Transpose(d, {2, 0, 1}), "followed");
  b.Out(b.Reshape(d, {0, 12}), "lost");
  EXPECT_EQ(Check(b.g, Qdq), "DequantizeLinear Transpose DequantizeLinear Reshape");
}

// Multi-query attention as x-transformers writes it, and keys that all blocks share.
TEST(CanonicalEinsum, RowsThatOneOperandHasAlone) {
  Builder b;
  const ValueId q = b.In("q", {Sym("b"), 3, Sym("s"), 4}), k = b.In("k", {Sym("b"), Sym("t"), 4});
  b.Out(b.Op1(Op::kEinsum, {q, k}, Attrs{{"equation", std::string("b h i d, b j d -> b h i j")}}));
  EXPECT_EQ(Check(b.g, Einsum, 1e-5), "Transpose Unsqueeze MatMul");
  Builder blocks;
  const ValueId x = blocks.In("x", {Sym("b"), 2, Sym("s"), 3, 4}), y = blocks.In("y", {Sym("b"), 2, 4, Sym("t")});
  blocks.Out(blocks.Op1(Op::kEinsum, {x, y}, Attrs{{"equation", std::string("BHNKF,BHFG->BHNKG")}}));
  EXPECT_EQ(Check(blocks.g, Einsum, 1e-5), "Unsqueeze MatMul");
  Builder columns;  // of the other operand: no MatMul says that
  const ValueId u = columns.In("u", {Sym("b"), Sym("s"), 4}), v = columns.In("v", {Sym("b"), 2, Sym("t"), 4});
  columns.Out(columns.Op1(Op::kEinsum, {u, v}, Attrs{{"equation", std::string("bid,bhjd->bihj")}}));
  EXPECT_EQ(Check(columns.g, Einsum), "Einsum");
}

// Groups of heads in front of the heads that they share: scores and their product with V need no Transpose of rank 5.
TEST(CanonicalEinsum, RowsAmongTheBatch) {
  Builder scores, values, turned;
  const ValueId q = scores.In("q", {Sym("b"), 3, 2, Sym("s"), 4}), k = scores.In("k", {Sym("b"), 2, Sym("t"), 4});
  scores.Out(scores.Op1(Op::kEinsum, {q, k}, Attrs{{"equation", std::string("bghnd,bhsd->bghns")}}));
  EXPECT_EQ(Check(scores.g, Einsum, 1e-5), "Transpose Unsqueeze MatMul");
  const ValueId p = values.In("p", {Sym("b"), 3, 2, Sym("s"), Sym("t")}),
                v = values.In("v", {Sym("b"), 2, Sym("t"), 4});
  values.Out(values.Op1(Op::kEinsum, {p, v}, Attrs{{"equation", std::string("bghns,bhsd->bghnd")}}));
  EXPECT_EQ(Check(values.g, Einsum, 1e-5), "Unsqueeze MatMul");
  const ValueId x = turned.In("p", {Sym("b"), 3, 2, Sym("s"), Sym("t")}),
                y = turned.In("v", {Sym("b"), 2, Sym("t"), 4});
  turned.Out(turned.Op1(Op::kEinsum, {x, y}, Attrs{{"equation", std::string("bghns,bhsd->bnghd")}}));
  const std::string ops = Check(turned.g, Einsum, 1e-5);
  EXPECT_EQ(Count(ops, "MatMul"), 1u) << ops;
}

// The MSA transformer of ESM: attention that all rows of an alignment share, and attention of columns.
TEST(CanonicalEinsum, SeveralLettersBesideABatch) {
  const auto with = [](Dim rows, const char* equation, bool probabilities) {
    Builder b;
    const ValueId x =
        probabilities ? b.In("p", {2, Sym("n"), Sym("i"), Sym("j")}) : b.In("q", {rows, Sym("i"), Sym("n"), 2, 4});
    const ValueId y = b.In("k", {rows, Sym("j"), Sym("n"), 2, 4});
    b.Out(b.Op1(Op::kEinsum, {x, y}, Attrs{{"equation", std::string(equation)}}));
    return Check(b.g, Einsum, 1e-5);
  };
  EXPECT_EQ(with(3, "rinhd,rjnhd->hnij", false), "Transpose Transpose Reshape Reshape MatMul");
  EXPECT_EQ(with(3, "hnij,rjnhd->rinhd", true), "Transpose Reshape MatMul Reshape Transpose");
  EXPECT_EQ(with(Sym("r"), "rinhd,rjnhd->hnij", false), "Einsum");  // no constant says how to merge r and d
}

TEST(CanonicalEinsum, VectorsAreMatricesOfOneColumnOrRow) {
  const auto with = [](const char* equation, ir::SymShape x, ir::SymShape y) {
    Builder b;
    b.Out(b.Op1(Op::kEinsum, {b.In("x", std::move(x)), b.In("y", std::move(y))},
                Attrs{{"equation", std::string(equation)}}));
    return Check(b.g, Einsum, 1e-5);
  };
  EXPECT_EQ(with("bsd,bd->bs", {Sym("b"), Sym("s"), 4}, {Sym("b"), 4}), "Unsqueeze MatMul Squeeze");
  EXPECT_EQ(with("bsd,d->bs", {Sym("b"), Sym("s"), 4}, {4}), "Unsqueeze MatMul Squeeze");
  EXPECT_EQ(Count(with("bs,bsd->bd", {Sym("b"), Sym("s")}, {Sym("b"), Sym("s"), 4}), "MatMul"), 1u);
  EXPECT_EQ(Count(with("...d,...d->...", {Sym("b"), Sym("s"), 4}, {Sym("b"), Sym("s"), 4}), "MatMul"), 1u);
  EXPECT_EQ(with("bsd,bd->bs", {Sym("b"), Sym("s"), 4}, {Sym("b"), 1}), "Einsum");  // a 1 that ONNX repeats
}

TEST(CanonicalEinsum, ProbabilitiesStayAsTheyAre) {
  Builder b;
  const ValueId p = b.In("p", {2, Sym("c"), Sym("n"), Sym("i"), Sym("j")}),
                v = b.In("v", {Sym("j"), Sym("c"), Sym("n"), 2, 4});
  b.Out(b.Op1(Op::kEinsum, {p, v}, Attrs{{"equation", std::string("hcnij,jcnhd->icnhd")}}));
  EXPECT_EQ(Check(b.g, Einsum, 1e-5), "Transpose MatMul Transpose");
  Builder groups;  // grouped heads: k of them have g queries each
  const ValueId r = groups.In("p", {Sym("b"), 3, 2, Sym("q"), Sym("s")}),
                w = groups.In("v", {Sym("b"), Sym("s"), 3, 4});
  groups.Out(groups.Op1(Op::kEinsum, {r, w}, Attrs{{"equation", std::string("bkgqs,bskd->bqkgd")}}));
  EXPECT_EQ(Check(groups.g, Einsum, 1e-5), "Transpose Unsqueeze MatMul Transpose");
}

// Heads of 16 columns of which the first 4 are turned, or what stands in the place of that.
std::string OfAPart(bool rest_behind, bool of_first) {
  Builder b;
  const ValueId x = b.In("x", {Sym("batch"), Sym("rows"), 32});
  const ValueId heads = b.Reshape(b.Op1(Op::kMatMul, {x, b.W({32, 48})}), {0, 0, 3, 16});
  const ValueId y = b.Transpose(heads, {0, 2, 1, 3});
  const auto slice = [&](int64_t begin, int64_t end) {
    return b.Op1(Op::kSlice, {y, b.Axis({begin}), b.Axis({end}), b.Axis({3})});
  };
  const ValueId part = slice(0, 4), rest = slice(4, 16);
  const ValueId other = b.In("z", {Sym("batch"), 3, Sym("rows"), 4});
  const ValueId turned = b.Op1(Op::kNeg, {of_first ? part : other});
  if (!of_first) b.Out(part, "part");
  b.Out(b.Concat(rest_behind ? std::vector{turned, rest} : std::vector{rest, turned}, 3));
  return Check(b.g, Packed, 1e-5);
}

TEST(CanonicalPacked, HeadsOfWhichAPartIsTurnedStayWhole) {
  EXPECT_EQ(OfAPart(true, true), "MatMul Reshape Transpose Slice Slice Neg Concat");
}

TEST(CanonicalPacked, PartsThatAreNoHeadAgainAreTakenApart) {
  const auto is_apart = [](const std::string& ops) { return Count(ops, "Split") == 1 && Count(ops, "Slice") == 0; };
  EXPECT_TRUE(is_apart(OfAPart(false, true))) << "the rest comes first";
  EXPECT_TRUE(is_apart(OfAPart(true, false))) << "something else stands before the rest";
}

}  // namespace
}  // namespace octavo::passes::canonical
