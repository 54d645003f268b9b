// Token tables that are the head, too, in blocks (quantize/tied_blocks.cc): which are read from the head's codes, and what a lookup gives then.
#include "octavo/passes/quantize/tied.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/ir/interpret.h"
#include "octavo/ir/verify.h"
#include "octavo/passes/quantize/rounding.h"

namespace octavo::passes::quantize {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kWords = 300, kHidden = 128;

float Weight(int64_t word, int64_t i) {
  return std::sin(static_cast<float>(word * 131 + i * 17)) * (1 + 0.01f * static_cast<float>(word));
}

struct Tied {
  // The table has `changed` in its last word, which the head does not.
  explicit Tied(float changed = 0, bool read_twice = false, DType codes = DType::kS8) {
    Tensor head = Tensor::Zeros(DType::kF32, {kHidden, kWords});
    table = Tensor::Zeros(DType::kF32, {kWords, kHidden});
    for (int64_t w = 0; w < kWords; ++w) {
      for (int64_t i = 0; i < kHidden; ++i) {
        table.mutable_as<float>()[static_cast<size_t>(w * kHidden + i)] =
            Weight(w, i) + (w + 1 == kWords ? changed : 0);
        head.mutable_as<float>()[static_cast<size_t>(i * kWords + w)] = Weight(w, i);
      }
    }
    const auto serial = [](int64_t n, const std::function<void(int64_t)>& task) {
      for (int64_t i = 0; i < n; ++i) task(i);
    };
    auto q = *RoundInBlocks(head, {codes, 64}, nullptr, serial);
    const ValueId ids = g.AddInput("ids", {DType::kS64, ir::SymShape{ir::Dim::Symbol("s")}});
    const ValueId t = g.AddConstant(table);
    lookup = g.AddNode(Op::kGather, {t, ids}, 1, {{"axis", int64_t{0}}});
    const ValueId x = g.node(lookup).output();
    const NodeId dq = g.AddNode(Op::kDequantizeLinear, {g.AddConstant(q.codes), g.AddConstant(q.scale)}, 1,
                                {{"axis", int64_t{0}}, {"block_size", int64_t{64}}});
    const NodeId product = g.AddNode(Op::kMatMul, {x, g.node(dq).output()}, 1);
    g.AddOutput("x", x), g.AddOutput("y", g.node(product).output());
    if (read_twice) g.AddOutput("table", t);
  }
  bool Tie() { return TieBlocks(g, {lookup}); }
  std::vector<Tensor> Run() const { return *ir::Interpret(g, {{"ids", Tensor::S64({3}, {5, 0, kWords - 1})}}); }
  Graph g;
  Tensor table;
  NodeId lookup;
};

TEST(TiedBlocks, LookupsReadTheCodesOfTheHead) {
  Tied m;
  const std::vector<Tensor> before = m.Run();
  ASSERT_TRUE(m.Tie());
  ASSERT_TRUE(m.g.SortTopologically());  // as its pass does
  ASSERT_TRUE(ir::VerifyStatus(m.g));
  const std::vector<Tensor> after = m.Run();
  ASSERT_EQ(after[0].shape(), before[0].shape());
  for (int64_t i = 0; i < after[0].size(); ++i)  // half a step of 127 to the largest of a block
    EXPECT_NEAR(after[0].GetDouble(i), before[0].GetDouble(i), 0.51 * 4.0 / 127);
  int codes = 0;
  for (const NodeId id : m.g.NodesInOrder()) {
    const Tensor* t = m.g.node(id).op == Op::kConstant ? m.g.ConstantOf(m.g.node(id).output()) : nullptr;
    codes += t != nullptr && t->size() == kWords * kHidden ? 1 : 0;
  }
  EXPECT_EQ(codes, 1);
  EXPECT_FALSE(m.Tie());
}

TEST(TiedBlocks, OtherTablesStay) {
  EXPECT_FALSE(Tied(0.5f).Tie());  // its last word alone is another
  EXPECT_FALSE(Tied(0, true).Tie());
  EXPECT_FALSE(Tied(0, false, DType::kS4).Tie());
}

}  // namespace
}  // namespace octavo::passes::quantize
