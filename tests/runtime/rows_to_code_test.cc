// Rows that become codes for products of one step alone do so in that step, with the bits of a step of their own.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "octavo/runtime/model.h"
#include "octavo/runtime/room.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

constexpr int64_t kDepth = 96;

class Numbers {
 public:
  uint32_t Next() { return (state_ = state_ * 1664525 + 1013904223) >> 16; }
  Tensor Floats(ir::Shape shape, float most = 1) {
    Tensor t = Tensor::Zeros(DType::kF32, std::move(shape));
    for (float& f : t.mutable_as<float>()) f = most * (static_cast<float>(Next() % 2001) / 1000.0f - 1.0f);
    return t;
  }
  Tensor Codes(ir::Shape shape) {
    Tensor t = Tensor::Zeros(DType::kS8, std::move(shape));
    for (size_t i = 0; i < t.byte_size(); ++i) t.mutable_data()[i] = static_cast<std::byte>(Next());
    return t;
  }

 private:
  uint32_t state_ = 20261127;
};

enum class Reader { kNone, kGraph, kProductApart };  // kProductApart: with a residual, which has a step of its own

// QuantizedLinears of these columns behind one QuantizeTokens, their sum if there are two; and who else reads the codes.
ir::Graph Products(const std::vector<int64_t>& columns, Reader other) {
  ir::Graph g;
  Numbers numbers;
  const ValueId x =
      g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("batch"), ir::Dim::Symbol("rows"), kDepth}});
  const ir::NodeId rows = g.AddNode(Op::kQuantizeTokens, {x}, 3, {}, "rows");
  const auto product = [&](int64_t n, ValueId residual = {}) {
    std::vector<ValueId> in = g.node(rows).outputs;
    for (const Tensor& t : {numbers.Codes({kDepth, n}), numbers.Floats({n}), numbers.Floats({n})})
      in.push_back(g.AddConstant(t));
    if (residual.valid()) in.resize(9), in.push_back(residual);
    return g
        .node(g.AddNode(Op::kQuantizedLinear, in, 1, {{"activation", std::string("none")}, {"per_token", int64_t{1}}},
                        "p"))
        .output();
  };
  ValueId y = product(columns[0]);
  if (columns.size() > 1) y = g.node(g.AddNode(Op::kMul, {y, product(columns[1])}, 1, {}, "both")).output();
  g.AddOutput("y", y);
  if (other == Reader::kGraph) g.AddOutput("codes", g.node(rows).output(1));
  if (other == Reader::kProductApart) g.AddOutput("z", product(columns[0], y));
  return g;
}

TEST(RowsToCode, AreTheBeginningOfTheStepThatAloneReadsThem) {
  Numbers numbers;
  for (const std::vector<int64_t>& columns : {std::vector<int64_t>{200}, {130, 130}}) {
    for (const int threads : {1, 2, 5}) {
      auto joined = Model::Compile(Products(columns, Reader::kNone), {.threads = threads});
      auto apart = Model::Compile(Products(columns, Reader::kGraph), {.threads = threads});
      ASSERT_TRUE(joined && apart);
      ASSERT_EQ(joined->KernelOfEachStep().size(), 1u);
      EXPECT_TRUE(joined->KernelOfEachStep()[0].starts_with("quantize_tokens+linear_int8"))
          << joined->KernelOfEachStep()[0];
      EXPECT_EQ(apart->KernelOfEachStep().size(), 2u);
      for (const ir::Shape& shape : {ir::Shape{1, 1, kDepth}, {2, 3, kDepth}, {1, 131, kDepth}, {0, 3, kDepth}}) {
        for (int turn = 0; turn < 2; ++turn) {  // the second one by a plan of memory
          const ir::TensorMap inputs = {{"x", numbers.Floats(shape, static_cast<float>(turn + 1))}};
          const auto got = joined->Run(inputs), want = apart->Run(inputs);
          ASSERT_TRUE(got.has_value() && want.has_value());
          EXPECT_TRUE((*got)[0].SameBits((*want)[0])) << ir::ToString(shape) << ", " << threads << " threads";
        }
      }
    }
  }
}

TEST(RowsToCode, StayAStepWhereAnotherReadsThem) {
  auto model = Model::Compile(Products({64}, Reader::kProductApart), {.threads = 1});
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->KernelOfEachStep().size(), 3u);
  EXPECT_TRUE(model->Run({{"x", Numbers().Floats({1, 2, kDepth})}}).has_value());
}

TEST(RowsToCode, OfSeveralRunsAreThoseOfEach) {
  Numbers numbers;
  auto model = Model::Compile(Products({130, 130}, Reader::kNone), {.threads = 2});
  ASSERT_TRUE(model.has_value());
  const std::vector<ir::TensorMap> inputs = {{{"x", numbers.Floats({1, 1, kDepth})}},
                                             {{"x", numbers.Floats({1, 1, kDepth}, 3)}},
                                             {{"x", numbers.Floats({1, 2, kDepth})}}};
  const auto all = model->RunTogether(inputs);
  ASSERT_TRUE(all.has_value());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto one = model->Run(inputs[i]);
    ASSERT_TRUE(one.has_value());
    EXPECT_TRUE((*all)[i][0].SameBits((*one)[0])) << i;
  }
}

}  // namespace
}  // namespace octavo::runtime
