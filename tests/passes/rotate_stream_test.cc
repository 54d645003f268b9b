// rotate_stream: the residual stream turns, what the model computes stays; and what the pass leaves alone.
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/stream.h"
#include "octavo/passes/quantize/turn.h"
#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::quantize {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kWidth = 24, kRows = 5, kTokens = 11, kLayers = 3;

struct Options {
  bool rms = false, bias = true, layer_scale = false, tied = false, given = false, read = false, view = false;
  bool after = false;  // the norms stand behind the sum, as in BERT
  bool skip = false;   // SkipLayerNorm
  bool number = false, halves = false, deviation = false;
};

Tensor Wave(ir::Shape shape, double by) {
  Tensor t = Tensor::Zeros(DType::kF32, std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i)
    t.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(std::sin(by * static_cast<double>(i * i + 3)));
  return t;
}

// Tokens, layers of a norm and two products each, a norm and a head. Channel 3 of the stream is many times the others.
class Model {
 public:
  explicit Model(const Options& o) : o_(o) {
    Tensor table = Wave({kTokens, kWidth}, 0.37);
    for (int64_t i = 0; i < kTokens; ++i) table.mutable_as<float>()[static_cast<size_t>(i * kWidth + 3)] *= 1000;
    ValueId x = o.given ? m.Input("x", {1, kRows, kWidth})
                        : m.Node(Op::kGather, {m.g.AddConstant(table), m.Input("x", {1, kRows}, DType::kS64)},
                                 {{"axis", int64_t{0}}});
    if (o.number) x = m.Node(Op::kMul, {x, m.g.AddConstant(Tensor::ScalarF32(3.5f))});
    x = m.Node(Op::kAdd, {x, m.g.AddConstant(Wave({kRows, kWidth}, 0.11))});
    for (int64_t i = 0; i < kLayers; ++i) x = Layer(x);
    m.g.SetName(x, "stream");
    if (o.read) m.g.AddOutput("tanh", m.Node(Op::kTanh, {x}));
    ValueId y = Norm(x);
    if (o.view) {
      m.g.AddOutput("rows", y);
      y = m.Node(Op::kGather, {y, m.g.AddConstant(Tensor::ScalarS64(0))}, {{"axis", int64_t{1}}});
    }
    Tensor head = Wave({kWidth, kTokens}, 0.23);
    if (o.tied) {
      for (int64_t i = 0; i < kTokens; ++i) {
        for (int64_t j = 0; j < kWidth; ++j)
          head.mutable_as<float>()[static_cast<size_t>(j * kTokens + i)] =
              table.as<float>()[static_cast<size_t>(i * kWidth + j)];
      }
    }
    m.g.AddOutput("y", m.Node(Op::kMatMul, {y, m.g.AddConstant(head)}));
    EXPECT_TRUE(ir::Inference::Run(m.g));
  }

  Graphs m;

 private:
  ValueId Vector(double by) {
    Tensor t = Wave({kWidth}, by);
    for (float& v : t.mutable_as<float>()) v += 1.5f;
    return m.g.AddConstant(std::move(t));
  }
  ValueId Norm(ValueId x) {
    if (o_.rms) return m.Node(Op::kRMSNormalization, {x, Vector(0.7)}, {{"axis", int64_t{-1}}});
    const ValueId y = m.Node(Op::kLayerNormalization, {x, Vector(0.7), Vector(0.9)}, {{"axis", int64_t{-1}}});
    if (o_.deviation) {
      const NodeId id =
          m.g.AddNode(Op::kLayerNormalization, {x, Vector(0.7), Vector(0.9)}, 2, {{"axis", int64_t{-1}}}, "with_mean");
      m.g.AddOutput("mean", m.g.node(id).output(1));
      return m.g.node(id).output();
    }
    return y;
  }
  ValueId Layer(ValueId x) {
    ValueId y = o_.after ? x : Norm(x);
    y = m.Node(Op::kMatMul, {y, m.g.AddConstant(Wave({kWidth, 2 * kWidth}, 0.31))});
    if (o_.bias) y = m.Node(Op::kAdd, {y, m.g.AddConstant(Wave({2 * kWidth}, 0.41))});
    y = m.Node(Op::kMatMul, {m.Node(Op::kRelu, {y}), m.g.AddConstant(Wave({2 * kWidth, kWidth}, 0.53))});
    if (o_.bias) y = m.Node(Op::kAdd, {y, m.g.AddConstant(Wave({kWidth}, 0.61))});
    if (o_.layer_scale) y = m.Node(Op::kMul, {y, Vector(0.83)});
    if (o_.skip) {
      const NodeId id = m.g.AddNode(Op::kSkipLayerNorm, {x, y, Vector(0.2), Vector(0.3)}, 2, {}, "skip");
      const ValueId z = m.Node(Op::kMatMul, {m.g.node(id).output(), m.g.AddConstant(Wave({kWidth, kWidth}, 0.13))});
      return m.Node(Op::kAdd, {m.g.node(id).output(1), z});
    }
    if (o_.halves) {  // the stream in another order of rows, and back
      x = m.Node(Op::kTranspose, {x}, {{"perm", std::vector<int64_t>{1, 0, 2}}});
      x = m.Node(Op::kTranspose, {x}, {{"perm", std::vector<int64_t>{1, 0, 2}}});
    }
    const ValueId sum = m.Node(Op::kAdd, {x, y});
    return o_.after ? Norm(sum) : sum;
  }

  const Options o_;
};

ir::TensorMap Inputs(const Options& o) {
  if (o.given) return {{"x", Wave({1, kRows, kWidth}, 0.19)}};
  Tensor ids = Tensor::Zeros(DType::kS64, {1, kRows});
  for (int64_t i = 0; i < kRows; ++i) ids.mutable_as<int64_t>()[static_cast<size_t>(i)] = (i * 7) % kTokens;
  return {{"x", std::move(ids)}};
}

double Largest(const Tensor& t) {
  double largest = 0;
  for (int64_t i = 0; i < t.size(); ++i) largest = std::max(largest, std::fabs(t.GetDouble(i)));
  return largest;
}

struct Turning {
  Graph graph;
  bool changed;
};
Turning After(const Graph& before, int64_t worth) {
  Turning t{before, false};
  PassRun run;
  const PassOptions options{{"worth", worth}};
  run.options = &options;
  const auto changed = RotateStream(t.graph, run);
  EXPECT_TRUE(changed) << (changed ? "" : changed.error().message);
  t.changed = changed && *changed;
  return t;
}

TEST(RotateStream, WhatTheModelComputesStays) {
  struct Case {
    const char* name;
    Options options;
    int64_t products, sums;  // that come in
  };
  for (const Case& c :
       {Case{"layer norms", {}, 0, 1},  // beta of the last one, whose head has no bias
        Case{"rms", {.rms = true}, 0, 0}, Case{"no bias", {.bias = false}, 0, 1 + kLayers},
        Case{"layer scale", {.layer_scale = true}, 0, 1},
        Case{"scaled without bias", {.rms = true, .bias = false, .layer_scale = true}, 0, 0},
        Case{"tied", {.tied = true}, 1, 1}, Case{"tied rms", {.rms = true, .tied = true}, 1, 0},
        Case{"given", {.given = true}, 1, 1}, Case{"read by a Tanh", {.read = true}, 1, 1},
        Case{"norm read twice", {.view = true}, 1, 2}, Case{"skip", {.skip = true}, 0, 1 + kLayers},
        Case{"times a number", {.rms = true, .number = true}, 0, 0}, Case{"other order", {.halves = true}, 0, 1}}) {
    SCOPED_TRACE(c.name);
    const Model model(c.options);
    Graph before = model.m.g;
    auto [after, changed] = After(before, 1);
    ASSERT_TRUE(changed);
    EXPECT_EQ(CountOf(after, Op::kMatMul), CountOf(before, Op::kMatMul) + c.products);
    EXPECT_EQ(CountOf(after, Op::kAdd), CountOf(before, Op::kAdd) + c.sums);
    ASSERT_TRUE(ir::Inference::Run(after));
    const auto want = ir::Interpret(before, Inputs(c.options)), got = ir::Interpret(after, Inputs(c.options));
    ASSERT_TRUE(want && got);
    for (size_t out = 0; out < want->size(); ++out) {
      const Tensor &w = (*want)[out], &g = (*got)[out];
      ASSERT_EQ(g.shape(), w.shape());
      for (int64_t i = 0; i < w.size(); ++i)
        ASSERT_NEAR(g.GetDouble(i), w.GetDouble(i), 1e-4 * Largest(w)) << out << " " << i;
    }
  }
}

TEST(RotateStream, NoChannelSticksOut) {
  const Model model({});
  Graph before = model.m.g;
  Graph after = After(before, 1).graph;
  before.AddOutput("stream", before.FindValue("stream"));
  after.AddOutput("stream", after.FindValue("stream"));
  const Tensor was = ir::Interpret(before, Inputs({}))->back();
  const Tensor is = ir::Interpret(after, Inputs({}))->back();
  double square = 0, now = 0;
  for (int64_t i = 0; i < was.size(); ++i) {
    square += was.GetDouble(i) * was.GetDouble(i);
    now += is.GetDouble(i) * is.GetDouble(i);
  }
  EXPECT_NEAR(now, square, 1e-4 * square);  // as long as before
  EXPECT_LT(Largest(is), 0.6 * Largest(was));
}

TEST(RotateStream, LeavesWhatWouldCostMore) {
  const auto left = [](const Options& o, int64_t worth) { return !After(Model(o).m.g, worth).changed; };
  EXPECT_TRUE(left({.after = true}, 10));     // a product at each norm
  EXPECT_TRUE(left({.deviation = true}, 1));  // a mean that somebody reads
  EXPECT_TRUE(left({}, 0));
  EXPECT_TRUE(left({.given = true}, INT64_MAX));
  EXPECT_FALSE(left({.given = true}, 5));
  EXPECT_TRUE(left({.given = true}, kRotationWorth));
}

TEST(RotateStream, AShareBelowNothingIsRefused) {
  Graph g = Model({}).m.g;
  PassRun run;
  const PassOptions options{{"worth", int64_t{-1}}};
  run.options = &options;
  const auto changed = RotateStream(g, run);
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().message, "its option worth is -1; give 0, where nothing turns, or more");
}

TEST(RotateStream, TurnsAreOrthogonalAndKeepEqualNumbers) {
  for (const int64_t size : {2, 3, 7, 8, 24, 96, 100}) {
    SCOPED_TRACE(size);
    std::vector<double> m(static_cast<size_t>(size * size), 0.0), ones(static_cast<size_t>(size), 1.0);
    for (int64_t i = 0; i < size; ++i) m[static_cast<size_t>(i * size + i)] = 1;
    TurnStream(m.data(), size, size);
    TurnStream(ones.data(), size, 1);
    for (const double x : ones) EXPECT_NEAR(x, 1, 1e-12);
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j < size; ++j) {
        double dot = 0;
        for (int64_t k = 0; k < size; ++k)
          dot += m[static_cast<size_t>(k * size + i)] * m[static_cast<size_t>(k * size + j)];
        ASSERT_NEAR(dot, i == j ? 1 : 0, 1e-12) << i << " " << j;
      }
    }
  }
}

}  // namespace
}  // namespace octavo::passes::quantize
