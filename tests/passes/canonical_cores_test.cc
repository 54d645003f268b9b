// cores: attention of other shapes as products of rank 4, with the same results.
#include "canonical_support.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {
namespace {

struct CoreGraph : Builder {
  // q and k [batch..., s, 4], v [batch..., s, 6].
  ValueId q, k, v;
  explicit CoreGraph(SymShape batch) {
    const auto with = [&batch](Dim rows, int64_t columns) {
      SymShape s = batch;
      s.push_back(std::move(rows)), s.push_back(Dim(columns));
      return s;
    };
    q = In("q", with(Sym("s"), 4)), k = In("k", with(Sym("t"), 4)), v = In("v", with(Sym("t"), 6));
  }
  ValueId Scores() {
    Ints perm;
    for (size_t i = 0; i < ShapeOf(g, k)->size(); ++i) perm.push_back(static_cast<int64_t>(i));
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return Op1(Op::kMatMul, {q, Transpose(k, perm)});
  }
  ValueId Softmax(ValueId s) { return Op1(Op::kSoftmax, {s}, Attrs{{"axis", int64_t{-1}}}); }
  void Attend(ValueId s) { Out(Op1(Op::kMatMul, {Softmax(s), v})); }
};

TEST(CanonicalCores, ProductsOfRankFiveAndSix) {
  for (const SymShape& batch : {SymShape{Sym("b"), 2, 3}, SymShape{2, Sym("b"), 3}, SymShape{Sym("b"), 2, 1, 3}}) {
    CoreGraph c(batch);
    c.Attend(c.Op1(Op::kMul, {c.Scores(), c.F(0.5f)}));
    const std::string ops = Check(c.g, Cores);
    EXPECT_NE(ops.find("Reshape Transpose MatMul Mul Softmax"), std::string::npos) << ops;
  }
  // No number that could be the heads: batches alone, and their sizes are those of q.
  CoreGraph none({Sym("b"), Sym("b"), Sym("b")});
  none.Attend(none.Scores());
  EXPECT_NE(Check(none.g, Cores).find("Concat Reshape MatMul Shape Shape Shape"), std::string::npos);
}

// A file may say what a Transpose makes and not of what.
TEST(CanonicalCores, KeysOfUnknownRank) {
  CoreGraph c({Sym("b"), 2, 3});
  const ValueId shape = c.In("shape", {Dim::Unknown()}, DType::kS64);
  const ValueId turned = c.Transpose(c.Op1(Op::kReshape, {c.k, shape}), {0, 1, 2, 4, 3});
  c.g.SetType(turned, {DType::kF32, SymShape{Sym("b"), 2, 3, 4, Sym("t")}});
  c.Attend(c.Op1(Op::kMul, {c.Op1(Op::kMatMul, {c.q, turned}), c.F(0.5f)}));
  PassRun run;
  EXPECT_TRUE(*Cores(c.g, run));
  for (const NodeId id : c.g.NodesInOrder())
    EXPECT_FALSE(c.g.node(id).op == Op::kSoftmax && RankOf(c.g, c.g.node(id).output()) != 4);
}

// Attention over what layers made of one token: batch and sequence are both batches (Inkling).
TEST(CanonicalCores, BatchesWhereHeadsAreWanted) {
  CoreGraph c({Sym("b"), Sym("n")});
  c.Attend(c.Op1(Op::kMul, {c.Scores(), c.F(0.5f)}));
  EXPECT_EQ(Count(Check(c.g, Cores), "Reshape"), 4u);
  PassRun run;
  EXPECT_TRUE(*Cores(c.g, run));
  for (const NodeId id : c.g.NodesInOrder())
    EXPECT_FALSE(c.g.node(id).op == Op::kSoftmax && RankOf(c.g, c.g.node(id).output()) != 3);
}

TEST(CanonicalCores, WindowsWithMasks) {
  CoreGraph c({Sym("b") * Dim(3), 2});
  c.In("picture", {Sym("b")});  // what says how many b is
  const ValueId bias = c.W({1, 2, 1, 1}), mask = c.W({1, 3, 1, 1, 1});
  ValueId s = c.Op1(Op::kAdd, {c.Scores(), bias});
  const auto view = [&c](ValueId scores, Ints leading) {
    return c.Op1(Op::kReshape, {scores, c.Concat({c.Axis(std::move(leading)), c.DimOf(c.q, 2), c.DimOf(c.k, 2)})});
  };
  s = view(c.Op1(Op::kAdd, {view(s, {-1, 3, 2}), mask}), {-1, 2});
  c.Attend(s);
  const std::string ops = Check(c.g, Cores);
  EXPECT_EQ(Count(ops, "Reshape"), 1u) << ops;  // that of the mask
}

TEST(CanonicalCores, OneScaleForEachHead) {
  for (const ir::Shape& shape : {ir::Shape{2, 1, 1}, ir::Shape{1, 2, 1, 1}}) {
    CoreGraph c({Sym("b"), 2});
    c.Attend(c.Op1(Op::kMul, {c.Scores(), c.W(shape, 0.3f)}));
    EXPECT_EQ(Check(c.g, Cores, 1e-5), "Mul Transpose MatMul Softmax MatMul");
  }
  CoreGraph late({Sym("b"), 2});  // behind a mask it is no scale of q
  late.Attend(late.Op1(Op::kMul, {late.Op1(Op::kAdd, {late.Scores(), late.W({1, 2, 1, 1})}), late.W({2, 1, 1})}));
  EXPECT_EQ(Check(late.g, Cores), Ops(late.g));
}

// log n of SSMax, an exponent of a temperature that is an input: a number that a run decides.
TEST(CanonicalCores, AScaleThatARunDecides) {
  for (const SymShape& shape : {SymShape{}, SymShape{1}, SymShape{1, 1, 1, 1}}) {
    for (const Op op : {Op::kMul, Op::kDiv}) {
      CoreGraph c({Sym("b"), 2});
      const ValueId t = c.Op1(Op::kExp, {c.In("t", shape)});
      c.Attend(c.Op1(op, {c.Scores(), t}));
      EXPECT_EQ(Check(c.g, Cores, 1e-5),
                std::string("Exp ") + (op == Op::kMul ? "Mul" : "Div") + " Transpose MatMul Softmax MatMul");
    }
  }
  CoreGraph fixed({Sym("b"), 2});  // stays behind the product, where the rules have it
  fixed.Attend(fixed.Op1(Op::kMul, {fixed.Scores(), fixed.F(0.3f)}));
  EXPECT_EQ(Check(fixed.g, Cores), Ops(fixed.g));
  CoreGraph under({Sym("b"), 2});  // divided by the scores
  under.Attend(under.Op1(Op::kDiv, {under.In("t", {}), under.Scores()}));
  EXPECT_EQ(Check(under.g, Cores), Ops(under.g));
  CoreGraph rows({Sym("b"), 2});  // one for each key
  rows.Attend(rows.Op1(Op::kMul, {rows.Scores(), rows.In("t", {1, 1, 1, Sym("t")})}));
  EXPECT_EQ(Check(rows.g, Cores), Ops(rows.g));
}

TEST(CanonicalCores, RowsAndKeysInTwoParts) {  // relative positions of pictures: [n,16,16] as [n,4,4,4,4]
  Builder b;
  const ValueId q = b.In("q", {Sym("b"), 16, 4}), k = b.In("k", {Sym("b"), 16, 4}), v = b.In("v", {Sym("b"), 16, 6});
  ValueId s = b.Reshape(b.Op1(Op::kMatMul, {q, b.Transpose(k, {0, 2, 1})}), {0, 4, 4, 4, 4});
  s = b.Op1(Op::kAdd, {b.Op1(Op::kAdd, {s, b.In("h", {Sym("b"), 4, 4, 4, 1})}), b.In("w", {Sym("b"), 4, 4, 1, 4})});
  b.Out(b.Op1(Op::kMatMul, {b.Op1(Op::kSoftmax, {b.Reshape(s, {0, 16, 16})}, Attrs{{"axis", int64_t{-1}}}), v}));
  EXPECT_EQ(Check(b.g, Cores), "Transpose MatMul Expand Reshape Add Expand Reshape Add Softmax MatMul");
}

TEST(CanonicalCores, MaximumThatTheSoftmaxTakesAnyway) {
  for (const int64_t axis : {int64_t{-1}, int64_t{1}}) {
    Builder b;
    const ValueId x = b.In("x", {Sym("b"), Sym("s"), 4});
    const ValueId top = b.Op1(Op::kReduceMax, {x, b.Axis({axis})}, Attrs{{"keepdims", int64_t{1}}});
    b.Out(b.Op1(Op::kSoftmax, {b.Op1(Op::kSub, {x, top})}, Attrs{{"axis", int64_t{-1}}}));
    EXPECT_EQ(Check(b.g, Cores), axis == -1 ? "Softmax" : "ReduceMax Sub Softmax");
  }
}

// DANet's attention of channels: what is least alike counts most.
TEST(CanonicalCores, ScoresTakenOffTheirMaximum) {
  for (const int64_t axis : {int64_t{-1}, int64_t{1}}) {
    for (const bool wide : {false, true}) {
      Builder b;
      const ValueId x = b.In("x", {3, 2, 4});
      ValueId top = b.Op1(Op::kReduceMax, {x, b.Axis({axis})}, Attrs{{"keepdims", int64_t{1}}});
      if (wide) top = b.Op1(Op::kExpand, {top, b.Axis({3, 2, 4})});
      b.Out(b.Op1(Op::kSoftmax, {b.Op1(Op::kSub, {top, x})}, Attrs{{"axis", int64_t{-1}}}));
      EXPECT_EQ(Check(b.g, Cores, 1e-6), axis == -1 ? "Mul Softmax"
                                         : wide     ? "ReduceMax Expand Sub Softmax"
                                                    : "ReduceMax Sub Softmax");
    }
  }
}

TEST(CanonicalCores, SoftmaxByHand) {
  for (const int64_t axis : {int64_t{-1}, int64_t{1}}) {
    Builder b;
    const ValueId x = b.In("x", {Sym("b"), Sym("s"), 4});
    const auto along = [&](Op op, ValueId v) {
      return b.Op1(op, {v, b.Axis({axis})}, Attrs{{"keepdims", int64_t{1}}});
    };
    const ValueId e = b.Op1(Op::kExp, {b.Op1(Op::kSub, {x, along(Op::kReduceMax, x)})});
    b.Out(b.Op1(Op::kDiv, {e, along(Op::kReduceSum, e)}));
    EXPECT_EQ(Check(b.g, Cores, 1e-6), axis == -1 ? "Softmax" : "ReduceMax Sub Exp ReduceSum Div");
  }
  Builder seen;  // the exponentials are read elsewhere too
  const ValueId e = seen.Op1(Op::kExp, {seen.In("x", {Sym("b"), 4})});
  seen.Out(e, "e");
  seen.Out(seen.Op1(Op::kDiv, {e, seen.Op1(Op::kReduceSum, {e, seen.Axis({-1})}, Attrs{{"keepdims", int64_t{1}}})}));
  EXPECT_EQ(Check(seen.g, Cores), Ops(seen.g));
}

TEST(CanonicalCores, SoftmaxByItsLogarithm) {
  for (const int64_t axis : {int64_t{-1}, int64_t{1}}) {
    Builder b, sums;
    const auto x = [](Builder& to) { return to.In("x", {Sym("b"), Sym("s"), 4}); };
    b.Out(b.Op1(Op::kExp, {b.Op1(Op::kLogSoftmax, {x(b)}, {{"axis", axis}})}));
    EXPECT_EQ(Check(b.g, Cores, 1e-6), "Softmax");
    const ValueId y = x(sums);
    const ValueId sum = sums.Op1(Op::kReduceLogSumExp, {y, sums.Axis({axis})}, {{"keepdims", int64_t{1}}});
    sums.Out(sums.Op1(Op::kExp, {sums.Op1(Op::kSub, {y, sum})}));
    EXPECT_EQ(Check(sums.g, Cores, 1e-6), axis == -1 ? "Softmax" : "ReduceLogSumExp Sub Exp");
  }
  Builder seen, other;  // the logarithm is read, too; or the sum is that of another value
  const ValueId log = seen.Op1(Op::kLogSoftmax, {seen.In("x", {Sym("b"), 4})}, {{"axis", int64_t{-1}}});
  seen.Out(log, "log");
  seen.Out(seen.Op1(Op::kExp, {log}));
  EXPECT_EQ(Check(seen.g, Cores), Ops(seen.g));
  const ValueId z = other.In("z", {Sym("b"), 4});
  const ValueId sum = other.Op1(Op::kReduceLogSumExp, {z, other.Axis({-1})}, {{"keepdims", int64_t{1}}});
  other.Out(other.Op1(Op::kExp, {other.Op1(Op::kSub, {other.In("x", {Sym("b"), 4}), sum})}));
  EXPECT_EQ(Check(other.g, Cores), Ops(other.g));
}

TEST(CanonicalCores, GuardedProbabilities) {  // as BLOOM and DeBERTa write rows that are masked wholly
  CoreGraph c({Sym("b"), 2, 3});
  const ValueId p = c.Softmax(c.Op1(Op::kAdd, {c.Scores(), c.W({1, 3, 1, 1})}));
  const ValueId guarded = c.Op1(Op::kWhere, {c.Op1(Op::kIsNaN, {p}), c.F(0), p});
  c.Out(c.Op1(Op::kMatMul, {guarded, c.v}));
  const std::string ops = Check(c.g, Cores);
  EXPECT_NE(ops.find("Softmax IsNaN Where Reshape MatMul Reshape"), std::string::npos) << ops;
  CoreGraph rows({Sym("b"), 2, 3});  // as `scores` writes what is masked twice
  const ValueId t = rows.Op1(Op::kAdd, {rows.Scores(), rows.W({1, 3, 1, 1})});
  const ValueId top = rows.Op1(Op::kReduceMax, {t, rows.Axis({-1})}, Attrs{{"keepdims", int64_t{1}}});
  const ValueId hidden = rows.Op1(Op::kIsInf, {top}, Attrs{{"detect_positive", int64_t{0}}});
  rows.Out(rows.Op1(Op::kMatMul, {rows.Op1(Op::kWhere, {hidden, rows.F(0), rows.Softmax(t)}), rows.v}));
  const std::string flat = Check(rows.g, Cores);
  EXPECT_NE(flat.find("Softmax ReduceMax IsInf Where Reshape MatMul Reshape"), std::string::npos) << flat;
  CoreGraph seen({Sym("b"), 2, 3});  // somebody else asks for NaN too
  const ValueId q = seen.Softmax(seen.Scores()), is_nan = seen.Op1(Op::kIsNaN, {q});
  seen.Out(is_nan, "nan");
  seen.Out(seen.Op1(Op::kMatMul, {seen.Op1(Op::kWhere, {is_nan, seen.F(0), q}), seen.v}));
  EXPECT_EQ(Check(seen.g, Cores), Ops(seen.g));
  CoreGraph wide(
      {Sym("b"), 2, 3});  // the guard's number has more dims than the probabilities, and so has what it gives
  const ValueId r = wide.Softmax(wide.Scores()),
                zero = wide.g.AddConstant(Tensor::Zeros(DType::kF32, {1, 1, 1, 1, 1, 1}));
  wide.Out(wide.Op1(Op::kMatMul, {wide.Op1(Op::kWhere, {wide.Op1(Op::kIsNaN, {r}), zero, r}), wide.v}));
  EXPECT_EQ(Check(wide.g, Cores), Ops(wide.g));
  CoreGraph flattened({Sym("b"), Sym("b"), Sym("b")});  // the number has the rank that the probabilities had
  const ValueId u = flattened.Softmax(flattened.Scores()),
                none = flattened.g.AddConstant(Tensor::Zeros(DType::kF32, {1, 1, 1, 1, 1}));
  flattened.Out(
      flattened.Op1(Op::kMatMul, {flattened.Op1(Op::kWhere, {flattened.Op1(Op::kIsNaN, {u}), none, u}), flattened.v}));
  EXPECT_NE(Check(flattened.g, Cores).find("Softmax IsNaN Reshape Where"), std::string::npos);
}

TEST(CanonicalCores, SizesThatItsOwnViewsAskOrInputsTell) {
  for (const bool elsewhere : {false, true}) {
    CoreGraph c({Sym("b"), 2});
    const ValueId s = c.Scores(), rows = c.DimOf(s, 2);
    const ValueId five = c.Op1(Op::kReshape, {s, c.Concat({c.Axis({-1, 1, 2}), rows, c.DimOf(s, 3)})});
    const ValueId masked = c.Op1(Op::kAdd, {five, c.W({1, 1, 2, 1, 1})});
    c.Attend(c.Op1(Op::kReshape, {masked, c.Concat({c.Axis({-1, 2}), rows, c.DimOf(s, 3)})}));
    if (elsewhere) c.Out(rows, "rows");
    const std::string ops = Check(c.g, Cores);
    EXPECT_NE(ops, Ops(c.g)) << elsewhere;
  }
}

// [b*n,h,s,s] seen as [b,n,h,s,s]: how many windows there are tells the mask alone.
TEST(CanonicalCores, WindowsOfAnyNumber) {
  CoreGraph c({Sym("b") * Sym("s"), 2});
  const ValueId mask = c.In("mask", {Sym("s"), 1, 1, 1}), s = c.Scores();
  const ValueId windows = c.DimOf(mask, 0), batch = c.Op1(Op::kDiv, {c.DimOf(c.q, 0), windows});
  const auto view = [&](ValueId scores, std::vector<ValueId> leading) {
    for (const ValueId rows : {c.Axis({2}), c.DimOf(c.q, 2), c.DimOf(c.k, 2)}) leading.push_back(rows);
    return c.Op1(Op::kReshape, {scores, c.Concat(std::move(leading))});
  };
  const ValueId masked = c.Op1(Op::kAdd, {view(s, {batch, windows}), c.Unsqueeze(mask, {0})});
  c.Attend(view(masked, {c.Axis({-1})}));
  const std::string ops = Check(c.g, Cores);
  EXPECT_NE(ops.find("Add Softmax MatMul"), std::string::npos) << ops;
}

TEST(CanonicalCores, LeadingSizesThatOnlyQHas) {  // local attention: blocks of which nobody knows how many
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s") * Dim(4), 8}), mask = b.In("mask", {Sym("b"), Sym("s") * Dim(4)});
  const ValueId q = b.Transpose(b.Reshape(x, {0, -1, 4, 2, 4}), {0, 1, 3, 2, 4});
  const ValueId s = b.Op1(Op::kMatMul, {q, b.Transpose(q, {0, 1, 2, 4, 3})});
  const ValueId p = b.Op1(Op::kAdd, {s, b.Reshape(mask, {0, -1, 1, 1, 4})});
  b.Out(b.Op1(Op::kMatMul, {b.Op1(Op::kSoftmax, {p}, Attrs{{"axis", int64_t{-1}}}), q}));
  const std::string ops = Check(b.g, Cores);
  EXPECT_NE(ops.find("Softmax Reshape MatMul Shape Shape Concat Reshape"), std::string::npos) << ops;
}

// As a Softmax of opset 11 with axis 1: over heads, rows and keys at once.
TEST(CanonicalCores, ASoftmaxOverMoreThanKeysIsNoAttention) {
  for (const bool keys_alone : {false, true}) {
    Builder b;
    const ValueId q = b.In("q", {Sym("b"), 2, 3, 4}), k = b.In("k", {Sym("b"), 2, 4, 5}),
                  v = b.In("v", {Sym("b"), 2, 5, 6});
    const ValueId s = b.Op1(Op::kMatMul, {q, k});
    const ValueId rows = b.Reshape(s, keys_alone ? Ints{-1, 5} : Ints{0, -1});
    const ValueId p = b.Op1(Op::kSoftmax, {rows}, Attrs{{"axis", int64_t{-1}}});
    b.Out(b.Op1(Op::kMatMul, {b.Reshape(p, {-1, 2, 3, 5}), v}));
    const std::string ops = Check(b.g, Cores);
    EXPECT_EQ(ops == Ops(b.g), !keys_alone) << ops;
  }
}

struct Operands : Builder {
  void Attend(SymShape q, SymShape k, SymShape v) {
    const ValueId s = Op1(Op::kMatMul, {In("q", q), In("k", k)});
    Out(Op1(Op::kMatMul, {Op1(Op::kSoftmax, {s}, Attrs{{"axis", int64_t{-1}}}), In("v", v)}));
  }
  std::string Attended(SymShape q, SymShape k, SymShape v) {
    Attend(std::move(q), std::move(k), std::move(v));
    return Check(g, Cores);
  }
};

TEST(CanonicalCores, OneBatchForAllOperands) {
  const Dim b = Sym("b"), s = Sym("s"), t = Sym("t");
  EXPECT_EQ(Operands().Attended({1, 2, s, 4}, {b, 2, 4, t}, {b, 2, t, 6}),
            "Shape Concat Expand MatMul Softmax MatMul");  // queries that are learned
  EXPECT_EQ(Operands().Attended({b, 2, s, 4}, {2, 4, t}, {1, 2, t, 6}),
            "Shape Concat Expand MatMul Softmax Shape Concat Expand MatMul");
  // Beside 2 a size is 1 or 2, whatever its name is; an exporter had fixed the batch.
  EXPECT_EQ(Operands().Attended({2, 2, s, 4}, {b, 2, 4, t}, {b, 2, t, 6}), "Expand MatMul Softmax Expand MatMul");
  EXPECT_EQ(Operands().Attended({b, 2, s, 4}, {1, 1, 4, t}, {1, 1, t, 6}),
            "Shape Concat Expand MatMul Softmax Shape Concat Expand MatMul");  // one head of K and V stays one
  // One K for all windows. A size that no input has is that of the operand beside it.
  EXPECT_EQ(Count(Operands().Attended({b, 2, 3, s, 4}, {b, 2, 1, 4, t}, {b, 2, 3, t, 6}), "Expand"), 1u);
  Builder other;
  const ValueId k = other.Op1(Op::kConcat, {other.In("k", {b, 2, 4, t}), other.In("more", {b, 2, 4, t})},
                              Attrs{{"axis", int64_t{0}}});
  const ValueId scores = other.Op1(Op::kMatMul, {other.In("q", {1, 2, s, 4}), k});
  const ValueId p = other.Op1(Op::kSoftmax, {scores}, Attrs{{"axis", int64_t{-1}}});
  other.Out(other.Op1(Op::kMatMul, {p, other.In("v", {b * Dim(2), 2, t, 6})}));
  EXPECT_EQ(Count(Check(other.g, Cores), "Expand"), 1u);
}

TEST(CanonicalCores, BatchesOfWhichNobodyKnowsThatTheyAreOne) {
  const Dim b = Sym("b"), t = Sym("t");
  const SymShape k{b, 2, 4, 5}, none{0, 2, 4, 5}, v{b, 2, 5, 6};
  const std::pair<SymShape, SymShape> cases[] = {{{t, 2, 5, 4}, k}, {{Dim(), 2, 5, 4}, k}, {{b, 2, 5, 4}, none}};
  for (const auto& [q, keys] : cases) {
    Operands c;
    c.Attend(q, keys, v);
    PassRun run;
    EXPECT_FALSE(*Cores(c.g, run)) << ir::ToText(c.g);
  }
  // A mask of any batch: V has no size to read that is the batch of the probabilities.
  Builder m;
  const ValueId s = m.Op1(Op::kMatMul, {m.In("q", {1, 2, 5, 4}), m.In("k", {1, 2, 4, 5})});
  const ValueId masked = m.Op1(Op::kAdd, {s, m.In("mask", {Dim(), 1, 1, 5})});
  m.Out(m.Op1(Op::kMatMul, {m.Op1(Op::kSoftmax, {masked}, Attrs{{"axis", int64_t{-1}}}), m.In("v", {1, 2, 5, 6})}));
  PassRun run;
  EXPECT_FALSE(*Cores(m.g, run)) << ir::ToText(m.g);
}

TEST(CanonicalCores, SizesThatNobodyKnowsStayThoseOfTheOperand) {
  const Dim any = Dim::Unknown();
  Operands one;
  one.Attend({3, 2, 5, 4}, {3, 2, 4, 7}, {any, any, any, 6});
  PassRun run;
  EXPECT_TRUE(*Cores(one.g, run));
  EXPECT_EQ(Ops(one.g), "MatMul Softmax Expand MatMul");
  EXPECT_TRUE(ir::VerifyStatus(one.g)) << ir::VerifyStatus(one.g).error().message;
  Operands other;  // what the queries would be broadcast to cannot be read
  other.Attend({1, 2, 5, 4}, {any, 2, 4, 7}, {any, 2, 7, 6});
  EXPECT_FALSE(*Cores(other.g, run)) << ir::ToText(other.g);
}

TEST(CanonicalCores,
     ValuesGoWithTheProbabilities) {  // DeBERTa of TorchScript: scores by heads, probabilities by batches
  Builder b;
  const Dim n = Sym("b"), s = Sym("s");
  const ValueId scores = b.Op1(Op::kMatMul, {b.In("q", {n, 2, s, 4}), b.In("k", {n, 2, 4, s})});
  const ValueId rows = b.Concat({b.Axis({-1}), b.DimOf(scores, 2), b.DimOf(scores, 3)});
  const ValueId view = b.Op1(Op::kReshape, {scores, rows});
  const ValueId p = b.Op1(Op::kSoftmax, {view}, Attrs{{"axis", int64_t{-1}}});
  b.Out(b.Op1(Op::kMatMul, {p, b.In("v", {n * Dim(2), s, 6})}));
  EXPECT_EQ(Count(Check(b.g, Cores), "Expand"), 0u);
}

TEST(CanonicalCores, KeysAreTurnedBehindTheExpand) {
  Builder b;
  const ValueId k = b.Transpose(b.In("k", {1, 2, Sym("t"), 4}), {0, 1, 3, 2});
  const ValueId s = b.Op1(Op::kMatMul, {b.In("q", {Sym("b"), 2, Sym("s"), 4}), k});
  const ValueId p = b.Op1(Op::kSoftmax, {s}, Attrs{{"axis", int64_t{-1}}});
  b.Out(b.Op1(Op::kMatMul, {p, b.In("v", {Sym("b"), 2, Sym("t"), 6})}));
  EXPECT_EQ(Check(b.g, Cores), "Shape Concat Expand Transpose MatMul Softmax MatMul");
}

TEST(CanonicalCores, LeavesWhatIsReadElsewhere) {
  CoreGraph seen({Sym("b"), 2, 3});
  const ValueId s = seen.Scores();
  seen.Out(s, "scores");
  seen.Attend(s);
  EXPECT_EQ(Check(seen.g, Cores), Ops(seen.g));
}

// Softmax(Concat(masked scores, a sink)), without the sink's column, times v.
struct SinkGraph : CoreGraph {
  SinkGraph() : CoreGraph({Sym("b"), 2}) {}
  SinkGraph& With(ValueId sink, const std::vector<ValueId>& masks) {
    ValueId s = Op1(Op::kMul, {Scores(), F(0.5f)});
    for (const ValueId m : masks) s = Op1(Op::kAdd, {s, m});
    const ValueId p = Softmax(Op1(Op::kConcat, {s, sink}, Attrs{{"axis", int64_t{3}}}));
    Out(Op1(Op::kMatMul, {Op1(Op::kSlice, {p, Axis({0}), Axis({-1}), Axis({3}), Axis({1})}), v}));
    return *this;
  }
  std::string Ops() { return Check(g, Probabilities, 1e-5); }
};

TEST(CanonicalProbabilities, ASinkOfEachQueryIsAKey) {
  const Dim b = Sym("b"), s = Sym("s"), t = Sym("t");
  SinkGraph one, bare, heads;
  const std::string ops =
      one.With(one.In("sink", {b, 2, s, 1}), {one.In("m", {b, 1, 1, t}), one.W({1, 2, 1, 1})}).Ops();
  EXPECT_EQ(Count(ops, "Slice"), 0u) << ops;
  EXPECT_EQ(Count(ops, "Pad"), 2u) << ops;
  EXPECT_EQ(Count(bare.With(bare.In("sink", {b, 2, s, 1}), {}).Ops(), "Slice"), 0u);
  // One for each head, behind two masks.
  const ValueId sizes =
      heads.Concat({heads.DimOf(heads.q, 0), heads.Axis({2}), heads.DimOf(heads.q, 2), heads.Axis({1})});
  const ValueId sink = heads.Op1(Op::kExpand, {heads.W({1, 2, 1, 1}), sizes});
  EXPECT_EQ(Count(heads.With(sink, {heads.In("m", {b, 1, s, t}), heads.W({1, 2, 1, 1}, 0.3f)}).Ops(), "Slice"), 0u);
}

TEST(CanonicalProbabilities, ASinkInFrontOrByAPadIsAKey) {
  const auto ops = [](const Ints& pads, int64_t from, int64_t end, const Attrs& attrs = {}) {
    SinkGraph m;
    const ValueId s = m.Op1(Op::kMul, {m.Scores(), m.F(0.5f)});
    const ValueId p = m.Softmax(m.Op1(Op::kPad, {s, m.Axis(pads), m.F(1.5f)}, attrs));
    m.Out(m.Op1(Op::kMatMul, {m.Op1(Op::kSlice, {p, m.Axis({from}), m.Axis({end}), m.Axis({3}), m.Axis({1})}), m.v}));
    return m.Ops();
  };
  const int64_t all = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Count(ops({0, 0, 0, 0, 0, 0, 0, 1}, 0, -1), "Slice"), 0u);
  EXPECT_EQ(Count(ops({0, 0, 0, 1, 0, 0, 0, 0}, 1, all), "Slice"), 0u);
  EXPECT_EQ(Count(ops({0, 0, 0, 1, 0, 0, 0, 0}, 0, -1), "Slice"), 1u) << "the sink stays and a key goes";
  EXPECT_EQ(Count(ops({0, 0, 0, 0, 0, 0, 0, 1}, 1, all), "Slice"), 1u);
  EXPECT_EQ(Count(ops({0, 0, 0, 0, 0, 0, 0, 1}, 0, -1, Attrs{{"mode", "edge"}}), "Slice"), 1u);
  SinkGraph front;
  const ValueId sizes =
      front.Concat({front.DimOf(front.q, 0), front.Axis({2}), front.DimOf(front.q, 2), front.Axis({1})});
  const ValueId sink = front.Op1(Op::kExpand, {front.W({1, 2, 1, 1}), sizes});
  const ValueId p = front.Softmax(front.Op1(Op::kConcat, {sink, front.Scores()}, Attrs{{"axis", int64_t{3}}}));
  const ValueId rest = front.Op1(Op::kSlice, {p, front.Axis({1}), front.Axis({all}), front.Axis({3}), front.Axis({1})});
  front.Out(front.Op1(Op::kMatMul, {rest, front.v}));
  EXPECT_EQ(Count(front.Ops(), "Slice"), 0u);
}

// torch.nan_to_num, which asks for infinities, too.
TEST(CanonicalProbabilities, AreNeverInfinite) {
  const auto asks = [](bool of_probabilities, bool by_equal, float instead = 0.0f) {
    Builder b;
    const ValueId x = b.In("x", {Sym("b"), 2, Sym("s"), Sym("t")});
    ValueId p = of_probabilities ? b.Op1(Op::kSoftmax, {x}, {{"axis", int64_t{-1}}}) : b.Op1(Op::kExp, {x});
    p = b.Op1(Op::kWhere, {b.Op1(Op::kIsNaN, {p}), b.F(instead), p});
    const ValueId infinite =
        by_equal ? b.Op1(Op::kEqual, {p, b.F(INFINITY)})
                 : b.Op1(Op::kAnd, {b.Op1(Op::kIsInf, {b.Cast(p, DType::kF64)}), b.Op1(Op::kGreater, {p, b.F(0)})});
    b.Out(b.Op1(Op::kWhere, {infinite, b.F(3e38f), p}));
    return Check(b.g, Probabilities);
  };
  EXPECT_EQ(asks(true, false), "Softmax IsNaN Where");
  EXPECT_EQ(asks(true, true), "Softmax IsNaN Where");
  EXPECT_EQ(Count(asks(false, false), "IsInf"), 1u);
  EXPECT_EQ(Count(asks(false, true), "Equal"), 1u);
  EXPECT_EQ(Count(asks(true, true, INFINITY), "Equal"), 1u);
  Builder b;  // something else is asked
  const ValueId p = b.Op1(Op::kSoftmax, {b.In("x", {Sym("b"), 4})}, {{"axis", int64_t{-1}}});
  b.Out(b.Op1(Op::kWhere, {b.Op1(Op::kEqual, {p, b.F(1)}), b.F(3), p}));
  EXPECT_EQ(Check(b.g, Probabilities), Ops(b.g));
}

TEST(CanonicalProbabilities, ASinkOfOtherSizesStays) {
  const Dim b = Sym("b"), s = Sym("s"), t = Sym("t");
  for (const SymShape& sink : {SymShape{Sym("c"), 2, s, 1}, SymShape{b, 2, t, 1}}) {
    SinkGraph c;
    c.With(c.In("sink", sink), {c.In("m", {b, 1, s, t})});
    PassRun run;
    EXPECT_FALSE(*Probabilities(c.g, run)) << ir::ToText(c.g);
  }
}

}  // namespace
}  // namespace octavo::passes::canonical
