// An RMSNormalization that a sum with its norm alone reads runs in that step, with the bits of a step of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

constexpr int64_t kWide = 70;

struct Form {
  bool codes = false, second = false, twice = false, later = false;
};

struct Both {
  Graph together, apart;  // of which the norm is an output, too
};

Both Make(const Form& f) {
  std::mt19937 gen(3);
  Graph g;
  g.info.opsets[""] = 23;
  const auto vector = [&] {
    Tensor t = Tensor::Zeros(DType::kF32, {kWide});
    for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-2, 2)(gen);
    return g.AddConstant(t);
  };
  const auto node = [&](Op op, std::vector<ValueId> in, size_t outputs = 1, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), outputs, std::move(attrs))).outputs;
  };
  const ir::Type type = {DType::kF32, ir::SymShape{2, ir::Dim::Symbol("rows"), kWide}};
  const ValueId x = g.AddInput("x", type), z = g.AddInput("z", type);
  const ValueId norm = node(Op::kRMSNormalization, {x, vector()}, 1, {{"axis", int64_t{-1}}})[0];
  const ValueId other = f.later ? node(Op::kExp, {z})[0] : z;
  const ValueId a = f.second ? other : norm, b = f.twice ? norm : f.second ? norm : other;
  if (f.codes) {
    Tensor zero = Tensor::Zeros(DType::kU8, {});
    zero.mutable_data()[0] = std::byte{120};
    const auto y =
        node(Op::kNormQuant, {a, b, vector(), {}, g.AddConstant(Tensor::ScalarF32(0.02f)), g.AddConstant(zero)}, 3,
             {{"rms", int64_t{1}}});
    for (const ValueId v : y) g.AddOutput("y" + std::to_string(v.index), v);
  } else {
    const auto y = node(Op::kSkipLayerNorm, {a, b, vector()}, 2, {{"rms", int64_t{1}}});
    for (const ValueId v : y) g.AddOutput("y" + std::to_string(v.index), v);
  }
  Both both{g, g};
  both.apart.AddOutput("norm", norm);
  return both;
}

size_t Steps(const Form& f) {
  Both both = Make(f);
  auto truth = Model::Compile(std::move(both.apart), {.threads = 1});
  EXPECT_TRUE(truth) << truth.error().message;
  size_t steps = 0;
  std::mt19937 gen(5);
  for (const int threads : {1, 3}) {
    auto model = Model::Compile(both.together, {.threads = threads});
    EXPECT_TRUE(model) << model.error().message;
    steps = model->KernelOfEachStep().size();
    for (const int64_t rows : {1, 7, 100, 0}) {
      ir::TensorMap inputs;
      for (const char* name : {"x", "z"}) {
        Tensor t = Tensor::Zeros(DType::kF32, {2, rows, kWide});
        for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-2, 2)(gen);
        inputs[name] = t;
      }
      const auto want = truth->Run(inputs), got = model->Run(inputs);
      EXPECT_TRUE(want && got) << (got ? "" : got.error().message);
      if (!want || !got) return 0;
      for (size_t i = 0; i < got->size(); ++i) EXPECT_TRUE((*got)[i].SameBits((*want)[i])) << i << ", " << rows;
    }
  }
  return steps;
}

TEST(NormGroup, ANormInFrontOfASumIsNoStep) {
  EXPECT_EQ(Steps({}), 1u);
  EXPECT_EQ(Steps({.second = true}), 1u);
  EXPECT_EQ(Steps({.codes = true}), 1u);
  EXPECT_EQ(Steps({.codes = true, .second = true}), 1u);
}

TEST(NormGroup, WhatIsReadTwiceOrComesLaterStays) {
  EXPECT_EQ(Steps({.twice = true}), 2u);
  EXPECT_EQ(Steps({.later = true}), 3u);
}

// The op adds as Add does, while the step reads its operands row by row.
TEST(NormGroup, AnOperandThatIsRepeatedIsTheInterpreters) {
  using Shapes = std::pair<ir::SymShape, ir::SymShape>;
  for (const auto& [xs, ss] :
       {Shapes{{2, 3, kWide}, {}}, Shapes{{2, 3, kWide}, {kWide}}, Shapes{{2, 3, kWide}, {1, 3, kWide}},
        Shapes{{3, kWide}, {2, 3, kWide}}, Shapes{{2, 3, kWide}, {2, 3, 1}}}) {
    Graph g;
    g.info.opsets[""] = 23;
    const ValueId x = g.AddInput("x", {DType::kF32, xs}), skip = g.AddInput("s", {DType::kF32, ss});
    Tensor gamma = Tensor::Zeros(DType::kF32, {kWide});
    std::ranges::fill(gamma.mutable_as<float>(), 1.5f);
    const ir::NodeId norm = g.AddNode(Op::kSkipLayerNorm, {x, skip, g.AddConstant(gamma)}, 1);
    g.AddOutput("y", g.node(norm).output());
    std::mt19937 gen(5);
    ir::TensorMap inputs;
    for (const auto& [name, sizes] : {std::pair{"x", xs}, std::pair{"s", ss}}) {
      ir::Shape shape;
      for (const ir::Dim& d : sizes) shape.push_back(d.number());
      Tensor t = Tensor::Zeros(DType::kF32, shape);
      for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-2, 2)(gen);
      inputs[name] = t;
    }
    const auto model = Model::Compile(g, {.threads = 1}), plain = Model::Compile(g, {.threads = 1, .kernels = false});
    ASSERT_TRUE(model && plain);
    const auto got = model->Run(inputs), want = plain->Run(inputs);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    ASSERT_TRUE(want.has_value()) << want.error().message;
    EXPECT_TRUE((*got)[0].SameBits((*want)[0])) << ir::ToString(ss);
  }
}

}  // namespace
}  // namespace octavo::runtime
