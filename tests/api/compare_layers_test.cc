// Where an optimized model loses: its layers against the values of the model that it was made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "octavo/api/compare.h"
#include "octavo/api/optimize.h"

namespace octavo::api {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

constexpr int64_t kWidth = 32;

Tensor Random(std::mt19937& rng, ir::Shape shape, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (float& x : t.mutable_as<float>()) x = normal(rng);
  return t;
}

// fc1, Relu, fc2, fc3, each with a bias.
Graph Chain() {
  std::mt19937 rng(5);
  Graph g;
  g.info.opsets[""] = 18;
  const auto node = [&](Op op, std::vector<ValueId> in, const char* name) {
    const ir::NodeId id = g.AddNode(op, std::move(in), 1, {}, name);
    g.SetOrigin(id, {name});
    return g.node(id).output();
  };
  ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("b"), kWidth}});
  for (const char* name : {"fc1", "fc2", "fc3"}) {
    x = node(Op::kMatMul, {x, g.AddConstant(Random(rng, {kWidth, kWidth}, 0.2f))}, name);
    x = node(Op::kAdd, {x, g.AddConstant(Random(rng, {kWidth}, 0.1f))}, (std::string(name) + "/bias").c_str());
    if (name == std::string("fc1")) x = node(Op::kRelu, {x}, "relu");
  }
  g.AddOutput("y", x);
  return g;
}

ir::TensorMap Batch(uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  return {{"x", Random(rng, {16, kWidth}, scale)}};
}

Graph Quantized(const Graph& g) {
  const auto data = quant::InMemoryData({Batch(1), Batch(2)}, quant::InputsOf(g));
  OptimizeOptions options;
  options.data = data.get(), options.threads = 1;
  auto done = Optimize(g, options);
  EXPECT_TRUE(done) << done.error().message;
  return std::move(done->graph);
}

Comparison Compared(const Graph& a, const Graph& b, const ir::TensorMap& batch) {
  CompareOptions options{.threads = 1, .layers = true};
  options.open_data = [&](const Graph& g) -> ir::Result<std::unique_ptr<quant::DataSource>> {
    return quant::InMemoryData({batch}, quant::InputsOf(g));
  };
  auto done = Compare(a, b, options);
  EXPECT_TRUE(done) << done.error().message;
  return std::move(*done);
}

const LayerDifference* Find(const Comparison& c, std::string_view node) {
  const auto it = std::ranges::find(c.layers, node, &LayerDifference::node);
  return it == c.layers.end() ? nullptr : &*it;
}

TEST(CompareLayers, EveryLayerStandsBesideWhatItWasMadeOf) {
  const Graph a = Chain(), b = Quantized(a);
  const Comparison c = Compared(a, b, Batch(3));
  ASSERT_EQ(c.layers.size(), 3u);
  for (const char* name : {"fc1", "fc2", "fc3"}) {
    const LayerDifference* d = Find(c, name);
    ASSERT_NE(d, nullptr) << name;
    EXPECT_EQ(d->op, "QuantizedLinear");
    EXPECT_EQ(d->elements, 16 * kWidth);
    EXPECT_GT(d->sqnr_db, 20) << name;
    EXPECT_GE(d->own_db, d->sqnr_db) << name;  // it adds to what came in
  }
  EXPECT_TRUE(std::isinf(Find(c, "fc1")->enters_db));
  EXPECT_EQ(Find(c, "fc2")->enters_db, Find(c, "fc1")->sqnr_db);
  // The last one is the output.
  EXPECT_NEAR(Find(c, "fc3")->sqnr_db, c.outputs.at("y").SqnrDb(), 1e-6);
  EXPECT_LE(c.layers[0].own_db, c.layers[1].own_db);
  EXPECT_LE(c.layers[1].own_db, c.layers[2].own_db);
}

TEST(CompareLayers, TheLayerThatIsBrokenIsTheWorst) {
  const Graph a = Chain();
  Graph b = Quantized(a);
  int linears = 0;
  for (const ir::NodeId id : b.NodesInOrder()) {
    if (b.node(id).op != Op::kQuantizedLinear || ++linears != 2) continue;
    const Tensor& scale = *b.ConstantOf(b.node(id).input(4));
    std::vector<float> wrong = scale.ToFloats();
    for (float& s : wrong) s *= 1.3f;
    b.SetInput(id, 4, b.AddConstant(Tensor::F32(scale.shape(), std::move(wrong)), {}, id));
  }
  const Comparison c = Compared(a, b, Batch(3));
  ASSERT_EQ(c.layers.size(), 3u);
  EXPECT_EQ(c.layers[0].node, "fc2");
  EXPECT_LT(c.layers[0].own_db, 15);
  ASSERT_NE(Find(c, "fc3"), nullptr);
  EXPECT_GT(Find(c, "fc3")->own_db, 20);  // it hands on what came in
  EXPECT_THAT(AdviceFor(c.layers[0]), testing::HasSubstr("loses most here"));
}

TEST(CompareLayers, ValuesBeyondTheCalibratedRangeAreTold) {
  const Graph a = Chain(), b = Quantized(a);
  EXPECT_LT(Find(Compared(a, b, Batch(3)), "fc1")->clipped, 0.01);
  const Comparison c = Compared(a, b, Batch(3, 4.0f));
  EXPECT_GT(Find(c, "fc1")->clipped, 0.05);
  EXPECT_THAT(AdviceFor(*Find(c, "fc1")), testing::HasSubstr("beyond the calibrated range"));
}

// q of one product; k and v of another, side by side or head by head.
Graph Packed(bool by_head) {
  constexpr int64_t kHeads = 2, kHead = kWidth / kHeads;
  std::mt19937 rng(7);
  Graph g;
  g.info.opsets[""] = 18;
  const auto node = [&](Op op, std::vector<ValueId> in, const char* name, size_t outputs = 1, ir::Attrs attrs = {}) {
    const ir::NodeId id = g.AddNode(op, std::move(in), outputs, std::move(attrs), name);
    g.SetOrigin(id, {name});
    return g.node(id).outputs;
  };
  const auto linear = [&](ValueId x, int64_t n, const char* name) {
    const ValueId w = g.AddConstant(Random(rng, {kWidth, n}, 0.4f)), b = g.AddConstant(Random(rng, {n}, 1.0f));
    return node(Op::kAdd, {node(Op::kMatMul, {x, w}, name)[0], b}, (std::string(name) + "/bias").c_str())[0];
  };
  const auto turned = [&](ValueId v, std::vector<int64_t> shape, std::vector<int64_t> perm, const char* name) {
    const ValueId to = g.AddConstant(Tensor::S64({static_cast<int64_t>(shape.size())}, shape));
    return node(Op::kTranspose, {node(Op::kReshape, {v, to}, name)[0]}, name, 1, {{"perm", std::move(perm)}})[0];
  };
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("b"), 4, kWidth}});
  const ValueId q = turned(linear(x, kWidth, "q"), {0, 4, kHeads, kHead}, {0, 2, 1, 3}, "q/heads");
  const ValueId kv = linear(x, 2 * kWidth, "kv");
  const ValueId both = by_head ? turned(kv, {0, 4, kHeads, 2, kHead}, {3, 0, 2, 1, 4}, "kv/heads")
                               : turned(kv, {0, 4, 2, kHeads, kHead}, {2, 0, 3, 1, 4}, "kv/heads");
  const ValueId zero = g.AddConstant(Tensor::ScalarS64(0)), one = g.AddConstant(Tensor::ScalarS64(1));
  const ValueId k = node(Op::kGather, {both, zero}, "k", 1, {{"axis", int64_t{0}}})[0];
  const ValueId v = node(Op::kGather, {both, one}, "v", 1, {{"axis", int64_t{0}}})[0];
  const ValueId kt = node(Op::kTranspose, {k}, "kt", 1, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}})[0];
  const ValueId p =
      node(Op::kSoftmax, {node(Op::kMatMul, {q, kt}, "scores")[0]}, "softmax", 1, {{"axis", int64_t{-1}}})[0];
  g.AddOutput("y", node(Op::kMatMul, {p, v}, "values")[0]);
  EXPECT_TRUE(ir::Inference::Run(g));
  return g;
}

// The columns of k and v are found, however the product holds them; beside q's alone they would be all error.
TEST(CompareLayers, PartsOfAPackedProduct) {
  for (const bool by_head : {false, true}) {
    const Graph a = Packed(by_head);
    const auto batch = [](uint32_t seed) {
      std::mt19937 rng(seed);
      return ir::TensorMap{{"x", Random(rng, {8, 4, kWidth}, 1.0f)}};
    };
    const auto data = quant::InMemoryData({batch(1), batch(2)}, quant::InputsOf(a));
    OptimizeOptions options;
    options.data = data.get(), options.threads = 1, options.recipe = "dynamic";
    auto done = Optimize(a, options);
    ASSERT_TRUE(done) << done.error().message;
    ASSERT_EQ(done->report.qkv.found, 1);
    int outputs = 0;
    for (const LayerDifference& layer : Compared(a, done->graph, batch(3)).layers) {
      outputs += layer.op == "QuantizedQkv" ? 1 : 0;
      EXPECT_GT(layer.sqnr_db, 25) << layer.node << " " << layer.op;
    }
    EXPECT_EQ(outputs, 3);
  }
}

TEST(CompareLayers, ModelsThatShareNoNames) {
  const Graph a = Chain();
  Graph b = Quantized(a);
  for (const ir::NodeId id : b.NodesInOrder()) b.SetOrigin(id, {"other"});
  EXPECT_TRUE(Compared(a, b, Batch(3)).layers.empty());
}

}  // namespace
}  // namespace octavo::api
