// ONNX's Attention gives zeros for rows that are masked wholly, and NaN for a NaN in Q or K; so does what becomes of it.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "octavo/ir/functions.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/text.h"
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kRows = 5, kKeys = 7, kDim = 4;
constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor Random(ir::Shape shape, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (float& x : t.mutable_as<float>()) x = normal(rng);
  return t;
}

// Row 1 is masked wholly, row 3 in part.
Tensor Mask() {
  Tensor t = Tensor::Zeros(DType::kF32, {kRows, kKeys});
  for (int64_t j = 0; j < kKeys; ++j) t.mutable_as<float>()[static_cast<size_t>(kKeys + j)] = -kInf;
  t.mutable_as<float>()[3 * kKeys + 2] = -kInf;
  return t;
}

struct Graphs {
  ir::Graph g;
  ir::ValueId q, k, v, mask;
  Graphs() {
    g.info.opsets[""] = 23;
    q = g.AddInput("q", {DType::kF32, ir::SymShape{1, 2, kRows, kDim}});
    k = g.AddInput("k", {DType::kF32, ir::SymShape{1, 2, kKeys, kDim}});
    v = g.AddInput("v", {DType::kF32, ir::SymShape{1, 2, kKeys, kDim}});
    mask = g.AddInput("mask", {DType::kF32, ir::SymShape{kRows, kKeys}});
  }
  ir::ValueId Make(ir::Op op, std::vector<ir::ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), "n" + std::to_string(g.node_count()))).output();
  }
};

ir::Graph Fuse(ir::Graph g, std::vector<NearMiss>* misses = nullptr) {
  EXPECT_TRUE(ir::Inference::Run(g).has_value());
  PassRun context;
  context.misses = misses;
  auto changed = FuseFloat(g, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  return g;
}

const ir::Node* SdpaOf(const ir::Graph& g) {
  for (ir::NodeId id : g.NodesInOrder()) {
    if (g.node(id).op == ir::Op::kSdpa) return &g.node(id);
  }
  return nullptr;
}

// NaN where the other has one, else near it.
void ExpectSameMeaning(const ir::Graph& before, const ir::Graph& after, const ir::TensorMap& inputs, int nan_rows) {
  const auto want = ir::Interpret(before, inputs), got = ir::Interpret(after, inputs);
  ASSERT_TRUE(want.has_value() && got.has_value());
  int nan = 0;
  for (int64_t i = 0; i < (*want)[0].size(); ++i) {
    const double a = (*want)[0].GetDouble(i), b = (*got)[0].GetDouble(i);
    ASSERT_EQ(std::isnan(a), std::isnan(b)) << i;
    nan += std::isnan(a);
    if (!std::isnan(a)) {
      ASSERT_NEAR(a, b, 1e-5) << i;
    }
    if (i / kDim % kRows == 1 && !std::isnan(a)) {
      EXPECT_EQ(b, 0.0) << "a row that is masked wholly";
    }
  }
  EXPECT_EQ(nan, nan_rows * kDim);
}

ir::TensorMap Inputs() {
  return {{"q", Random({1, 2, kRows, kDim}, 1)},
          {"k", Random({1, 2, kKeys, kDim}, 2)},
          {"v", Random({1, 2, kKeys, kDim}, 3)},
          {"mask", Mask()}};
}

void ExpectNanStays(const ir::Graph& before, const ir::Graph& after) {
  ExpectSameMeaning(before, after, Inputs(), 0);
  for (const auto& [name, at, rows] :
       {std::tuple{"q", 2 * kDim, 1}, {"q", kDim, 1}, {"k", 2 * kDim, kRows}, {"k", 0, kRows}}) {
    ir::TensorMap inputs = Inputs();
    inputs[name].mutable_as<float>()[static_cast<size_t>(at)] = std::nanf("");
    ExpectSameMeaning(before, after, inputs, static_cast<int>(rows));
  }
}

TEST(MaskedGuard, OfOnnxAttention) {
  Graphs b;
  b.g.AddOutput("y", b.Make(ir::Op::kAttention, {b.q, b.k, b.v, b.mask}));
  const ir::Graph fused = Fuse(b.g);
  const ir::Node* sdpa = SdpaOf(fused);
  ASSERT_NE(sdpa, nullptr);
  EXPECT_EQ(sdpa->attrs.Int("nan_guard", 0), ir::kSdpaGuardMasked);
  ExpectNanStays(b.g, fused);
}

struct Guarded : Graphs {
  explicit Guarded(const std::function<ir::ValueId(Graphs&, ir::ValueId s, ir::ValueId p)>& guard) {
    const ir::ValueId kt = Make(ir::Op::kTranspose, {k}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    const ir::ValueId s = Make(ir::Op::kAdd, {Make(ir::Op::kMatMul, {q, kt}), mask});
    const ir::ValueId p = Make(ir::Op::kSoftmax, {s}, {{"axis", int64_t{-1}}});
    g.AddOutput("y", Make(ir::Op::kMatMul, {guard(*this, s, p), v}));
  }
};

ir::ValueId GuardOf(Graphs& b, ir::ValueId s, ir::ValueId p, int64_t axis, int64_t positive, float instead) {
  const ir::ValueId top =
      b.Make(ir::Op::kReduceMax, {s, b.g.AddConstant(Tensor::S64({1}, {axis}))}, {{"keepdims", int64_t{1}}});
  const ir::ValueId masked = b.Make(ir::Op::kIsInf, {top}, {{"detect_positive", positive}});
  return b.Make(ir::Op::kWhere, {masked, b.g.AddConstant(Tensor::ScalarF32(instead)), p});
}

TEST(MaskedGuard, OfTheBodyIsFoundAgain) {
  const Guarded b([](Graphs& g, ir::ValueId s, ir::ValueId p) { return GuardOf(g, s, p, -1, 0, 0.0f); });
  const ir::Graph fused = Fuse(b.g);
  const ir::Node* sdpa = SdpaOf(fused);
  ASSERT_NE(sdpa, nullptr);
  EXPECT_EQ(sdpa->attrs.Int("nan_guard", 0), ir::kSdpaGuardMasked);
  ExpectNanStays(b.g, fused);
}

// Where(m, 0, Softmax(Where(m, low, s))), as DeBERTa has it.
TEST(MaskedGuard, OfProbabilitiesThatAreMaskedOnceMore) {
  const Guarded b([](Graphs& g, ir::ValueId s, ir::ValueId) {
    const auto scalar = [&g](float x) { return g.g.AddConstant(Tensor::ScalarF32(x)); };
    const ir::ValueId m = g.Make(ir::Op::kLess, {g.mask, scalar(-1)});
    const ir::ValueId low = scalar(std::numeric_limits<float>::lowest());
    const ir::ValueId p = g.Make(ir::Op::kSoftmax, {g.Make(ir::Op::kWhere, {m, low, s})}, {{"axis", int64_t{-1}}});
    return g.Make(ir::Op::kWhere, {m, scalar(0), p});
  });
  ir::Graph canonical = b.g;
  PassRun context;
  ASSERT_TRUE(canonical::Canonicalize(canonical, context));
  const ir::Graph fused = Fuse(canonical);
  const ir::Node* sdpa = SdpaOf(fused);
  ASSERT_NE(sdpa, nullptr) << ir::ToText(canonical);
  EXPECT_EQ(sdpa->attrs.Int("nan_guard", 0), ir::kSdpaGuardMasked);
  ExpectSameMeaning(b.g, fused, Inputs(), 0);
  ir::TensorMap inputs = Inputs();
  inputs["q"].mutable_as<float>()[2 * kDim] = std::nanf("");
  ExpectSameMeaning(b.g, fused, inputs, 1);
}

// A Where hides what a NaN or an infinity in a row of K makes of scores; a sum with -inf does not, before and after. Key 2 is hidden from all rows but 1,
// which no key is.
TEST(MaskedGuard, HiddenKeysMayBeNan) {
  using Scores = std::function<ir::ValueId(Graphs&, ir::ValueId s, ir::ValueId keep, float low)>;
  const auto scalar = [](Graphs& g, float x) { return g.g.AddConstant(Tensor::ScalarF32(x)); };
  const auto hide = [&](Graphs& g, ir::ValueId s, ir::ValueId keep, float low) {
    return g.Make(ir::Op::kWhere, {keep, s, scalar(g, low)});
  };
  const std::vector<std::pair<const char*, Scores>> forms = {
      {"keeps", hide},
      {"hides", [&](Graphs& g, ir::ValueId s, ir::ValueId keep,
                    float low) { return g.Make(ir::Op::kWhere, {g.Make(ir::Op::kNot, {keep}), scalar(g, low), s}); }},
      {"twice",
       [&](Graphs& g, ir::ValueId s, ir::ValueId keep, float low) {
         return hide(g, g.Make(ir::Op::kWhere, {g.Make(ir::Op::kNot, {keep}), scalar(g, low), s}), keep, low);
       }},
      {"scaled before", [&](Graphs& g, ir::ValueId s, ir::ValueId keep,
                            float low) { return hide(g, g.Make(ir::Op::kDiv, {s, scalar(g, 2)}), keep, low); }},
      {"scaled behind",
       [&](Graphs& g, ir::ValueId s, ir::ValueId keep, float low) {
         return g.Make(ir::Op::kMul, {hide(g, g.Make(ir::Op::kAdd, {s, g.mask}), keep, low), scalar(g, 0.5f)});
       }},
      {"scaled behind, alone",
       [&](Graphs& g, ir::ValueId s, ir::ValueId keep, float low) {
         return g.Make(ir::Op::kMul, {hide(g, s, keep, low), scalar(g, 0.5f)});
       }},
      {"behind a sum",
       [&](Graphs& g, ir::ValueId s, ir::ValueId keep, float low) {
         return hide(g, g.Make(ir::Op::kMul, {g.Make(ir::Op::kAdd, {s, g.mask}), scalar(g, 0.5f)}), keep, low);
       }},
      {"capped",
       [&](Graphs& g, ir::ValueId s, ir::ValueId keep, float low) {
         return hide(g, g.Make(ir::Op::kMul, {g.Make(ir::Op::kTanh, {s}), scalar(g, 30)}), keep, low);
       }},
  };
  for (const auto& [name, scores] : forms) {
    for (const float low : {-kInf, std::numeric_limits<float>::lowest(), -1e4f}) {
      if (std::string_view(name).starts_with("scaled behind") && low != -kInf) continue;  // a term of a sum, or no mask
      SCOPED_TRACE(std::string(name) + ", " + std::to_string(low));
      Graphs b;
      const ir::ValueId keep = b.g.AddInput("keep", {DType::kBool, ir::SymShape{kRows, kKeys}});
      const ir::ValueId kt = b.Make(ir::Op::kTranspose, {b.k}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
      const ir::ValueId s = scores(b, b.Make(ir::Op::kMatMul, {b.q, kt}), keep, low);
      b.g.AddOutput("y", b.Make(ir::Op::kMatMul, {b.Make(ir::Op::kSoftmax, {s}), b.v}));
      ir::Graph canonical = b.g;
      PassRun context;
      ASSERT_TRUE(canonical::Canonicalize(canonical, context));
      const ir::Graph fused = Fuse(canonical);
      ASSERT_NE(SdpaOf(fused), nullptr) << ir::ToText(canonical);
      ir::TensorMap inputs = Inputs();
      inputs["mask"] = Random({kRows, kKeys}, 4);
      Tensor& kept = inputs["keep"] = Tensor::Zeros(DType::kBool, {kRows, kKeys});
      for (int64_t i = 0; i < kRows * kKeys; ++i)
        reinterpret_cast<uint8_t*>(kept.mutable_data())[i] = i / kKeys == 1 || i % kKeys != 2;
      for (const float odd : {0.0f, std::nanf(""), kInf, -kInf}) {
        for (const int64_t head : {0, 1})
          inputs["k"].mutable_as<float>()[static_cast<size_t>((head * kKeys + 2) * kDim)] = odd;
        const auto want = ir::Interpret(b.g, inputs), got = ir::Interpret(fused, inputs);
        ASSERT_TRUE(want.has_value() && got.has_value());
        for (int64_t i = 0; i < (*want)[0].size(); ++i) {
          const double x = (*want)[0].GetDouble(i), y = (*got)[0].GetDouble(i);
          ASSERT_EQ(std::isnan(x), std::isnan(y)) << odd << " at " << i;
          ASSERT_TRUE(i / kDim % kRows == 1 || !std::isnan(y)) << odd << " at " << i;
          ASSERT_TRUE(std::isnan(x) || std::fabs(x - y) < 1e-5) << odd << " at " << i;
        }
      }
    }
  }
}

TEST(MaskedGuard, DamagedInOnePlaceIsRefused) {
  const auto expect = [](int64_t axis, int64_t positive, float instead, std::string_view sentence) {
    const Guarded b([&](Graphs& g, ir::ValueId s, ir::ValueId p) { return GuardOf(g, s, p, axis, positive, instead); });
    std::vector<NearMiss> misses;
    EXPECT_EQ(SdpaOf(Fuse(b.g, &misses)), nullptr);
    bool found = false;
    for (const NearMiss& m : misses) found = found || m.reason.find(sentence) != std::string::npos;
    EXPECT_TRUE(found) << sentence;
  };
  expect(-1, 1, 0.0f, "does not look for -inf");
  expect(-2, 0, 0.0f, "does not look at rows");
  expect(-1, 0, 1.0f, "does not write zero");
}

}  // namespace
}  // namespace octavo::passes::fusions
