// Float attention written as ONNX Attention (opset 23): read back it computes the same; what does not mean the same
// stays a function of standard ops; and a file by octavo keeps its order of mask and cap whoever its producer was.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/onnx.h"

namespace octavo::ir {
namespace {

struct Case {
  int64_t q_rank, k_rank, v_rank, out_rank;
  bool mask = false, guard = false;
  float softcap = 0;
  float scale = 0.4f;
};

struct Built {
  Graph graph;
  TensorMap inputs;
};

Built Build(const Case& c, std::mt19937_64& rng) {
  constexpr int64_t kBatch = 2, kHeads = 4, kGroups = 2, kDim = 3, kValueDim = 5, kRows = 4, kKeys = 6;
  std::normal_distribution<float> normal;
  Built b;
  Graph& g = b.graph;
  g.info.opsets[""] = 18;
  g.info.producer_name = "pytorch";
  g.info.producer_version = "2.9.1";
  const auto input = [&](const char* name, Shape shape) {
    Tensor t = Tensor::Empty(DType::kF32, shape);
    for (float& x : t.mutable_as<float>()) x = normal(rng);
    b.inputs[name] = t;
    return g.AddInput(name, {DType::kF32, SymShape(shape.begin(), shape.end())});
  };
  const auto operand = [&](const char* name, int64_t rank, int64_t heads, int64_t rows, int64_t dim) {
    return input(name, rank == 3 ? Shape{kBatch, rows, heads * dim} : Shape{kBatch, heads, rows, dim});
  };
  std::vector<ValueId> in{operand("q", c.q_rank, kHeads, kRows, kDim), operand("k", c.k_rank, kGroups, kKeys, kDim),
                          operand("v", c.v_rank, kGroups, kKeys, kValueDim)};
  if (c.mask) {
    in.push_back(input("mask", {kBatch, 1, kRows, kKeys}));
    auto m = b.inputs["mask"].mutable_as<float>();
    for (size_t i = 0; i < m.size(); i += 3) m[i] = -std::numeric_limits<float>::infinity();
    if (c.guard) std::fill_n(m.begin(), kKeys, -std::numeric_limits<float>::infinity());  // a wholly masked row
  }
  Attrs attrs{{"num_heads", kHeads}, {"kv_num_heads", kGroups},      {"head_dim", kDim},   {"v_head_dim", kValueDim},
              {"q_rank", c.q_rank},  {"k_rank", c.k_rank},           {"v_rank", c.v_rank}, {"out_rank", c.out_rank},
              {"scale", c.scale},    {"nan_guard", int64_t{c.guard}}};
  if (c.softcap != 0) attrs.Set("softcap", c.softcap);
  g.AddOutput("y", g.node(g.AddNode(Op::kSdpa, std::move(in), 1, std::move(attrs), "attention")).output());
  return b;
}

int Count(const Graph& g, Op op) {
  int n = 0;
  for (NodeId id : g.NodesInOrder()) n += g.node(id).op == op ? 1 : 0;
  return n;
}

TEST(AttentionForm, Onnx23ComputesTheSame) {
  const char* text = std::getenv("OCTAVO_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 23;
  std::printf("OCTAVO_SEED=%llu replays this\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 rng(seed);
  const Case cases[] = {{3, 3, 3, 3, false, false},     {4, 4, 4, 4, false, false},     {3, 4, 3, 3, true, true},
                        {4, 3, 4, 4, true, true},       {3, 3, 3, 3, true, true, 2.0f}, {4, 4, 4, 3, true, true, 1.5f},
                        {3, 3, 4, 4, false, true, 2.0f}};
  for (const Case& c : cases) {
    SCOPED_TRACE(
        std::format("ranks {} {} {} {} mask {} cap {}", c.q_rank, c.k_rank, c.v_rank, c.out_rank, c.mask, c.softcap));
    Built b = Build(c, rng);
    auto bytes = onnx::WriteBytes(b.graph, {.attention = onnx::AttentionForm::kOnnx23});
    ASSERT_TRUE(bytes) << bytes.error().message;
    auto back = onnx::ReadBytes(*bytes);  // the producer wrote the older order, the file says the newer
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(Count(*back, Op::kAttention), 1);
    EXPECT_EQ(Count(*back, Op::kSdpa), 0);
    EXPECT_EQ(back->info.opsets.at(""), 23);
    EXPECT_EQ(back->outputs()[0].name, "y");
    auto want = Interpret(b.graph, b.inputs);
    auto got = Interpret(*back, b.inputs);
    ASSERT_TRUE(want) << want.error().message;
    ASSERT_TRUE(got) << got.error().message;
    ASSERT_EQ(want->at(0).shape(), got->at(0).shape());
    double signal = 0;
    for (int64_t i = 0; i < want->at(0).size(); ++i) {
      signal += std::fabs(want->at(0).GetDouble(i));
      // Scores of three terms and sums of six, both near 1: a few units in the last place.
      EXPECT_NEAR(want->at(0).GetDouble(i), got->at(0).GetDouble(i), 4e-6);
    }
    EXPECT_GT(signal, 1);
  }
}

TEST(AttentionForm, StaysStandardWhereTheMeaningDiffers) {
  std::mt19937_64 rng(1);
  // Nobody knows whether the mask of the first rules out a whole row: NaN here, zeros in Attention. Attention takes the root of its scale.
  const Case cases[] = {{3, 3, 3, 3, true, false},
                        {.q_rank = 4, .k_rank = 4, .v_rank = 4, .out_rank = 4, .scale = -0.4f},
                        {.q_rank = 4, .k_rank = 4, .v_rank = 4, .out_rank = 4, .softcap = -2.0f}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::format("scale {} cap {}", c.scale, c.softcap));
    const Built b = Build(c, rng);
    auto bytes = onnx::WriteBytes(b.graph, {.attention = onnx::AttentionForm::kOnnx23});
    ASSERT_TRUE(bytes);
    auto back = onnx::ReadBytes(*bytes);
    ASSERT_TRUE(back);
    EXPECT_EQ(Count(*back, Op::kAttention), 0);
    EXPECT_EQ(Count(*back, Op::kSdpa), 1);
    EXPECT_LT(back->info.opsets.at(""), 23);
  }
}

}  // namespace
}  // namespace octavo::ir
