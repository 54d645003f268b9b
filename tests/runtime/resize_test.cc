// Resize of images, channels first: positions that are picked have the bits of the interpreter, sums are near it, for any number of threads.
#include <gtest/gtest.h>

#include <random>

#include "octavo/ir/interpret.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

TEST(Resize, IsTheInterpreters) {
  std::mt19937 gen(3);
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const std::vector<float>& by :
         {std::vector<float>{1, 1, 2, 2}, {1, 1, 2, 0.5f}, {1, 1, 0.7f, 3}, {1, 1, 1, 2}, {2, 1, 1, 1}}) {
      SCOPED_TRACE(std::string(mode) + " " + std::to_string(by[2]) + " " + std::to_string(by[3]));
      Graph g;
      g.info.opsets[""] = 18;
      const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{2, 3, 20, 31}});
      const ValueId scales = g.AddConstant(Tensor::F32({4}, by));
      g.AddOutput("y", g.node(g.AddNode(Op::kResize, {x, ValueId{}, scales}, 1,
                                        {{"mode", std::string(mode)},
                                         {"coordinate_transformation_mode", std::string("asymmetric")}}))
                           .output());
      Tensor image = Tensor::Empty(DType::kF32, {2, 3, 20, 31});
      for (float& v : image.mutable_as<float>()) v = std::normal_distribution<float>()(gen);
      const auto one = Model::Compile(g, {.threads = 1}), three = Model::Compile(g, {.threads = 3});
      ASSERT_TRUE(one && three);
      EXPECT_EQ(one->KernelOfEachStep().back(), "resize");
      const auto want = ir::Interpret(g, {{"x", image}}), got = one->Run({{"x", image}}),
                 same = three->Run({{"x", image}});
      ASSERT_TRUE(want && got && same);
      ASSERT_EQ((*got)[0].shape(), (*want)[0].shape());
      EXPECT_TRUE((*same)[0].SameBits((*got)[0]));
      EXPECT_TRUE(std::string_view(mode) != "nearest" || (*got)[0].SameBits((*want)[0]));
      // Weights and sums of 4 terms an axis, each rounded: 2 axes, 8 roundings of numbers below 16.
      for (int64_t e = 0; e < (*want)[0].size(); ++e)
        ASSERT_NEAR((*got)[0].GetDouble(e), (*want)[0].GetDouble(e), 16 * 8 * 6e-8);
    }
  }
}

}  // namespace
}  // namespace octavo::runtime
