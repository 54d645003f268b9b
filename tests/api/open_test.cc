// Models as programs open them: fused, with the numbers of the graph as it stands; files that octavo wrote stay.
#include "octavo/api/open.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "octavo/api/optimize.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/text.h"
#include "octavo/passes/vendor/vendor.h"
#include "octavo/quant/error.h"
#include "octavo/runtime/model.h"

namespace octavo::api {
namespace {

namespace fs = std::filesystem;
using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;

const fs::path kModels = fs::path(OCTAVO_SOURCE_DIR) / "tests/data/models";

Graph Read(const fs::path& file) {
  auto g = ir::onnx::ReadFile(file);
  EXPECT_TRUE(g) << g.error().message;
  return g ? *g : Graph();
}

std::vector<Tensor> OutputsOf(const Graph& g, const fs::path& file) {
  const auto arrays = ir::ReadNpz(fs::path(file).replace_extension(".npz"));
  EXPECT_TRUE(arrays) << arrays.error().message;
  ir::TensorMap inputs;
  for (ir::ValueId v : g.inputs()) {
    const auto it = arrays->find("0/in/" + g.value(v).name);
    if (it != arrays->end()) inputs[g.value(v).name] = it->second;
  }
  auto model = runtime::Model::Compile(g, {.threads = 1});
  EXPECT_TRUE(model) << model.error().message;
  if (!model) return {};
  auto outputs = model->Run(inputs);
  EXPECT_TRUE(outputs) << outputs.error().message;
  return outputs ? *outputs : std::vector<Tensor>();
}

std::set<Op> OpsOf(const Graph& g) {
  std::set<Op> ops;
  for (ir::NodeId id : g.NodesInOrder()) ops.insert(g.node(id).op);
  return ops;
}

// What adds floats in the order of a library or of a CPU.
bool HasFloatProduct(const std::set<Op>& ops) {
  for (const Op op : {Op::kMatMul, Op::kGemm, Op::kSdpa, Op::kConv, Op::kEinsum, Op::kLinearBlocked}) {
    if (ops.contains(op)) return true;
  }
  return false;
}

constexpr double kExact = 200;
// The least SQNR of an output, in dB; kExact: every bit.
double Agreement(const std::vector<Tensor>& want, const std::vector<Tensor>& got) {
  EXPECT_EQ(want.size(), got.size());
  double least = kExact;
  for (size_t i = 0; i < want.size(); ++i) {
    quant::ErrorStats stats;
    EXPECT_TRUE(stats.Add(want[i], got[i]));
    EXPECT_EQ(stats.mismatches(), 0);
    EXPECT_GT(stats.count(), 0);
    if (!stats.exact()) least = std::min(least, stats.SqnrDb());
  }
  return least;
}

TEST(FuseToRun, KeepsTheNumbersOfEveryModel) {
  int fused = 0, quantized = 0, exact = 0, other_orders = 0;
  for (const auto& e : fs::directory_iterator(kModels)) {
    if (e.path().extension() != ".onnx") continue;
    SCOPED_TRACE(e.path().filename().string());
    const Graph g = Read(e.path());
    const bool codes = passes::vendor::IsQuantized(g);
    const Opened opened = FuseToRun(g);
    const std::set<Op> ops = OpsOf(opened.graph);
    fused += ops.contains(Op::kSdpa) || ops.contains(Op::kQuantizedSdpa);
    quantized += codes;
    const double db = Agreement(OutputsOf(g, e.path()), OutputsOf(opened.graph, e.path()));
    const std::string name = e.path().stem().string();
    const bool other_order = kernels::BestArch() == kernels::Arch::kAmx && name.find("fp8") != std::string::npos;
    if (codes && !HasFloatProduct(ops)) {
      EXPECT_TRUE(db == kExact || other_order) << db;
      ++(other_order ? other_orders : exact);
    }
    // Other orders of float sums err by about 2^-22. A file of 16-bit floats rounds to 2^-11 at every node; fused it stays f32
    // between them.
    EXPECT_GT(db, name.find("fp16") == std::string::npos ? 120 : 60);
  }
  EXPECT_GE(exact + other_orders, 4);
  EXPECT_LE(other_orders, 1);
  EXPECT_GE(fused, 20);
  EXPECT_GE(quantized, 5);
}

TEST(FuseToRun, ANodeOfCodesBecomesAKernelOfCodes) {
  const Graph g = Read(kModels / "sdpa_plain.ts17.ort-qdq-u8s8.onnx");
  EXPECT_GT(passes::vendor::CountLooseProducts(g), 0);
  const Opened opened = FuseToRun(g);
  EXPECT_EQ(passes::vendor::CountLooseProducts(opened.graph), 0);
  EXPECT_TRUE(OpsOf(opened.graph).contains(Op::kQuantizedSdpa));
  EXPECT_EQ(opened.note, "");
}

// x86 has no products of 16 bits: they would run in plain loops.
TEST(FuseToRun, ProductsOfSixteenBitsRunInF32) {
  const Graph half = Read(kModels / "b_fp16.dyn18.onnx");
  OptimizeOptions options;
  options.recipe = "float";
  auto file = Optimize(half, options);
  ASSERT_TRUE(file) << file.error().message;
  for (const Graph* g : {&half, static_cast<const Graph*>(&file->graph)}) {
    int products = 0;
    const Opened opened = FuseToRun(*g);
    EXPECT_EQ(opened.note, "");
    for (const ir::NodeId id : opened.graph.NodesInOrder()) {
      if (opened.graph.node(id).op != Op::kMatMul) continue;
      EXPECT_EQ(opened.graph.value(opened.graph.node(id).output()).type.dtype, ir::DType::kF32);
      ++products;
    }
    EXPECT_GT(products, 0);
    for (size_t i = 0; i < g->outputs().size(); ++i) {
      EXPECT_EQ(opened.graph.value(opened.graph.outputs()[i].value).type.dtype,
                g->value(g->outputs()[i].value).type.dtype);
    }
  }
}

TEST(FuseToRun, AFileOfOctavoStaysAsItIs) {
  auto optimized = Optimize(Read(kModels / "sdpa_plain.ts17.ort-qdq-u8s8.onnx"), {});
  ASSERT_TRUE(optimized) << optimized.error().message;
  const std::string before = ir::ToText(optimized->graph);
  EXPECT_EQ(ir::ToText(FuseToRun(optimized->graph).graph), before);
}

// tests/data/old/README.md
TEST(OldFiles, OpsAreKnownByTheirOldNamesAndRunWithTheSameBits) {
  std::set<Op> all;
  for (const char* name : {"bert.ts17.sdpa.nncf.onnx", "sdpa_plain.ts17.fp8.onnx"}) {
    SCOPED_TRACE(name);
    const Graph old = Read(kModels.parent_path() / "old" / name);
    auto today = Optimize(Read(kModels / name), {});
    ASSERT_TRUE(today) << today.error().message;
    EXPECT_EQ(OpsOf(old), OpsOf(today->graph));
    EXPECT_EQ(Agreement(OutputsOf(today->graph, kModels / name), OutputsOf(old, kModels / name)), kExact);
    all.merge(OpsOf(old));
  }
  for (const Op op : {Op::kQuantizedLinear, Op::kQuantizedQkv, Op::kQuantizedSdpa}) EXPECT_TRUE(all.contains(op));
  EXPECT_FALSE(all.contains(Op::kOpaque));
}

// x * 0.5 * (1 + Erf(x / sqrt 2)) of x [2,3].
Graph DecomposedGelu() {
  Graph g;
  g.info.opsets[""] = 18;
  const auto node = [&](Op op, std::vector<ir::ValueId> in) {
    return g.node(g.AddNode(op, std::move(in), 1, {}, "n" + std::to_string(g.node_count()))).output();
  };
  const auto real = [&](float v) { return g.AddConstant(Tensor::ScalarF32(v)); };
  const ir::ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{2, 3}});
  const ir::ValueId erf = node(Op::kErf, {node(Op::kDiv, {x, real(1.41421356f)})});
  g.AddOutput("y", node(Op::kMul, {node(Op::kMul, {x, node(Op::kAdd, {erf, real(1)})}), real(0.5f)}));
  return g;
}

TEST(FuseToRun, AFileWhosePipelineIsDamagedStaysWithANote) {
  EXPECT_TRUE(OpsOf(FuseToRun(DecomposedGelu()).graph).contains(Op::kGelu));
  for (const char* pipeline :
       {"", "x", "[]", "{}", "null", "1", R"({"octavo_pipeline": "1"})", R"({"octavo_pipeline": 2, "passes": []})",
        R"({"octavo_pipeline": 1})", R"({"octavo_pipeline": 1, "passes": 3})",
        R"({"octavo_pipeline": 1, "passes": ["no such"]})", R"({"octavo_pipeline": [1], "passes": []})",
        R"({"octavo_pipeline": 1e99, "passes": []})", "{\"octavo_pipeline\": 1, \"passes\": [\"\xff\"]}"}) {
    SCOPED_TRACE(pipeline);
    Graph g = DecomposedGelu();
    g.info.metadata["octavo.pipeline"] = pipeline;
    const Opened opened = FuseToRun(g);
    EXPECT_EQ(ir::ToText(opened.graph), ir::ToText(g));
    EXPECT_NE(opened.note.find("the file says that octavo made it, but not how, so it runs as it stands: "),
              std::string::npos)
        << opened.note;
  }
}

// Whatever goes wrong: a constant that may not be made while passes run, a graph that contradicts itself.
TEST(FuseToRun, LosesNoModel) {
  Graph small = DecomposedGelu();
  const ir::ValueId m = small.AddInput("m", {DType::kF32, ir::SymShape{3, 3}});
  small.AddOutput("z", small.node(small.AddNode(Op::kGemm, {m, m}, 1, {{"alpha", 2.0f}}, "product")).output());
  small.info.limits.max_memory = 2;
  Graph wrong = DecomposedGelu();
  const ir::ValueId c = wrong.AddInput("c", {DType::kF32, ir::SymShape{3, 4}});
  wrong.AddOutput("z", wrong.node(wrong.AddNode(Op::kMatMul, {c, c}, 1, {}, "product")).output());
  for (const auto& [graph, why] : {std::pair{small, "beyond the limit of 2 bytes"}, {wrong, "'product'"}}) {
    const Opened opened = FuseToRun(graph);
    EXPECT_EQ(ir::ToText(opened.graph), ir::ToText(graph));
    EXPECT_NE(opened.note.find("the model runs unfused and slowly: "), std::string::npos) << opened.note;
    EXPECT_NE(opened.note.find(why), std::string::npos) << opened.note;
  }
}

TEST(FuseToRun, SaysHowManyProductsStaySlow) {
  Graph g;
  g.info.opsets[""] = 18;
  const ir::SymShape shape{4, 4};
  const ir::ValueId a = g.AddInput("a", {DType::kU8, shape}), b = g.AddInput("b", {DType::kU8, shape});
  g.AddOutput("y", g.node(g.AddNode(Op::kMatMulInteger, {a, b}, 1, {}, "product")).output());
  const Opened opened = FuseToRun(g);
  EXPECT_NE(opened.note.find("no rule fits them: 1;"), std::string::npos) << opened.note;
  EXPECT_NE(opened.note.find("octavo.optimize(model)"), std::string::npos) << opened.note;
}

}  // namespace
}  // namespace octavo::api
