// Attention whose scores and probabilities pass through codes on the way, as ONNX Runtime's static quantization writes it:
// the int8 rule fires at every set of places, the fused op means what stood there, and each guard has its sentence.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "octavo/ir/infer.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/report.h"
#include "octavo/tests/passes/rule_graphs.h"
#include "octavo/tests/passes/same_bits.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kBatch = 2, kHeads = 3, kRows = 7, kDim = 8;

struct Form {
  bool codes[4] = {};  // behind the product, the scale, the mask, the Softmax
  bool scale = true, mask = true;
  bool divide = false;      // instead of the scale
  bool keep = false;        // Where(keep, ., -1e4) before the Softmax
  bool hide = false;        // as Where(hide, -1e4, .)
  bool kept_codes = false;  // behind it
  DType operands = DType::kU8, scores = DType::kU8;
  float other_scale = 0;              // of the DequantizeLinear behind the product; 0: the same
  float scaled_step = 0, p_step = 0;  // the same behind the scale, and of P
  bool per_tensor = true;             // the codes behind the product
  bool causal = false;                // a mask that could be a window
  bool read_twice = false;            // the codes of P are an output too
  float masked_scale = 0.06f, prob_scale = 1 / 255.0f;
  int kept_zero = 170;
};

struct Maker : passes::Maker {
  Maker() : passes::Maker(5) {}
  ValueId Codes(ValueId x, ValueId scale, ValueId zero, ValueId back = {}) {
    return Node(Op::kDequantizeLinear, {Node(Op::kQuantizeLinear, {x, scale, zero}), back ? back : scale, zero});
  }
  ValueId Operand(const std::string& name, DType t, ir::SymShape shape) {
    return Coded(g.AddInput(name, {DType::kF32, std::move(shape)}), 0.02f, 121, t);
  }
};

// key > query, as exporters write it.
ValueId Causal(Maker& m) {
  const ValueId range =
      m.Node(Op::kRange, {m.g.AddConstant(Tensor::S64({}, {0})), m.g.AddConstant(Tensor::S64({}, {kRows})),
                          m.g.AddConstant(Tensor::S64({}, {1}))});
  const ValueId rows = m.Node(Op::kUnsqueeze, {range, m.Ints({1})});
  return m.Node(Op::kWhere,
                {m.Node(Op::kLessOrEqual, {range, rows}), m.Real(0), m.Real(std::numeric_limits<float>::lowest())});
}

Graph Make(const Form& f) {
  Maker m;
  const ValueId q = m.Operand("q", f.operands, {kBatch, kHeads, kRows, kDim}),
                kt = m.Operand("k", f.operands, {kBatch, kHeads, kDim, kRows}),
                v = m.Operand("v", f.operands, {kBatch, kHeads, kRows, kDim});
  ValueId s = m.Node(Op::kMatMul, {q, kt});
  if (f.codes[0]) {
    ValueId scale = m.Real(0.11f), zero = m.Zero(f.scores, 100);
    if (!f.per_tensor) {
      scale = m.g.AddConstant(Tensor::F32({kRows}, std::vector<float>(kRows, 0.11f)));
      zero = m.g.AddConstant(Tensor::Zeros(f.scores, {kRows}));
    }
    s = m.Codes(s, scale, zero, f.other_scale != 0 ? m.Real(f.other_scale) : ValueId{});
  }
  if (f.scale) s = m.Node(f.divide ? Op::kDiv : Op::kMul, {s, m.Real(f.divide ? 2.7f : 0.37f)});
  if (f.codes[1])
    s = m.Codes(s, m.Real(0.05f), m.Zero(f.scores, 140), f.scaled_step != 0 ? m.Real(f.scaled_step) : ValueId{});
  if (f.mask) {
    const ValueId mask =
        f.causal ? Causal(m) : m.g.AddInput("mask", {DType::kF32, ir::SymShape{kBatch, 1, kRows, kRows}});
    s = m.Node(Op::kAdd, {mask, s});
  }
  if (f.codes[2]) s = m.Coded(s, f.masked_scale, 170, f.scores);
  if (f.keep) {
    const ValueId keep = m.g.AddInput("keep", {DType::kBool, ir::SymShape{kBatch, 1, 1, kRows}});
    const ValueId low = m.Real(-1e4f);
    s = m.Node(Op::kWhere, {keep, f.hide ? low : s, f.hide ? s : low});
  }
  if (f.kept_codes) s = m.Coded(s, f.masked_scale, f.kept_zero, f.scores);
  ValueId p = m.Node(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}});
  if (f.codes[3]) p = m.Coded(p, f.prob_scale, 0, f.scores);
  const ValueId p_scale = m.Real(0.0031f), p_zero = m.Zero(f.operands, 0);
  const ValueId pq = m.Node(Op::kQuantizeLinear, {p, p_scale, p_zero});
  const ValueId p_step = f.p_step != 0 ? m.Real(f.p_step) : p_scale;
  const ValueId y = m.Node(Op::kMatMul, {m.Node(Op::kDequantizeLinear, {pq, p_step, p_zero}), v});
  m.g.AddOutput("y", m.Quantize(y, 0.013f, 128, f.operands));
  if (f.read_twice) m.g.AddOutput("p", pq);
  return std::move(m.g);
}

struct Fused {
  Graph graph;
  int cores = 0;
  std::string reasons;
};
Fused Fuse(const Graph& g) {
  Fused f;
  f.graph = g;
  EXPECT_TRUE(ir::Inference::Run(f.graph).has_value());
  std::vector<NearMiss> misses;
  PassRun context;
  context.misses = &misses;
  const auto changed = FuseQuantized(f.graph, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  for (NodeId id : f.graph.NodesInOrder()) f.cores += f.graph.node(id).op == Op::kQuantizedSdpa;
  for (const NearMiss& miss : misses) f.reasons += miss.reason + "\n";
  return f;
}

void ExpectSameBits(const Graph& before, const Graph& after) {
  std::mt19937 rng(9);
  std::normal_distribution<float> normal;
  ir::TensorMap inputs;
  for (ValueId v : before.inputs()) {
    ir::Shape shape;
    for (const ir::Dim& d : *before.value(v).type.shape) shape.push_back(d.number());
    const bool keep = before.value(v).type.dtype == DType::kBool;
    Tensor t = Tensor::Empty(keep ? DType::kBool : DType::kF32, shape);
    if (keep) {
      for (uint8_t& x : t.mutable_as<uint8_t>()) x = rng() % 4 != 0;
      inputs[before.value(v).name] = t;
      continue;
    }
    const bool mask = before.value(v).name == "mask";
    for (float& x : t.mutable_as<float>())
      x = mask && rng() % 4 == 0 ? -std::numeric_limits<float>::infinity() : normal(rng);
    inputs[before.value(v).name] = t;
  }
  passes::ExpectSameBits(before, after, inputs);
}

TEST(ScoreCodes, FuseAtEverySetOfPlaces) {
  for (int places = 0; places < 16; ++places) {
    for (int parts = 0; parts < 4; ++parts) {
      SCOPED_TRACE("places " + std::to_string(places) + ", parts " + std::to_string(parts));
      Form f{.scale = (parts & 1) != 0, .mask = (parts & 2) != 0};
      for (int i = 0; i < 4; ++i) f.codes[i] = (places >> i & 1) != 0;
      f.scores = places % 3 == 0 ? DType::kS8 : DType::kU8;
      // Without a scale two pairs would follow each other, with other numbers: nothing writes that.
      if (f.codes[0] && f.codes[1] && !f.scale) continue;
      if (!f.mask && f.codes[2] && (f.codes[1] || (f.codes[0] && !f.scale))) continue;
      const Graph before = Make(f);
      const Fused after = Fuse(before);
      ASSERT_EQ(after.cores, 1) << after.reasons;
      ExpectSameBits(before, after.graph);
    }
  }
}

TEST(ScoreCodes, DivisionsAndBoolMasks) {
  for (int form = 0; form < 16; ++form) {
    SCOPED_TRACE("form " + std::to_string(form));
    const bool kept_codes = (form & 1) != 0;
    const bool mask = (form & 8) != 0;  // without it the codes before the Where are those of the scale
    const Form f{.codes = {(form & 2) != 0, (form & 4) != 0, !kept_codes || !mask, false},
                 .mask = mask,
                 .divide = true,
                 .keep = true,
                 .hide = (form & 6) == 2,
                 .kept_codes = kept_codes};
    if (!f.mask && f.codes[1] && f.codes[2]) continue;
    const Graph before = Make(f);
    const Fused after = Fuse(before);
    ASSERT_EQ(after.cores, 1) << after.reasons;
    ExpectSameBits(before, after.graph);
  }
}

TEST(ScoreCodes, TheCodesOfPMayHaveOtherReaders) {
  const Graph before = Make({.codes = {true, false, true, false}, .read_twice = true});
  const Fused after = Fuse(before);
  ASSERT_EQ(after.cores, 1) << after.reasons;
  ExpectSameBits(before, after.graph);
}

// As QLinearMatMul rounds: by a factor that is not the scale of the codes (vendor/requantized.cc).
TEST(ScoreCodes, CodesOfProductsAndOfPComeBackByAStep) {
  for (int way = 1; way < 4; ++way) {
    SCOPED_TRACE("way " + std::to_string(way));
    const Graph before = Make({.codes = {true, false, way == 3, false},
                               .other_scale = (way & 1) != 0 ? 0.047f : 0.0f,
                               .p_step = (way & 2) != 0 ? 0.0052f : 0.0f});
    const Fused after = Fuse(before);
    ASSERT_EQ(after.cores, 1) << after.reasons;
    ExpectSameBits(before, after.graph);
    Graph flash = after.graph;
    PassRun context;
    EXPECT_FALSE(UseFlash(flash, context).value());
  }
}

TEST(ScoreCodes, EachGuardHasItsSentence) {
  const auto refused = [](const Form& f, const char* reason) {
    const Fused after = Fuse(Make(f));
    EXPECT_EQ(after.cores, 0) << reason;
    EXPECT_NE(after.reasons.find(reason), std::string::npos) << after.reasons;
  };
  refused({.codes = {true}, .scores = DType::kU16}, "the scores are quantized to u16; the kernel takes u8 and s8");
  refused({.codes = {true}, .operands = DType::kE4M3FN}, "the kernel takes u8 and s8, in integer attention");
  refused({.codes = {false, true}, .scaled_step = 0.12f},
          "the scores are quantized and dequantized with different parameters");
  refused({.codes = {true}, .per_tensor = false}, "the scores is not quantized per tensor with a constant scale");
  refused({.divide = true, .operands = DType::kE4M3FN}, "the scores are divided, for which fp8 attention has no step");
  refused({.codes = {false, true, true, false}, .keep = true, .kept_codes = true},
          "the scores are quantized before and behind the Where");
  refused({.keep = true, .kept_codes = true, .kept_zero = 0}, "hidden keys get the score 0, which is not negative");
  refused({.codes = {false, false, false, true}, .prob_scale = std::numeric_limits<float>::infinity()},
          "the probabilities are quantized with the scale inf");
}

// ONNX Runtime takes the lowest float of a mask into the range of what it quantizes; the bits stay, and the report says so.
TEST(ScoreCodes, CoarseStepsAreReported) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const auto& [scale, said] :
       {std::pair{0.06f, ""},
        {1.33e36f, "the file quantizes the masked scores in steps of 1.33e+36, so keys get equal weights;"},
        {kInf, "in steps of inf, so keys get equal weights or NaN, for which every runtime has another code;"}}) {
    const Graph before = Make({.codes = {true, false, true, false}, .masked_scale = scale});
    Report report = TakeInventory(before);
    const Fused after = Fuse(before);
    ASSERT_EQ(after.cores, 1) << after.reasons;
    Judge(after.graph, PassRun(), report);
    ASSERT_FALSE(report.candidates.empty());
    EXPECT_EQ(report.candidates[0].status, "fused");
    EXPECT_EQ(report.candidates[0].reason.empty(), std::string(said).empty()) << report.candidates[0].reason;
    EXPECT_NE(report.candidates[0].reason.find(said), std::string::npos) << report.candidates[0].reason;
  }
}

// Where the sum of scores and mask becomes codes, a hidden key gets the lowest code and not `low`.
TEST(ScoreCodes, AMaskBeforeCodesIsNoWindow) {
  for (const bool masked_codes : {false, true}) {
    const Graph before = Make({.codes = {true, false, masked_codes, false}, .causal = true});
    Fused after = Fuse(before);
    ASSERT_EQ(after.cores, 1) << after.reasons;
    PassRun context;
    const auto lifted = FuseWindows(after.graph, context);
    ASSERT_TRUE(lifted.has_value());
    EXPECT_EQ(*lifted, !masked_codes);
    ExpectSameBits(before, after.graph);
  }
}

TEST(ScoreCodes, OperandsAreOfOneKind) {
  Refuses("q, k, v, P and the output are partly fp8, partly integers", QuantizedSdpa(false), [](Graphs& m) {
    const auto real = [&](ir::SymShape shape, DType t) { return m.Dequantize(m.In(std::move(shape), t), 0.1f, 0, t); };
    const ValueId s = m.Node(Op::kMatMul, {real({1, 2, 5, 4}, DType::kU8), real({1, 2, 4, 5}, DType::kE4M3FN)});
    const ValueId p = m.Coded(m.Node(Op::kSoftmax, {s}), 1 / 255.0f, 0);
    m.g.AddOutput("y", m.Node(Op::kMatMul, {p, real({1, 2, 5, 4}, DType::kU8)}));
  });
  Refuses("attention between its codes is not f32, for which there is no kernel", QuantizedSdpa(false), [](Graphs& m) {
    const ValueId scale = m.g.AddConstant(Tensor::Of<uint16_t>(DType::kF16, {}, std::vector<uint16_t>{0x2e66}));
    const ValueId zero = m.Zero(DType::kU8, 0);
    const auto real = [&](ValueId q) { return m.Node(Op::kDequantizeLinear, {q, scale, zero}); };
    const ValueId s = m.Node(Op::kMatMul, {real(m.In({1, 2, 5, 4}, DType::kU8)), real(m.In({1, 2, 4, 5}, DType::kU8))});
    const ValueId p = m.Node(Op::kQuantizeLinear, {m.Node(Op::kSoftmax, {s}), scale, zero});
    m.g.AddOutput("y", m.Node(Op::kMatMul, {real(p), real(m.In({1, 2, 5, 4}, DType::kU8))}));
  });
}

}  // namespace
}  // namespace octavo::passes::fusions
