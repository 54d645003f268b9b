// Runs side by side: every family of kernels gives each of them the bits that it has alone, in one shape or in several.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "families.h"
#include "octavo/runtime/cache_state.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Tensor;
using testing::Families;
using testing::Family;
using testing::Knowledge;
using testing::Maker;
using testing::Sizes;

TEST(Together, EachRunOfEveryFamilyHasTheBitsItHasAlone) {
  std::mt19937 gen(20261125);
  const std::vector<std::vector<Sizes>> neighbours = {{{1, 1, 4}, {1, 1, 4}, {1, 1, 4}},
                                                      {{1, 3, 5}, {1, 1, 7}, {1, 3, 5}, {1, 1, 6}, {1, 1, 7}},
                                                      {{2, 2, 3}, {1, 4, 3}, {2, 2, 3}, {4, 1, 3}},
                                                      {{1, 1, 9}}};
  for (const Family& family : Families()) {
    for (const Knowledge knowledge : {Knowledge::kDims, Knowledge::kRank}) {
      Maker maker(7, knowledge);
      maker.family = family.name;
      family.add(maker);
      auto model = Model::Compile(maker.graph, {.threads = 2});
      ASSERT_TRUE(model.has_value()) << family.name << ": " << model.error().message;
      for (const std::vector<Sizes>& sizes : neighbours) {
        std::vector<ir::TensorMap> inputs;
        std::vector<std::vector<Tensor>> want;
        for (const Sizes& one : sizes) {
          inputs.push_back(maker.Inputs(one, gen));
          auto alone = model->Run(inputs.back());
          ASSERT_TRUE(alone.has_value()) << family.name << ": " << alone.error().message;
          want.push_back(std::move(*alone));
        }
        const auto got = model->RunTogether(inputs);
        ASSERT_TRUE(got.has_value()) << family.name << ": " << got.error().message;
        ASSERT_EQ(got->size(), want.size());
        for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ((*got)[i], want[i]) << family.name << " " << i;
      }
    }
  }
}

// Products of rows that stand behind one another, so that what one stacked step made is what the next one reads.
TEST(Together, StackedStepsFollowOneAnother) {
  Maker maker(11);
  maker.family = "two";
  const ir::ValueId x = maker.Input("x", DType::kF32, {testing::kBatch, testing::kRows, 32}, -1, 1);
  const auto product = [&](ir::ValueId in) {
    const ir::ValueId w = maker.Constant(DType::kU4, {32, 32}, 0, 255),
                      scale = maker.Constant(DType::kF32, {1, 32}, 0.01, 0.02);
    return maker.Node(ir::Op::kLinearBlocked, {in, w, scale}, {{"block_size", int64_t{32}}, {"x_bits", int64_t{8}}});
  };
  const ir::ValueId first = product(x);
  maker.Output(first);
  maker.Output(product(maker.Node(ir::Op::kSigmoid, {product(first)})));
  auto model = Model::Compile(maker.graph, {.threads = 2});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  std::mt19937 gen(3);
  std::vector<ir::TensorMap> inputs;
  for (int i = 0; i < 9; ++i) inputs.push_back(maker.Inputs({1, 1 + i % 2, 1}, gen));
  const auto got = model->RunTogether(inputs);
  ASSERT_TRUE(got.has_value()) << got.error().message;
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ((*got)[i], *model->Run(inputs[i])) << i;
    EXPECT_NE((*got)[i][1], (*got)[(i + 2) % inputs.size()][1]) << i;  // they do differ
    // What leaves keeps nobody else's memory.
    EXPECT_TRUE(std::ranges::all_of((*got)[i], [](const Tensor& t) { return t.sole(); })) << i;
  }
}

// A number as batch: rows of several runs do not fit, and each runs alone.
TEST(Together, ABatchThatIsANumberIsKept) {
  Maker maker(5);
  const ir::ValueId x = maker.graph.AddInput("x", {DType::kF32, ir::SymShape{1, ir::Dim::Symbol("rows"), 32}});
  const ir::ValueId w = maker.Constant(DType::kU4, {32, 32}, 0, 255),
                    scale = maker.Constant(DType::kF32, {1, 32}, 0.01, 0.02);
  maker.Output(maker.Node(ir::Op::kLinearBlocked, {x, w, scale}, {{"block_size", int64_t{32}}}));
  auto model = Model::Compile(maker.graph);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  std::vector<ir::TensorMap> inputs;
  for (int i = 0; i < 3; ++i) {
    Tensor t = Tensor::Zeros(DType::kF32, {1, 2, 32});
    std::ranges::fill(t.mutable_as<float>(), static_cast<float>(i));
    inputs.push_back({{"x", t}});
  }
  const auto got = model->RunTogether(inputs);
  ASSERT_TRUE(got.has_value()) << got.error().message;
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ((*got)[i], *model->Run(inputs[i]));
  EXPECT_EQ((*got)[1][0].shape(), (ir::Shape{1, 2, 32}));
}

TEST(Together, Refuses) {
  Maker maker(5);
  maker.Output(maker.Node(ir::Op::kNeg, {maker.Input("x", DType::kF32, {testing::kRows}, -1, 1)}));
  auto model = Model::Compile(maker.graph);
  ASSERT_TRUE(model.has_value());
  std::mt19937 gen(1);
  const ir::TensorMap x = maker.Inputs({}, gen);
  CacheState state;
  EXPECT_EQ(model->RunTogether({x, x}, {&state}).error().message, "1 states for 2 runs; give one for each, or none");
  EXPECT_EQ(model->RunTogether({x, {}}).error().message, "input '_x' (f32[rows]) is missing");
  EXPECT_TRUE(model->RunTogether({})->empty());
}

}  // namespace
}  // namespace octavo::runtime
