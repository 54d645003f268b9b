// Steps whose work is split among threads, or whose size no plan knows: the interpreter's bits in every part, for every
// number of threads.
#include <gtest/gtest.h>

#include <random>

#include "octavo/ir/interpret.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;

struct Maker {
  Graph g;
  ir::TensorMap inputs;
  std::mt19937 gen{11};

  Maker() { g.info.opsets[""] = 21; }
  Tensor Random(DType type, const Shape& shape) {
    Tensor t = Tensor::Empty(type, shape);
    if (type == DType::kF32) {
      for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-2, 2)(gen);
    } else {
      auto* bytes = reinterpret_cast<uint8_t*>(t.mutable_data());
      for (int64_t i = 0; i < t.size(); ++i) {
        bytes[i] = static_cast<uint8_t>(type == DType::kBool ? gen() % 4 != 0 : gen());
      }
    }
    return t;
  }
  ValueId Input(const std::string& name, DType type, const Shape& shape) {
    inputs[name] = Random(type, shape);
    return g.AddInput(name, {type, ir::SymShape(shape.begin(), shape.end())});
  }
  ValueId Constant(DType type, const Shape& shape) { return g.AddConstant(Random(type, shape)); }
  ValueId Real(float v) { return g.AddConstant(Tensor::ScalarF32(v)); }

  // Each run twice, the second by its plan. `within`: of the interpreter; 0: its bits.
  void ExpectRuns(const std::string& kernel, double within = 0) {
    const auto want = ir::Interpret(g, inputs);
    ASSERT_TRUE(want) << want.error().message;
    for (const int threads : {1, 2, 5}) {
      auto model = Model::Compile(g, {.threads = threads});
      ASSERT_TRUE(model) << model.error().message;
      EXPECT_TRUE(model->KernelOfEachStep()[0].starts_with(kernel)) << model->KernelOfEachStep()[0];
      for (int run = 0; run < 2; ++run) {
        const auto got = model->Run(inputs);
        ASSERT_TRUE(got) << got.error().message;
        for (size_t i = 0; i < want->size(); ++i) {
          const Tensor &a = (*want)[i], &b = (*got)[i];
          ASSERT_EQ(a.shape(), b.shape());
          if (within == 0) {
            EXPECT_TRUE(a.SameBits(b)) << "output " << i << ", " << threads << " threads";
            continue;
          }
          for (int64_t e = 0; e < a.size(); ++e) {
            ASSERT_NEAR(a.GetDouble(e), b.GetDouble(e), within) << threads << " threads, at " << e;
          }
        }
      }
    }
  }
};

TEST(Split, EveryRowHasItsResidual) {
  Maker m;
  const ValueId x = m.Input("x", DType::kU8, {3, 37, 24}), residual = m.Input("residual", DType::kF32, {3, 37, 70});
  const ir::NodeId n = m.g.AddNode(Op::kQuantizedLinear,
                                   {x,
                                    m.Real(0.02f),
                                    m.Constant(DType::kU8, {}),
                                    m.Constant(DType::kS8, {24, 70}),
                                    m.Real(0.01f),
                                    m.Constant(DType::kF32, {70}),
                                    {},
                                    {},
                                    {},
                                    residual},
                                   1, {}, "linear");
  m.g.AddOutput("y", m.g.node(n).output());
  m.ExpectRuns("linear_int8");
}

// The smallest value stands in the first part, the largest in the last.
TEST(Split, ADynamicRangeIsThatOfAllParts) {
  Maker m;
  const ValueId x = m.Input("x", DType::kF32, {5, 40000});
  m.inputs["x"].mutable_as<float>()[7] = -9;
  m.inputs["x"].mutable_as<float>()[5 * 40000 - 3] = 11;
  const ir::NodeId n = m.g.AddNode(Op::kDynamicQuantizeLinear, {x}, 3, {}, "quantize");
  for (size_t i = 0; i < 3; ++i) m.g.AddOutput("y" + std::to_string(i), m.g.node(n).output(i));
  m.ExpectRuns("dynamic_quantize");
}

TEST(Split, EveryTokenHasItsScale) {
  Maker m;
  const ValueId x = m.Input("x", DType::kF32, {3, 331, 200});
  auto values = m.inputs["x"].mutable_as<float>();
  for (size_t i = 0; i < values.size(); ++i) values[i] *= static_cast<float>(i / 200 % 7 + 1);
  const ir::NodeId n = m.g.AddNode(Op::kQuantizeTokens, {x}, 3, {}, "quantize");
  for (size_t i = 0; i < 3; ++i) m.g.AddOutput("y" + std::to_string(i), m.g.node(n).output(i));
  m.ExpectRuns("quantize_tokens");
}

// Fewer heads than threads: rows are split, and keys packed once for all.
void Attention(bool int8, bool flash) {
  Maker m;
  const DType s8 = int8 ? DType::kS8 : DType::kF32;
  constexpr int64_t kBatch = 2, kHeads = 2, kRows = 61, kKeys = 70, kSize = 16;
  std::vector<ValueId> in = {m.Input("q", s8, {kBatch, kHeads, kRows, kSize}),
                             m.Input("k", s8, {kBatch, 1, kKeys, kSize}), m.Input("v", s8, {kBatch, 1, kKeys, kSize})};
  if (int8) {
    for (const float scale : {1 / 64.0f, 1 / 64.0f, 1 / 64.0f, 1 / 255.0f}) {
      in.push_back(m.Real(scale));
      in.push_back(m.g.AddConstant(Tensor::Zeros(in.size() < 9 ? DType::kS8 : DType::kU8, {})));
    }
    in.resize(13);
  }
  in.push_back(m.Input("mask", DType::kF32, {kBatch, 1, 1, kKeys}));
  in.push_back(m.Input("keep", DType::kBool, {kBatch, kHeads, kRows, 1}));
  ir::Attrs attrs = {{"num_heads", kHeads}, {"kv_num_heads", int64_t{1}}, {"head_dim", kSize}, {"v_head_dim", kSize},
                     {"scale", 0.25f},      {"nan_guard", int64_t{1}}};
  if (flash) attrs.Set("flash", int64_t{1});
  const ir::NodeId n = m.g.AddNode(int8 ? Op::kQuantizedSdpa : Op::kSdpa, std::move(in), 1, attrs, "attention");
  m.g.AddOutput("y", m.g.node(n).output());
  // Float: a chain of kKeys products of values below 2 with probabilities that sum to 1, and scores whose error (a chain of
  // kSize products below 4, a quarter of it) moves each of these by as much: 2 * (70 + 2 * 16 * 2) * 2^-24.
  m.ExpectRuns(int8 ? "sdpa_int8" : "sdpa_f32", int8 ? 0 : 2 * (kKeys + 4 * kSize) * 0x1p-24);
}
TEST(Split, AttentionOfFewHeads) {
  Attention(true, false);
  Attention(false, false);
}
TEST(Split, FlashAttentionOfFewHeads) { Attention(false, true); }

// Sizes that follow from values: the plan of one run does not fit the next one of the same input shapes.
TEST(Planned, SizesMayDependOnValues) {
  Graph g;
  g.info.opsets[""] = 21;
  const ValueId limit = g.AddInput("limit", {DType::kF32, ir::SymShape{}});
  const ValueId zero = g.AddConstant(Tensor::ScalarF32(0)), step = g.AddConstant(Tensor::ScalarF32(0.01f));
  ValueId v = g.node(g.AddNode(Op::kRange, {zero, limit, step}, 1, {}, "range")).output();
  for (const char* name : {"first", "second", "third", "fourth"})
    v = g.node(g.AddNode(Op::kSoftmax, {v}, 1, {{"axis", int64_t{-1}}}, name)).output();
  g.AddOutput("y", v);
  auto model = Model::Compile(g, {.threads = 2});
  ASSERT_TRUE(model) << model.error().message;
  for (const float most : {0.2f, 90.0f, 0.1f, 70.0f}) {
    const ir::TensorMap inputs = {{"limit", Tensor::ScalarF32(most)}};
    const auto want = ir::Interpret(g, inputs), got = model->Run(inputs);
    ASSERT_TRUE(want && got);
    EXPECT_TRUE((*want)[0].SameBits((*got)[0])) << most;
  }
}

}  // namespace
}  // namespace octavo::runtime
