// Graphs that arrive quantized (ONNX Runtime's QDQ, QOperator and dynamic forms, NNCF's placements, fp8, blocked int4):
// fused without a calibration, without touching a scale, and bit for bit what they were. Prints what fused per form.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <format>
#include <map>
#include <ostream>
#include <random>
#include <set>
#include <string>

#include "octavo/api/optimize.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/passes/vendor/vendor.h"
#include "octavo/runtime/model.h"
#include "octavo/tests/docs.h"
#include "octavo/tests/unpacked.h"

namespace octavo::api {
namespace {

namespace fs = std::filesystem;
using ir::Op;
using ir::Tensor;

struct Tally {
  int graphs = 0, on_kernels = 0;
  passes::Count attention, qkv, linear;
  int int8_attention = 0;
};

void Add(passes::Count& to, const passes::Count& from) {
  to.found += from.found;
  to.done += from.done;
}

void Add(Tally& to, const Tally& from) {
  to.graphs += from.graphs;
  to.on_kernels += from.on_kernels;
  to.int8_attention += from.int8_attention;
  Add(to.attention, from.attention);
  Add(to.qkv, from.qkv);
  Add(to.linear, from.linear);
}

// "ts17.sdpa.ort-qdq-u8s8" -> "ort-qdq-u8s8".
std::string FormOf(const fs::path& file) {
  const std::string stem = file.stem().string();
  return stem.substr(stem.rfind('.') + 1);
}

ir::TensorMap InputsOf(const ir::Graph& g, const ir::TensorMap& arrays) {
  ir::TensorMap inputs;
  for (ir::ValueId v : g.inputs()) {
    const auto it = arrays.find("0/in/" + g.value(v).name);
    if (it != arrays.end()) inputs[g.value(v).name] = it->second;
  }
  return inputs;
}

void ExpectSameBits(const std::vector<Tensor>& want, const std::vector<Tensor>& got, const char* what) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(want[i].SameBits(got[i])) << what << ": output " << i << " differs";
}

// Scales and zero points of the linears and cores that were fused stand in the file's graph, bit for bit.
void ExpectKnownScales(const ir::Graph& before, const ir::Graph& after) {
  const auto known = [&](ir::ValueId v) {
    const Tensor* t = after.ConstantOf(v);
    if (t == nullptr) return true;  // computed at run time
    for (ir::NodeId id : before.NodesInOrder()) {
      const Tensor* c = before.ConstantOf(before.node(id).output());
      if (c != nullptr && c->size() == t->size() && c->dtype() == t->dtype() &&
          std::memcmp(c->data(), t->data(), t->byte_size()) == 0) {
        return true;
      }
    }
    return false;
  };
  for (ir::NodeId id : after.NodesInOrder()) {
    const ir::Node& n = after.node(id);
    if (n.op == Op::kQuantizedLinear) {
      EXPECT_TRUE(known(n.input(1)) && known(n.input(4)) && known(n.input(6))) << n.name;
    } else if (n.op == Op::kQuantizedSdpa) {
      EXPECT_TRUE(known(n.input(3)) && known(n.input(5)) && known(n.input(7))) << n.name;
    }
  }
}

bool HasFloatProduct(const ir::Graph& g) {
  for (ir::NodeId id : g.NodesInOrder()) {
    const Op op = g.node(id).op;
    if (op == Op::kMatMul || op == Op::kGemm || op == Op::kSdpa || op == Op::kConv || op == Op::kEinsum) return true;
  }
  return false;
}

// What becomes of a file: cores, groups and Linears that fuse, and the ops that stand for them.
struct Fused {
  int attention = 0, qkv = 0, linear = 0;
  int sdpa_int8 = 0, qkv_int8 = 0, linear_int8 = 0, norm_quant = 0;
  auto operator<=>(const Fused&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Fused& f) {
  return out << std::format("{{{}, {}, {}, {}, {}, {}, {}}}", f.attention, f.qkv, f.linear, f.sdpa_int8, f.qkv_int8,
                            f.linear_int8, f.norm_quant);
}

Fused FusedIn(const Optimized& o) {
  const passes::Report& r = o.report;
  Fused f{.attention = r.attention.done, .qkv = r.qkv.done, .linear = r.linear.done};
  for (ir::NodeId id : o.graph.NodesInOrder()) {
    const Op op = o.graph.node(id).op;
    f.sdpa_int8 += op == Op::kQuantizedSdpa;
    f.qkv_int8 += op == Op::kQuantizedQkv;
    f.linear_int8 += op == Op::kQuantizedLinear;
    f.norm_quant += op == Op::kNormQuant;
  }
  return f;
}

void CheckFile(const fs::path& file, Tally& tally, std::map<std::string, Fused>& fused) {
  SCOPED_TRACE(file.stem().string());
  auto g = ir::onnx::ReadFile(file);
  ASSERT_TRUE(g) << g.error().message;
  if (!passes::vendor::IsQuantized(*g)) return;
  const auto arrays = ir::ReadNpz(fs::path(file).replace_extension(".npz"));
  ASSERT_TRUE(arrays) << arrays.error().message;
  auto o = Optimize(*g, OptimizeOptions());
  ASSERT_TRUE(o) << o.error().message;
  ++tally.graphs;
  fused[file.stem().string()] = FusedIn(*o);
  Add(tally.attention, o->report.attention);
  Add(tally.qkv, o->report.qkv);
  Add(tally.linear, o->report.linear);
  for (ir::NodeId id : o->graph.NodesInOrder())
    tally.int8_attention += o->graph.node(id).op == Op::kQuantizedSdpa ? 1 : 0;
  for (const passes::Candidate& c : o->report.candidates)
    EXPECT_TRUE(c.status != "left" || !c.reason.empty()) << c.kind;
  const ir::TensorMap inputs = InputsOf(*g, *arrays);
  auto want = ir::Interpret(o->unfused, inputs);
  ASSERT_TRUE(want) << want.error().message;
  auto got = ir::Interpret(o->graph, inputs);
  ASSERT_TRUE(got) << got.error().message;
  ExpectSameBits(*want, *got, "fused, interpreted");
  ExpectKnownScales(o->unfused, o->graph);
  auto model = runtime::Model::Compile(o->graph, {.threads = 2});
  ASSERT_TRUE(model) << model.error().message;
  auto ran = model->Run(inputs);
  ASSERT_TRUE(ran) << ran.error().message;
  if (HasFloatProduct(o->graph)) return;                                                      // oneDNN's order of sums
  if (kernels::BestArch() == kernels::Arch::kAmx && FormOf(file).starts_with("fp8")) return;  // that of bf16 tiles
  ++tally.on_kernels;
  ExpectSameBits(*want, *ran, "fused, on kernels");
}

std::map<std::string, Tally> CheckFolder(const fs::path& folder, std::map<std::string, Fused>& fused) {
  std::map<std::string, Tally> forms;
  for (const auto& e : fs::directory_iterator(folder)) {
    if (e.path().extension() != ".onnx" || !fs::exists(fs::path(e.path()).replace_extension(".npz"))) continue;
    Tally tally;
    CheckFile(e.path(), tally, fused);
    if (tally.graphs == 0) continue;
    Add(forms[FormOf(e.path())], tally);
  }
  std::printf("%-24s graphs (same bits on kernels)  attention fused (int8)  qkv  linear\n", folder.filename().c_str());
  for (const auto& [form, t] : forms) {
    std::printf("  %-22s %3d (%d)   %d of %d (%d)   %d of %d   %d of %d\n", form.c_str(), t.graphs, t.on_kernels,
                t.attention.done, t.attention.found, t.int8_attention, t.qkv.done, t.qkv.found, t.linear.done,
                t.linear.found);
  }
  return forms;
}

// x -> DynamicQuantizeLinear -> three MatMulIntegers with their scales and biases -> attention, as dynamic quantizers
// write it.
struct DynamicBlock {
  ir::Graph graph;
  ir::TensorMap inputs;
};

DynamicBlock RandomDynamicBlock(std::mt19937_64& rng) {
  const auto pick = [&](int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(rng); };
  const auto uniform = [&](float lo, float hi) { return std::uniform_real_distribution<float>(lo, hi)(rng); };
  const int64_t heads = pick(1, 3), dim = pick(1, 20), width = pick(1, 70), batch = pick(1, 2), length = pick(1, 30);
  const int64_t columns = heads * dim;
  DynamicBlock b;
  ir::Graph& g = b.graph;
  g.info.opsets[""] = 18;
  const ir::ValueId x =
      g.AddInput("x", {ir::DType::kF32, ir::SymShape{ir::Dim::Symbol("b"), ir::Dim::Symbol("s"), width}});
  std::vector<float> values(static_cast<size_t>(batch * length * width));
  for (float& v : values) v = uniform(-2, 3);
  b.inputs["x"] = Tensor::F32({batch, length, width}, values);
  const auto one = [&](Op op, std::vector<ir::ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), std::format("n{}", g.node_count()))).output();
  };
  const ir::Node q = g.node(g.AddNode(Op::kDynamicQuantizeLinear, {x}, 3, {}, "dynamic"));
  std::vector<ir::ValueId> parts;
  for (int i = 0; i < 3; ++i) {
    std::vector<uint8_t> codes(static_cast<size_t>(width * columns));
    for (uint8_t& c : codes) c = static_cast<uint8_t>(pick(0, 255));
    std::vector<float> scales(static_cast<size_t>(columns)), bias(scales.size());
    for (float& s : scales) s = uniform(0.001f, 0.01f);
    for (float& v : bias) v = uniform(-1, 1);
    const ir::ValueId w = g.AddConstant(Tensor::Of<uint8_t>(ir::DType::kS8, {width, columns}, codes));
    const ir::ValueId acc =
        one(Op::kMatMulInteger, {q.output(0), w, q.output(2), g.AddConstant(Tensor::Zeros(ir::DType::kS8, {}))});
    const ir::ValueId f = one(Op::kCast, {acc}, {{"to", int64_t{1}}});
    const ir::ValueId s = one(Op::kMul, {q.output(1), g.AddConstant(Tensor::F32({columns}, scales))});
    parts.push_back(one(Op::kAdd, {one(Op::kMul, {f, s}), g.AddConstant(Tensor::F32({columns}, bias))}));
    g.AddOutput(std::format("part{}", i), parts.back());
  }
  const auto split = [&](ir::ValueId v, std::vector<int64_t> perm) {
    const ir::ValueId shape = g.AddConstant(Tensor::S64({4}, {0, 0, heads, dim}));
    return one(Op::kTranspose, {one(Op::kReshape, {v, shape})}, {{"perm", std::move(perm)}});
  };
  const ir::ValueId scores = one(Op::kMatMul, {split(parts[0], {0, 2, 1, 3}), split(parts[1], {0, 2, 3, 1})});
  g.AddOutput("y",
              one(Op::kMatMul, {one(Op::kSoftmax, {scores}, {{"axis", int64_t{-1}}}), split(parts[2], {0, 2, 1, 3})}));
  return b;
}

TEST(Quantized, DynamicQkvIsOneStep) {
  const char* text = std::getenv("OCTAVO_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : 20261121;
  std::printf("OCTAVO_SEED=%llu replays this\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 rng(seed);
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    const DynamicBlock block = RandomDynamicBlock(rng);
    auto o = Optimize(block.graph, OptimizeOptions());
    ASSERT_TRUE(o) << o.error().message;
    std::map<Op, int> ops;
    for (ir::NodeId id : o->graph.NodesInOrder()) ++ops[o->graph.node(id).op];
    EXPECT_EQ(ops[Op::kQuantizedQkv], 1);
    EXPECT_EQ(ops[Op::kDynamicQuantizeLinear], 1);
    EXPECT_EQ(ops[Op::kMatMulInteger] + ops[Op::kMatMul], 0);
    auto want = ir::Interpret(block.graph, block.inputs);
    ASSERT_TRUE(want) << want.error().message;
    EXPECT_NE(want->at(0).GetDouble(0), 0.0);
    for (kernels::Arch arch : kernels::SupportedArchs()) {
      for (int threads : {1, 2}) {
        auto model = runtime::Model::Compile(o->graph, {.arch = arch, .threads = threads});
        ASSERT_TRUE(model) << model.error().message;
        auto got = model->Run(block.inputs);
        ASSERT_TRUE(got) << got.error().message;
        for (size_t p = 0; p < 3; ++p)
          EXPECT_TRUE(want->at(p).SameBits(got->at(p))) << Name(arch) << " " << threads << " part " << p;
      }
    }
  }
}

// Integer products whose outputs are fp8, or integers beside them, and one behind a GELU.
TEST(Quantized, IntegerProductsEndInFp8) {
  std::mt19937_64 rng(20261122);
  std::normal_distribution<float> normal;
  const auto random = [&](ir::Shape shape) {
    Tensor t = Tensor::Empty(ir::DType::kF32, std::move(shape));
    for (float& v : t.mutable_as<float>()) v = normal(rng);
    return t;
  };
  constexpr int64_t kDepth = 72, kWidth = 100, kRows = 37;
  ir::Graph g;
  g.info.opsets[""] = 19;
  const auto one = [&](Op op, std::vector<ir::ValueId> in) {
    return g.node(g.AddNode(op, std::move(in), 1, {}, std::format("n{}", g.node_count()))).output();
  };
  const auto real = [&](float v) { return g.AddConstant(Tensor::ScalarF32(v)); };
  const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{ir::Dim::Symbol("s"), kDepth}});
  const ir::ValueId scale = real(0.02f),
                    zero = g.AddConstant(Tensor::Of<uint8_t>(ir::DType::kU8, {}, std::vector<uint8_t>{120}));
  const ir::ValueId codes = one(Op::kQuantizeLinear, {x, scale, zero});
  const auto linear = [&](ir::DType to, bool gelu, const char* name) {
    std::vector<uint8_t> w(static_cast<size_t>(kDepth * kWidth));
    for (uint8_t& c : w) c = static_cast<uint8_t>(rng());
    const ir::ValueId wd = one(Op::kDequantizeLinear,
                               {g.AddConstant(Tensor::Of<uint8_t>(ir::DType::kS8, {kDepth, kWidth}, w)), real(0.01f)});
    ir::ValueId y = one(Op::kMatMul, {one(Op::kDequantizeLinear, {codes, scale, zero}), wd});
    y = one(Op::kAdd, {y, g.AddConstant(random({kWidth}))});
    if (gelu) y = one(Op::kGelu, {y});
    g.AddOutput(name, one(Op::kQuantizeLinear, {y, real(0.03f), g.AddConstant(Tensor::Zeros(to, {}))}));
  };
  linear(ir::DType::kE4M3FN, false, "q"), linear(ir::DType::kE5M2, false, "k"), linear(ir::DType::kU8, false, "v");
  linear(ir::DType::kE4M3FN, true, "gelu");
  const ir::TensorMap inputs{{"x", random({kRows, kDepth})}};
  auto want = ir::Interpret(g, inputs);
  ASSERT_TRUE(want) << want.error().message;
  for (const Tensor& t : *want) {
    const std::vector<float> values = t.ToFloats();
    EXPECT_GT(std::set<float>(values.begin(), values.end()).size(), 40u);
  }
  auto o = Optimize(g, OptimizeOptions());
  ASSERT_TRUE(o) << o.error().message;
  std::map<Op, int> ops;
  for (ir::NodeId id : o->graph.NodesInOrder()) ++ops[o->graph.node(id).op];
  EXPECT_EQ(ops[Op::kQuantizeLinear], 1);
  EXPECT_EQ(ops[Op::kMatMul] + ops[Op::kDequantizeLinear], 0);
  EXPECT_EQ(ops[Op::kQuantizedLinear], 4);
  for (kernels::Arch arch : kernels::SupportedArchs()) {
    auto model = runtime::Model::Compile(o->graph, {.arch = arch, .threads = 2});
    ASSERT_TRUE(model) << model.error().message;
    auto got = model->Run(inputs);
    ASSERT_TRUE(got) << got.error().message;
    ExpectSameBits(*want, *got, std::string(Name(arch)).c_str());
  }
}

TEST(Quantized, Committed) {
  // Attention, QKV, Linears; QuantizedSdpa, QuantizedQkv, QuantizedLinear, NormQuant.
  const std::map<std::string, Fused> want = {
      {"b_gemm2d.ts17.ort-qdq-u16s8-matmul", {0, 0, 0, 0, 0, 0, 0}},
      {"bert.ts14.eager.ort-fused-dynamic", {2, 2, 12, 0, 2, 6, 0}},
      {"bert.ts17.sdpa.nncf", {2, 2, 12, 2, 2, 6, 0}},
      {"llama_gqa.dyn18.sdpa.ort-fused-dynamic", {2, 2, 14, 0, 2, 8, 0}},
      {"sdpa_plain.ts17.fp8", {1, 1, 2, 1, 0, 2, 1}},
      {"sdpa_plain.ts17.nncf", {1, 1, 2, 0, 0, 2, 0}},
      {"sdpa_plain.ts17.ort-dynamic", {1, 1, 2, 0, 0, 2, 0}},
      {"sdpa_plain.ts17.ort-int4-nbits", {1, 1, 2, 0, 0, 0, 0}},
      {"sdpa_plain.ts17.ort-int4-qdq", {1, 1, 2, 0, 0, 0, 0}},
      {"sdpa_plain.ts17.ort-qdq-u8s8", {1, 1, 2, 1, 0, 2, 1}},
      {"sdpa_plain.ts17.ort-qoperator", {1, 1, 2, 1, 0, 2, 1}},
  };
  std::map<std::string, Fused> got;
  EXPECT_GE(CheckFolder(fs::path(OCTAVO_SOURCE_DIR) / "tests/data/models", got).size(), 6u);
  for (const auto& [file, fused] : got) {
    const auto known = want.find(file);
    EXPECT_TRUE(known != want.end() && known->second == fused) << "{\"" << file << "\", " << fused << "},";
  }
  EXPECT_EQ(got.size(), want.size());
}

TEST(Quantized, Zoo) {
  const fs::path root = tests::Unpacked() / "zoo";
  std::map<std::string, Fused> fused;
  const auto quantized = CheckFolder(root / "quantized", fused), extra = CheckFolder(root / "extra", fused);
  const auto sum = [&](std::string_view kind) {  // of all forms that begin so
    Tally all;
    for (const auto* forms : {&quantized, &extra}) {
      for (const auto& [form, t] : *forms) {
        if (form.starts_with(kind) && form != "ort-qdq-u16s8-matmul") Add(all, t);
      }
    }
    return all;
  };
  for (const char* kind : {"ort-dynamic", "ort-fused-dynamic", "ort-qdq", "nncf"}) {
    const Tally all = sum(kind);
    EXPECT_EQ(all.qkv.done, all.qkv.found) << kind;
    EXPECT_EQ(all.linear.done, all.linear.found) << kind;
    EXPECT_GT(all.linear.done, 150) << kind;
  }
  const Tally codes = extra.at("ort-qdq-u16s8-matmul"), qdq = sum("ort-qdq"), nncf = sum("nncf"), fp8 = sum("fp8");
  EXPECT_EQ(codes.linear.done + codes.attention.done, 0);  // 16 bits
  EXPECT_EQ(qdq.int8_attention, qdq.attention.done);
  EXPECT_EQ(fp8.qkv.done, fp8.qkv.found);
  EXPECT_EQ(fp8.linear.done, 217);  // of 241; the rest are Gemms that the files keep in float
  EXPECT_EQ(nncf.attention.done, 34);
  EXPECT_EQ(sum("ort-dynamic").attention.done, 43);
  const Tally qoperator = sum("ort-qoperator");
  EXPECT_EQ(qoperator.int8_attention, qoperator.attention.done);
  EXPECT_EQ(qoperator.attention.done, 36);
  EXPECT_EQ(qoperator.linear.done, qoperator.linear.found);
  EXPECT_EQ(qoperator.qkv.done, qoperator.qkv.found);
  EXPECT_TRUE(tests::FamiliesSay(
      std::format("in {} of {} of its QOperator files", qoperator.attention.done, qoperator.attention.found)));
  EXPECT_TRUE(tests::FamiliesSay(std::format("attention in {} of {} cores of ONNX Runtime's Q/DQ files",
                                             qdq.attention.done, qdq.attention.found + codes.attention.found)));
  EXPECT_TRUE(tests::FamiliesSay(std::format("in {} of {} of NNCF's", nncf.int8_attention, nncf.attention.found)));
  EXPECT_TRUE(tests::FamiliesSay(
      std::format("fp8 Q/DQ files: every QKV group and {} of {} cores", fp8.attention.done, fp8.attention.found)));
}

}  // namespace
}  // namespace octavo::api
