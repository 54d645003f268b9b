// auto_pads.cc: pads that follow from sizes become numbers, and the windows are the same to the bit.
#include "octavo/tests/passes/canonical_support.h"

namespace octavo::passes::canonical {
namespace {

struct Case {
  Op op = Op::kConv;
  Attrs attrs;
  SymShape x{Sym("b"), 4, 9, 6};
  ir::Shape w{6, 4, 3, 2};
};

Graph Make(const Case& c) {
  Builder m;
  const ValueId x = m.In("x", c.x, c.op == Op::kConvInteger ? DType::kU8 : DType::kF32);
  const ValueId w = c.op == Op::kConvInteger ? m.g.AddConstant(Tensor::Zeros(DType::kU8, c.w)) : m.W(c.w);
  m.Out(m.Op1(c.op, {x, w}, c.attrs));
  return m.g;
}

// The pads that the pass writes, or none.
Ints PadsOf(const Case& c) {
  Graph g = Make(c);
  Check(g, AutoPads);
  PassRun run;
  EXPECT_TRUE(AutoPads(g, run));
  for (const NodeId id : g.NodesInOrder()) {
    if (g.node(id).op != c.op) continue;
    const std::string auto_pad = g.node(id).attrs.Str("auto_pad", "NOTSET");
    return auto_pad == "NOTSET" ? g.node(id).attrs.Ints("pads") : Ints();
  }
  return {};
}

Attrs Same(const char* auto_pad, Ints strides = {}, Ints dilations = {}) {
  Attrs attrs{{"auto_pad", std::string(auto_pad)}};
  if (!strides.empty()) attrs.Set("strides", std::move(strides));
  if (!dilations.empty()) attrs.Set("dilations", std::move(dilations));
  return attrs;
}

TEST(CanonicalAutoPads, WindowsStayWhereTheyWere) {
  EXPECT_EQ(PadsOf({.attrs = Same("SAME_UPPER")}), Ints({1, 0, 1, 1}));
  EXPECT_EQ(PadsOf({.attrs = Same("SAME_LOWER")}), Ints({1, 1, 1, 0}));
  EXPECT_EQ(PadsOf({.attrs = Same("SAME_UPPER", {}, {2, 3})}), Ints({2, 1, 2, 2}));
  EXPECT_EQ(PadsOf({.attrs = Same("SAME_UPPER", {2, 2})}), Ints({1, 0, 1, 0}));  // of 9 and of 6
  EXPECT_EQ(PadsOf({.attrs = Same("SAME_LOWER", {4, 1}, {2, 1})}), Ints({2, 1, 2, 0}));
  EXPECT_EQ(PadsOf({.attrs = Same("SAME_UPPER", {5, 7})}), Ints({0, 0, 0, 0}));  // windows apart from each other
  EXPECT_EQ(PadsOf({.op = Op::kConvInteger, .attrs = Same("SAME_UPPER")}), Ints({1, 0, 1, 1}));
  for (const char* same : {"SAME_UPPER", "SAME_LOWER"}) {
    for (int64_t stride = 1; stride < 6; ++stride) {
      for (int64_t dilation = 1; dilation < 4; ++dilation) {
        for (int64_t size = 1; size < 8; ++size) {
          const Case c{.attrs = Same(same, {stride}, {dilation}), .x = {2, 4, size}, .w = {6, 4, 3}};
          EXPECT_EQ(PadsOf(c).size(), 2u) << same << stride << dilation << size;
        }
      }
    }
  }
}

TEST(CanonicalAutoPads, TransposedConvolutions) {
  const auto transposed = [](Attrs attrs) {
    return PadsOf({.op = Op::kConvTranspose, .attrs = std::move(attrs), .x = {2, 6, Sym("s"), Sym("t")}});
  };
  EXPECT_EQ(transposed(Same("SAME_UPPER")), Ints({1, 0, 1, 1}));
  EXPECT_EQ(transposed(Same("SAME_LOWER", {2, 2}, {2, 1})), Ints({2, 0, 1, 0}));
  EXPECT_EQ(transposed(Same("SAME_UPPER", {2, 3})), Ints());  // two columns for three places: a gap
  Attrs more = Same("SAME_UPPER", {3, 3});
  more.Set("output_padding", Ints{1, 2});
  EXPECT_EQ(transposed(more), Ints({0, 0, 1, 1}));
  Attrs told = Same("SAME_UPPER", {2, 2});
  told.Set("output_shape", Ints{8, 8});
  EXPECT_EQ(transposed(told), Ints());
}

TEST(CanonicalAutoPads, ASizeThatNobodyKnowsMattersWithAStrideAlone) {
  const SymShape open{Sym("b"), 4, Sym("s"), 6};
  EXPECT_EQ(PadsOf({.attrs = Same("SAME_UPPER"), .x = open}), Ints({1, 0, 1, 1}));
  EXPECT_EQ(PadsOf({.attrs = Same("SAME_UPPER", {1, 2}), .x = open}), Ints({1, 0, 1, 0}));
  EXPECT_EQ(PadsOf({.attrs = Same("SAME_UPPER", {2, 1}), .x = open}), Ints());
}

TEST(CanonicalAutoPads, OthersStay) {
  for (const char* other : {"VALID", "NOTSET"}) {
    Graph g = Make({.attrs = Same(other)});
    PassRun run;
    const auto changed = AutoPads(g, run);
    EXPECT_TRUE(changed && !*changed);
  }
}

}  // namespace
}  // namespace octavo::passes::canonical
