// masks and scale.
#include "canonical_support.h"

namespace octavo::passes::canonical {
namespace {

struct MaskGraph {
  Builder b;
  ValueId scores, ids, mask;
  MaskGraph() {
    scores = b.In("scores", {Sym("b"), 3, Sym("s"), Sym("s")});
    mask = b.In("mask", {Sym("b"), Sym("s")}, DType::kS64);
  }
  ValueId Range(ValueId of, int64_t axis) { return b.Op1(Op::kRange, {b.I(0), b.DimOf(of, axis, false), b.I(1)}); }
  // torch's vmapped mask function: (q >= 0) & mask[b, kv]
  ValueId AllQueries() {
    const ValueId q = b.Unsqueeze(b.Unsqueeze(b.Unsqueeze(Range(mask, 1), {0}), {1}), {3});
    return b.Op1(Op::kAnd, {b.Op1(Op::kConstantOfShape, {b.Axis({})},
                                  Attrs{{"value", Tensor::Of<uint8_t>(DType::kBool, {1}, std::vector<uint8_t>{1})}}),
                            b.Op1(Op::kGreaterOrEqual, {q, b.I(0)})});
  }
  void Finish(ValueId looked_up) {
    const ValueId both = b.Op1(Op::kAnd, {AllQueries(), looked_up});
    const ValueId shape = b.Concat({b.DimOf(mask, 0), b.Axis({1}), b.DimOf(mask, 1), b.DimOf(mask, 1)});
    const ValueId wide = b.Op1(Op::kExpand, {both, shape});
    b.Out(b.Op1(Op::kAdd, {scores, b.Op1(Op::kWhere, {wide, b.F(0), b.F(-INFINITY)})}));
  }
};

SymShape MaskShape(Graph g) {
  PassRun context;
  EXPECT_TRUE(Canonicalize(g, context));
  return *g.value(g.node(g.last()).input(1)).type.shape;
}

TEST(CanonicalMasks, TorchScriptLookupIsTheMaskItself) {
  MaskGraph m;
  Builder& b = m.b;
  const ValueId keep = b.Cast(m.mask, DType::kBool);
  const ValueId flat = b.Op1(Op::kFlatten, {keep}, Attrs{{"axis", int64_t{2}}});
  const ValueId row = b.Unsqueeze(b.Unsqueeze(b.Unsqueeze(m.Range(m.mask, 0), {1}), {2}), {3});
  const ValueId column = b.Unsqueeze(b.Unsqueeze(b.Unsqueeze(m.Range(m.mask, 1), {0}), {1}), {2});
  const ValueId index = b.Op1(Op::kAdd, {column, b.Op1(Op::kMul, {row, b.DimOf(m.mask, 1)})});
  const ValueId looked = b.Op1(Op::kGather, {flat, index}, Attrs{{"axis", int64_t{0}}});
  m.Finish(b.Op1(Op::kReshape, {b.Reshape(looked, {-1}), b.Op1(Op::kShape, {index})}));
  EXPECT_EQ(Check(b.g, Canonicalize), "Cast Reshape Where Add");
  EXPECT_EQ(ir::ToString(MaskShape(b.g)), "[b,1,1,s]");
}

TEST(CanonicalMasks, DynamoLookupIsTheMaskItself) {
  for (const bool swapped : {false, true}) {  // mask[kv, b] is something else
    MaskGraph m;
    Builder& b = m.b;
    const ValueId keep = b.Cast(m.mask, DType::kBool);
    const ValueId row = b.Unsqueeze(m.Range(m.mask, 0), {1, 2, 3});
    const ValueId column = b.Unsqueeze(m.Range(m.mask, 1), {0, 1, 2});
    const ValueId shape = b.Op1(Op::kShape, {b.Op1(Op::kMax, {row, column})});
    ValueId i = b.Unsqueeze(b.Op1(Op::kExpand, {row, shape}), {-1});
    ValueId j = b.Unsqueeze(b.Op1(Op::kExpand, {column, shape}), {-1});
    const ValueId from = swapped ? b.Transpose(keep, {1, 0}) : keep;
    if (swapped) std::swap(i, j);
    m.Finish(b.Op1(Op::kGatherND, {from, b.Concat({i, j}, -1)}));
    const std::string ops = Check(b.g, Canonicalize);
    EXPECT_EQ(ops == "Cast Unsqueeze Where Add", !swapped) << ops;
    EXPECT_EQ(ir::ToString(MaskShape(b.g)), "[b,1,1,s]");
  }
}

TEST(CanonicalMasks, ALookupOfSomethingElseStays) {
  MaskGraph m;
  Builder& b = m.b;
  const ValueId keep = b.Cast(m.mask, DType::kBool);
  const ValueId column = b.Unsqueeze(b.Op1(Op::kMul, {m.Range(m.mask, 1), b.I(0)}), {0, 1});  // always position 0
  m.Finish(b.Unsqueeze(
      b.Op1(Op::kGather, {keep, b.Op1(Op::kSqueeze, {column, b.Axis({0, 1})})}, Attrs{{"axis", int64_t{1}}}), {1, 2}));
  EXPECT_NE(Check(b.g, Canonicalize).find("Gather"), std::string::npos);
}

// x[:, :] = u, as torch writes it.
TEST(CanonicalMasks, AScatterToEveryPlaceIsWhatIsScattered) {
  for (const char* form : {"all", "shifted", "add"}) {
    MaskGraph m;
    Builder& b = m.b;
    const std::string_view kind = form;
    const ValueId x = b.In("x", {Sym("b"), Sym("s")}), u = b.In("u", {Sym("b"), Sym("s")});
    const ValueId shape = b.Op1(Op::kShape, {x});
    ValueId i = b.Unsqueeze(m.Range(x, 0), {1}), j = m.Range(x, 1);
    if (kind == "shifted") j = b.Op1(Op::kSub, {j, b.I(1)});
    i = b.Unsqueeze(b.Op1(Op::kExpand, {i, shape}), {-1}), j = b.Unsqueeze(b.Op1(Op::kExpand, {j, shape}), {-1});
    const ValueId index = b.Concat({i, j}, -1);
    const Attrs attrs = kind == "add" ? Attrs{{"reduction", std::string("add")}} : Attrs{};
    b.Out(b.Op1(Op::kScatterND, {x, index, u}, attrs));
    const std::string ops = Check(b.g, Canonicalize);
    EXPECT_EQ(ops.find("ScatterND") == std::string::npos, kind == "all") << ops;
  }
}

TEST(CanonicalMasks, AScatterByAConstant) {
  for (const bool whole : {true, false}) {
    Builder b;
    const ValueId x = b.In("x", {2, 3}), u = b.In("u", {2, 3});
    Ints places{0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2};
    if (!whole) std::swap(places[1], places[3]);
    b.Out(b.Op1(Op::kScatterND, {x, b.g.AddConstant(Tensor::S64({2, 3, 2}, places)), b.Op1(Op::kNeg, {u})}));
    EXPECT_EQ(Check(b.g, Canonicalize), whole ? "Neg" : "Neg ScatterND");
  }
}

// Max(s + mask, lowest): scores are nothing beside it, so the mask alone may be less.
TEST(CanonicalScores, ALeastScoreIsOneOfTheMask) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  for (const char* mask : {"none", "input", "where", "where_inf", "rounded"}) {
    Builder b;
    const std::string_view kind = mask;
    const ValueId q = b.In("q", {Sym("b"), 2, Sym("s"), 4}), k = b.In("k", {Sym("b"), 2, 4, Sym("t")}),
                  v = b.In("v", {Sym("b"), 2, Sym("t"), 6});
    ValueId s = b.Op1(Op::kMatMul, {q, k});
    const ValueId keep = b.In("keep", {Sym("b"), 1, 1, Sym("t")}, DType::kBool);
    if (kind == "input") s = b.Op1(Op::kAdd, {s, b.In("m", {Sym("b"), 1, 1, Sym("t")})});
    if (kind == "where") s = b.Op1(Op::kAdd, {s, b.Op1(Op::kWhere, {keep, b.F(0), b.F(kLowest)})});
    if (kind == "where_inf") s = b.Op1(Op::kAdd, {s, b.Op1(Op::kWhere, {keep, b.F(0), b.F(-INFINITY)})});
    s = b.Op1(Op::kMax, {s, b.F(kind == "rounded" ? -100.0f : kLowest)});
    b.Out(b.Op1(Op::kMatMul, {b.Op1(Op::kSoftmax, {s}, Attrs{{"axis", int64_t{-1}}}), v}));
    const std::string ops = Check(b.g, Scores);
    EXPECT_EQ(ops, kind == "input"       ? "MatMul Max Add Softmax MatMul"
                   : kind == "where_inf" ? "MatMul Where Max Add Softmax MatMul"
                   : kind == "where"     ? "MatMul Where Add Softmax MatMul"
                   : kind == "rounded"   ? "MatMul Max Softmax MatMul"
                                         : "MatMul Softmax MatMul");
  }
}

TEST(CanonicalMasks, CausalTriangleStays) {
  MaskGraph m;
  Builder& b = m.b;
  const ValueId q = b.Unsqueeze(m.Range(m.mask, 1), {0, 1, 3}), k = b.Unsqueeze(m.Range(m.mask, 1), {0, 1, 2});
  const ValueId both =
      b.Op1(Op::kAnd, {b.Op1(Op::kLessOrEqual, {k, q}), b.Unsqueeze(b.Cast(m.mask, DType::kBool), {1, 2})});
  m.Finish(both);
  EXPECT_EQ(ir::ToString(MaskShape(b.g)), "[b,1,s,s]");
  EXPECT_NE(Check(b.g, Canonicalize).find("LessOrEqual"), std::string::npos);
}

TEST(CanonicalMasks, AnExpandThatGivesTheShapeStays) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), 1, 4});
  const ValueId wide = b.Op1(Op::kExpand, {x, b.Axis({1, 7, 4})});
  b.Out(b.Op1(Op::kMul, {wide, b.W({4})}));
  EXPECT_EQ(Check(b.g, Canonicalize), "Expand Mul");
}

// Either mask may be true: neither stands for both.
TEST(CanonicalMasks, AnOrOfTwoMasksKeepsBoth) {
  Builder b;
  const ValueId scores = b.In("scores", {Sym("b"), 3, Sym("s"), Sym("s")});
  const ValueId first = b.In("first", {Sym("b"), 1, 1, Sym("s")}, DType::kBool);
  const ValueId second = b.In("second", {Sym("b"), 1, 1, Sym("s")}, DType::kBool);
  const ValueId shape = b.Concat({b.DimOf(scores, 0), b.Axis({1}), b.DimOf(scores, 2), b.DimOf(scores, 3)});
  const ValueId wide = b.Op1(Op::kExpand, {b.Op1(Op::kOr, {first, second}), shape});
  b.Out(b.Op1(Op::kAdd, {scores, b.Op1(Op::kWhere, {wide, b.F(0), b.F(-INFINITY)})}));
  EXPECT_EQ(Check(b.g, Canonicalize), "Or Where Add");
}

// Attention with scales wherever exporters put them.
struct ScaleGraph {
  Builder b;
  ValueId q, k, mask;
  ScaleGraph() {
    q = b.In("q", {Sym("b"), Sym("s"), 12});
    k = b.In("k", {Sym("b"), Sym("s"), 12});
    mask = b.In("mask", {Sym("b"), 1, 1, Sym("s")});
  }
  ValueId Heads(ValueId x, Ints perm) { return b.Transpose(b.Reshape(x, {0, 0, 3, 4}), std::move(perm)); }
  void Finish(ValueId left, ValueId right, ValueId (*behind)(Builder&, ValueId) = nullptr) {
    ValueId s = b.Op1(Op::kMatMul, {left, right});
    if (behind != nullptr) s = behind(b, s);
    b.Out(b.Op1(Op::kSoftmax, {b.Op1(Op::kAdd, {s, mask})}, Attrs{{"axis", int64_t{-1}}}));
  }
};

constexpr const char* kScaled = "Reshape Transpose Reshape Transpose MatMul Mul Add Softmax";

TEST(CanonicalScale, BothSidesBecomeOneMultiplyOnTheScores) {
  ScaleGraph s;
  const ValueId q = s.b.Op1(Op::kMul, {s.Heads(s.q, {0, 2, 1, 3}), s.b.F(0.42f)});
  const ValueId k = s.b.Op1(Op::kMul, {s.Heads(s.k, {0, 2, 3, 1}), s.b.F(0.42f)});
  s.Finish(q, k);
  EXPECT_EQ(Check(s.b.g, Canonicalize, 1e-5), kScaled);
  PassRun context;
  ASSERT_TRUE(Canonicalize(s.b.g, context));
  for (NodeId id : s.b.g.NodesInOrder()) {
    const Node& n = s.b.g.node(id);
    if (n.op != Op::kMul) continue;
    const double exact = static_cast<double>(0.42f) * static_cast<double>(0.42f);
    EXPECT_EQ(s.b.g.ConstantOf(n.input(1))->GetDouble(0), static_cast<double>(static_cast<float>(exact)));
  }
}

TEST(CanonicalScale, ThroughViewsAndByDivision) {
  ScaleGraph s;
  s.Finish(s.Heads(s.b.Op1(Op::kDiv, {s.q, s.b.F(2.0f)}), {0, 2, 1, 3}), s.Heads(s.k, {0, 2, 3, 1}));
  EXPECT_EQ(Check(s.b.g, Canonicalize, 1e-5), kScaled);
  ScaleGraph d;
  d.Finish(d.Heads(d.q, {0, 2, 1, 3}), d.Heads(d.k, {0, 2, 3, 1}),
           [](Builder& b, ValueId x) { return b.Op1(Op::kDiv, {x, b.F(3.0f)}); });
  EXPECT_EQ(Check(d.b.g, Canonicalize, 1e-5), kScaled);
}

TEST(CanonicalScale, RefusesVectorsCapsAndWhatIsNoAttention) {
  ScaleGraph v;  // a scale per channel is no scale of the scores
  v.Finish(v.Heads(v.b.Op1(Op::kMul, {v.q, v.b.W({12})}), {0, 2, 1, 3}), v.Heads(v.k, {0, 2, 3, 1}));
  EXPECT_EQ(Check(v.b.g, Scale), Ops(v.b.g));
  ScaleGraph c;  // Gemma 2: tanh(scores / 50) * 50
  c.Finish(c.Heads(c.q, {0, 2, 1, 3}), c.Heads(c.k, {0, 2, 3, 1}), [](Builder& b, ValueId x) {
    const ValueId capped = b.Op1(Op::kTanh, {b.Op1(Op::kDiv, {b.Op1(Op::kMul, {x, b.F(0.5f)}), b.F(50.0f)})});
    return b.Op1(Op::kMul, {capped, b.F(50.0f)});
  });
  EXPECT_EQ(Check(c.b.g, Scale), Ops(c.b.g));
  Builder n;
  const ValueId x = n.In("x", {Sym("b"), 4, 4});
  n.Out(n.Op1(Op::kMatMul, {n.Op1(Op::kMul, {x, n.F(0.5f)}), x}));
  EXPECT_EQ(Check(n.g, Scale), "Mul MatMul");
}

// 2 of shape [1,1,1,1] makes four dims of whatever has fewer, and of an input without a rank nobody knows.
TEST(CanonicalScale, KeepsAScalarThatMayWidenTheScores) {
  for (const bool known : {true, false}) {
    for (const Op op : {Op::kMul, Op::kDiv}) {
      Builder b;
      const ValueId q = known ? b.In("q", {2, 3, 4}) : b.g.AddInput("q", ir::Type{DType::kF32, std::nullopt});
      const ValueId k = b.In("k", {2, 4, 5});
      const ValueId two = b.g.AddConstant(Tensor::F32({1, 1, 1, 1}, {2.0f}));
      b.Out(b.Op1(Op::kSoftmax, {b.Op1(op, {b.Op1(Op::kMatMul, {q, k}), two})}, Attrs{{"axis", int64_t{-1}}}));
      const std::string before = Ops(b.g);
      PassRun context;
      const auto scaled = Scale(b.g, context);
      ASSERT_TRUE(scaled);
      EXPECT_FALSE(*scaled);
      EXPECT_EQ(Ops(b.g), before);
    }
  }
}

TEST(CanonicalScale, QuantizedGraphsKeepTheirBits) {
  for (const float divisor : {4.0f, 3.0f}) {
    Builder b;
    const ValueId q = b.In("q", {Sym("b"), Sym("s"), 4}, DType::kU8);
    const ValueId z = b.g.AddConstant(Tensor::Of<uint8_t>(DType::kU8, {}, std::vector<uint8_t>{7}));
    const ValueId d = b.Op1(Op::kDequantizeLinear, {q, b.F(0.013f), z});
    const ValueId s = b.Op1(Op::kDiv, {b.Op1(Op::kMatMul, {d, b.Transpose(d, {0, 2, 1})}), b.F(divisor)});
    b.Out(b.Op1(Op::kSoftmax, {s}, Attrs{{"axis", int64_t{-1}}}));
    EXPECT_EQ(Check(b.g, Scale).find("Div") == std::string::npos, divisor == 4.0f);
  }
}

struct MaskedTwice : Builder {
  explicit MaskedTwice(float low, bool product = true, bool shown = false, bool turned = false) {
    const ValueId mask = In("mask", {Sym("b"), 1, Sym("t")}, DType::kBool), s = In("s", {Sym("b"), Sym("s"), Sym("t")});
    const auto hide = [&](ValueId v, float by, bool where_true) {
      return Op1(Op::kWhere, where_true ? std::vector{mask, v, F(by)} : std::vector{mask, F(by), v});
    };
    const ValueId p = Op1(Op::kSoftmax, {hide(s, low, shown)}, Attrs{{"axis", int64_t{-1}}});
    const ValueId masked = hide(p, 0, shown != turned);
    Out(product ? Op1(Op::kMatMul, {masked, In("v", {Sym("b"), Sym("t"), 4})}) : masked);
  }
};

TEST(CanonicalScores, ProbabilitiesMaskedOnceMore) {
  for (const float low : {std::numeric_limits<float>::lowest(), -std::numeric_limits<float>::infinity(), -1e4f}) {
    for (const bool shown : {false, true})
      EXPECT_EQ(Check(MaskedTwice(low, true, shown).g, Scores), "Where Softmax ReduceMax IsInf Where MatMul");
  }
  const MaskedTwice higher(-9999), read(std::numeric_limits<float>::lowest(), false), turned(-1e4f, true, true, true);
  EXPECT_EQ(Check(higher.g, Scores), Ops(higher.g)) << "scores may be lower";
  EXPECT_EQ(Check(read.g, Scores), Ops(read.g)) << "beside a NaN there are zeros";
  EXPECT_EQ(Check(turned.g, Scores), Ops(turned.g)) << "keys that were shown are hidden";
}

// Row 0 has a NaN that counts, row 1 one that is masked, row 2 is masked wholly.
TEST(CanonicalScores, ProbabilitiesMaskedOnceMoreKeepNaN) {
  const Graph before = MaskedTwice(std::numeric_limits<float>::lowest()).g;
  Graph after = before;
  PassRun context;
  ASSERT_TRUE(Scores(after, context) && after.node_count() > before.node_count());
  const float nan = std::nanf("");
  const Tensor mask = Tensor::Of<uint8_t>(DType::kBool, {3, 1, 2}, std::vector<uint8_t>{0, 1, 1, 0, 1, 1}),
               s = Tensor::F32({3, 1, 2}, {nan, 1, nan, 1, 2, 3});
  Tensor v = Tensor::Zeros(DType::kF32, {3, 2, 4});
  for (float& x : v.mutable_as<float>()) x = 2;
  for (const Graph* g : {&before, &std::as_const(after)}) {
    const auto y = ir::Interpret(*g, {{"mask", mask}, {"s", s}, {"v", v}});
    ASSERT_TRUE(y) << y.error().message;
    const auto out = (*y)[0].as<float>();
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_EQ(out[4], 2.0f);
    EXPECT_EQ(out[8], 0.0f);
  }
}

}  // namespace
}  // namespace octavo::passes::canonical
