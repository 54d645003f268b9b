// A compiled model: kernels against the interpreter, plans for changing shapes, concurrent runs, and inputs that do not fit.
#include "octavo/runtime/model.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <format>
#include <random>
#include <thread>

#include "octavo/ir/interpret.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"

namespace octavo::runtime {
namespace {

using ir::Tensor;

std::filesystem::path BertPath() {
  return std::filesystem::path(OCTAVO_SOURCE_DIR) / "tests/data/float/bert.ts17.sdpa.onnx";
}

ir::Graph Bert() {
  auto graph = ir::onnx::ReadFile(BertPath());
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return std::move(*graph);
}

// Inputs of case `number` of the committed data.
ir::TensorMap Case(int number) {
  auto arrays = ir::ReadNpz(std::filesystem::path(BertPath()).replace_extension(".npz"));
  EXPECT_TRUE(arrays.has_value());
  ir::TensorMap inputs;
  const std::string prefix = std::to_string(number) + "/in/";
  for (const auto& [name, tensor] : *arrays) {
    if (name.starts_with(prefix)) inputs[name.substr(prefix.size())] = tensor;
  }
  return inputs;
}

double Worst(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (int64_t e = 0; e < a[i].size(); ++e) worst = std::max(worst, std::fabs(a[i].GetDouble(e) - b[i].GetDouble(e)));
  }
  return worst;
}

bool SameBits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].SameBits(b[i])) return false;
  }
  return a.size() == b.size();
}

TEST(Model, KernelsAgreeWithTheInterpreterForChangingShapes) {
  auto model = Model::Compile(Bert(), {.threads = 2});
  auto plain = Model::Compile(Bert(), {.threads = 1, .kernels = false});
  ASSERT_TRUE(model.has_value() && plain.has_value());
  for (int round = 0; round < 3; ++round) {
    for (int number : {0, 1}) {
      const ir::TensorMap inputs = Case(number);
      auto got = model->Run(inputs);
      auto want = plain->Run(inputs);
      ASSERT_TRUE(got.has_value() && want.has_value());
      EXPECT_LT(Worst(*want, *got), 2e-5);  // oneDNN sums in another order; values are of size 1
      EXPECT_GT(Worst(*want, std::vector<Tensor>{Tensor::Zeros(ir::DType::kF32, (*want)[0].shape())}), 0.1);
    }
  }
  EXPECT_GT(model->arena_bytes(), 0u);
}

// One arena a shape, as it was, held 60 of them: MiniLM at 60 lengths 1.8 GB instead of 0.3.
TEST(Model, ManyShapesHoldTheMemoryOfTheLargest) {
  ir::Graph g;
  g.info.opsets[""] = 18;
  ir::ValueId v = g.AddInput("x", {ir::DType::kF32, ir::SymShape{ir::Dim::Symbol("n"), 512}});
  const ir::ValueId w = g.AddConstant(Tensor::Zeros(ir::DType::kF32, {512, 512}));
  for (int i = 0; i < 3; ++i) {
    v = g.node(g.AddNode(ir::Op::kMatMul, {v, w}, 1)).output();
    v = g.node(g.AddNode(ir::Op::kSoftmax, {v}, 1, {{"axis", int64_t{-1}}})).output();
  }
  g.AddOutput("y", v);
  const auto model = Model::Compile(std::move(g), {.threads = 1});
  ASSERT_TRUE(model.has_value());
  constexpr int64_t kMost = 160;
  for (int round = 0; round < 2; ++round) {  // the first plans, the second runs in arenas
    for (int64_t n = 100; n <= kMost; ++n) {
      ASSERT_TRUE(model->Run({{"x", Tensor::Zeros(ir::DType::kF32, {n, 512})}}).has_value());
    }
  }
  const size_t tensor = kMost * 512 * 4;
  EXPECT_GE(model->idle_bytes(), 2 * tensor);  // an arena of two, and what the output was in
  EXPECT_LE(model->idle_bytes(), 4 * tensor);
}

TEST(Model, ALongRunCanBeInterrupted) {
  ir::Graph g;
  g.info.opsets[""] = 18;
  ir::ValueId v = g.AddInput("x", {ir::DType::kF32, ir::SymShape{256, 256}});
  const ir::ValueId w = g.AddConstant(Tensor::Zeros(ir::DType::kF32, {256, 256}));
  constexpr int kSteps = 2000;  // about a millisecond each; a run asks after a tenth of a second
  for (int i = 0; i < kSteps; ++i)
    v = g.node(g.AddNode(ir::Op::kMatMul, {v, w}, 1, {}, "m" + std::to_string(i))).output();
  g.AddOutput("y", v);
  int asked = 0;
  const auto model = Model::Compile(std::move(g), {.threads = 1, .interrupted = [&] { return ++asked == 1; }});
  ASSERT_TRUE(model.has_value());
  const auto run = [&] { return model->Run({{"x", Tensor::Zeros(ir::DType::kF32, {256, 256})}}); };
  const auto result = run();
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("interrupted before node 'm"), std::string::npos) << result.error().message;
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(run().has_value());
}

ir::Graph LongAttention(bool flash) {
  ir::Graph g;
  const auto input = [&](const char* name, int64_t rows) {
    return g.AddInput(name, {ir::DType::kF32, ir::SymShape{1, 2, rows, 16}});
  };
  const ir::ValueId q = input("q", 40), k = input("k", 3000), v = input("v", 3000);
  const ir::NodeId o = g.AddNode(ir::Op::kSdpa, {q, k, v}, 1,
                                 {{"num_heads", int64_t{2}},
                                  {"kv_num_heads", int64_t{2}},
                                  {"head_dim", int64_t{16}},
                                  {"v_head_dim", int64_t{16}},
                                  {"scale", 0.25f},
                                  {"window_right", int64_t{0}},
                                  {"bottom_right", int64_t{1}},
                                  {"flash", int64_t{flash ? 1 : 0}}});
  g.AddOutput("y", g.node(o).output());
  return g;
}

// Asked for, the kernel sums over tiles: near the exact mode, not its bits, and the same for every number of threads.
// Wider than one call of oneDNN: the columns of the weights go in parts.
TEST(Model, WideProductsAreNearTheInterpreterForEveryNumberOfThreads) {
  for (const int64_t columns : {512, 513, 1100}) {
    SCOPED_TRACE(columns);
    std::mt19937 gen(11);
    const auto random = [&](ir::Shape shape) {
      Tensor t = Tensor::Empty(ir::DType::kF32, std::move(shape));
      for (float& v : t.mutable_as<float>()) v = std::normal_distribution<float>()(gen);
      return t;
    };
    ir::Graph g;
    g.info.opsets[""] = 18;
    const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{2, 70, 20}});
    const ir::ValueId w = g.AddConstant(random({20, columns}));
    g.AddOutput("y", g.node(g.AddNode(ir::Op::kMatMul, {x, w}, 1, {}, "product")).output());
    const ir::TensorMap inputs = {{"x", random({2, 70, 20})}};
    const auto want = ir::Interpret(g, inputs);
    const auto one = Model::Compile(g, {.threads = 1}), three = Model::Compile(g, {.threads = 3});
    ASSERT_TRUE(want && one && three);
    EXPECT_EQ(one->KernelOfEachStep()[0], "matmul_f32");
    const auto a = one->Run(inputs), b = three->Run(inputs);
    ASSERT_TRUE(a && b);
    EXPECT_TRUE((*a)[0].SameBits((*b)[0]));
    double error = 0, signal = 0;
    for (int64_t i = 0; i < (*want)[0].size(); ++i) {
      const double exact = (*want)[0].GetDouble(i);
      error += std::pow((*a)[0].GetDouble(i) - exact, 2), signal += exact * exact;
    }
    EXPECT_LT(error, 1e-12 * signal);  // 120 dB: other orders of float sums
  }
}

TEST(Model, FlashAttentionIsNearTheExactMode) {
  ir::TensorMap inputs;
  uint32_t state = 1;
  for (const auto& [name, rows] : {std::pair{"q", 40}, {"k", 3000}, {"v", 3000}}) {
    inputs[name] = Tensor::Zeros(ir::DType::kF32, {1, 2, rows, 16});
    for (float& x : inputs[name].mutable_as<float>())
      x = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / 8388608.0f - 1.0f;
  }
  auto exact = Model::Compile(LongAttention(false), {.threads = 1});
  ASSERT_TRUE(exact.has_value());
  const auto want = exact->Run(inputs);
  ASSERT_TRUE(want.has_value());
  std::vector<Tensor> first;
  for (int threads : {1, 2, 8}) {
    auto model = Model::Compile(LongAttention(true), {.threads = threads});
    ASSERT_TRUE(model.has_value());
    const auto got = model->Run(inputs);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    EXPECT_LT(Worst(*want, *got), 6000 * 0x1p-24);  // two chains of 3000 fma; values are below 1
    EXPECT_FALSE(SameBits(*want, *got));
    if (first.empty()) first = *got;
    EXPECT_TRUE(SameBits(first, *got)) << threads << " threads";
  }
  EXPECT_GT(Worst(*want, std::vector<Tensor>{Tensor::Zeros(ir::DType::kF32, (*want)[0].shape())}), 0.02);
}

// Scores within 1 of 0 and V within 0 and 1: exp(-2) <= e, so l >= 255 e^-2 k_len at its tile's maximum, and the bound of
// kernels/sdpa/sdpa.h is e^2 / 510 for every output.
ir::Graph LongInt8Attention(bool flash) {
  ir::Graph g;
  const auto input = [&](const char* name, int64_t rows, ir::DType type) {
    return g.AddInput(name, {type, ir::SymShape{1, 2, rows, 16}});
  };
  std::vector<ir::ValueId> in = {input("q", 40, ir::DType::kS8), input("k", 3000, ir::DType::kS8),
                                 input("v", 3000, ir::DType::kU8)};
  const Tensor signed_zero = Tensor::Zeros(ir::DType::kS8, {}), zero = Tensor::Zeros(ir::DType::kU8, {});
  for (const float scale : {1 / 128.0f, 1 / 128.0f, 1 / 255.0f, 1 / 255.0f}) {
    in.push_back(g.AddConstant(Tensor::ScalarF32(scale)));
    in.push_back(g.AddConstant(in.size() < 7 ? signed_zero : zero));
  }
  const ir::NodeId o = g.AddNode(ir::Op::kQuantizedSdpa, std::move(in), 1,
                                 {{"num_heads", int64_t{2}},
                                  {"kv_num_heads", int64_t{2}},
                                  {"head_dim", int64_t{16}},
                                  {"v_head_dim", int64_t{16}},
                                  {"scale", 1 / 16.0f},
                                  {"window_right", int64_t{0}},
                                  {"bottom_right", int64_t{1}},
                                  {"flash", int64_t{flash ? 1 : 0}}});
  g.AddOutput("y", g.node(o).output());
  return g;
}

TEST(Model, Int8FlashAttentionIsNearItsBody) {
  ir::TensorMap inputs;
  uint32_t state = 1;
  for (const auto& [name, rows] : {std::pair{"q", 40}, {"k", 3000}, {"v", 3000}}) {
    inputs[name] = Tensor::Zeros(*name == 'v' ? ir::DType::kU8 : ir::DType::kS8, {1, 2, rows, 16});
    for (int64_t i = 0; i < inputs[name].size(); ++i) {
      reinterpret_cast<uint8_t*>(inputs[name].mutable_data())[i] =
          static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
    }
  }
  auto body = Model::Compile(LongInt8Attention(true), {.threads = 1, .kernels = false});
  auto exact = Model::Compile(LongInt8Attention(false), {.threads = 1});
  ASSERT_TRUE(body.has_value() && exact.has_value());
  const auto want = body->Run(inputs), no_codes = exact->Run(inputs);
  ASSERT_TRUE(want.has_value() && no_codes.has_value());
  const double bound = std::exp(2.0) / 510 + 0x1p-16;
  std::vector<Tensor> first;
  for (int threads : {1, 2, 8}) {
    auto model = Model::Compile(LongInt8Attention(true), {.threads = threads});
    ASSERT_TRUE(model.has_value());
    const auto got = model->Run(inputs);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    EXPECT_LT(Worst(*want, *got), bound);
    if (first.empty()) first = *got;
    EXPECT_TRUE(SameBits(first, *got)) << threads << " threads";
  }
  EXPECT_GT(Worst(*want, *no_codes), bound);  // 3000 keys at scale 1/255
}

// The scale of codes that were quantized at run time is read by the product, long after the DequantizeLinear.
TEST(Model, APlanKeepsScalesUntilTheProductHasReadThem) {
  ir::Graph g;
  g.info.opsets[""] = 18;
  const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{2, 4}});
  const int8_t codes[12] = {70, 27, 2, -47, -39, -92, -85, -97, -65, 62, 29, 82};
  const ir::ValueId w = g.AddConstant(Tensor::Of<int8_t>(ir::DType::kS8, {4, 3}, codes));
  const auto node = [&](ir::Op op, std::vector<ir::ValueId> inputs, size_t outputs = 1) {
    return g.node(g.AddNode(op, std::move(inputs), outputs, {}, std::format("n{}", g.node_count()))).outputs;
  };
  const ir::ValueId weights = node(ir::Op::kDequantizeLinear, {w, g.AddConstant(Tensor::ScalarF32(0.01f))})[0];
  const auto dequantized = [&](ir::ValueId v) {
    return node(ir::Op::kDequantizeLinear, node(ir::Op::kDynamicQuantizeLinear, {v}, 3))[0];
  };
  const ir::ValueId first = dequantized(x);
  const ir::ValueId second = dequantized(node(ir::Op::kMul, {x, g.AddConstant(Tensor::ScalarF32(7.0f))})[0]);
  const ir::ValueId sum =
      node(ir::Op::kAdd, {node(ir::Op::kMatMul, {first, weights})[0], node(ir::Op::kMatMul, {second, weights})[0]})[0];
  g.AddOutput("sum", sum);
  const ir::TensorMap inputs{{"x", Tensor::F32({2, 4}, {1, -2, 3, 0.5f, -1, 2.5f, 0.25f, 4})}};
  const auto want = ir::Interpret(g, inputs);
  ASSERT_TRUE(want.has_value()) << want.error().message;
  const auto model = Model::Compile(g, {.threads = 1});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  for (int run = 0; run < 3; ++run) {
    const auto got = model->Run(inputs);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    EXPECT_TRUE(SameBits(*want, *got)) << "run " << run;
  }
}

TEST(Model, ConcurrentRunsGiveTheBitsOfOne) {
  auto model = Model::Compile(Bert(), {.threads = 2});
  ASSERT_TRUE(model.has_value());
  std::vector<std::vector<Tensor>> want;
  for (int number : {0, 1}) want.push_back(*model->Run(Case(number)));
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const ir::TensorMap inputs = Case(t % 2);
      for (int i = 0; i < 5; ++i) {
        auto got = model->Run(inputs);
        if (!got || !SameBits(want[static_cast<size_t>(t % 2)], *got)) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Model, ProfileNamesKernelsAndSources) {
  auto model = Model::Compile(Bert(), {.threads = 1});
  ASSERT_TRUE(model.has_value());
  Profile profile;
  ASSERT_TRUE(model->Run(Case(0), &profile).has_value());
  ASSERT_FALSE(profile.events.empty());
  const bool has_source = std::any_of(profile.events.begin(), profile.events.end(), [](const ProfileEvent& e) {
    return !e.origin.empty() && e.kernel.starts_with("matmul_f32");
  });
  EXPECT_TRUE(has_source);
  EXPECT_NE(ToChromeTrace(profile).find("\"traceEvents\""), std::string::npos);
}

// A step that has a kernel leaves some shapes to the interpreter; the profile says which of the two ran.
TEST(Model, ProfileNamesTheInterpreterWhereItRan) {
  ir::Graph g;
  g.info.opsets[""] = 18;
  const ir::SymShape any(2);
  const ir::ValueId a = g.AddInput("a", {ir::DType::kF32, any}), b = g.AddInput("b", {ir::DType::kF32, any});
  g.AddOutput("y", g.node(g.AddNode(ir::Op::kAdd, {a, b}, 1, {}, "add")).output());
  auto model = Model::Compile(g, {.arch = kernels::Arch::kScalar, .threads = 1});
  ASSERT_TRUE(model.has_value());
  const auto kernel = [&](const ir::Shape& left, const ir::Shape& right) {
    Profile profile;
    const ir::TensorMap in = {{"a", Tensor::Zeros(ir::DType::kF32, left)},
                              {"b", Tensor::Zeros(ir::DType::kF32, right)}};
    EXPECT_TRUE(model->Run(in, &profile));
    return profile.events[0].kernel;
  };
  EXPECT_EQ(kernel({4, 3}, {4, 3}), "Add scalar");
  EXPECT_EQ(kernel({4, 1}, {1, 3}), "interpreter Add");
  EXPECT_EQ(kernel({4, 3}, {1, 3}), "Add scalar");
}

std::string Refusal(const ir::TensorMap& inputs) {
  auto model = Model::Compile(Bert(), {.threads = 1});
  EXPECT_TRUE(model.has_value());
  auto got = model->Run(inputs);
  EXPECT_FALSE(got.has_value());
  return got ? "" : got.error().message;
}

TEST(Model, InputsThatDoNotFitAreNamed) {
  ir::TensorMap inputs = Case(0);
  ASSERT_FALSE(inputs.empty());
  const std::string name = inputs.begin()->first;
  ir::TensorMap missing = inputs;
  missing.erase(name);
  EXPECT_NE(Refusal(missing).find(name), std::string::npos);
  ir::TensorMap other = inputs;
  other["nobody"] = Tensor::ScalarF32(1);
  EXPECT_NE(Refusal(other).find("'nobody'"), std::string::npos);
  ir::TensorMap dtype = inputs;
  dtype[name] = Tensor::Zeros(ir::DType::kF32, inputs[name].shape());
  EXPECT_NE(Refusal(dtype).find("dtype f32"), std::string::npos);
  ir::TensorMap rank = inputs;
  rank[name] = Tensor::Zeros(ir::DType::kS64, {3});
  EXPECT_NE(Refusal(rank).find("shape [3]"), std::string::npos);
}

// A file may say anything of octavo's own ops. Kernels read by the types that they expect; half as many bytes are an error.
TEST(Model, OperandsOfAnotherTypeAreRefusedAndNotRead) {
  using ir::DType;
  constexpr int64_t kHeads = 2, kDim = 64, kRows = 300;
  const ir::Shape shape = {1, kHeads, kRows, kDim};
  for (size_t odd = 0; odd < 5; ++odd) {  // q, k, v, mask, keep
    ir::Graph g;
    ir::TensorMap inputs;
    std::vector<ir::ValueId> in;
    for (size_t i = 0; i < 5; ++i) {
      const DType type = i == odd ? (i == 4 ? DType::kF32 : DType::kF16) : i == 4 ? DType::kBool : DType::kF32;
      const ir::Shape size = i < 3 ? shape : ir::Shape{1, 1, 1, kRows};
      const std::string name = "x" + std::to_string(i);
      in.push_back(g.AddInput(name, {type, ir::SymShape(size.begin(), size.end())}));
      inputs[name] = Tensor::Zeros(type, size);
    }
    const ir::Attrs attrs{{"num_heads", kHeads}, {"kv_num_heads", kHeads}, {"head_dim", kDim}, {"v_head_dim", kDim}};
    g.AddOutput("y", g.node(g.AddNode(ir::Op::kSdpa, in, 1, attrs, "attention")).output());
    auto model = Model::Compile(std::move(g), {.threads = 1});
    if (!model) continue;  // inference names it
    EXPECT_EQ(model->KernelOfEachStep()[0].find("sdpa_f32"), std::string::npos) << odd;
    auto got = model->Run(inputs);
    EXPECT_FALSE(got.has_value()) << odd;
  }
}

TEST(Model, UnknownOpIsNamedWhenCompiling) {
  ir::Graph g;
  const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{2}});
  g.AddOutput("y", g.node(g.AddOpaque("my.domain", "Mystery", {x}, 1, {}, "the_node")).output());
  auto model = Model::Compile(std::move(g));
  ASSERT_FALSE(model.has_value());
  EXPECT_NE(model.error().message.find("my.domain::Mystery"), std::string::npos);
  EXPECT_NE(model.error().message.find("'the_node'"), std::string::npos);
}

}  // namespace
}  // namespace octavo::runtime
