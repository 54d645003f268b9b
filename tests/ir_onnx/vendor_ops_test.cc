// One small model per com.microsoft op and attribute combination (tests/data/vendor, made by make.py there): the
// standard form must give what ONNX Runtime gave. And sentences: what has no standard form says why.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/interpret/call.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/vendor/lower.h"
#include "octavo/ir/verify.h"

namespace octavo::ir {
namespace {

namespace fs = std::filesystem;

// Empty, or what differs. Floats: 1e-5 of the largest value (rounding of sums of 12 to 200 terms), those of 16 bits 2^-10, which may be rounded the other way. Codes: ONNX
// Runtime's 8-bit kernels use tables and reciprocals, so one code in ten may be off by one.
std::string Difference(const Tensor& got, const Tensor& want) {
  if (got.dtype() != want.dtype()) return std::format("{} instead of {}", Name(got.dtype()), Name(want.dtype()));
  if (got.shape() != want.shape()) return ToString(got.shape()) + " instead of " + ToString(want.shape());
  double top = 0;
  int64_t off = 0;
  for (int64_t i = 0; i < want.size(); ++i) top = std::max(top, std::fabs(want.GetDouble(i)));
  if (top == 0) return "the expected values are all zero";
  for (int64_t i = 0; i < want.size(); ++i) {
    const double difference = std::fabs(got.GetDouble(i) - want.GetDouble(i));
    const double most = quant::BitsOf(want.dtype()) == 16 ? 0x1p-10 : 1e-5;
    if (quant::IsFloat(want.dtype()) ? difference <= most * top : difference == 0) continue;
    if (!quant::IsFloat(want.dtype()) && difference == 1 && ++off * 10 <= want.size()) continue;
    return std::format("element {} is {} instead of {} ({} of {} off before)", i, got.GetDouble(i), want.GetDouble(i),
                       off, want.size());
  }
  return "";
}

void RunCase(const Graph& g, const TensorMap& arrays, const std::string& prefix) {
  TensorMap inputs;
  for (ValueId v : g.inputs()) inputs[g.value(v).name] = arrays.at(prefix + "/in/" + g.value(v).name);
  const auto outputs = Interpret(g, inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const std::string& name = g.outputs()[i].name;
    EXPECT_EQ(Difference(outputs->at(i), arrays.at(prefix + "/out/" + name)), "")
        << "output " << name << " of case " << prefix;
  }
}

TEST(VendorOps, GiveWhatOnnxRuntimeGives) {
  std::vector<fs::path> files;
  for (const auto& e : fs::directory_iterator(fs::path(OCTAVO_SOURCE_DIR) / "tests/data/vendor")) {
    if (e.path().extension() == ".onnx") files.push_back(e.path());
  }
  std::ranges::sort(files);
  EXPECT_GE(files.size(), 91u);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.stem().string());
    auto g = onnx::ReadFile(file);
    ASSERT_TRUE(g) << g.error().message;
    for (NodeId id : g->NodesInOrder()) {
      EXPECT_NE(g->node(id).op, Op::kOpaque) << vendor::WhyOpaque(*g, g->node(id));
      EXPECT_EQ(g->node(id).origin.empty() && g->node(id).op != Op::kConstant, false) << "a node without origin";
    }
    const auto arrays = ReadNpz(fs::path(file).replace_extension(".npz"));
    ASSERT_TRUE(arrays) << arrays.error().message;
    for (const char* prefix : {"0", "1"}) RunCase(*g, *arrays, prefix);
    ASSERT_TRUE(Inference::Run(*g));
    EXPECT_TRUE(Verify(*g).empty());
    auto bytes = onnx::WriteBytes(*g);
    ASSERT_TRUE(bytes) << bytes.error().message;
    auto back = onnx::ReadBytes(*bytes);
    ASSERT_TRUE(back) << back.error().message;
    RunCase(*back, *arrays, "1");
  }
}

// With accuracy_level 4 products are of codes, as in ONNX Runtime: the test above would also pass in floats, 1 % off, if its bound
// were looser.
TEST(VendorOps, AccuracyLevel4QuantizesActivations) {
  for (const char* name : {"nbits4_level4.onnx", "nbits8_level4.onnx", "nbits4_half_level4.onnx"}) {
    auto g = onnx::ReadFile(fs::path(OCTAVO_SOURCE_DIR) / "tests/data/vendor" / name);
    ASSERT_TRUE(g) << g.error().message;
    int of_codes = 0;
    for (NodeId id : g->NodesInOrder()) of_codes += g->node(id).attrs.Int("x_bits", 0) == 8;
    EXPECT_EQ(of_codes, 1) << name;
  }
}

// A mixture with its weights as constants, or as inputs ("c0" and so on), over tokens [T,8] or [2,T,8].
struct Mixture {
  DType type = DType::kF32;
  int64_t experts = 7, k = 2, inner = 6;
  bool constants = true, batched = false, gated = false;
};
Graph MixtureOf(const Mixture& m, TensorMap& inputs) {
  Graph g;
  auto numbers = [&, state = uint32_t{5}](Shape shape) mutable {
    std::vector<float> v(static_cast<size_t>(ElementCount(shape)));
    for (float& x : v) state = state * 1664525 + 1013904223, x = static_cast<float>(state >> 16) / 65536 - 0.5f;
    return interpret::CastTo(Tensor::F32(std::move(shape), std::move(v)), m.type).value();
  };
  std::vector<ValueId> in;
  const auto input = [&](const std::string& name, const Tensor& t, SymShape shape) {
    inputs[name] = t;
    in.push_back(g.AddInput(name, {m.type, std::move(shape)}));
  };
  const Dim tokens = Dim::Symbol("t");
  input("x", numbers(m.batched ? Shape{2, 3, 8} : Shape{5, 8}),
        m.batched ? SymShape{2, tokens, 8} : SymShape{tokens, 8});
  input("r", numbers({m.batched ? 6 : 5, m.experts}), {Dim::Symbol("r"), m.experts});
  std::vector<Shape> weights = {{m.experts, m.inner, 8}, {m.experts, m.inner}, {m.experts, 8, m.inner}, {m.experts, 8}};
  if (m.gated) weights.insert(weights.end(), {weights[0], weights[1]});
  for (const Shape& shape : weights) {
    const Tensor w = numbers(shape);
    if (m.constants) {
      in.push_back(g.AddConstant(w));
    } else {
      input("c" + std::to_string(in.size()), w, SymShape(shape.begin(), shape.end()));
    }
  }
  const NodeId id = g.AddOpaque("com.microsoft", "MoE", in, 1,
                                {{"k", m.k}, {"activation_type", std::string(m.gated ? "swiglu" : "silu")}}, "n");
  g.AddOutput("y", g.node(id).output());
  EXPECT_TRUE(vendor::Lower(g));
  return g;
}

// Only a token's own experts: their constants are gathered, and nothing else reads them.
TEST(VendorOps, AMixtureReadsTheChosenExpertsAlone) {
  for (const bool gated : {false, true}) {
    TensorMap inputs;
    const Graph g = MixtureOf({.gated = gated}, inputs);
    int64_t gathered = 0;
    for (NodeId id : g.NodesInOrder()) {
      const Tensor* w = g.node(id).op == Op::kConstant ? g.ConstantOf(g.node(id).output()) : nullptr;
      if (w == nullptr || w->size() < 7 || w->shape()[0] != 7) continue;
      for (const Use& use : g.value(g.node(id).output()).uses) EXPECT_EQ(g.node(use.node).op, Op::kGather);
      ++gathered;
    }
    EXPECT_EQ(gathered, gated ? 6 : 4);
  }
}

// What ONNX Runtime does on CPUs (its float16 kernel computes in float, too): sums in float, the result rounded once.
TEST(VendorOps, AMixtureInOtherTypesAndFormsMeansTheSame) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Mixture m : {Mixture{type}, Mixture{type, 7, 1}, Mixture{type, 7, 7}, Mixture{type, 1, 1, 33},
                            Mixture{type, 3, 2, 6, true, true}, Mixture{type, 3, 2, 6, true, false, true}}) {
      Mixture dense = m;
      dense.constants = false;
      TensorMap inputs, all;
      const Graph g = MixtureOf(m, inputs), want = MixtureOf(dense, all);
      const auto a = Interpret(g, inputs), b = Interpret(want, all);
      ASSERT_TRUE(a && b) << (a ? b.error().message : a.error().message);
      ASSERT_EQ((*a)[0].dtype(), type);
      ASSERT_EQ((*a)[0].shape(), (*b)[0].shape());
      // Experts are summed in another order: their number times half a unit of the last place, and one for the type. Values are below 2.
      const double unit = type == DType::kF32 ? 1e-7 : type == DType::kF16 ? 1e-3 : 8e-3;
      for (int64_t i = 0; i < (*a)[0].size(); ++i)
        EXPECT_NEAR((*a)[0].GetDouble(i), (*b)[0].GetDouble(i), unit + 7 * 1.2e-7);
      const Shape empty = m.batched ? Shape{2, 0, 8} : Shape{0, 8};
      inputs["x"] = Tensor::Zeros(type, empty), inputs["r"] = Tensor::Zeros(type, {0, m.experts});
      const auto none = Interpret(g, inputs);
      ASSERT_TRUE(none) << none.error().message;
      EXPECT_EQ((*none)[0].shape(), empty);
    }
  }
}

// A graph of one vendor node over float inputs of the given shapes, lowered; the sentence why it stayed, empty if it
// did not.
struct Refusal {
  std::string op;
  Attrs attrs;
  std::vector<SymShape> inputs;
  std::string expected;
};
std::string Refused(const Refusal& r) {
  Graph g;
  g.info.opsets = {{"", 17}, {"com.microsoft", 1}};
  std::vector<ValueId> in;
  for (const SymShape& shape : r.inputs) {
    in.push_back(shape.empty() ? ValueId{} : g.AddInput(std::format("i{}", in.size()), {DType::kF32, shape}));
  }
  const NodeId id = g.AddOpaque("com.microsoft", r.op, in, 1, r.attrs, "n");
  g.AddOutput("y", g.node(id).output());
  const size_t nodes = g.node_count();
  EXPECT_TRUE(vendor::Lower(g));
  if (!g.IsAlive(id)) return "";
  EXPECT_EQ(g.node_count(), nodes) << "a refusal left nodes behind";
  return vendor::WhyOpaque(g, g.node(id));
}

TEST(VendorOps, RefuseWithASentence) {
  const SymShape x{2, 5, 12}, w{12, 36}, none, cache{2, 3, 4, 4}, one{1}, table{30, 12};
  const Refusal cases[] = {
      {"Attention", {}, {x, w}, "num_heads"},
      {"Attention", {{"num_heads", int64_t{3}}, {"do_rotary", int64_t{1}}}, {x, w}, "do_rotary"},
      {"Attention",
       {{"num_heads", int64_t{3}}, {"past_present_share_buffer", int64_t{1}}},
       {x, w},
       "past_present_share_buffer"},
      {"Attention", {{"num_heads", int64_t{5}}}, {x, w}, "no multiple of 5 heads"},
      {"Attention", {{"num_heads", int64_t{3}}}, {x, w, none, SymShape{2, 1, 5, 5}}, "rank 4"},
      {"MultiHeadAttention", {{"num_heads", int64_t{3}}}, {x}, "key is left out"},
      {"MultiHeadAttention",
       {{"num_heads", int64_t{3}}},
       {x, x, x, none, none, none, none, none, one},
       "past_sequence_length"},
      {"MultiHeadAttention", {{"num_heads", int64_t{3}}}, {x, x, x, none, none, none, cache}, "past_key"},
      {"GroupQueryAttention",
       {{"num_heads", int64_t{3}}, {"kv_num_heads", int64_t{2}}},
       {x, x, x, none, none, one, one},
       "kv_num_heads 2"},
      {"GroupQueryAttention",
       {{"num_heads", int64_t{3}}, {"kv_num_heads", int64_t{3}}, {"do_rotary", int64_t{1}}},
       {x, x, x, none, none, one, one},
       "cos_cache"},
      {"GroupQueryAttention",
       {{"num_heads", int64_t{3}}, {"kv_num_heads", int64_t{3}}, {"k_quant_type", std::string("PER_TENSOR")}},
       {x, x, x, cache, cache, one, one},
       "float cache"},
      {"GroupQueryAttention",
       {{"num_heads", int64_t{3}}, {"kv_num_heads", int64_t{3}}, {"sliding_window_cache", int64_t{1}}},
       {x, x, x, cache, cache, one, one},
       "local_window_size"},
      {"GroupQueryAttention",
       {{"num_heads", int64_t{3}},
        {"kv_num_heads", int64_t{3}},
        {"local_window_size", int64_t{2}},
        {"sliding_window_cache", int64_t{1}}},
       {x, x, x, cache, cache, one, one, none, none, none, cache},
       "sliding_window_cache and attention_bias"},
      {"GroupQueryAttention",
       {{"num_heads", int64_t{3}},
        {"kv_num_heads", int64_t{3}},
        {"causal", int64_t{0}},
        {"local_window_size", int64_t{2}}},
       {x, x, x, none, none, one, one},
       "causal is 0"},
      {"GroupQueryAttention",
       {{"num_heads", int64_t{3}}, {"kv_num_heads", int64_t{3}}},
       {x, x, x, none, none, one, one, none, none, none, none, none, none, none, one},
       "only one of q_norm_weight"},
      {"GroupQueryAttention",
       {{"num_heads", int64_t{3}}, {"kv_num_heads", int64_t{3}}, {"local_window_size", int64_t{0}}},
       {x, x, x, none, none, one, one},
       "local_window_size is 0, so that no key would count; without a window it is -1"},
      {"RotaryEmbedding", {{"is_packed_batching", int64_t{1}}}, {x, one, w, w}, "is_packed_batching"},
      {"EmbedLayerNormalization",
       {{"mask_index_type", int64_t{2}}},
       {one, none, table, table, none, one, one},
       "mask_index_type is 2"},
      {"FusedGemm", {{"activation", std::string("HardSigmoid")}}, {table, w}, "HardSigmoid"},
      {"MatMulNBits",
       {{"bits", int64_t{3}}, {"N", int64_t{4}}, {"K", int64_t{16}}, {"block_size", int64_t{16}}},
       {x, w, one},
       "bits is 3"},
      {"MatMulNBits",
       {{"bits", int64_t{8}}, {"N", int64_t{4}}, {"K", int64_t{16}}, {"block_size", int64_t{16}}},
       {x, w, one},
       "no constants"},
      {"LongformerAttention", {}, {x}, "no standard form of com.microsoft.LongformerAttention"},
  };
  for (const Refusal& r : cases) {
    const std::string why = Refused(r);
    EXPECT_NE(why.find("node 'n'"), std::string::npos) << r.op << ", " << r.expected << ": " << why;
    EXPECT_NE(why.find(r.expected), std::string::npos) << r.op << ": " << why;
  }
}

// Inputs, outputs and attributes that no rule knows, constants that are smaller than the attributes say.
TEST(VendorOps, WhatNoRuleKnowsStays) {
  const auto why = [](const std::string& op, const Attrs& attrs, std::vector<Shape> constants, size_t outputs) {
    Graph g;
    std::vector<ValueId> in = {g.AddInput("x", {DType::kF32, SymShape{2, 5, 12}})};
    for (const Shape& shape : constants) in.push_back(g.AddConstant(Tensor::Zeros(DType::kF32, shape)));
    const NodeId id = g.AddOpaque("com.microsoft", op, in, outputs, attrs, "n");
    for (size_t i = 0; i < outputs; ++i) g.AddOutput(std::to_string(i), g.node(id).outputs[i]);
    const size_t nodes = g.node_count();
    EXPECT_TRUE(vendor::Lower(g));
    if (!g.IsAlive(id)) return std::string("lowered");
    EXPECT_EQ(g.node_count(), nodes) << "a refusal left nodes behind";
    return vendor::WhyOpaque(g, g.node(id));
  };
  const Attrs three{{"num_heads", int64_t{3}}};
  const Attrs wide{{"num_heads", int64_t{3}}, {"qkv_hidden_sizes", std::vector<int64_t>{12, 12, 12}}};
  const auto tells = [](const std::string& sentence, const char* part) {
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
  };
  EXPECT_EQ(why("FusedMatMul", {}, {{12, 3}}, 1), "lowered");
  tells(why("FusedMatMul", {}, {{12, 3}}, 2), "its output 1 is used");
  tells(why("FusedMatMul", {}, {{12, 3}, {3}}, 1), "it has input 2; octavo knows the op with 2");
  tells(why("FusedMatMul", {}, {}, 1), "it leaves out input 1");
  tells(why("FusedMatMul", {{"transC", int64_t{1}}}, {{12, 3}}, 1), "has an attribute that octavo does not know");
  tells(why("FusedMatMul", {{"transA", 1.0f}}, {{12, 3}}, 1), "its attribute 'transA' is a float");
  EXPECT_EQ(why("Attention", three, {{12, 36}, {36}}, 1), "lowered");
  tells(why("Attention", three, {{12, 36}, {12}}, 1), "a constant f32[12] does not have the 36 columns");
  tells(why("Attention", wide, {{12, 0}, {36}}, 1), "do not fit a weight of 0 columns");
  tells(why("Attention", {{"num_heads", INT64_MAX}}, {{12, 36}}, 1), "num_heads is 9223372036854775807");
  tells(why("MultiHeadAttention", three, {{2, 5, 12}, {2, 5, 12}, {0}}, 1), "do not fit its bias");
  tells(why("MultiHeadAttention", three, {{2, 5, 12}, {2, 5, 12}, {1, 36}}, 1), "do not fit its bias");
}

// Lengths; with where keys begin; with where rows begin elsewhere (ONNX Runtime's 3 B + 2). Other sizes were cut or filled up with zeros in silence.
TEST(VendorOps, AMaskOfRankOneHasOneOfThreeSizes) {
  const auto run = [](std::vector<int32_t> mask, const char* size = "m") {
    Graph g;
    const Type type{DType::kF32, SymShape{Dim::Symbol("b"), Dim::Symbol("t"), 4}};
    std::vector<ValueId> in = {g.AddInput("x", type), ValueId{}, ValueId{}, ValueId{},
                               g.AddInput("m", {DType::kS32, SymShape{Dim::Symbol(size)}})};
    in[1] = in[2] = in[0];
    g.AddOutput(
        "y",
        g.node(g.AddOpaque("com.microsoft", "MultiHeadAttention", in, 1, {{"num_heads", int64_t{2}}}, "n")).output());
    EXPECT_TRUE(vendor::Lower(g));
    std::vector<float> x(2 * 3 * 4);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7 % 11) - 5;
    Tensor m = Tensor::Empty(DType::kS32, {static_cast<int64_t>(mask.size())});
    std::ranges::copy(mask, m.mutable_as<int32_t>().begin());
    return Interpret(g, {{"x", Tensor::F32({2, 3, 4}, x)}, {"m", m}});
  };
  const auto lengths = run({3, 1}), named = run({3, 1}, "b"), begins = run({3, 1, 1, 0});
  ASSERT_TRUE(lengths && named && begins);
  EXPECT_TRUE((*lengths)[0].SameBits((*named)[0]));
  EXPECT_FALSE((*lengths)[0].SameBits((*begins)[0]));
  for (const auto& same : {std::vector<int32_t>{3, 1, 0, 0}, {3, 1, 0, 3, 6, 0, 3, 4}}) {
    const auto got = run(same);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_TRUE((*got)[0].SameBits((*lengths)[0])) << same.size();
  }
  for (const size_t size : {1u, 3u, 5u, 6u, 7u, 9u}) {
    const auto got = run(std::vector<int32_t>(size, 1));
    ASSERT_FALSE(got) << size;
    EXPECT_NE(got.error().message.find(std::format("index {} is outside an axis of size {}", size, size)),
              std::string::npos)
        << got.error().message;
  }
}

// A rank behind a node that is lowered itself, as in what ONNX Runtime makes of DETR: FusedConv, then FusedMatMul.
TEST(VendorOps, RanksBehindNodesThatAreLowered) {
  Graph g;
  ValueId x = g.AddInput("x", {DType::kF32, SymShape{2, 6, 5, 12}});
  const ValueId filters = g.AddConstant(Tensor::Zeros(DType::kF32, {4, 6, 1, 1}));
  x = g.node(g.AddOpaque("com.microsoft", "FusedConv", {x, filters}, 1, {{"activation", std::string("Relu")}}, "conv"))
          .output();
  const ValueId w = g.AddConstant(Tensor::Zeros(DType::kF32, {5, 3}));
  x = g.node(g.AddOpaque("com.microsoft", "FusedMatMul", {x, w}, 1, {{"transA", int64_t{1}}}, "product")).output();
  g.AddOutput("y", x);
  ASSERT_TRUE(vendor::Lower(g));
  for (const NodeId id : g.NodesInOrder()) EXPECT_NE(g.node(id).op, Op::kOpaque) << g.node(id).op_type;
}

}  // namespace
}  // namespace octavo::ir
