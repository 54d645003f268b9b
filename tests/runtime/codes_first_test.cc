// Keys and values of a float cache become codes in the step of the attention that reads them, in a state from where the cache lies, with the
// bits of steps of their own.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "octavo/runtime/cache_state.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

constexpr int64_t kBatch = 2, kHeads = 4, kGroups = 2, kSize = 16;

Tensor Random(std::mt19937& gen, DType type, const ir::Shape& shape) {
  Tensor t = Tensor::Zeros(type, shape);
  if (type == DType::kF32) {
    for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-2, 2)(gen);
  } else {
    for (size_t i = 0; i < t.byte_size(); ++i) t.mutable_data()[i] = static_cast<std::byte>(gen());
  }
  return t;
}

// Attention of codes over caches of floats that grow by Concat. `told`: the codes leave the graph, too. No kernel has
// hidden keys whose score is positive.
ir::Graph Attention(bool told, float hidden_value = -INFINITY) {
  ir::Graph g;
  g.info.opsets[""] = 21;
  const ir::Dim rows = ir::Dim::Symbol("s"), past = ir::Dim::Symbol("p");
  const auto node = [&](Op op, std::vector<ValueId> in, ir::Attrs attrs) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
  };
  std::vector<ValueId> in = {g.AddInput("q", {DType::kS8, ir::SymShape{kBatch, kHeads, rows, kSize}})}, codes;
  for (const std::string name : {"k", "v"}) {
    const ValueId old = g.AddInput("past." + name, {DType::kF32, ir::SymShape{kBatch, kGroups, past, kSize}});
    const ValueId now = g.AddInput(name, {DType::kF32, ir::SymShape{kBatch, kGroups, rows, kSize}});
    const ValueId all = node(Op::kConcat, {old, now}, {{"axis", int64_t{2}}});
    g.AddOutput("present." + name, all);
    Tensor zero = Tensor::Zeros(DType::kS8, {});
    zero.mutable_data()[0] = static_cast<std::byte>(name == "k" ? 3 : -5);
    codes.push_back(
        node(Op::kQuantizeLinear,
             {all, g.AddConstant(Tensor::ScalarF32(name == "k" ? 1 / 60.0f : 1 / 50.0f)), g.AddConstant(zero)}, {}));
    in.push_back(codes.back());
  }
  const std::vector<ValueId> of_k = g.node(g.value(codes[0]).producer).inputs,
                             of_v = g.node(g.value(codes[1]).producer).inputs;
  in.insert(in.end(), {g.AddConstant(Tensor::ScalarF32(1 / 64.0f)), g.AddConstant(Tensor::Zeros(DType::kS8, {})),
                       of_k[1], of_k[2], of_v[1], of_v[2], g.AddConstant(Tensor::ScalarF32(1 / 255.0f)),
                       g.AddConstant(Tensor::Zeros(DType::kU8, {}))});
  const ir::Attrs attrs = {{"num_heads", kHeads}, {"kv_num_heads", kGroups}, {"head_dim", kSize},
                           {"v_head_dim", kSize}, {"scale", 0.25f},          {"hidden_value", hidden_value}};
  g.AddOutput("y", node(Op::kQuantizedSdpa, std::move(in), attrs));
  if (told) g.AddOutput("codes.k", codes[0]), g.AddOutput("codes.v", codes[1]);
  return g;
}

TEST(CodesFirst, OfCachesAreMadeInTheStepOfAttention) {
  const uint32_t seed = std::random_device{}();
  std::printf("random seed %u\n", seed);
  std::mt19937 gen(seed);
  for (const int threads : {1, 2, 5}) {
    auto joined = Model::Compile(Attention(false), {.threads = threads}),
         apart = Model::Compile(Attention(true), {.threads = threads});
    ASSERT_TRUE(joined && apart) << (joined ? "" : joined.error().message);
    EXPECT_EQ(joined->KernelOfEachStep().size(), 3u);
    EXPECT_TRUE(joined->KernelOfEachStep()[2].starts_with("sdpa_int8+quantize")) << joined->KernelOfEachStep()[2];
    EXPECT_EQ(apart->KernelOfEachStep().size(), 5u);
    CacheState state;
    std::vector<Tensor> past = {Tensor::Zeros(DType::kF32, {kBatch, kGroups, 0, kSize}),
                                Tensor::Zeros(DType::kF32, {kBatch, kGroups, 0, kSize})};
    for (const int64_t rows : {70, 1, 1, 130, 1}) {
      ir::TensorMap inputs = {{"q", Random(gen, DType::kS8, {kBatch, kHeads, rows, kSize})}};
      for (const char* name : {"k", "v"}) inputs[name] = Random(gen, DType::kF32, {kBatch, kGroups, rows, kSize});
      const auto in_state = joined->Run(inputs, state);
      inputs["past.k"] = past[0], inputs["past.v"] = past[1];
      const auto got = joined->Run(inputs), want = apart->Run(inputs);
      ASSERT_TRUE(in_state && got && want) << (in_state ? "" : in_state.error().message);
      EXPECT_TRUE((*got)[2].SameBits((*want)[2])) << rows << " rows, " << threads << " threads";
      EXPECT_TRUE((*in_state)[2].SameBits((*want)[2])) << "in a state, " << rows << " rows, " << threads << " threads";
      past = {(*want)[0], (*want)[1]};
    }
    CacheState shares(state);  // rows in front lie in a room that both have
    for (CacheState* one : {&shares, &state}) {
      ir::TensorMap inputs = {{"q", Random(gen, DType::kS8, {kBatch, kHeads, 1, kSize})}};
      for (const char* name : {"k", "v"}) inputs[name] = Random(gen, DType::kF32, {kBatch, kGroups, 1, kSize});
      const auto in_state = joined->Run(inputs, *one);
      inputs["past.k"] = past[0], inputs["past.v"] = past[1];
      const auto want = apart->Run(inputs);
      ASSERT_TRUE(in_state && want);
      EXPECT_TRUE((*in_state)[2].SameBits((*want)[2])) << "of a copy";
    }
  }
}

// Codes have outputs behind those of attention, whoever runs it.
TEST(CodesFirst, OfAttentionThatIsInterpreted) {
  std::mt19937 gen(7);
  auto joined = Model::Compile(Attention(false, 0.5f), {.threads = 1}),
       apart = Model::Compile(Attention(true, 0.5f), {.threads = 1});
  ASSERT_TRUE(joined && apart) << (joined ? "" : joined.error().message);
  EXPECT_TRUE(joined->KernelOfEachStep()[2].starts_with("interpreter+quantize")) << joined->KernelOfEachStep()[2];
  ir::TensorMap inputs = {{"q", Random(gen, DType::kS8, {kBatch, kHeads, 5, kSize})}};
  for (const char* name : {"k", "v", "past.k", "past.v"})
    inputs[name] = Random(gen, DType::kF32, {kBatch, kGroups, 5, kSize});
  for (int run = 0; run < 2; ++run) {
    const auto got = joined->Run(inputs), want = apart->Run(inputs);
    ASSERT_TRUE(got && want) << (got ? "" : got.error().message);
    EXPECT_TRUE((*got)[2].SameBits((*want)[2]));
  }
}

}  // namespace
}  // namespace octavo::runtime
