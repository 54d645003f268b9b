// fold, cse, dce: what they do, what they leave alone, and that results keep their bits.
#include "canonical_support.h"

namespace octavo::passes::canonical {
namespace {

TEST(CanonicalFold, HeadSplitBehindAShapeChainGetsAConstantTarget) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 12});
  const ValueId target = b.Concat({b.DimOf(x, 0), b.DimOf(x, 1), b.Axis({-1}), b.Axis({4})});
  b.Out(b.Transpose(b.Op1(Op::kReshape, {x, target}, Attrs{{"allowzero", int64_t{1}}}), {0, 2, 1, 3}));
  EXPECT_EQ(Check(b.g, Fold), "Reshape Transpose");
  PassRun context;
  ASSERT_TRUE(Fold(b.g, context));
  for (NodeId id : b.g.NodesInOrder()) {
    if (b.g.node(id).op != Op::kReshape) continue;
    EXPECT_EQ(b.g.ConstantOf(b.g.node(id).input(1))->ToInts(), (Ints{0, 0, 3, 4}));
  }
}

TEST(CanonicalFold, TwoUnknownDimsAreNotGuessed) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 12});
  const ValueId target = b.Concat({b.DimOf(x, 1), b.DimOf(x, 0), b.Axis({12})});
  b.Out(b.Op1(Op::kReshape, {x, target}));
  const std::string ops = Check(b.g, Fold);
  EXPECT_NE(ops.find("Concat"), std::string::npos) << ops;
}

TEST(CanonicalFold, ConstantsAreEvaluatedWithPythonsIntegers) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), 2}, DType::kS64);
  const ValueId div = b.Op1(Op::kMod, {b.Axis({-7, 7}), b.Axis({3, -3})});  // Python: 2 and -2
  b.Out(b.Op1(Op::kAdd, {x, div}));
  EXPECT_EQ(Check(b.g, Fold), "Add");
  PassRun context;
  ASSERT_TRUE(Fold(b.g, context));
  const Node& add = b.g.node(b.g.last());
  EXPECT_EQ(b.g.ConstantOf(add.input(1))->ToInts(), (Ints{2, -2}));
}

TEST(CanonicalFold, DequantizeOfAWeightStays) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), 3});
  const ValueId q = b.g.AddConstant(Tensor::Of<int8_t>(DType::kS8, {3, 2}, std::vector<int8_t>{1, -2, 3, 4, -5, 6}));
  const ValueId w = b.Op1(Op::kDequantizeLinear, {q, b.F(0.25f), b.g.AddConstant(Tensor::Zeros(DType::kS8, {}))});
  b.Out(b.Op1(Op::kMatMul, {x, w}));
  EXPECT_EQ(Check(b.g, Fold), "DequantizeLinear MatMul");
}

// One number is no weight: ONNX Runtime's static quantization writes the scale of the scores so.
TEST(CanonicalFold, DequantizeOfANumberIsANumber) {
  Builder b;
  const ValueId q = b.g.AddConstant(Tensor::Of<int8_t>(DType::kS8, {}, std::vector<int8_t>{-7}));
  const ValueId s = b.Op1(Op::kDequantizeLinear, {q, b.F(0.25f), b.g.AddConstant(Tensor::Zeros(DType::kS8, {}))});
  b.Out(b.Op1(Op::kMul, {b.In("x", {Sym("b"), 3}), s}));
  EXPECT_EQ(Check(b.g, Fold), "Mul");
}

// Quantizers store a bias as integers of 32 bits; products of codes add it as floats.
TEST(CanonicalFold, ABiasOfIntegersIsFloats) {
  for (const DType type : {DType::kS32, DType::kS8}) {
    Builder b;
    const ValueId q = b.g.AddConstant(Tensor::Zeros(type, {3})),
                  scale = b.g.AddConstant(Tensor::F32({3}, {0.5f, 1.0f, 2.0f}));
    b.Out(b.Op1(Op::kAdd,
                {b.In("x", {Sym("b"), 3}), b.Op1(Op::kDequantizeLinear, {q, scale}, Attrs{{"axis", int64_t{0}}})}));
    EXPECT_EQ(Check(b.g, Fold), type == DType::kS32 ? "Add" : "DequantizeLinear Add");
  }
}

TEST(CanonicalFold, AGuardAgainstNanGoesWhereThereCanBeNone) {
  for (const DType type : {DType::kU8, DType::kE4M3FN}) {
    for (const bool of_another : {false, true}) {
      Builder b;
      const ValueId x = b.In("x", {Sym("b"), 4}), scale = b.F(0.01f), zero = b.g.AddConstant(Tensor::Zeros(type, {}));
      const ValueId d = b.Op1(Op::kDequantizeLinear, {b.Op1(Op::kQuantizeLinear, {x, scale, zero}), scale, zero});
      const ValueId nan = b.Op1(Op::kIsNaN, {of_another ? x : d});
      b.Out(b.Op1(Op::kWhere, {nan, b.F(0.0f), d}));
      const bool goes = type == DType::kU8 && !of_another;
      EXPECT_EQ(Check(b.g, Fold), std::string("QuantizeLinear DequantizeLinear") + (goes ? "" : " IsNaN Where"));
    }
  }
}

TEST(CanonicalFold, NothingHuge) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), 1});
  b.Out(b.Op1(Op::kAdd, {x, b.Op1(Op::kExpand, {b.F(1.5f), b.Axis({1, 100000})})}));
  EXPECT_EQ(Check(b.g, Fold), "Expand Add");  // 400 KB from 4 bytes
}

// Two coordinates become 32 channels, as where a table of positions is made: of 2000 places 256 KB, of 20000 places 2.5 MB.
TEST(CanonicalFold, ATableOfPositionsMayGrowByAShareOfTheFile) {
  const auto ops = [](int64_t places, int64_t bytes) {
    Builder b;
    b.g.info.bytes = bytes;
    const ValueId x = b.In("x", {Sym("b"), places, 32});
    const ValueId w = b.g.AddConstant(Tensor::Zeros(DType::kF32, {2, 32}));
    const ValueId table = b.Op1(Op::kMatMul, {b.g.AddConstant(Tensor::Zeros(DType::kF32, {places, 2})), w});
    b.Out(b.Op1(Op::kAdd, {x, b.Op1(Op::kCos, {table})}));
    return Check(b.g, Fold);
  };
  EXPECT_EQ(ops(2000, 0), "Add");
  EXPECT_EQ(ops(20000, 8 << 20), "MatMul Cos Add");
  EXPECT_EQ(ops(20000, 64 << 20), "Add");
}

TEST(CanonicalFold, AnEmbeddingOfPositionsIsRepeatedOnce) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), 64, 256});
  const ValueId table = b.Op1(Op::kTile, {b.g.AddConstant(Tensor::Zeros(DType::kF32, {1, 8, 256})), b.Axis({1, 8, 1})});
  b.Out(b.Op1(Op::kAdd, {x, table}));
  EXPECT_EQ(Check(b.g, Fold), "Add");
}

// Places of a picture's patches, as timm counts them.
TEST(CanonicalFold, ARangeOfFloatsHasALength) {
  for (const auto& [from, to, shape] : {std::tuple{0.5f, 4.0f, "[4]"}, std::tuple{4.0f, 0.5f, "[0]"}}) {
    Builder b;
    const ValueId range = b.Op1(Op::kRange, {b.F(from), b.F(to), b.F(1)});
    b.Out(range);
    ASSERT_TRUE(ir::Inference::Run(b.g));
    EXPECT_EQ(ir::ToString(b.g.value(range).type), std::string("f32") + shape);
    PassRun run;
    ASSERT_TRUE(Fold(b.g, run));
    EXPECT_EQ(b.g.ConstantOf(b.g.outputs()[0].value)->size(), from < to ? 4 : 0);
  }
}

TEST(CanonicalFold, NodesThatDoNothingGo) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 4});
  ValueId y = b.Op1(Op::kIdentity, {x});
  y = b.Cast(y, DType::kF32);
  y = b.Op1(Op::kCastLike, {y, x});
  y = b.Op1(Op::kDropout, {y, b.F(0.5f)});
  y = b.Transpose(y, {0, 1, 2});
  y = b.Reshape(y, {0, 0, 4});
  y = b.Op1(Op::kExpand, {y, b.Op1(Op::kShape, {x})});
  y = b.Op1(Op::kMul, {y, b.F(1.0f)});
  y = b.Op1(Op::kMin, {b.Op1(Op::kMax, {b.F(-INFINITY), y}), b.F(INFINITY)});
  y = b.Op1(Op::kSlice, {y, b.Axis({0}), b.Axis({INT64_MAX}), b.Axis({2}), b.Axis({1})});
  y = b.Concat({y});
  b.Out(b.Op1(Op::kNeg, {y}));
  EXPECT_EQ(Check(b.g, Fold), "Neg");
}

TEST(CanonicalFold, CastLikeKeepsWhatItDoesBeyondTheRange) {
  Builder b;
  const ValueId like = b.g.AddConstant(Tensor::Zeros(DType::kE4M3FN, {1}));
  b.Out(b.Op1(Op::kCastLike, {b.In("x", {Sym("b"), 4}), like}, Attrs{{"saturate", int64_t{0}}}));
  PassRun context;
  ASSERT_TRUE(Fold(b.g, context));
  EXPECT_EQ(Ops(b.g), "Cast");
  const Tensor far = Tensor::F32({1, 4}, {1e6f, -INFINITY, INFINITY, 1});
  const auto y = ir::Interpret(b.g, {{"x", far}});
  ASSERT_TRUE(y) << y.error().message;
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(std::isnan((*y)[0].GetDouble(i)), i < 3) << i;
}

TEST(CanonicalFold, WhatLooksLikeNothingAndIsNotStays) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), 4});
  const ValueId reversed = b.Op1(Op::kSlice, {x, b.Axis({-1}), b.Axis({INT64_MIN}), b.Axis({1}), b.Axis({-1})});
  const ValueId widened = b.Op1(Op::kMul, {reversed, b.W({1, 1, 1}, 2.5f)});  // rank 3 now
  b.Out(b.Op1(Op::kAdd, {widened, b.F(0.0f)}));                               // -0 + 0 is +0
  b.Out(b.Op1(Op::kMax, {x, b.F(INFINITY)}), "most");
  EXPECT_EQ(Check(b.g, Fold), "Slice Mul Add Max");
}

TEST(CanonicalFold, CastsMergeOnlyWhereTheInnerLosesNothing) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b")}, DType::kS64);
  const ValueId m = b.In("m", {Sym("b")}, DType::kBool);
  b.Out(b.Cast(b.Cast(m, DType::kS64), DType::kF32), "merged");
  b.Out(b.Cast(b.Cast(x, DType::kBool), DType::kF32), "kept");
  EXPECT_EQ(Check(b.g, Fold), "Cast Cast Cast");
}

TEST(CanonicalFold, ShapeReadsGoToTheInputs) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 4});
  const ValueId deep = b.Op1(Op::kNeg, {b.Op1(Op::kExp, {x})});
  const ValueId r = b.Op1(Op::kRange, {b.I(0), b.DimOf(deep, 1, false), b.I(1)});
  b.Out(b.Op1(Op::kAdd, {r, b.DimOf(x, 1, false)}));
  EXPECT_EQ(Check(b.g, Fold).substr(0, 13), "Shape Squeeze");
}

TEST(CanonicalFold, IfOnAConstantIsInlined) {
  ir::Graph branch[2];
  for (int i = 0; i < 2; ++i) {
    const ValueId c = branch[i].AddInput("captured", ir::Type{DType::kF32, SymShape{Sym("b")}});
    const NodeId n = branch[i].AddNode(i == 0 ? Op::kNeg : Op::kExp, {c}, 1);
    branch[i].AddOutput("r", branch[i].node(n).output());
  }
  Builder b;
  const ValueId x = b.In("x", {Sym("b")});
  const ValueId yes = b.g.AddConstant(Tensor::Of<uint8_t>(DType::kBool, {}, std::vector<uint8_t>{1}));
  b.Out(b.Op1(Op::kIf, {yes, x},
              Attrs{{"octavo_captures", int64_t{1}},
                    {"then_branch", std::make_shared<const ir::Graph>(branch[0])},
                    {"else_branch", std::make_shared<const ir::Graph>(branch[1])}}));
  EXPECT_EQ(Check(b.g, Fold), "Neg");
}

TEST(CanonicalCse, MergesWhatIsEqualAndOnlyThat) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), 3});
  const ValueId y = b.In("y", {Sym("b"), 3});
  const ValueId one = b.Op1(Op::kAdd, {x, y}), two = b.Op1(Op::kAdd, {y, x}), three = b.Op1(Op::kSub, {x, y});
  const ValueId four = b.Op1(Op::kSub, {y, x});
  const ValueId s1 = b.Op1(Op::kSoftmax, {one}, Attrs{{"axis", int64_t{-1}}});
  const ValueId s2 = b.Op1(Op::kSoftmax, {two}, Attrs{{"axis", int64_t{0}}});
  b.Out(b.Op1(Op::kSum, {s1, s2, three, four, b.W({3}), b.W({3})}));
  EXPECT_EQ(Check(b.g, Cse), "Add Sub Sub Softmax Softmax Sum");
}

TEST(CanonicalCse, NegativeZeroIsNotZeroAndRandomIsNotRepeated) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b")});
  b.Out(b.Op1(Op::kDiv, {x, b.F(0.0f)}), "plus");
  b.Out(b.Op1(Op::kDiv, {x, b.F(-0.0f)}), "minus");
  EXPECT_EQ(Check(b.g, Cse), "Div Div");
  Builder r;
  const ValueId v = r.In("x", {Sym("b")});
  for (const char* op : {"RandomNormalLike", "RandomNormalLike", "Known", "Known"}) {
    const NodeId n = r.g.AddOpaque(op[0] == 'R' ? "" : "somebody.else", op, {v}, 1);
    r.Out(r.g.node(n).output(), op);
  }
  PassRun context;
  EXPECT_FALSE(*Cse(r.g, context));
}

TEST(CanonicalDce, KeepsInputsAndOutputs) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), 4});
  b.In("unused", {Sym("b")});
  b.Op1(Op::kExp, {b.Op1(Op::kNeg, {x})});
  const NodeId norm = b.g.AddNode(Op::kLayerNormalization, {x, b.W({4}), b.W({4})}, 3);
  b.Out(b.g.node(norm).output());
  EXPECT_EQ(Check(b.g, Dce), "LayerNormalization");
  PassRun context;
  ASSERT_TRUE(*Dce(b.g, context));
  EXPECT_EQ(b.g.inputs().size(), 2u);
  EXPECT_FALSE(b.g.node(b.g.last()).output(1).valid());
}

}  // namespace
}  // namespace octavo::passes::canonical
