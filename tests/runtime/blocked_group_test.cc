// Products with weights in blocks that read one activation are one step, with the bits of a step each.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kDepth = 96;

struct Weights {
  int64_t columns, block;
  bool zero_points, bias;
  int64_t x_bits = 8;
  const char* x = "x";
};

class Numbers {
 public:
  uint32_t Next() { return (state_ = state_ * 1664525 + 1013904223) >> 16; }
  float Float() { return static_cast<float>(Next() % 2001) / 1000.0f - 1.0f; }
  Tensor Floats(ir::Shape shape) {
    Tensor t = Tensor::Zeros(DType::kF32, std::move(shape));
    for (float& f : t.mutable_as<float>()) f = Float();
    return t;
  }
  Tensor Codes(ir::Shape shape) {
    Tensor t = Tensor::Zeros(DType::kU4, std::move(shape));
    for (size_t i = 0; i < t.byte_size(); ++i) t.mutable_data()[i] = static_cast<std::byte>(Next());
    return t;
  }
  // Zero points of 8, which weights take off when they are packed.
  static Tensor Middle(ir::Shape shape) {
    Tensor t = Tensor::Zeros(DType::kU4, std::move(shape));
    std::memset(t.mutable_data(), 0x88, t.byte_size());
    return t;
  }

 private:
  uint32_t state_ = 20261125;
};

// An output for each of `products`, of which those in `kept` are in the graph; the weights are the same whichever are.
ir::Graph Products(const std::vector<Weights>& products, const std::vector<size_t>& kept) {
  ir::Graph g;
  Numbers numbers;
  std::map<std::string, ir::ValueId> x;
  for (const char* name : {"x", "z"}) {
    x[name] = g.AddInput(name, {DType::kF32, ir::SymShape{1, ir::Dim::Symbol("rows"), kDepth}});
  }
  for (size_t i = 0; i < products.size(); ++i) {
    const Weights& p = products[i];
    const int64_t blocks = (kDepth + p.block - 1) / p.block;
    const Tensor w = numbers.Codes({kDepth, p.columns}), scale = numbers.Floats({blocks, p.columns});
    const Tensor zero = numbers.Codes({blocks, p.columns}), bias = numbers.Floats({p.columns});
    if (std::ranges::find(kept, i) == kept.end()) continue;
    std::vector<ir::ValueId> in{x[p.x], g.AddConstant(w), g.AddConstant(scale),
                                g.AddConstant(p.zero_points ? zero : numbers.Middle({blocks, p.columns})),
                                p.bias ? g.AddConstant(bias) : ir::ValueId{}};
    const ir::Attrs attrs = {{"block_size", p.block}, {"transposed", int64_t{0}}, {"x_bits", p.x_bits}};
    const std::string name = "p" + std::to_string(i);
    g.AddOutput(name, g.node(g.AddNode(ir::Op::kLinearBlocked, std::move(in), 1, attrs, name)).output());
  }
  return g;
}

std::vector<size_t> All(size_t n) {
  std::vector<size_t> all;
  for (size_t i = 0; i < n; ++i) all.push_back(i);
  return all;
}

// Each output of one model with all products is that of a model with this product alone.
void Compare(const std::vector<Weights>& products, size_t steps) {
  Numbers numbers;
  for (const int threads : {1, 2, 5}) {
    auto all = Model::Compile(Products(products, All(products.size())), {.threads = threads});
    ASSERT_TRUE(all.has_value()) << all.error().message;
    EXPECT_EQ(all->KernelOfEachStep().size(), steps);
    for (const int64_t rows : {1, 3, 130}) {
      const ir::TensorMap inputs = {{"x", numbers.Floats({1, rows, kDepth})}, {"z", numbers.Floats({1, rows, kDepth})}};
      const auto got = all->Run(inputs);
      ASSERT_TRUE(got.has_value()) << got.error().message;
      for (size_t i = 0; i < products.size(); ++i) {
        auto one = Model::Compile(Products(products, {i}), {.threads = 1});
        ASSERT_TRUE(one.has_value());
        const auto want = one->Run(inputs);
        ASSERT_TRUE(want.has_value()) << want.error().message;
        EXPECT_TRUE((*got)[i].SameBits((*want)[0]))
            << "product " << i << ", " << rows << " rows, " << threads << " threads";
      }
    }
  }
}

TEST(BlockedGroup, OneStepForAllThatReadOneActivation) {
  Compare({{200, 32, true, false}, {64, 32, true, true}, {70, 32, true, false}}, 1);
  Compare({{200, 32, false, false, 0}, {64, 32, true, true, 0}}, 1);
}

TEST(BlockedGroup, RowsBecomeCodesForEachBlockAndKindOfZeroPoints) {
  Compare({{65, 32, true, false}, {64, 96, true, true}, {130, 32, false, false}, {16, 32, true, false}}, 1);
}

TEST(BlockedGroup, OthersStayApart) {
  Compare({{64, 32, true, false}, {64, 32, true, false, 8, "z"}}, 2);
  Compare({{64, 32, true, false}, {64, 32, true, false, 0}}, 2);
}

}  // namespace
}  // namespace octavo::runtime
