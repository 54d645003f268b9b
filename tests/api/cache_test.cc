// A KV cache of fixed length: TensorScatter appends to it where it lies, and Attention reads what is valid of it. The loop of
// a decoder is compared with attention over the keys seen so far, without any cache.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "octavo/api/optimize.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/passes/quantize/caches.h"
#include "octavo/quant/dataset.h"
#include "octavo/runtime/model.h"

namespace octavo::api {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

constexpr int64_t kBatch = 2, kHeads = 4, kGroups = 2, kDim = 8, kCapacity = 24;

Tensor RandomTensor(std::mt19937_64& rng, ir::Shape shape) {
  std::normal_distribution<float> normal;
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (float& x : t.mutable_as<float>()) x = normal(rng);
  return t;
}

// o, present k, present v = Attention(q, TensorScatter(past k, k, at), ..., nonpad_kv_seqlen = valid)
Graph Decoder(bool causal) {
  Graph g;
  g.info.opsets[""] = 24;
  const auto input = [&](const char* name, int64_t heads, ir::Dim rows) {
    return g.AddInput(name, {DType::kF32, ir::SymShape{kBatch, heads, std::move(rows), kDim}});
  };
  const ir::Dim s = ir::Dim::Symbol("s");
  const ValueId q = input("q", kHeads, s), k = input("k", kGroups, s), v = input("v", kGroups, s);
  const ValueId past_k = input("past_k", kGroups, kCapacity), past_v = input("past_v", kGroups, kCapacity);
  const ValueId at = g.AddInput("at", {DType::kS64, ir::SymShape{kBatch}});
  const ValueId valid = g.AddInput("valid", {DType::kS64, ir::SymShape{kBatch}});
  const auto one = [&](Op op, std::vector<ValueId> in, ir::Attrs attrs, const char* name) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), name)).output();
  };
  const ValueId keys = one(Op::kTensorScatter, {past_k, k, at}, {}, "append_k");
  const ValueId values = one(Op::kTensorScatter, {past_v, v, at}, {}, "append_v");
  g.AddOutput("o",
              one(Op::kAttention, {q, keys, values, {}, {}, {}, valid}, {{"is_causal", int64_t{causal}}}, "attention"));
  g.AddOutput("present_k", keys);
  g.AddOutput("present_v", values);
  return g;
}

runtime::Model Compile(Graph g) {
  OptimizeOptions options;
  options.recipe = "float";
  auto optimized = Optimize(std::move(g), options);
  EXPECT_TRUE(optimized.has_value()) << optimized.error().message;
  EXPECT_EQ(std::ranges::count_if(optimized->graph.NodesInOrder(),
                                  [&](ir::NodeId id) { return optimized->graph.node(id).op == Op::kSdpa; }),
            1)
      << "nonpad_kv_seqlen keeps the attention from fusing";
  auto model = runtime::Model::Compile(std::move(optimized->graph), {.threads = 2});
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return std::move(*model);
}

// Rows of each batch so far, [head][row][dim] in double, and the attention of one query over the first `seen` of them.
struct Seen {
  std::vector<std::vector<float>> k, v;  // [batch * kGroups + group], rows appended
};
void ExpectAttention(const Seen& seen, const float* q, const float* o, int64_t b, int64_t h, int64_t count,
                     double* worst) {
  const auto at = static_cast<size_t>(b * kGroups + h / (kHeads / kGroups));
  std::vector<double> p(static_cast<size_t>(count));
  double top = -1e300, sum = 0;
  for (int64_t j = 0; j < count; ++j) {
    double s = 0;
    for (int64_t d = 0; d < kDim; ++d) s += static_cast<double>(q[d]) * seen.k[at][static_cast<size_t>(j * kDim + d)];
    p[static_cast<size_t>(j)] = s / std::sqrt(static_cast<double>(kDim));
    top = std::max(top, p[static_cast<size_t>(j)]);
  }
  for (double& x : p) sum += x = std::exp(x - top);
  for (int64_t d = 0; d < kDim; ++d) {
    double y = 0;
    for (int64_t j = 0; j < count; ++j)
      y += p[static_cast<size_t>(j)] / sum * seen.v[at][static_cast<size_t>(j * kDim + d)];
    *worst = std::max(*worst, std::fabs(y - o[d]));
  }
}

void RunLoop(bool causal) {
  const char* given = std::getenv("OCTAVO_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("OCTAVO_SEED=%llu replays this\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 rng(seed);
  const runtime::Model model = Compile(Decoder(causal));
  Seen seen{std::vector<std::vector<float>>(kBatch * kGroups), std::vector<std::vector<float>>(kBatch * kGroups)};
  Tensor cache_k = RandomTensor(rng, {kBatch, kGroups, kCapacity, kDim});  // what is not valid must not matter
  Tensor cache_v = RandomTensor(rng, {kBatch, kGroups, kCapacity, kDim});
  const std::byte* where = cache_k.data();
  double worst = 0;
  for (int64_t step = 0, filled = 0; step < 6; ++step) {
    const int64_t s = step == 0 ? 5 : causal && step == 3 ? 3 : 1;  // a prompt, single tokens, a few at once
    ir::TensorMap in{{"q", RandomTensor(rng, {kBatch, kHeads, s, kDim})},
                     {"k", RandomTensor(rng, {kBatch, kGroups, s, kDim})},
                     {"v", RandomTensor(rng, {kBatch, kGroups, s, kDim})}};
    in["at"] = Tensor::S64({kBatch}, {filled, filled});
    filled += s;
    in["valid"] = Tensor::S64({kBatch}, {filled, filled});
    for (int64_t bg = 0; bg < kBatch * kGroups; ++bg) {
      for (const auto& [all, now] : {std::pair{&seen.k, in["k"]}, std::pair{&seen.v, in["v"]}}) {
        const auto rows = now.as<float>().subspan(static_cast<size_t>(bg * s * kDim), static_cast<size_t>(s * kDim));
        (*all)[static_cast<size_t>(bg)].insert((*all)[static_cast<size_t>(bg)].end(), rows.begin(), rows.end());
      }
    }
    const Tensor q = in["q"];
    in["past_k"] = std::move(cache_k);
    in["past_v"] = std::move(cache_v);
    auto out = model.Run(std::move(in));
    ASSERT_TRUE(out.has_value()) << out.error().message;
    for (int64_t bh = 0; bh < kBatch * kHeads; ++bh) {
      for (int64_t i = 0; i < s; ++i) {
        ExpectAttention(seen, q.as<float>().data() + (bh * s + i) * kDim,
                        (*out)[0].as<float>().data() + (bh * s + i) * kDim, bh / kHeads, bh % kHeads,
                        causal ? filled - s + i + 1 : filled, &worst);
      }
    }
    cache_k = std::move((*out)[1]);
    cache_v = std::move((*out)[2]);
    EXPECT_EQ(cache_k.data(), where) << "step " << step << " copied the cache";
  }
  EXPECT_LT(worst, 2e-6);
}

TEST(Cache, LoopEqualsAttentionOverWhatWasSeen) { RunLoop(false); }
TEST(Cache, CausalLoopEqualsAttentionOverWhatWasSeen) { RunLoop(true); }

TEST(Cache, WhatTheCallerStillHoldsIsNotOverwritten) {
  std::mt19937_64 rng(7);
  const runtime::Model model = Compile(Decoder(true));
  const ir::TensorMap in{{"q", RandomTensor(rng, {kBatch, kHeads, 1, kDim})},
                         {"k", RandomTensor(rng, {kBatch, kGroups, 1, kDim})},
                         {"v", RandomTensor(rng, {kBatch, kGroups, 1, kDim})},
                         {"past_k", RandomTensor(rng, {kBatch, kGroups, kCapacity, kDim})},
                         {"past_v", RandomTensor(rng, {kBatch, kGroups, kCapacity, kDim})},
                         {"at", Tensor::S64({kBatch}, {3, 9})},
                         {"valid", Tensor::S64({kBatch}, {4, 10})}};
  const std::vector<float> before = in.at("past_k").ToFloats();
  for (int run = 0; run < 2; ++run) {
    auto out = model.Run(in);
    ASSERT_TRUE(out.has_value()) << out.error().message;
    EXPECT_EQ(in.at("past_k").ToFloats(), before);
    EXPECT_NE((*out)[1].data(), in.at("past_k").data());
    EXPECT_NE((*out)[1].ToFloats(), before);
    auto want = ir::Interpret(Decoder(true), in);
    ASSERT_TRUE(want.has_value()) << want.error().message;
    EXPECT_TRUE((*out)[1].SameBits((*want)[1]));
    EXPECT_TRUE((*out)[2].SameBits((*want)[2]));
  }
}

TEST(Cache, APositionOutsideIsRefusedAndNothingIsWritten) {
  std::mt19937_64 rng(8);
  const runtime::Model model = Compile(Decoder(false));
  Tensor cache = RandomTensor(rng, {kBatch, kGroups, kCapacity, kDim});
  ir::TensorMap in{{"q", RandomTensor(rng, {kBatch, kHeads, 2, kDim})},
                   {"k", RandomTensor(rng, {kBatch, kGroups, 2, kDim})},
                   {"v", RandomTensor(rng, {kBatch, kGroups, 2, kDim})},
                   {"past_k", cache},
                   {"past_v", cache},
                   {"at", Tensor::S64({kBatch}, {0, kCapacity - 1})},
                   {"valid", Tensor::S64({kBatch}, {2, 2})}};
  const std::vector<float> before = cache.ToFloats();
  auto out = model.Run(in);
  ASSERT_FALSE(out.has_value());
  EXPECT_NE(out.error().message.find("write position 23 is outside axis of size 24"), std::string::npos)
      << out.error().message;
  EXPECT_EQ(cache.ToFloats(), before);
}

// --- caches as codes -------------------------------------------------------------------------------------------------

// o, present k, present v = Attention(q, append(past k, k), append(past v, v)); Concat or, at a place, TensorScatter.
Graph Growing(Op append, bool read_as_floats = false) {
  Graph g;
  g.info.opsets[""] = 24;
  const ir::Dim s = ir::Dim::Symbol("s"), past = append == Op::kConcat ? ir::Dim::Symbol("past") : ir::Dim(kCapacity);
  const auto input = [&](const char* name, int64_t heads, ir::Dim rows) {
    return g.AddInput(name, {DType::kF32, ir::SymShape{kBatch, heads, std::move(rows), kDim}});
  };
  const ValueId q = input("q", kHeads, s), k = input("k", kGroups, s), v = input("v", kGroups, s);
  const ValueId past_k = input("past_k", kGroups, past), past_v = input("past_v", kGroups, past);
  ValueId at, valid;
  if (append == Op::kTensorScatter) {
    at = g.AddInput("at", {DType::kS64, ir::SymShape{kBatch}});
    valid = g.AddInput("valid", {DType::kS64, ir::SymShape{kBatch}});
  }
  const auto one = [&](Op op, std::vector<ValueId> in, ir::Attrs attrs, const char* name) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), name)).output();
  };
  const auto behind = [&](ValueId cache, ValueId rows, const char* name) {
    return append == Op::kConcat ? one(append, {cache, rows}, {{"axis", int64_t{2}}}, name)
                                 : one(append, {cache, rows, at}, {}, name);
  };
  const ValueId keys = behind(past_k, k, "append_k"), values = behind(past_v, v, "append_v");
  g.AddOutput("o", one(Op::kAttention, {q, keys, values, {}, {}, {}, valid}, {}, "attention"));
  g.AddOutput("present_k", keys, {DType::kF32, {}});
  g.AddOutput("present_v", values, {DType::kF32, {}});
  if (read_as_floats) g.AddOutput("norm", one(Op::kRelu, {keys}, {}, "reader"));
  return g;
}

Optimized Quantized(const Graph& g, bool caches, const std::string& recipe = "int8") {
  auto data = quant::RandomData(2, quant::InputsOf(g), {.limits = {{"at", 1}, {"valid", 3}}});
  EXPECT_TRUE(data.has_value());
  OptimizeOptions options;
  options.recipe = recipe, options.quantize_kv_cache = caches, options.data = data->get();
  auto result = Optimize(g, options);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return std::move(*result);
}

bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.byte_size()) == 0;
}

// Both models step by step from the same floats: what attention gives has the same bits, and the codes are those of the floats.
void ExpectSameBits(Op append, const std::string& recipe) {
  std::mt19937_64 rng(7);
  const Graph g = Growing(append);
  const Optimized floats = Quantized(g, false, recipe), codes = Quantized(g, true, recipe);
  const auto caches = passes::quantize::CodedCaches(codes.graph);
  ASSERT_EQ(caches.size(), 2U);
  ASSERT_TRUE(passes::quantize::CodedCaches(floats.graph).empty());
  auto a = runtime::Model::Compile(floats.graph), b = runtime::Model::Compile(codes.graph);
  ASSERT_TRUE(a.has_value() && b.has_value());
  const int64_t rows = append == Op::kConcat ? 0 : kCapacity;
  Tensor past_k = RandomTensor(rng, {kBatch, kGroups, rows, kDim}), past_v = past_k;
  ir::TensorMap of_codes{{"past_k", past_k}, {"past_v", past_v}};
  passes::quantize::EncodeCaches(caches, of_codes);
  for (int64_t step = 0, filled = 0; step < 4; ++step) {
    const int64_t s = step == 0 ? 5 : 1;
    ir::TensorMap in{{"q", RandomTensor(rng, {kBatch, kHeads, s, kDim})},
                     {"k", RandomTensor(rng, {kBatch, kGroups, s, kDim})},
                     {"v", RandomTensor(rng, {kBatch, kGroups, s, kDim})}};
    if (append == Op::kTensorScatter) {
      in["at"] = Tensor::S64({kBatch}, {filled, filled});
      filled += s;
      in["valid"] = Tensor::S64({kBatch}, {filled, filled});
    }
    ir::TensorMap with_codes = in;
    in["past_k"] = past_k, in["past_v"] = past_v;
    for (auto& [name, t] : of_codes) with_codes[name] = t;
    auto x = a->Run(in), y = b->Run(with_codes);
    ASSERT_TRUE(x.has_value()) << x.error().message;
    ASSERT_TRUE(y.has_value()) << y.error().message;
    EXPECT_TRUE(SameBytes((*x)[0], (*y)[0])) << "step " << step;
    past_k = (*x)[1], past_v = (*x)[2];
    of_codes = {{"past_k", (*y)[1]}, {"past_v", (*y)[2]}};
    ir::TensorMap encoded{{"past_k", past_k}, {"past_v", past_v}};
    passes::quantize::EncodeCaches(caches, encoded);
    EXPECT_TRUE(SameBytes(encoded["past_k"], of_codes["past_k"]) && SameBytes(encoded["past_v"], of_codes["past_v"]));
    ir::TensorMap decoded{{"present_k", (*y)[1]}};
    passes::quantize::DecodeCaches(caches, decoded);
    const auto want = past_k.as<float>(), got = decoded["present_k"].as<float>();
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 0.3f * std::max(1.0f, std::fabs(want[i])));
  }
}

TEST(CodedCache, GrowingCachesGiveTheSameBits) { ExpectSameBits(Op::kConcat, "int8"); }
TEST(CodedCache, CachesOfFixedLengthGiveTheSameBits) { ExpectSameBits(Op::kTensorScatter, "int8"); }
TEST(CodedCache, Fp8CachesGiveTheSameBits) { ExpectSameBits(Op::kConcat, "fp8"); }

TEST(CodedCache, AFileKeepsThem) {
  const Optimized codes = Quantized(Growing(Op::kConcat), true);
  auto bytes = ir::onnx::WriteBytes(codes.graph);
  ASSERT_TRUE(bytes.has_value()) << bytes.error().message;
  auto again = ir::onnx::ReadBytes(*bytes);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  const auto caches = passes::quantize::CodedCaches(*again);
  ASSERT_EQ(caches.size(), 2U);
  EXPECT_EQ(caches[0].input, "past_k");
  EXPECT_EQ(caches[1].output, "present_v");
  EXPECT_EQ(caches[0].params, passes::quantize::CodedCaches(codes.graph)[0].params);
  EXPECT_EQ(again->value(again->FindValue("past_k")).type.dtype, DType::kU8);
}

TEST(CodedCache, HostileMetadataIsNoCache) {
  Graph g = Growing(Op::kConcat);
  const ValueId past = g.FindValue("past_k");
  const auto caches_by = [&](const std::string& text, DType dtype) {
    g.SetType(past, {dtype, g.value(past).type.shape});
    g.info.metadata["octavo.caches"] = text;
    return passes::quantize::CodedCaches(g).size();
  };
  const auto entry = [](const std::string& output, const std::string& scale, const std::string& zero) {
    return R"([{"input": "past_k", "output": ")" + output + R"(", "scale": )" + scale + R"(, "zero_point": )" + zero +
           "}]";
  };
  EXPECT_EQ(caches_by(entry("present_k", "0.5", "255"), DType::kU8), 1U);
  EXPECT_EQ(caches_by(entry("present_k", "0.5", "-128"), DType::kS8), 1U);
  EXPECT_EQ(caches_by(entry("present_k", "0.5", "0"), DType::kE4M3FN), 1U);
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[1]"), std::string(R"([{"input": 3}])"),
        entry("nosuch", "0.5", "0"), entry("present_k", "-1", "0"), entry("present_k", "0", "0"),
        entry("present_k", "1e999", "0"), entry("present_k", "1e300", "0"), entry("present_k", "\"1\"", "0"),
        entry("present_k", "1", "1.5"), entry("present_k", "1", "256"),
        entry("present_k", "1", "-9223372036854775808")}) {
    EXPECT_EQ(caches_by(text, DType::kU8), 0U) << text;
  }
  EXPECT_EQ(caches_by(entry("present_k", "0.5", "0"), DType::kF32), 0U);
  EXPECT_EQ(caches_by(entry("present_k", "0.5", "1"), DType::kE4M3FN), 0U);
}

// Signed codes, which no recipe of octavo gives an activation, but another file may have.
TEST(CodedCache, SignedCodesGoBothWays) {
  const std::vector<passes::quantize::CodedCache> caches{{"past", "present", {DType::kS8, 0.5f, -3}}};
  ir::TensorMap t{{"past", Tensor::F32({5}, {-1000.0f, -1.0f, 0.0f, 0.25f, 1000.0f})}};
  passes::quantize::EncodeCaches(caches, t);
  const auto codes = t["past"].as<int8_t>();
  EXPECT_EQ(std::vector<int>(codes.begin(), codes.end()), (std::vector<int>{-128, -5, -3, -3, 127}));  // 0.5: to even
  ir::TensorMap out{{"present", t["past"]}};
  passes::quantize::DecodeCaches(caches, out);
  EXPECT_EQ(out["present"].ToFloats(), (std::vector<float>{-62.5f, -1.0f, 0.0f, 0.0f, 65.0f}));
}

TEST(CodedCache, ACacheThatLeavesTwiceIsCodesTwice) {
  Graph g = Growing(Op::kConcat);
  g.AddOutput("again", g.outputs()[1].value, {DType::kF32, {}});
  const Optimized r = Quantized(g, true);
  EXPECT_EQ(passes::quantize::CodedCaches(r.graph).size(), 2U);
  for (const size_t i : {1, 3}) EXPECT_EQ(r.graph.value(r.graph.outputs()[i].value).type.dtype, DType::kU8);
  g.AddOutput("past", g.FindValue("past_v"), {DType::kF32, {}});
  EXPECT_EQ(passes::quantize::CodedCaches(Quantized(g, true).graph).size(), 1U);
}

TEST(CodedCache, WhatReadsFloatsKeepsFloatsAndIsNamed) {
  const Optimized r = Quantized(Growing(Op::kConcat, true), true);
  std::vector<std::string> left, quantized;
  for (const passes::Candidate& c : r.report.candidates) {
    if (c.kind == "cache") (c.status == "left" ? left : quantized).push_back(c.nodes[0] + ": " + c.reason);
  }
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].find("past_k: 'present_k' stays float: 'reader' reads it as floats"), 0U) << left[0];
  ASSERT_EQ(quantized.size(), 1U);
  EXPECT_EQ(quantized[0].find("past_v: u8, scale"), 0U) << quantized[0];
}

TEST(CodedCache, ARecipeWithoutCalibrationRefuses) {
  OptimizeOptions options;
  options.recipe = "dynamic", options.quantize_kv_cache = true;
  auto result = Optimize(Growing(Op::kConcat), options);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("recipes int8 and fp8"), std::string::npos) << result.error().message;
}

// A decoder's first step may come with empty caches of the encoder: attention over no keys is a sum over nothing.
TEST(Cache, AttentionOverNoKeysIsZero) {
  Graph g;
  g.info.opsets[""] = 23;
  const auto input = [&](const char* name, int64_t heads, const char* rows) {
    return g.AddInput(name, {DType::kF32, ir::SymShape{kBatch, heads, ir::Dim::Symbol(rows), kDim}});
  };
  const ValueId q = input("q", kHeads, "s"), k = input("k", kGroups, "t"), v = input("v", kGroups, "t");
  g.AddOutput("o", g.node(g.AddNode(Op::kAttention, {q, k, v}, 1, {}, "attention")).output());
  std::mt19937_64 rng(1);
  for (const std::string recipe : {"float", "int8", "fp8"}) {
    auto model = runtime::Model::Compile(Quantized(g, false, recipe).graph, {.threads = 2});
    ASSERT_TRUE(model.has_value()) << model.error().message;
    for (const int64_t keys : {0, 3}) {
      const ir::TensorMap in{{"q", RandomTensor(rng, {kBatch, kHeads, 5, kDim})},
                             {"k", RandomTensor(rng, {kBatch, kGroups, keys, kDim})},
                             {"v", RandomTensor(rng, {kBatch, kGroups, keys, kDim})}};
      auto out = model->Run(in);
      ASSERT_TRUE(out.has_value()) << recipe << ": " << out.error().message;
      const auto o = (*out)[0].as<float>();
      EXPECT_EQ(std::ranges::all_of(o, [](float x) { return x == 0.0f; }), keys == 0) << recipe;
    }
  }
}

}  // namespace
}  // namespace octavo::api
