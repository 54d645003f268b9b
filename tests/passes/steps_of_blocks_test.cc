// Blocks of 4 bits with float scales, rounded once more to steps (quantize/steps_of_blocks.cc): both layouts, with zeros and bias.
#include "octavo/passes/quantize/steps_of_blocks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "octavo/ir/interpret.h"
#include "octavo/ir/verify.h"

namespace octavo::passes::quantize {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kRows = 5, kK = 96, kN = 24, kBlock = 32;

void Put(Tensor& t, int64_t i, int64_t code) {  // the low bits come first
  auto* bytes = reinterpret_cast<uint8_t*>(t.mutable_data());
  const bool half = t.dtype() == DType::kU4;
  bytes[half ? i / 2 : i] |= static_cast<uint8_t>(half && i % 2 == 1 ? code << 4 : code);
}

struct Blocks {
  explicit Blocks(bool transposed, DType type = DType::kU4, float first = 0.02f) {
    const ir::Shape shape = transposed ? ir::Shape{kN, kK} : ir::Shape{kK, kN};
    const ir::Shape each = transposed ? ir::Shape{kN, kK / kBlock} : ir::Shape{kK / kBlock, kN};
    Tensor codes = Tensor::Zeros(type, shape), zeros = Tensor::Zeros(type, each),
           scales = Tensor::Zeros(DType::kF32, each);
    for (int64_t i = 0; i < codes.size(); ++i) Put(codes, i, i * 7 % 13);
    for (int64_t i = 0; i < zeros.size(); ++i) {
      Put(zeros, i, 4 + i % 5);
      scales.mutable_as<float>()[static_cast<size_t>(i)] = 0.02f + 0.01f * static_cast<float>(i % 7);
    }
    scales.mutable_as<float>()[0] = first;
    Tensor bias = Tensor::Zeros(DType::kF32, {kN});
    for (float& b : bias.mutable_as<float>()) b = 20.0f;
    const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim(kRows), ir::Dim(kK)}});
    linear = g.AddNode(Op::kLinearBlocked,
                       {x, g.AddConstant(codes), g.AddConstant(scales), g.AddConstant(zeros), g.AddConstant(bias)}, 1,
                       {{"block_size", kBlock}, {"transposed", int64_t{transposed ? 1 : 0}}, {"x_bits", int64_t{8}}});
    g.SetOrigin(linear, {"fc"});
    g.AddOutput("y", g.node(linear).output());
  }
  std::vector<double> Run() const {
    Tensor x = Tensor::Zeros(DType::kF32, {kRows, kK});
    for (int64_t i = 0; i < x.size(); ++i)
      x.mutable_as<float>()[static_cast<size_t>(i)] = std::sin(static_cast<float>(i));
    const Tensor y = (*ir::Interpret(g, {{"x", x}}))[0];
    std::vector<double> all;
    for (int64_t i = 0; i < y.size(); ++i) all.push_back(y.GetDouble(i));
    return all;
  }
  Graph g;
  NodeId linear;
};

TEST(StepsOfBlocks, ProductsOfInt8WithNearlyTheSameWeights) {
  for (const bool transposed : {false, true}) {
    Blocks m(transposed);
    const std::vector<double> before = m.Run();
    PassRun run;
    const auto changed = StepsOfBlocks(m.g, run);
    ASSERT_TRUE(changed && *changed);
    ASSERT_TRUE(ir::VerifyStatus(m.g));
    bool int8 = false;
    for (const NodeId id : m.g.NodesInOrder()) int8 = int8 || m.g.node(id).op == Op::kQuantizedLinear;
    EXPECT_TRUE(int8);
    const std::vector<double> after = m.Run();
    double lost = 0, power = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      lost += (after[i] - before[i]) * (after[i] - before[i]);
      power += (before[i] - 20) * (before[i] - 20);
    }
    EXPECT_LT(
        lost,
        0.03 *
            power);  // codes have a variance of 14 steps squared, a rounding one of 1/12, of steps up to twice as wide
    EXPECT_FALSE(*StepsOfBlocks(m.g, run));
  }
}

TEST(StepsOfBlocks, OthersKeepTheirBlocks) {
  Blocks eight(false, DType::kU8);
  PassRun run;
  EXPECT_FALSE(*StepsOfBlocks(eight.g, run));
  Blocks kept(false);
  run.keep_float = {"fc"};
  EXPECT_FALSE(*StepsOfBlocks(kept.g, run));
  Blocks infinite(false, DType::kU4, INFINITY);
  PassRun told;
  EXPECT_FALSE(*StepsOfBlocks(infinite.g, told));
  ASSERT_EQ(told.decisions.size(), 1u);
  EXPECT_EQ(told.decisions[0].reason,
            "dynamic_blocks: fc keeps its blocks: its weight has values that are not finite or beyond 1e37");
}

}  // namespace
}  // namespace octavo::passes::quantize
