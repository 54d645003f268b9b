// Recipes weights4, weights8 and dynamic4: no data needed, every Linear in blocks or steps, close to float, the same bits on every ISA and for
// any number of threads, and a file that any runtime with opset 21 can run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "octavo/api/optimize.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/runtime/model.h"

namespace octavo::api {
namespace {

using ir::Graph;
using ir::Tensor;

const std::filesystem::path kData = std::filesystem::path(OCTAVO_SOURCE_DIR) / "tests/data";

Graph Bert() {
  auto graph = ir::onnx::ReadFile(kData / "float/bert.ts17.sdpa.onnx");
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return std::move(*graph);
}

ir::TensorMap InputsOfBert(const Graph& graph) {
  auto data = quant::RandomData(1, quant::InputsOf(graph), {.limits = {{"input_ids", 60}, {"token_type_ids", 2}}});
  auto batch = (*data)->Next();
  return (*batch)->inputs;
}

// Of two float tensors as one vector each.
double Cosine(const Tensor& a, const Tensor& b) {
  double ab = 0, aa = 0, bb = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    ab += a.GetDouble(i) * b.GetDouble(i);
    aa += a.GetDouble(i) * a.GetDouble(i);
    bb += b.GetDouble(i) * b.GetDouble(i);
  }
  return ab / std::sqrt(aa * bb);
}

std::vector<Tensor> RunModel(const Graph& graph, const ir::TensorMap& inputs, kernels::Arch arch, int threads) {
  auto model = runtime::Model::Compile(graph, {.arch = arch, .threads = threads});
  EXPECT_TRUE(model.has_value()) << model.error().message;
  for (const std::string& name : model->KernelOfEachStep())
    EXPECT_FALSE(name.starts_with("interpreter Linear")) << name;
  auto out = model->Run(inputs);
  EXPECT_TRUE(out.has_value()) << out.error().message;
  return *out;
}

int CountOf(const Graph& g, ir::Op op) {
  int n = 0;
  for (ir::NodeId id : g.NodesInOrder()) n += g.node(id).op == op;
  return n;
}

class Weights : public testing::TestWithParam<const char*> {
 protected:
  static ir::Op OpOfLinears() {
    return std::string(GetParam()) == "dynamic4" ? ir::Op::kQuantizedLinear : ir::Op::kLinearBlocked;
  }
};

TEST_P(Weights, AllLinearsCloseToFloatAndSmall) {
  const Graph graph = Bert();
  const ir::TensorMap inputs = InputsOfBert(graph);
  OptimizeOptions options;
  options.recipe = GetParam();
  auto optimized = Optimize(graph, options);
  ASSERT_TRUE(optimized.has_value()) << optimized.error().message;
  EXPECT_GE(optimized->report.linear.found, 12);
  EXPECT_EQ(optimized->report.linear.done, optimized->report.linear.found);
  EXPECT_EQ(CountOf(optimized->graph, OpOfLinears()), optimized->report.linear.found);
  auto want = ir::Interpret(graph, inputs);
  auto meaning = ir::Interpret(optimized->graph, inputs);
  ASSERT_TRUE(want.has_value() && meaning.has_value());
  const std::vector<Tensor> got = RunModel(optimized->graph, inputs, kernels::BestArch(), 1);
  const bool four = std::string(GetParam()) != "weights8", codes = std::string(GetParam()) == "dynamic4";
  EXPECT_GT(Cosine((*want)[0], got[0]), four ? 0.98 : 0.9998);
  EXPECT_LT(Cosine((*want)[0], got[0]), 1.0) << "nothing was quantized";
  for (size_t i = 0; i < got.size(); ++i) {
    if (codes) {  // a rounding of the last bit moves a code of the next Linear here and there
      EXPECT_GT(Cosine((*meaning)[i], got[i]), 0.99999);
      EXPECT_LT(Cosine((*want)[i], got[i]), Cosine((*meaning)[i], got[i]));
      continue;
    }
    for (int64_t e = 0; e < got[i].size(); ++e) {  // of LayerNorm's outputs, about 1: rounding of some hundred sums
      ASSERT_NEAR((*meaning)[i].GetDouble(e), got[i].GetDouble(e), 1e-4);
    }
  }
}

TEST_P(Weights, FileHasOpset21AndComesBackWithTheSameBits) {
  const Graph graph = Bert();
  const ir::TensorMap inputs = InputsOfBert(graph);
  OptimizeOptions options;
  options.recipe = GetParam();
  auto optimized = Optimize(graph, options);
  ASSERT_TRUE(optimized.has_value()) << optimized.error().message;
  for (bool functions : {true, false}) {
    auto bytes = ir::onnx::WriteBytes(optimized->graph, {.functions = functions});
    ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
    auto back = ir::onnx::ReadBytes(*bytes);
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_GE(back->info.opsets[""], 21);
    EXPECT_EQ(CountOf(*back, OpOfLinears()) > 0, functions);
    auto want = ir::Interpret(optimized->graph, inputs), got = ir::Interpret(*back, inputs);
    ASSERT_TRUE(want.has_value() && got.has_value());
    EXPECT_TRUE((*want)[0].SameBits((*got)[0]));
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Weights, testing::Values("weights4", "weights8", "dynamic4"),
                         [](const auto& info) { return std::string(info.param); });

// Option `bits`: as many weights in 8 bits as the mean allows, the rest in 4; nearer to float, the more.
TEST(MixedBits, TheMeanIsKept) {
  const Graph graph = Bert();
  const ir::TensorMap inputs = InputsOfBert(graph);
  auto want = ir::Interpret(graph, inputs);
  ASSERT_TRUE(want.has_value());
  double before = 0;
  for (const double bits : {4.0, 5.0, 6.5, 8.0}) {
    OptimizeOptions options;
    options.recipe = "dynamic4", options.bits = bits;
    auto optimized = Optimize(graph, options);
    ASSERT_TRUE(optimized.has_value()) << optimized.error().message;
    EXPECT_EQ(CountOf(optimized->graph, ir::Op::kQuantizedLinear), optimized->report.linear.found);
    double weights = 0, sum = 0;
    for (const ir::NodeId id : optimized->graph.NodesInOrder()) {
      const ir::Node& n = optimized->graph.node(id);
      if (n.op != ir::Op::kQuantizedLinear) continue;
      const Tensor& w = *optimized->graph.ConstantOf(n.input(3));
      weights += static_cast<double>(w.size());
      sum += static_cast<double>(w.size()) * (w.dtype() == ir::DType::kS8 ? 8 : 4);
      EXPECT_EQ(n.attrs.Int("per_token", 0), 1);
      EXPECT_EQ(n.input(10).valid(), w.dtype() == ir::DType::kU4);
    }
    EXPECT_LE(sum / weights, bits);
    EXPECT_GT(sum / weights, bits - 0.5);
    const auto told =
        std::ranges::count_if(optimized->notes, [](const auto& n) { return n.ends_with("scales not counted"); });
    EXPECT_EQ(told, bits > 4 ? 1 : 0);
    const double near = Cosine((*want)[0], RunModel(optimized->graph, inputs, kernels::BestArch(), 1)[0]);
    EXPECT_GT(near, before) << bits;
    before = near;
  }
  EXPECT_GT(before, 0.999);
}

TEST(MixedBits, OtherMeansAreRefused) {
  for (const double bits : {3.9, 8.1, std::nan("")}) {
    OptimizeOptions options;
    options.recipe = "weights4", options.bits = bits;
    const auto refused = Optimize(Bert(), options);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message.find("bits on the mean: use 4 to 8"), std::string::npos)
        << refused.error().message;
  }
}

TEST(MixedBits, WhereThereIsNothingOfFourBitsTheFlagIsRefused) {
  const auto said = [](OptimizeOptions options) {
    options.bits = 5;
    const auto refused = Optimize(Bert(), options);
    return refused ? std::string() : refused.error().message;
  };
  OptimizeOptions options;
  for (const char* recipe : {"float", "dynamic", "weights8", "quantized"}) {
    options.recipe = recipe;
    EXPECT_EQ(said(options),
              "bits: there are no weights of 4 bits; leave it out, or use the recipes dynamic4 and weights4");
  }
  options.recipe = "weights4", options.pass_options["weights4"]["bits"] = 6.0;
  EXPECT_EQ(said(options), "bits: the option bits of the pass weights4 says the same; give one of them");
  options = {};
  options.pipeline = *passes::PipelineOfRecipe("weights4");
  EXPECT_EQ(said(options),
            "bits: it goes with a recipe; in a pipeline of your own set the option bits of the pass weights4");
}

TEST(MixedBits, TheFlagIsTheOptionOfThePass) {
  OptimizeOptions flag, pass;
  flag.recipe = pass.recipe = "weights4";
  flag.bits = 5, pass.pass_options["weights4"]["bits"] = 5.0;
  const auto a = Optimize(Bert(), flag), b = Optimize(Bert(), pass);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(passes::PipelineToJson(a->pipeline), passes::PipelineToJson(b->pipeline));
  EXPECT_EQ(*ir::onnx::WriteBytes(a->graph), *ir::onnx::WriteBytes(b->graph));
}

// Squared error of one block of a column by its own range: 15 steps, zero among them.
double ErrorOfRange(const std::vector<double>& w) {
  const double lo = std::min(0.0, *std::ranges::min_element(w)), hi = std::max(0.0, *std::ranges::max_element(w));
  const double scale = hi > lo ? (hi - lo) / 15 : 1, zero = std::nearbyint(-lo / scale);
  double error = 0;
  for (const double x : w) {
    const double code = std::clamp(std::nearbyint(x / scale) + zero, 0.0, 15.0) - zero;
    error += (x - code * scale) * (x - code * scale);
  }
  return error;
}

// Each block of 4 bits is nearer to its weights than its range makes it, or as near, also where numbers are all zero, tiny, huge, on
// one side, or fewer than a block or a vector.
TEST(Weights4, ScalesAreSearched) {
  constexpr int64_t kDepth = 105, kWidth = 37, kBlock = 32;
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  Tensor w = Tensor::Empty(ir::DType::kF32, {kDepth, kWidth}), one = Tensor::Zeros(ir::DType::kF32, {kDepth, kDepth});
  for (int64_t i = 0; i < w.size(); ++i) {
    float& x = w.mutable_as<float>()[static_cast<size_t>(i)];
    x = normal(rng);
    switch (i % kWidth) {
      case 3:
        x = 0.0f;
        break;
      case 7:
        x *= 1e-40f;
        break;
      case 11:
        x *= 1e36f;
        break;
      case 13:
        x = std::fabs(x) + 5.0f;
        break;
      case 36:
        x = i / kWidth % kBlock == 4 ? 50.0f : x;
        break;
      default:
        break;
    }
  }
  for (int64_t i = 0; i < kDepth; ++i) one.mutable_as<float>()[static_cast<size_t>(i * kDepth + i)] = 1.0f;
  Graph g;
  g.info.opsets[""] = 18;
  const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{kDepth, kDepth}});
  g.AddOutput("y", g.node(g.AddNode(ir::Op::kMatMul, {x, g.AddConstant(w)}, 1, {}, "product")).output());
  OptimizeOptions options;
  options.recipe = "weights4";
  auto optimized = Optimize(g, options);
  ASSERT_TRUE(optimized.has_value()) << optimized.error().message;
  auto y = ir::Interpret(optimized->graph, {{"x", one}});  // the weights as they are read
  ASSERT_TRUE(y.has_value());
  double searched = 0, of_range = 0;
  for (int64_t n = 0; n < kWidth; ++n) {
    for (int64_t begin = 0; begin < kDepth; begin += kBlock) {
      std::vector<double> block;
      double error = 0;
      for (int64_t i = begin; i < std::min(kDepth, begin + kBlock); ++i) {
        block.push_back(w.GetDouble(i * kWidth + n));
        error += std::pow(block.back() - (*y)[0].GetDouble(i * kWidth + n), 2);
      }
      const double bound = ErrorOfRange(block);
      EXPECT_TRUE(std::isfinite(error)) << n;
      if (n != 7) {
        EXPECT_LE(error, bound * 1.0001 + 1e-12) << "column " << n << " from " << begin;
      }
      if (n != 11 && n != 36) searched += error, of_range += bound;  // those would be all of it
    }
  }
  EXPECT_LT(searched, 0.93 * of_range);
  EXPECT_GT(searched, 0.5 * of_range) << "4 bits cannot be as near as that";
}

// With data the errors of weights cancel where it has its large directions. Two Linears of one input, k no multiple of a block, and rows
// that the data did not hold.
TEST(Weights4, DataFitsTheCodes) {
  constexpr int64_t kDepth = 150, kWidth = 40;
  std::mt19937 rng(9);
  std::normal_distribution<float> normal;
  const auto random = [&](ir::Shape shape) {
    Tensor t = Tensor::Empty(ir::DType::kF32, std::move(shape));
    for (float& x : t.mutable_as<float>()) x = normal(rng);
    return t;
  };
  const Tensor mix = random({6, kDepth});
  const auto batch = [&](int64_t rows) {
    Tensor x = random({rows, kDepth}), common = random({rows, 6});
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < kDepth; ++i) {
        float& v = x.mutable_as<float>()[static_cast<size_t>(r * kDepth + i)];
        v *= 0.3f;
        for (int64_t c = 0; c < 6; ++c)
          v += static_cast<float>(common.GetDouble(r * 6 + c) * mix.GetDouble(c * kDepth + i));
      }
    }
    return x;
  };
  Graph g;
  g.info.opsets[""] = 18;
  const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{ir::Dim::Symbol("s"), kDepth}});
  for (const char* name : {"a", "b"}) {
    const ir::ValueId w = g.AddConstant(random({kDepth, kWidth}), std::string("w_") + name);
    g.AddOutput(name, g.node(g.AddNode(ir::Op::kMatMul, {x, w}, 1, {}, name)).output());
  }
  const Tensor unseen = batch(200);
  auto want = ir::Interpret(g, {{"x", unseen}});
  ASSERT_TRUE(want.has_value());
  const auto error = [&](bool with_data) {
    auto data = quant::InMemoryData({{{"x", batch(300)}}, {{"x", batch(400)}}}, quant::InputsOf(g));
    OptimizeOptions options;
    options.recipe = "weights4";
    options.data = with_data ? data.get() : nullptr;
    auto optimized = Optimize(g, options);
    EXPECT_TRUE(optimized.has_value()) << optimized.error().message;
    EXPECT_EQ(optimized->data.empty(), !with_data);
    EXPECT_EQ(CountOf(optimized->graph, ir::Op::kLinearBlocked), 2);
    auto got = ir::Interpret(optimized->graph, {{"x", unseen}});
    double sum = 0;
    for (size_t o = 0; o < 2; ++o) {
      for (int64_t i = 0; i < (*want)[o].size(); ++i)
        sum += std::pow((*want)[o].GetDouble(i) - (*got)[o].GetDouble(i), 2);
    }
    return sum;
  };
  const double nearest = error(false), fitted = error(true);
  EXPECT_LT(fitted, 0.25 * nearest);
  EXPECT_GT(fitted, 0.0);
  quant::Calibration ranges;
  OptimizeOptions options;
  options.recipe = "weights4", options.calibration = &ranges;
  auto refused = Optimize(g, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "a .calib file holds ranges; weights4 fits weights to the data itself, so give that, or a file of "
            "octavo.calibrate(moments=True), or nothing");
}

// One Linear of every storage: what the kernels give does not depend on the ISA or on threads.
TEST(WeightsBits, EqualOnEveryArchAndThreadCount) {
  Graph g;
  g.info.opsets[""] = 18;
  Tensor w = Tensor::Empty(ir::DType::kF32, {200, 330});
  for (size_t i = 0; i < w.mutable_as<float>().size(); ++i) {
    w.mutable_as<float>()[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 20) - 2048) * 1e-3f;
  }
  const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{ir::Dim::Symbol("s"), 200}});
  g.AddOutput("y", g.node(g.AddNode(ir::Op::kMatMul, {x, g.AddConstant(w)}, 1, {}, "product")).output());
  for (const char* recipe : {"weights4", "weights8", "dynamic4"}) {
    OptimizeOptions options;
    options.recipe = recipe;
    auto optimized = Optimize(g, options);
    ASSERT_TRUE(optimized.has_value()) << optimized.error().message;
    for (int64_t rows : {1, 7, 130}) {
      Tensor in = Tensor::Empty(ir::DType::kF32, {rows, 200});
      for (size_t i = 0; i < in.mutable_as<float>().size(); ++i)
        in.mutable_as<float>()[i] = std::sin(static_cast<float>(i));
      const ir::TensorMap inputs{{"x", in}};
      const Tensor want = RunModel(optimized->graph, inputs, kernels::Arch::kScalar, 1)[0];
      for (kernels::Arch arch : kernels::SupportedArchs()) {
        for (int threads : {1, 2}) {
          EXPECT_TRUE(want.SameBits(RunModel(optimized->graph, inputs, arch, threads)[0]))
              << Name(arch) << " " << threads;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::api
