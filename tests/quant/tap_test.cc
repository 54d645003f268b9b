#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "octavo/quant/calibrate.h"

namespace octavo::quant {
namespace {

TEST(Taps, AreFoundBySymbolicShapes) {
  ir::Graph g;
  const ir::Dim b = ir::Dim::Symbol("batch"), s = ir::Dim::Symbol("seq");
  g.AddInput("input_ids", {DType::kS64, ir::SymShape{b, s}});
  g.AddInput("attention_mask", {DType::kS64, ir::SymShape{b, s}});
  const auto tap = [&](const char* name, std::optional<ir::SymShape> shape) {
    return MakeTap(g, g.AddInput(name, {DType::kF32, std::move(shape)}));
  };
  const Tap hidden = tap("hidden", ir::SymShape{b, s, 384});
  EXPECT_EQ(hidden.value, "hidden");
  EXPECT_EQ(hidden.mask, "attention_mask");
  EXPECT_EQ(hidden.seq_axes, std::vector<int>{1});
  EXPECT_FALSE(hidden.by_sizes);
  EXPECT_EQ(tap("heads", ir::SymShape{b, 12, s, 32}).seq_axes, std::vector<int>{2});
  EXPECT_EQ(tap("probs", ir::SymShape{b, 12, s, s}).seq_axes, (std::vector<int>{2, 3}));
  EXPECT_EQ(tap("merged", ir::SymShape{b * 12, s, 32}).seq_axes, std::vector<int>{1});
  EXPECT_EQ(tap("transposed", ir::SymShape{s, b, 384}).batch_axis, 1);
  const Tap flat = tap("flat", ir::SymShape{b * s, 384});
  EXPECT_TRUE(flat.flat);
  EXPECT_EQ(flat.mask, "attention_mask");
  const Tap pooled = tap("pooled", ir::SymShape{b, 384});
  EXPECT_EQ(pooled.batch_axis, 0);
  EXPECT_EQ(pooled.mask, "");
  EXPECT_FALSE(pooled.by_sizes);
  EXPECT_EQ(tap("bias", ir::SymShape{1, 12, s, s}).batch_axis, -1);
  EXPECT_TRUE(tap("unknown", std::nullopt).by_sizes);
}

TEST(Taps, MasksWhoseBatchHasANameOfItsOwn) {
  const ir::Dim b = ir::Dim::Symbol("s10"), s = ir::Dim::Symbol("s12"), t = ir::Dim::Symbol("s21");
  for (const bool as_long : {true, false}) {
    ir::Graph g;
    g.AddInput("input_ids", {DType::kS64, ir::SymShape{b, as_long ? s : t}});
    g.AddInput("attention_mask", {DType::kS64, ir::SymShape{ir::Dim::Symbol("s86"), s}});
    const Tap tap = MakeTap(g, g.AddInput("hidden", {DType::kF32, ir::SymShape{b, as_long ? s : t, 32}}));
    EXPECT_EQ(tap.by_sizes, !as_long);
    EXPECT_EQ(tap.mask, as_long ? "attention_mask" : "");
    EXPECT_EQ(tap.batch_axis, 0);
  }
}

TEST(Taps, OfModelsWithoutMasksFollowTheBatchOfTheFirstInput) {
  ir::Graph g;
  const ir::Dim b = ir::Dim::Symbol("batch"), s = ir::Dim::Symbol("seq");
  g.AddInput("x", {DType::kF32, ir::SymShape{b, s, 48}});
  const Tap turned = MakeTap(g, g.AddInput("y", {DType::kF32, ir::SymShape{s, b, 48}}));
  EXPECT_EQ(turned.batch_axis, 1);
  EXPECT_FALSE(turned.by_sizes);
  EXPECT_TRUE(MakeTap(g, g.AddInput("z", {DType::kF32, ir::SymShape{7, 48}})).by_sizes);
  g.AddInput("attention_mask", {DType::kS64, ir::SymShape{2, 7}});
  EXPECT_TRUE(MakeTap(g, g.AddInput("w", {DType::kF32, ir::SymShape{s, b, 48}})).by_sizes);
}

}  // namespace
}  // namespace octavo::quant
