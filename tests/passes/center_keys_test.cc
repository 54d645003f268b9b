// center_keys: what keys have in common goes, what attention computes stays; and what it leaves alone.
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/passes/quantize/quantize.h"
#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::quantize {
namespace {

using ir::DType;
using ir::Tensor;

enum class Packing { kNone, kSplit, kSlices };
struct Options {
  Packing packing = Packing::kNone;
  float softcap = 0;
  bool read_twice = false;  // K is an output, too
};

// Two heads of 4; K has 100 and -100 on a channel of each.
Graphs Attention(const Options& o) {
  Graphs m;
  const ValueId x = m.Input("x", {1, 5, 8});
  const auto bias = [&m](int64_t n, size_t k_at) {
    Tensor t = Tensor::Zeros(DType::kF32, {n});
    t.mutable_as<float>()[k_at + 1] = 100, t.mutable_as<float>()[k_at + 6] = -100;
    return m.g.AddConstant(std::move(t), "bias");
  };
  const auto linear = [&](int64_t n, ValueId b) {
    return m.Node(Op::kAdd, {m.Node(Op::kMatMul, {x, m.Reals({8, n})}), b});
  };
  ValueId q, k, v;
  if (o.packing == Packing::kNone) {
    q = linear(8, m.Filled({8})), k = linear(8, bias(8, 0)), v = linear(8, m.Filled({8}));
  } else {
    const ValueId all = linear(24, bias(24, 8));
    if (o.packing == Packing::kSplit) {
      const NodeId split = m.g.AddNode(Op::kSplit, {all, m.Ints({8, 8, 8})}, 3, {{"axis", int64_t{-1}}}, "split");
      q = m.g.node(split).output(0), k = m.g.node(split).output(1), v = m.g.node(split).output(2);
    } else {
      const auto part = [&](int64_t from) {
        return m.Node(Op::kSlice, {all, m.Ints({from}), m.Ints({from + 8}), m.Ints({-1})});
      };
      q = part(0), k = part(8), v = part(16);
    }
  }
  m.g.SetName(k, "k");
  if (o.read_twice) m.g.AddOutput("keys", k);
  ir::Attrs attrs = {{"num_heads", int64_t{2}},  {"kv_num_heads", int64_t{2}}, {"head_dim", int64_t{4}},
                     {"v_head_dim", int64_t{4}}, {"q_rank", int64_t{3}},       {"k_rank", int64_t{3}},
                     {"v_rank", int64_t{3}},     {"out_rank", int64_t{3}},     {"scale", 0.5f}};
  if (o.softcap != 0) attrs.Set("softcap", o.softcap);
  m.g.AddOutput("y", m.Node(Op::kSdpa, {q, k, v}, attrs));
  EXPECT_TRUE(ir::Inference::Run(m.g));
  return m;
}

// Runs the pass with what a calibration would know of K: each channel within 2 of its bias.
Result<bool> Center(Graph& g, PassRun& run) {
  static const quant::QParams params = quant::AffineParams(-102, 102, DType::kU8);
  run.evidence.qparams = [](std::string_view name) { return name == "k" ? &params : nullptr; };
  run.evidence.channels = [](std::string_view) {
    ChannelStats stats;
    for (int c = 0; c < 8; ++c) {
      const float middle = c == 1 ? 100.0f : c == 6 ? -100.0f : 0.0f;
      stats.ranges.emplace_back(middle - 2, middle + 2);
    }
    return stats;
  };
  return CenterKeys(g, run);
}

TEST(CenterKeys, TakesOffWhatSoftmaxDoesNotSee) {
  for (const Packing packing : {Packing::kNone, Packing::kSplit, Packing::kSlices}) {
    SCOPED_TRACE(static_cast<int>(packing));
    const Graphs m = Attention({.packing = packing});
    Graph after = m.g;
    PassRun run;
    const auto changed = Center(after, run);
    ASSERT_TRUE(changed && *changed);
    ASSERT_TRUE(run.own_params.contains("k"));
    EXPECT_LT(run.own_params.at("k").scale, 0.02f);
    Tensor x = Tensor::Zeros(DType::kF32, {1, 5, 8});
    for (int64_t i = 0; i < x.size(); ++i)
      x.mutable_as<float>()[static_cast<size_t>(i)] = 0.1f * std::sin(static_cast<float>(i));
    const auto want = ir::Interpret(m.g, {{"x", x}}), got = ir::Interpret(after, {{"x", x}});
    ASSERT_TRUE(want && got);
    // Scores are up to 100 and rounded to 2^-17 of that; what is exact now was off by as much before.
    for (int64_t i = 0; i < x.size(); ++i) EXPECT_NEAR((*want)[0].GetDouble(i), (*got)[0].GetDouble(i), 2e-3);
  }
}

TEST(CenterKeys, LeavesWhatSeesIt) {
  for (const Options& o : {Options{.softcap = 20.0f}, Options{.read_twice = true}}) {
    Graph g = Attention(o).g;
    PassRun run;
    const auto changed = Center(g, run);
    ASSERT_TRUE(changed);
    EXPECT_FALSE(*changed);
    EXPECT_TRUE(run.own_params.empty());
  }
}

}  // namespace
}  // namespace octavo::passes::quantize
