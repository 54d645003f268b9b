// Sequences whose elements the file tells by number become tensors; the others stay, and the graph stays legal.
#include <gtest/gtest.h>

#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/import.h"
#include "octavo/ir/verify.h"

namespace octavo::ir::onnx {
namespace {

struct Builder {
  Graph g;
  ValueId x;
  explicit Builder(SymShape shape) {
    g.info.opsets[""] = 18;
    x = g.AddInput("x", {DType::kF32, std::move(shape)});
  }
  ValueId Node(std::string type, std::vector<ValueId> in, Attrs attrs = {}) {
    return g.node(g.AddOpaque("", std::move(type), std::move(in), 1, std::move(attrs))).output();
  }
  ValueId Number(int64_t n) { return g.AddConstant(Tensor::ScalarS64(n)); }
  ValueId Numbers(std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return g.AddConstant(Tensor::S64({n}, std::move(v)));
  }
  ValueId At(ValueId sequence, int64_t i) { return Node("SequenceAt", {sequence, Number(i)}); }
  // The first numbers of what the graph gives; empty: sequences are left.
  std::vector<float> Run(ValueId y) {
    g.AddOutput("y", y);
    ResolveSequences(g);
    EXPECT_TRUE(VerifyStatus(g)) << VerifyStatus(g).error().message;
    for (const NodeId id : g.NodesInOrder()) {
      if (g.node(id).op == Op::kOpaque) return {};
    }
    Tensor in = Tensor::Empty(DType::kF32, {2, 6});
    float next = 0;
    for (float& v : in.mutable_as<float>()) v = next++;
    auto out = Interpret(g, {{"x", in}});
    EXPECT_TRUE(out) << out.error().message;
    return out ? (*out)[0].ToFloats() : std::vector<float>();
  }
};
using Floats = std::vector<float>;

TEST(Sequences, PiecesOfASplit) {
  Builder even({2, 6});
  EXPECT_EQ(even.Run(even.At(even.Node("SplitToSequence", {even.x, even.Number(4)}, {{"axis", int64_t{1}}}), -1)),
            (Floats{4, 5, 10, 11}));
  Builder sizes({2, 6});
  EXPECT_EQ(sizes.Run(sizes.At(
                sizes.Node("SplitToSequence", {sizes.x, sizes.Numbers({1, 2, 3})}, {{"axis", int64_t{-1}}}), 1)),
            (Floats{1, 2, 7, 8}));
  Builder rows({2, 6});
  EXPECT_EQ(rows.Run(rows.At(rows.Node("SplitToSequence", {rows.x}, {{"keepdims", int64_t{0}}}), 1)),
            (Floats{6, 7, 8, 9, 10, 11}));
}

TEST(Sequences, PiecesAlongAnAxisThatNobodyKnows) {
  Builder b({Dim::Symbol("b"), Dim::Symbol("n")});
  const ValueId pieces = b.Node("SplitToSequence", {b.x, b.Number(2)}, {{"axis", int64_t{1}}});
  EXPECT_EQ(b.Run(b.At(pieces, 1)), (Floats{2, 3, 8, 9}));
  Builder last({Dim::Symbol("b"), Dim::Symbol("n")});  // which one that is, nobody knows
  EXPECT_EQ(last.Run(last.At(last.Node("SplitToSequence", {last.x, last.Number(2)}, {{"axis", int64_t{1}}}), -1)),
            Floats{});
}

TEST(Sequences, ASequenceOfPiecesOfPieces) {
  Builder b({2, 6});
  const ValueId half = b.At(b.Node("SplitToSequence", {b.x, b.Number(3)}, {{"axis", int64_t{1}}}), 1);
  const ValueId column = b.At(b.Node("SplitToSequence", {half}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}), 2);
  EXPECT_EQ(b.Run(column), (Floats{5, 11}));
}

TEST(Sequences, WhatIsPutInAndTakenOut) {
  Builder b({2, 6});
  const ValueId row = b.At(b.Node("SplitToSequence", {b.x}, {{"keepdims", int64_t{0}}}), 0);
  const ValueId low = b.g.node(b.g.AddNode(Op::kNeg, {row}, 1)).output();
  ValueId s = b.Node("SequenceInsert", {b.Node("SequenceEmpty", {}), row});
  s = b.Node("SequenceInsert", {s, low});
  s = b.Node("SequenceInsert", {s, low, b.Number(0)});
  s = b.Node("SequenceErase", {s});  // low row
  EXPECT_EQ(b.Run(b.Node("ConcatFromSequence", {s}, {{"axis", int64_t{0}}})),
            (Floats{0, -1, -2, -3, -4, -5, 0, 1, 2, 3, 4, 5}));
  Builder stacked({2, 6});
  const ValueId two = stacked.Node("SequenceConstruct", {stacked.x, stacked.x});
  const ValueId y = stacked.Node("ConcatFromSequence", {two}, {{"axis", int64_t{-1}}, {"new_axis", int64_t{1}}});
  EXPECT_EQ(stacked.Run(y).size(), 24u);
}

TEST(Sequences, PositionsOutsideAndComputedOnesStay) {
  for (const int64_t at : {3, -4}) {
    Builder b({2, 6});
    EXPECT_EQ(b.Run(b.At(b.Node("SplitToSequence", {b.x, b.Number(2)}, {{"axis", int64_t{1}}}), at)), Floats{});
  }
  Builder b({2, 6});
  const ValueId i = b.g.AddInput("i", {DType::kS64, SymShape{}});
  const ValueId pieces = b.Node("SplitToSequence", {b.x, b.Number(2)}, {{"axis", int64_t{1}}});
  EXPECT_EQ(b.Run(b.Node("SequenceAt", {pieces, i})), Floats{});
  EXPECT_EQ(b.g.node_count(), 3u);  // nothing made in vain is left
}

TEST(Sequences, NeitherPiecesNorChainsWithoutEnd) {
  Builder many({Dim(1'000'000), 6});
  EXPECT_EQ(many.Run(many.At(many.Node("SplitToSequence", {many.x}), 5)), Floats{});
  Builder chain({2, 6});
  ValueId s = chain.Node("SequenceEmpty", {});
  for (int i = 0; i < 1500; ++i) s = chain.Node("SequenceInsert", {s, chain.x});
  chain.Run(chain.At(s, 1400));
  EXPECT_LT(chain.g.node_count(), 3200u);
}

}  // namespace
}  // namespace octavo::ir::onnx
