// Masks that are chosen by arithmetic, as tf2onnx writes a select, and sizes that such masks read of the scores.
#include "canonical_support.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {
namespace {

struct Select {
  bool not_first = false;  // the mask says what is hidden
  bool swapped = false, turned = false;
  float low = -2.4e38f;
  bool other_mask = false, read_again = false, no_softmax = false;
  Op lowers = Op::kConstant;  // Add, Sub: what is hidden are the scores and this number
  bool lowers_others = false, lowered_again = false;
};

struct SelectGraph : Builder {
  explicit SelectGraph(const Select& f) {
    const ValueId q = In("q", {Sym("b"), 2, Sym("s"), 4}), k = In("k", {Sym("b"), 2, Sym("s"), 4}),
                  v = In("v", {Sym("b"), 2, Sym("s"), 4});
    const ValueId mask = In("mask", {Sym("s"), Sym("s")}, DType::kBool);
    const ValueId other = In("other", {Sym("s"), Sym("s")}, DType::kBool);
    const ValueId s = Op1(Op::kMatMul, {q, Transpose(k, {0, 1, 3, 2})});
    const ValueId no = Op1(Op::kNot, {f.other_mask ? other : mask});
    const ValueId kept = Times(s, Cast(f.not_first ? no : mask, DType::kF32), f.swapped);
    const ValueId low =
        f.lowers == Op::kConstant ? F(f.low) : Op1(f.lowers, {f.lowers_others ? Op1(Op::kExp, {s}) : s, F(f.low)});
    if (f.lowered_again) Out(low, "low");
    const ValueId hidden = Times(low, Cast(f.not_first ? mask : no, DType::kF32), f.turned);
    const ValueId sum = Op1(Op::kAdd, f.turned ? std::vector{hidden, kept} : std::vector{kept, hidden});
    if (f.read_again) Out(kept, "kept");
    Out(f.no_softmax ? sum : Op1(Op::kMatMul, {Op1(Op::kSoftmax, {sum}, Attrs{{"axis", int64_t{-1}}}), v}));
  }
  ValueId Times(ValueId a, ValueId b, bool swap) { return Op1(Op::kMul, swap ? std::vector{b, a} : std::vector{a, b}); }
};

TEST(CanonicalSelect, ArithmeticBecomesWhere) {
  for (int i = 0; i < 8; ++i) {
    const std::string ops =
        Check(SelectGraph({.not_first = (i & 1) != 0, .swapped = (i & 2) != 0, .turned = (i & 4) != 0}).g, Scores);
    EXPECT_EQ(Count(ops, "Where"), 1u) << ops;
    EXPECT_EQ(Count(ops, "Add") + Count(ops, "Mul"), 0u) << ops;
  }
  EXPECT_EQ(Count(Check(SelectGraph({.low = -1e4f}).g, Scores), "Where"), 1u);
}

// Keras' Attention: where all of a row is hidden, its scores still tell keys apart.
TEST(CanonicalSelect, LoweredScoresGetAMask) {
  for (int i = 0; i < 8; ++i) {
    for (const auto& [lowers, low] : {std::pair(Op::kSub, 100.0f), std::pair(Op::kAdd, -100.0f)}) {
      const std::string ops = Check(SelectGraph({.not_first = (i & 1) != 0,
                                                 .swapped = (i & 2) != 0,
                                                 .turned = (i & 4) != 0,
                                                 .low = low,
                                                 .lowers = lowers})
                                        .g,
                                    Scores);
      EXPECT_EQ(Count(ops, "Where"), 1u) << ops;
      EXPECT_EQ(Count(ops, "Add"), 1u) << ops;
      EXPECT_EQ(Count(ops, "Mul") + Count(ops, "Sub"), 0u) << ops;
    }
  }
}

TEST(CanonicalSelect, OthersStay) {
  for (const Select& f :
       {Select{.low = -1e9f, .lowers = Op::kSub}, Select{.low = INFINITY, .lowers = Op::kSub},
        Select{.low = 1e9f, .lowers = Op::kSub, .lowers_others = true},
        Select{.low = 1e9f, .lowers = Op::kSub, .lowered_again = true}, Select{.low = 1e9f, .lowers = Op::kAdd}}) {
    EXPECT_EQ(Count(Check(SelectGraph(f).g, Scores), "Where"), 0u) << f.low;
  }

  for (const Select& f : {Select{.low = 0}, Select{.low = 3}, Select{.low = -INFINITY}, Select{.other_mask = true},
                          Select{.read_again = true}, Select{.no_softmax = true}}) {
    EXPECT_EQ(Count(Check(SelectGraph(f).g, Scores), "Where"), 0u) << f.low;
  }
}

// Scores of rank 3 seen as rank 4, whose Shape says how large the mask is.
TEST(CanonicalSelect, SizesOfScoresAreReadOfInputs) {
  for (const bool known : {true, false}) {
    Builder c;
    const Dim b = known ? Sym("b") : Sym("b") * Dim(2);
    const ValueId q = c.In("q", {b * Dim(2), Sym("s"), 4}), k = c.In("k", {b * Dim(2), Sym("s"), 4}),
                  v = c.In("v", {b * Dim(2), Sym("s"), 4});
    c.In("ids", {Sym("b"), Sym("s")});
    const ValueId s = c.Op1(Op::kMatMul, {q, c.Transpose(k, {0, 2, 1})});
    const ValueId four = c.Op1(Op::kReshape, {s, c.Concat({c.Axis({-1, 2}), c.DimOf(q, 1), c.DimOf(q, 1)})});
    const ValueId scores = c.Op1(Op::kMul, {four, c.F(0.5f)});
    const ValueId sizes = c.Op1(Op::kShape, {scores});
    const ValueId masked = c.Op1(Op::kAdd, {scores, c.W({1, 2, 1, 1})});
    const ValueId p = c.Op1(Op::kSoftmax, {masked}, Attrs{{"axis", int64_t{-1}}});
    const ValueId three = c.Op1(Op::kReshape, {p, c.Op1(Op::kShape, {s})});
    c.Out(c.Op1(Op::kMatMul, {three, v}));
    c.Out(c.Op1(Op::kConstantOfShape, {sizes}), "ones");
    const std::string ops = Check(c.g, Cores);
    EXPECT_EQ(ops == Ops(c.g), !known) << ops;
  }
}

// s * m - (1 - m) * 1e4, as GPT-2 was written first.
struct Difference {
  bool swapped = false, turned = false;
  float one = 1, low = 1e4f, least = 0;  // least: what the mask has for 0
  bool cast = false, other_mask = false, read_again = false;
  bool sum = false, hidden_first = false,
       lower = false;  // as a sum of what is hidden, perhaps before what is kept; a triangle of computed size
};
Builder DifferenceOf(const Difference& f) {
  Builder b;
  const ValueId q = b.In("q", {Sym("b"), 2, Sym("s"), 4}), k = b.In("k", {Sym("b"), 2, Sym("s"), 4}),
                v = b.In("v", {Sym("b"), 2, Sym("s"), 4});
  const auto mask_of = [&](float least) {
    std::vector<float> m(64);
    for (size_t i = 0; i < 64; ++i) m[i] = i % 8 <= i / 8 ? 1.0f : least;
    const ValueId whole = b.g.AddConstant(Tensor::F32({1, 1, 8, 8}, std::move(m)));
    const ValueId rows = b.DimOf(q, 2);
    return b.Op1(Op::kSlice, {whole, b.Axis({0, 0}), b.Concat({rows, rows}), b.Axis({2, 3})});
  };
  const auto triangle = [&] {
    const ValueId rows = b.DimOf(q, 2),
                  ones = b.Op1(Op::kConstantOfShape, {b.Concat({rows, rows})}, {{"value", Tensor::F32({1}, {f.one})}});
    return b.Op1(Op::kTrilu, {ones}, {{"upper", int64_t{0}}});
  };
  const ValueId mask = f.lower  ? triangle()
                       : f.cast ? b.Cast(b.In("mask", {Sym("s"), Sym("s")}, DType::kBool), DType::kF32)
                                : mask_of(f.least);
  const ValueId s = b.Op1(Op::kMatMul, {q, b.Transpose(k, {0, 1, 3, 2})});
  const auto times = [&](ValueId x, ValueId y, bool swap) {
    return b.Op1(Op::kMul, swap ? std::vector{y, x} : std::vector{x, y});
  };
  const ValueId kept = times(s, mask, f.swapped);
  const ValueId rest = b.Op1(Op::kSub, {b.F(f.one), f.other_mask ? mask_of(0.5f) : mask});
  const ValueId hidden = times(rest, b.F(f.sum ? -f.low : f.low), f.turned);
  const ValueId sum =
      b.Op1(f.sum ? Op::kAdd : Op::kSub, f.hidden_first ? std::vector{hidden, kept} : std::vector{kept, hidden});
  if (f.read_again) b.Out(kept, "kept");
  b.Out(b.Op1(Op::kMatMul, {b.Op1(Op::kSoftmax, {sum}, Attrs{{"axis", int64_t{-1}}}), v}));
  return b;
}

TEST(CanonicalSelect, ADifferenceBecomesWhere) {
  for (int i = 0; i < 8; ++i) {
    const std::string ops =
        Check(DifferenceOf({.swapped = (i & 1) != 0, .turned = (i & 2) != 0, .cast = (i & 4) != 0}).g, Scores);
    EXPECT_EQ(Count(ops, "Where"), 1u) << ops;
    EXPECT_EQ(Count(ops, "Sub") + Count(ops, "Mul"), 0u) << ops;
  }
}

// s * m + (1 - m) * -1e4, as GPT is written in transformers.
TEST(CanonicalSelect, ASumBecomesWhere) {
  for (int i = 0; i < 16; ++i) {
    const std::string ops = Check(DifferenceOf({.swapped = (i & 1) != 0,
                                                .turned = (i & 2) != 0,
                                                .sum = true,
                                                .hidden_first = (i & 4) != 0,
                                                .lower = (i & 8) != 0})
                                      .g,
                                  Scores);
    EXPECT_EQ(Count(ops, "Where"), 1u) << ops;
    EXPECT_EQ(Count(ops, "Add") + Count(ops, "Mul"), 0u) << ops;
  }
}

TEST(CanonicalSelect, DifferencesThatAreNoSelect) {
  for (const Difference& f :
       {Difference{.one = 2}, Difference{.low = -1e4f}, Difference{.least = 0.5f}, Difference{.other_mask = true},
        Difference{.read_again = true}, Difference{.hidden_first = true}, Difference{.low = -1e4f, .sum = true},
        Difference{.one = 0.5f, .sum = true, .lower = true}}) {
    const std::string ops = Check(DifferenceOf(f).g, Scores, 1e-5);
    EXPECT_EQ(Count(ops, "Where"), 0u) << ops;
  }
}

}  // namespace
}  // namespace octavo::passes::canonical
