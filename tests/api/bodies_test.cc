// Branches of If and bodies of Loop are optimized as models of their own, and what comes out computes the same.
#include "octavo/passes/bodies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "octavo/api/optimize.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"
#include "octavo/runtime/model.h"

namespace octavo::api {
namespace {

using ir::Dim;
using ir::DType;
using ir::Graph;
using ir::NodeId;
using ir::Op;
using ir::SymShape;
using ir::Tensor;
using ir::ValueId;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

Tensor Random(ir::Shape shape, uint32_t seed) {
  std::mt19937 rng(seed);
  Tensor t = Tensor::Zeros(DType::kF32, std::move(shape));
  for (float& f : t.mutable_as<float>()) f = std::normal_distribution<float>(0, 0.15f)(rng);
  return t;
}

struct Block {
  Graph g;
  ValueId Node(Op op, std::vector<ValueId> in, ir::Attrs attrs = {}, const std::string& name = "") {
    const NodeId id =
        g.AddNode(op, std::move(in), 1, std::move(attrs), name.empty() ? std::string(ir::InfoOf(op).name) : name);
    g.SetOrigin(id, {g.node(id).name});
    return g.node(id).output();
  }
  ValueId Heads(ValueId x, ValueId w, const std::string& name) {
    const ValueId y = Node(Op::kMatMul, {x, w}, {}, name);
    const ValueId split = Node(Op::kReshape, {y, g.AddConstant(Tensor::S64({4}, {0, -1, 4, 16}))}, {}, name + "/split");
    return Node(Op::kTranspose, {split}, {{"perm", Ints{0, 2, 1, 3}}}, name + "/turn");
  }
  // Attention over x [b,s,64] with 4 heads, projected by q, k and v [64,64].
  ValueId Attend(ValueId x, ValueId q, ValueId k, ValueId v) {
    const ValueId kt = Node(Op::kTranspose, {Heads(x, k, "k")}, {{"perm", Ints{0, 1, 3, 2}}}, "kt");
    const ValueId s = Node(
        Op::kMul, {Node(Op::kMatMul, {Heads(x, q, "q"), kt}, {}, "scores"), g.AddConstant(Tensor::ScalarF32(0.25f))},
        {}, "scale");
    const ValueId p = Node(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}, "core");
    const ValueId y = Node(Op::kTranspose, {Node(Op::kMatMul, {p, Heads(x, v, "v")}, {}, "values")},
                           {{"perm", Ints{0, 2, 1, 3}}}, "back");
    return Node(Op::kReshape, {y, g.AddConstant(Tensor::S64({3}, {0, -1, 64}))}, {}, "merge");
  }
};

ir::Type Rows() { return {DType::kF32, SymShape{Dim::Symbol("b"), Dim::Symbol("s"), 64}}; }

// One branch attends to x, the other to x + x, both with the three weights that stand outside.
Graph Branches(bool condition_is_input = true) {
  const auto branch = [](bool twice) {
    Block b;
    const ValueId x = b.g.AddInput("x", Rows());
    const ValueId q = b.g.AddInput("wq", {}), k = b.g.AddInput("wk", {}), v = b.g.AddInput("wv", {});
    b.g.AddOutput("o", b.Attend(twice ? b.Node(Op::kAdd, {x, x}, {}, "twice") : x, q, k, v));
    return std::make_shared<const Graph>(std::move(b.g));
  };
  Block m;
  m.g.info.opsets[""] = 17;
  ValueId flag = m.g.AddInput("flag", {condition_is_input ? DType::kBool : DType::kF32, SymShape{1}});
  if (!condition_is_input) flag = m.Node(Op::kCast, {flag}, {{"to", static_cast<int64_t>(DType::kBool)}});
  const ValueId x = m.g.AddInput("x", Rows());
  std::vector<ValueId> in{flag, m.Node(Op::kMul, {x, m.g.AddConstant(Tensor::ScalarF32(2))}, {}, "before")};
  for (uint32_t i = 0; i < 3; ++i) in.push_back(m.g.AddConstant(Random({64, 64}, i + 1), "w" + std::to_string(i)));
  const ValueId y = m.Node(
      Op::kIf, in, {{"then_branch", branch(false)}, {"else_branch", branch(true)}, {"octavo_captures", int64_t{4}}},
      "choose");
  m.g.AddOutput("y", m.Node(Op::kRelu, {y}, {}, "after"));
  EXPECT_TRUE(ir::VerifyStatus(m.g));
  return std::move(m.g);
}

std::vector<ir::TensorMap> Batches(bool both) {
  std::vector<ir::TensorMap> all;
  for (uint32_t i = 0; i < 6; ++i) {
    const auto yes = static_cast<uint8_t>(both ? i % 2 : 1);
    all.push_back({{"flag", Tensor::Of<uint8_t>(DType::kBool, {1}, std::vector<uint8_t>{yes})},
                   {"x", Random({2, 5, 64}, 20 + i)}});
  }
  return all;
}

// Power of the difference in that of the signal.
double Noise(const Tensor& signal, const Tensor& got) {
  EXPECT_EQ(signal.shape(), got.shape());
  double power = 0, noise = 0;
  for (int64_t i = 0; i < signal.size(); ++i) {
    power += signal.GetDouble(i) * signal.GetDouble(i);
    noise += (signal.GetDouble(i) - got.GetDouble(i)) * (signal.GetDouble(i) - got.GetDouble(i));
  }
  return noise / power;
}

// By recipe: everything in both branches is found and done, the file computes what the model computed, and holds no weight twice.
TEST(Bodies, BranchesAreOptimizedByEveryRecipe) {
  for (const auto& [recipe, most] : std::map<std::string, double>{
           {"float", 1e-10}, {"int8", 3e-3}, {"dynamic", 3e-3}, {"fp8", 1e-2}, {"weights8", 1e-3}}) {
    SCOPED_TRACE(recipe);
    const Graph model = Branches();
    const auto batches = Batches(true);
    const auto data = quant::InMemoryData(batches, quant::InputsOf(model));
    OptimizeOptions options;
    options.recipe = recipe, options.threads = 1;
    options.data = recipe == "int8" || recipe == "fp8" ? data.get() : nullptr;
    const auto result = Optimize(model, options);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->report.attention.found, 2);
    EXPECT_EQ(result->report.attention.done, 2);
    EXPECT_EQ(result->report.qkv.done, 2);
    EXPECT_EQ(result->report.linear.found, 6);
    EXPECT_EQ(result->report.linear.done, recipe == "float" ? 0 : 6);
    ASSERT_FALSE(result->report.candidates.empty());
    EXPECT_THAT(passes::SourceOf(result->report.candidates[0]), HasSubstr("_branch of If 'choose')"));
    ASSERT_TRUE(ir::VerifyStatus(result->graph));
    const auto bytes = ir::onnx::WriteBytes(result->graph);
    ASSERT_TRUE(bytes) << bytes.error().message;
    const auto again = ir::onnx::ReadBytes(*bytes);
    ASSERT_TRUE(again) << again.error().message;
    for (const Graph* g : {&result->graph, &*again}) {
      const auto compiled = runtime::Model::Compile(*g, {.threads = 1});
      ASSERT_TRUE(compiled) << compiled.error().message;
      for (const ir::TensorMap& batch : batches) {
        const auto want = ir::Interpret(model, batch);
        const auto got = compiled->Run(batch);
        ASSERT_TRUE(got) << got.error().message;
        EXPECT_LE(Noise((*want)[0], (*got)[0]), most);
      }
    }
    if (recipe == "float") {
      EXPECT_LT(bytes->size(), size_t{64 * 64 * 4 * 3 + 60'000});  // the weights are there once
    }
  }
}

TEST(Bodies, ABranchThatNoBatchTakesIsQuantizedDynamically) {
  const Graph model = Branches();
  const auto data = quant::InMemoryData(Batches(false), quant::InputsOf(model));
  OptimizeOptions options;
  options.threads = 1, options.data = data.get();
  const auto result = Optimize(model, options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->report.linear.done, 6);
  EXPECT_THAT(result->notes, ::testing::Contains(HasSubstr("else_branch of If 'choose': no batch of the data takes it, "
                                                           "so it is optimized by recipe 'dynamic'")));
  EXPECT_THAT(
      result->notes,
      ::testing::Contains(HasSubstr("chooses by the input 'flag': one alone is kept by assume flag=true (or false)")));
  const auto calibration = Optimize(model, [] {
    OptimizeOptions o;
    o.threads = 1;
    return o;
  }());
  EXPECT_FALSE(calibration);
  EXPECT_THAT(calibration.error().message, HasSubstr("in the else_branch of If 'choose': this pipeline quantizes 3 "
                                                     "Linears and 1 attention core and needs calibration data"));
}

TEST(Bodies, NamesOfNodesWithinAreKnown) {
  OptimizeOptions options;
  options.recipe = "dynamic", options.threads = 1, options.keep_float = {"q"};
  const auto result = Optimize(Branches(false), options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->report.linear.done, 4);
  options.keep_float = {"nobody"};
  EXPECT_FALSE(Optimize(Branches(), options));
}

// A Loop that attends three times.
TEST(Bodies, ALoopIsFusedAndItsModelRuns) {
  Block body;
  body.g.AddInput("i", {DType::kS64, SymShape{}});
  const ValueId go = body.g.AddInput("go", {DType::kBool, SymShape{}}), x = body.g.AddInput("x", {});
  std::vector<ValueId> w;
  for (uint32_t i = 0; i < 3; ++i) w.push_back(body.g.AddConstant(Random({64, 64}, i + 1)));
  body.g.AddOutput("go_on", go);
  body.g.AddOutput("next", body.Attend(x, w[0], w[1], w[2]));
  Block m;
  m.g.info.opsets[""] = 17;
  const ValueId in = m.g.AddInput("x", {DType::kF32, SymShape{1, 6, 64}});
  m.g.AddOutput("y", m.Node(Op::kLoop, {m.g.AddConstant(Tensor::ScalarS64(3)), ValueId{}, in},
                            {{"body", std::make_shared<const Graph>(std::move(body.g))}}, "again"));
  OptimizeOptions options;
  options.recipe = "float", options.threads = 1;
  const auto result = Optimize(m.g, options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->report.attention.done, 1) << ir::ToText(result->graph);
  const auto model = runtime::Model::Compile(result->graph, {.threads = 1});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(model->KernelOfEachStep(), ElementsAre("models of Loop"));
  const ir::TensorMap batch{{"x", Random({1, 6, 64}, 9)}};
  const auto want = ir::Interpret(m.g, batch), got = model->Run(batch);
  ASSERT_TRUE(want && got);
  EXPECT_LE(Noise((*want)[0], (*got)[0]), 1e-10);
}

// What two branches have in common stands outside of them, once.
TEST(Bodies, ConstantsAreSharedAndSunk) {
  Graph g = Branches();
  NodeId node;
  for (const NodeId id : g.NodesInOrder()) node = g.node(id).op == Op::kIf ? id : node;
  node = passes::SinkConstants(g, node);
  EXPECT_EQ(g.node(node).inputs.size(), 2u);
  EXPECT_TRUE(ir::VerifyStatus(g));
  passes::ShareConstants(g);
  EXPECT_TRUE(ir::VerifyStatus(g));
  for (const NodeId id : g.NodesInOrder()) {
    if (g.node(id).op == Op::kIf) {
      EXPECT_EQ(g.node(id).inputs.size(), 5u);
    }
  }
}

}  // namespace
}  // namespace octavo::api
