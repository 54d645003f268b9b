// QuantizedLinear with weights of 4 bits in steps: the bits of its body, of the same weights in 8 bits, in groups and alone; what fits no kernel
// is refused or computed by its body.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "octavo/ir/functions.h"
#include "octavo/ir/interpret.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

class SteppedLinear : public testing::Test {
 protected:
  std::mt19937 rng_{20261128};

  int Int(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }
  Tensor Floats(ir::Shape shape, float scale) {
    Tensor t = Tensor::Zeros(DType::kF32, std::move(shape));
    for (float& f : t.mutable_as<float>()) f = scale * static_cast<float>(Int(-1000, 1000)) / 1000;
    return t;
  }
  Tensor Nibbles(ir::Shape shape, int lo, int hi) {
    Tensor t = Tensor::Zeros(DType::kU4, std::move(shape));
    for (int64_t i = 0; i < t.size(); ++i)
      t.mutable_as<uint8_t>()[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>(Int(lo, hi) << (i % 2 * 4));
    return t;
  }

  struct Weight {
    Tensor codes, step, zero, scale, bias;
    bool has_bias, as_bytes;
  };
  Weight Random(int64_t k, int64_t n, bool has_bias) {
    const int64_t blocks = (k + ir::kRowsOfStep - 1) / ir::kRowsOfStep;
    return {Nibbles({k, n}, 0, 15),
            Nibbles({blocks, n}, 0, 8),
            Nibbles({blocks, n}, 0, 15),
            Floats({n}, 0.01f),
            Floats({n}, 1),
            has_bias,
            false};
  }
  static Tensor Bytes(const Weight& w) {
    const int64_t n = w.codes.shape()[1];
    Tensor t = Tensor::Zeros(DType::kS8, w.codes.shape());
    for (int64_t i = 0; i < t.size(); ++i) {
      const int64_t at = i / n / ir::kRowsOfStep * n + i % n;
      t.mutable_as<int8_t>()[static_cast<size_t>(i)] =
          static_cast<int8_t>(w.step.GetInt(at) * (w.codes.GetInt(i) - w.zero.GetInt(at)));
    }
    return t;
  }
  // y0, y1, ... = x times the weights, rows in codes of their own.
  static ir::Graph Products(const std::vector<Weight>& weights) {
    ir::Graph g;
    const int64_t k = weights[0].codes.shape()[0];
    const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("rows"), k}});
    const ir::Node& tokens = g.node(g.AddNode(Op::kQuantizeTokens, {x}, 3));
    const ValueId codes = tokens.output(0), scale = tokens.output(1), zero = tokens.output(2);
    for (size_t i = 0; i < weights.size(); ++i) {
      const Weight& w = weights[i];
      std::vector<ValueId> in{codes, scale, zero, g.AddConstant(w.as_bytes ? Bytes(w) : w.codes),
                              g.AddConstant(w.scale)};
      in.resize(12);
      if (w.has_bias) in[5] = g.AddConstant(w.bias);
      if (!w.as_bytes) in[10] = g.AddConstant(w.step), in[11] = g.AddConstant(w.zero);
      const auto y = g.AddNode(Op::kQuantizedLinear, in, 1, {{"per_token", int64_t{1}}});
      g.AddOutput("y" + std::to_string(i), g.node(y).output());
    }
    return g;
  }
};

TEST_F(SteppedLinear, HasTheBitsOfItsBodyAndOfEightBits) {
  for (const kernels::Arch arch : kernels::SupportedArchs()) {
    for (const int64_t k : {16, 24, 100, 256}) {
      std::vector<Weight> weights{Random(k, 70, true), Random(k, 33, false), Random(k, 64, true)};
      const ir::Graph g = Products(weights);
      for (Weight& w : weights) w.as_bytes = true;
      const ir::Graph bytes = Products(weights);
      auto stepped = Model::Compile(g, {.arch = arch}), eight = Model::Compile(bytes, {.arch = arch});
      ASSERT_TRUE(stepped.has_value() && eight.has_value());
      for (const std::string& name : stepped->KernelOfEachStep()) EXPECT_FALSE(name.starts_with("interpreter")) << name;
      for (const int64_t rows : {1, 3, 8, 9, 40}) {
        const ir::TensorMap in{{"x", Floats({rows, k}, 3)}};
        const auto got = stepped->Run(in), want = eight->Run(in), meaning = ir::Interpret(g, in);
        ASSERT_TRUE(got.has_value() && want.has_value() && meaning.has_value());
        for (size_t i = 0; i < got->size(); ++i) {
          EXPECT_TRUE((*got)[i].SameBits((*want)[i])) << k << " " << rows;
          EXPECT_TRUE((*got)[i].SameBits((*meaning)[i])) << k << " " << rows;
        }
      }
    }
  }
}

// Codes hold no NaN, so a row of numbers must not come of one.
TEST_F(SteppedLinear, ARowWithANanOrAnInfinityIsNan) {
  for (const bool as_bytes : {false, true}) {
    Weight w = Random(40, 20, true);
    w.as_bytes = as_bytes;
    const ir::Graph g = Products({w});
    for (const kernels::Arch arch : kernels::SupportedArchs()) {
      auto model = Model::Compile(g, {.arch = arch});
      ASSERT_TRUE(model.has_value());
      Tensor x = Floats({4, 40}, 1);
      const auto whole = model->Run({{"x", x}});
      auto at = x.mutable_as<float>();
      at[40 + 7] = std::numeric_limits<float>::quiet_NaN();
      at[2 * 40 + 39] = std::numeric_limits<float>::infinity();
      const auto got = model->Run({{"x", x}}), meaning = ir::Interpret(g, {{"x", x}});
      ASSERT_TRUE(whole.has_value() && got.has_value() && meaning.has_value());
      for (int64_t i = 0; i < (*got)[0].size(); ++i) {
        const bool lost = i / 20 == 1 || i / 20 == 2;
        EXPECT_EQ(std::isnan((*got)[0].GetDouble(i)), lost) << i;
        EXPECT_EQ(std::isnan((*meaning)[0].GetDouble(i)), lost) << i;
        if (!lost) {
          EXPECT_EQ((*got)[0].GetDouble(i), (*whole)[0].GetDouble(i));
        }
      }
    }
  }
}

TEST_F(SteppedLinear, OperandsThatDoNotFit) {
  const Weight good = Random(40, 20, false);
  const ir::TensorMap in{{"x", Floats({2, 40}, 1)}};
  const auto outcome = [&](const Weight& w) {
    auto model = Model::Compile(Products({w}), {});
    if (!model) return model.error().message;
    auto y = model->Run(in);
    return y ? std::string() : y.error().message;
  };
  EXPECT_EQ(outcome(good), "");
  Weight w = good;
  w.step = Nibbles({2, 20}, 1, 8);  // of 32 rows
  EXPECT_NE(outcome(w), "");
  w = good, w.zero = Nibbles({3, 19}, 0, 15);
  EXPECT_NE(outcome(w), "");
  // Weights that leave s8 are what a Cast makes of them: no kernel, no end.
  w = good, w.step = Nibbles({3, 20}, 15, 15), w.zero = Nibbles({3, 20}, 0, 0);
  EXPECT_EQ(outcome(w), "");
}

}  // namespace
}  // namespace octavo::runtime
