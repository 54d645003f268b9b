// One query row against many keys of one kv head: threads split the keys, and no bit may depend on how many there are.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::Tensor;

constexpr int64_t kKeys = 9001, kHeads = 3, kRows = 2, kSize = 40;

struct Case {
  bool int8, causal;
  std::string Name() const { return std::string(int8 ? "int8" : "float") + (causal ? "_causal" : ""); }
};

ir::Graph Attention(const Case& c) {
  ir::Graph g;
  const auto input = [&](const char* name, int64_t heads, int64_t rows, ir::DType type) {
    return g.AddInput(name, {type, ir::SymShape{1, heads, rows, kSize}});
  };
  const ir::DType s8 = c.int8 ? ir::DType::kS8 : ir::DType::kF32, u8 = c.int8 ? ir::DType::kU8 : ir::DType::kF32;
  std::vector<ir::ValueId> in = {input("q", kHeads, kRows, s8), input("k", 1, kKeys, s8), input("v", 1, kKeys, u8)};
  if (c.int8) {
    const Tensor signed_zero = Tensor::Zeros(ir::DType::kS8, {}), zero = Tensor::Zeros(ir::DType::kU8, {});
    for (const float scale : {1 / 32.0f, 1 / 32.0f, 1 / 255.0f, 1 / 255.0f}) {
      in.push_back(g.AddConstant(Tensor::ScalarF32(scale)));
      in.push_back(g.AddConstant(in.size() < 7 ? signed_zero : zero));
    }
  }
  ir::Attrs attrs = {{"num_heads", kHeads},
                     {"kv_num_heads", int64_t{1}},
                     {"head_dim", kSize},
                     {"v_head_dim", kSize},
                     {"scale", 0.125f}};
  if (c.causal) attrs.Set("window_right", int64_t{0}), attrs.Set("bottom_right", int64_t{1});
  const ir::NodeId o = g.AddNode(c.int8 ? ir::Op::kQuantizedSdpa : ir::Op::kSdpa, std::move(in), 1, attrs);
  g.AddOutput("y", g.node(o).output());
  return g;
}

ir::TensorMap Inputs(const Case& c) {
  ir::TensorMap inputs;
  uint32_t state = 1;
  const auto next = [&] { return (state = state * 1664525 + 1013904223) >> 24; };
  for (const auto& [name, heads, rows] :
       {std::tuple{"q", kHeads, kRows}, {"k", int64_t{1}, kKeys}, {"v", int64_t{1}, kKeys}}) {
    if (!c.int8) {
      inputs[name] = Tensor::Zeros(ir::DType::kF32, {1, heads, rows, kSize});
      for (float& x : inputs[name].mutable_as<float>()) x = static_cast<float>(next()) / 64.0f - 2.0f;
      continue;
    }
    inputs[name] = Tensor::Zeros(*name == 'v' ? ir::DType::kU8 : ir::DType::kS8, {1, heads, rows, kSize});
    for (int64_t i = 0; i < inputs[name].size(); ++i) {
      reinterpret_cast<uint8_t*>(inputs[name].mutable_data())[i] = static_cast<uint8_t>(next());
    }
  }
  return inputs;
}

TEST(Decode, EveryNumberOfThreadsGivesTheSameBits) {
  for (const Case& c : {Case{true, false}, {true, true}, {false, false}, {false, true}}) {
    SCOPED_TRACE(c.Name());
    const ir::TensorMap inputs = Inputs(c);
    auto plain = Model::Compile(Attention(c), {.threads = 1, .kernels = false});
    ASSERT_TRUE(plain.has_value());
    const auto truth = plain->Run(inputs);
    ASSERT_TRUE(truth.has_value());
    std::vector<Tensor> first;
    for (const int threads : {1, 2, 3, 8}) {
      auto model = Model::Compile(Attention(c), {.threads = threads});
      ASSERT_TRUE(model.has_value());
      ASSERT_NE(model->KernelOfEachStep()[0].find("sdpa"), std::string::npos);
      for (int round = 0; round < 5; ++round) {
        const auto got = model->Run(inputs);
        ASSERT_TRUE(got.has_value()) << got.error().message;
        if (first.empty()) first = *got;
        EXPECT_TRUE((*got)[0].SameBits(first[0])) << threads << " threads";
      }
    }
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < first[0].size(); ++i) {
      worst = std::max(worst, std::abs(first[0].GetDouble(i) - (*truth)[0].GetDouble(i)));
      largest = std::max(largest, std::abs((*truth)[0].GetDouble(i)));
    }
    EXPECT_GT(largest, 0.05);
    if (c.int8) {
      EXPECT_EQ(worst, 0);
    } else {
      EXPECT_LT(worst, 2 * 2 * kKeys * 0x1p-24);  // two chains of fma over the keys; values are at most 2
    }
  }
}

}  // namespace
}  // namespace octavo::runtime
