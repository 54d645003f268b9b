// The canonical passes on the zoo. Outputs before and after must agree: to the bit, but for what `scale` is allowed.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <format>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "octavo/ir/interpret.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"
#include "octavo/passes/canonical/canonical.h"
#include "octavo/tests/unpacked.h"

namespace octavo::passes::canonical {
namespace {

namespace fs = std::filesystem;

// Scaling scores after instead of before the product: 2.2e-6 at worst over its 412 graphs.
constexpr double kScaleTolerance = 1e-5;
// Outputs of f16 graphs are below 4 in size: four units in the last place of f16 there.
constexpr double kWidenTolerance = 4 * 0x1p-9;

std::vector<fs::path> Models() {
  std::vector<fs::path> models;
  for (const auto& entry : fs::recursive_directory_iterator(tests::Unpacked() / "zoo")) {
    if (entry.path().extension() == ".onnx") models.push_back(entry.path());
  }
  std::sort(models.begin(), models.end());
  return models;
}

double WorstDifference(const ir::Tensor& a, const ir::Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return INFINITY;
  double worst = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.GetDouble(i), y = b.GetDouble(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    worst = std::max(worst, std::isnan(x - y) ? INFINITY : std::abs(x - y));
  }
  return worst;
}

struct Outcome {
  std::string problem;  // empty: as it should be
  bool read = false, ran = false, exact = false, scaled = false, widened = false;
  double milliseconds = 0;
  size_t nodes_before = 0, nodes_after = 0;
};

std::string SignatureOf(const Graph& g) {
  std::string s;
  for (ValueId v : g.inputs()) s += g.value(v).name + ":" + ToString(g.value(v).type) + " ";
  for (const ir::GraphOutput& o : g.outputs()) s += o.name + ":" + ToString(o.declared) + " ";
  return s;
}

void Compare(const Graph& before, const Graph& after, const fs::path& npz, Outcome& out) {
  const auto data = ir::ReadNpz(npz);
  if (!data) return;
  out.exact = true;
  for (const char* which : {"0/in/", "1/in/"}) {
    ir::TensorMap inputs;
    for (const auto& [name, tensor] : *data) {
      if (name.starts_with(which)) inputs[name.substr(5)] = tensor;
    }
    if (inputs.empty()) continue;
    const auto want = ir::Interpret(before, inputs), got = ir::Interpret(after, inputs);
    if (!want) return;
    out.ran = true;
    if (!got) {
      out.problem = "runs before, not after: " + got.error().message;
      return;
    }
    for (size_t i = 0; i < want->size(); ++i) {
      const double worst = WorstDifference((*want)[i], (*got)[i]);
      out.exact = out.exact && (*want)[i].SameBits((*got)[i]);
      if (worst > (out.widened ? kWidenTolerance : out.scaled ? kScaleTolerance : 0)) {
        out.problem = std::format("output {} differs by {}", before.outputs()[i].name, worst);
      }
    }
  }
}

Outcome Try(const fs::path& model) {
  Outcome out;
  auto graph = ir::onnx::ReadFile(model);
  if (!graph) return out;  // the importer's own test says why
  out.read = true;
  const Graph before = *graph;
  PassRun context;
  const auto start = std::chrono::steady_clock::now();
  const auto result = Canonicalize(*graph, context);
  out.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  out.nodes_before = before.node_count();
  out.nodes_after = graph->node_count();
  out.scaled = !context.log.empty();  // scale, scores, probabilities and widen tell what they did
  out.widened =
      std::any_of(context.log.begin(), context.log.end(), [](const std::string& s) { return s.starts_with("widen"); });
  if (!result) {
    out.problem = result.error().message;
    return out;
  }
  if (const auto legal = ir::VerifyStatus(*graph); !legal) out.problem = legal.error().message;
  if (SignatureOf(before) != SignatureOf(*graph)) out.problem = "inputs or outputs changed";
  Graph again = *graph;
  const auto second = Canonicalize(again, context);
  if (!second || *second) out.problem = "a second run changes the graph again";
  if (out.problem.empty()) Compare(before, *graph, fs::path(model).replace_extension(".npz"), out);
  return out;
}

TEST(CanonicalModels, MeaningIsKept) {
  size_t read = 0, ran = 0, exact = 0, nodes_before = 0, nodes_after = 0;
  double milliseconds = 0;
  const std::vector<fs::path> models = Models();
  ASSERT_EQ(models.size(), 412u);
  for (const fs::path& model : models) {
    const Outcome o = Try(model);
    EXPECT_EQ(o.problem, "") << model;
    read += o.read;
    ran += o.ran;
    exact += o.ran && o.exact;
    nodes_before += o.nodes_before;
    nodes_after += o.nodes_after;
    milliseconds += o.milliseconds;
  }
  std::printf("%zu models: %zu read, %zu run, %zu of these bit-equal after; %zu nodes became %zu in %.0f ms\n",
              models.size(), read, ran, exact, nodes_before, nodes_after, milliseconds);
  EXPECT_EQ(ran, models.size());
}

// The forms that the attention rules expect (passes/canonical/README.md), once per layer.
void ExpectAttention(const Graph& g, ValueId probabilities) {
  const auto from = [&g](ValueId v, Op op) -> const Node& {
    static const Node none;
    EXPECT_TRUE(g.IsFrom(v, op)) << "no " << ir::InfoOf(op).name << " makes " << g.value(v).name;
    return g.IsFrom(v, op) ? *g.Producer(v) : none;
  };
  const auto split = [&](ValueId v, const std::vector<int64_t>& perm) {
    const Node& t = from(v, Op::kTranspose);
    EXPECT_EQ(t.attrs.Ints("perm"), perm);
    const Node& r = from(t.input(0), Op::kReshape);
    ASSERT_NE(g.ConstantOf(r.input(1)), nullptr);
    EXPECT_EQ(g.ConstantOf(r.input(1))->ToInts(), (std::vector<int64_t>{0, 0, 12, 32}));
    const Node& bias = from(r.input(0), Op::kAdd);
    EXPECT_NE(g.ConstantOf(bias.input(1)), nullptr);
    EXPECT_NE(g.ConstantOf(from(bias.input(0), Op::kMatMul).input(1)), nullptr);
  };
  const Node& masked = from(from(probabilities, Op::kSoftmax).input(0), Op::kAdd);
  const Node& scaled = from(masked.input(0), Op::kMul);
  // sqrt(1/sqrt(32)) rounded to f32, times itself: within 2 ulp.
  EXPECT_NEAR(g.ConstantOf(scaled.input(1))->GetDouble(0), 1 / std::sqrt(32.0), 3e-8);
  const Node& scores = from(scaled.input(0), Op::kMatMul);
  split(scores.input(0), {0, 2, 1, 3});
  split(scores.input(1), {0, 2, 3, 1});
  EXPECT_EQ(ToString(*g.value(masked.input(1)).type.shape), "[batch,1,1,sequence]");
}

TEST(CanonicalModels, MiniLmHasOneFormFromThreeExporters) {
  const fs::path folder = fs::path(testing::TempDir()) / "octavo_canonical_minilm";
  fs::create_directories(folder);
  {  // weights of the right size and all different, as the graphs' own are not here
    std::vector<uint32_t> noise(90868376 / 4);
    uint32_t state = 1;
    for (uint32_t& n : noise) n = 0x3c000000u | ((state = state * 1664525u + 1013904223u) >> 8);
    std::ofstream(folder / "model.safetensors", std::ios::binary)
        .write(reinterpret_cast<const char*>(noise.data()), static_cast<std::streamsize>(noise.size() * 4));
  }
  for (const char* name : {"legacy-eager-opset17.onnx", "legacy-sdpa-opset17.onnx", "dynamo-sdpa-opset18.onnx"}) {
    SCOPED_TRACE(name);
    fs::copy_file(fs::path(OCTAVO_SOURCE_DIR) / "tests/data/minilm" / name, folder / name,
                  fs::copy_options::overwrite_existing);
    auto graph = ir::onnx::ReadFile(folder / name);
    ASSERT_TRUE(graph) << graph.error().message;
    PassRun context;
    const auto result = Canonicalize(*graph, context);
    ASSERT_TRUE(result) << result.error().message;
    std::map<Op, int> count;
    for (NodeId id : graph->NodesInOrder()) {
      const Node& n = graph->node(id);
      ++count[n.op];
      if (n.op == Op::kSoftmax) ExpectAttention(*graph, n.output());
    }
    EXPECT_EQ(count[Op::kSoftmax], 6);
    EXPECT_EQ(count[Op::kMatMul], 6 * 8);
    EXPECT_EQ(count[Op::kTranspose], 6 * 4);
    EXPECT_EQ(count[Op::kExpand] + count[Op::kGatherND] + count[Op::kAnd] + count[Op::kIdentity], 0);
  }
  fs::remove_all(folder);
}

TEST(CanonicalModels, LargeGraphsTakeLittleTime) {
  Graph g;
  ValueId x = g.AddInput("x", ir::Type{ir::DType::kF32, ir::SymShape{ir::Dim::Symbol("b"), ir::Dim::Symbol("s"), 12}});
  for (int layer = 0; layer < 1000; ++layer) {
    const auto op = [&g](Op o, std::vector<ValueId> in, ir::Attrs attrs = {}) {
      return g.node(g.AddNode(o, std::move(in), 1, std::move(attrs))).output();
    };
    const auto dim = [&](int64_t axis) {
      return op(Op::kGather, {op(Op::kShape, {x}), g.AddConstant(ir::Tensor::S64({1}, {axis}))});
    };
    const ValueId rest = g.AddConstant(ir::Tensor::S64({2}, {3, 4}));
    const ValueId split = op(Op::kReshape, {x, op(Op::kConcat, {dim(0), dim(1), rest}, {{"axis", int64_t{0}}})});
    const ValueId heads = op(Op::kTranspose, {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    const ValueId back = op(Op::kTranspose, {op(Op::kTanh, {heads})}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    x = op(Op::kReshape, {back, op(Op::kConcat, {dim(0), dim(1), g.AddConstant(ir::Tensor::S64({1}, {12}))},
                                   {{"axis", int64_t{0}}})});
  }
  g.AddOutput("y", x);
  ASSERT_GT(g.node_count(), 15000u);
  PassRun context;
  const auto start = std::chrono::steady_clock::now();
  const auto result = Canonicalize(g, context);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_TRUE(result) << result.error().message;
  std::printf("canonical form of 15,000 nodes in %.2f s\n", seconds);
  EXPECT_LT(seconds, 20) << "a pass is not near-linear";  // 1.3 s measured on a busy machine
}

}  // namespace
}  // namespace octavo::passes::canonical
