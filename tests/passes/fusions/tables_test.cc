// Functions of one code become tables with the same bits; what is no such function stays.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "octavo/ir/infer.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/tests/passes/maker.h"
#include "octavo/tests/passes/same_bits.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::Tensor;

struct Maker : passes::Maker {
  Maker() : passes::Maker(1, 20) {}
  ValueId Codes(const std::string& name, DType t = DType::kU8) {
    return g.AddInput(name, {t, ir::SymShape{ir::Dim::Symbol("b"), 64}});
  }
};

// GELU as static quantization leaves it: codes behind every op.
ValueId Gelu(Maker& m, ValueId x) {
  const ValueId divided = m.Coded(m.Node(Op::kDiv, {x, m.Real(1.4142135f)}), 0.02f, 120);
  const ValueId one =
      m.Coded(m.Node(Op::kAdd, {m.Coded(m.Node(Op::kErf, {divided}), 0.0078f, 128), m.Real(1)}), 0.0078f, 0);
  return m.Node(Op::kMul, {m.Coded(m.Node(Op::kMul, {x, one}), 0.03f, 6), m.Real(0.5f)});
}

struct Fused {
  int lookups = 0, others = 0;
  Graph graph;
};
Fused Fuse(const Graph& g) {
  Fused r{.graph = g};
  PassRun context;
  const auto changed = FuseTables(r.graph, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  for (NodeId id : r.graph.NodesInOrder()) {
    const Op op = r.graph.node(id).op;
    r.lookups += op == Op::kLookup;
    r.others += op != Op::kLookup && op != Op::kConstant;
  }
  return r;
}

void ExpectSameBits(const Graph& before, const Graph& after) {
  std::mt19937 rng(3);
  ir::TensorMap inputs;
  for (ValueId v : before.inputs()) {
    Tensor t = Tensor::Empty(before.value(v).type.dtype, {9, 64});
    for (uint8_t& x : t.mutable_as<uint8_t>()) x = static_cast<uint8_t>(rng());
    inputs[before.value(v).name] = t;
  }
  passes::ExpectSameBits(before, after, inputs);
}

TEST(Tables, AnActivationOfCodesIsOneTable) {
  for (const DType from : {DType::kU8, DType::kS8}) {
    for (const DType to : {DType::kU8, DType::kS8}) {
      Maker m;
      const ValueId x = m.Dequantize(m.Codes("x", from), 0.04f, 115, from);
      m.g.AddOutput("y", m.Quantize(Gelu(m, x), 0.017f, 9, to));
      const Fused after = Fuse(m.g);
      EXPECT_EQ(after.lookups, 1);
      EXPECT_EQ(after.others, 0);
      ExpectSameBits(m.g, after.graph);
    }
  }
}

TEST(Tables, CodesOnTheWayMayHaveOtherReaders) {
  Maker m;
  const ValueId x = m.Dequantize(m.Codes("x"), 0.04f, 115);
  const ValueId half = m.Quantize(m.Node(Op::kMul, {x, m.Real(0.5f)}), 0.02f, 120);
  m.g.AddOutput("y", m.Quantize(m.Node(Op::kTanh, {m.Dequantize(half, 0.02f, 120)}), 0.008f, 128));
  m.g.AddOutput("half", half);
  const Fused after = Fuse(m.g);
  EXPECT_EQ(after.lookups, 2);
  EXPECT_EQ(after.others, 0);
  ExpectSameBits(m.g, after.graph);
}

TEST(Tables, WhatIsNoFunctionOfOneCodeStays) {
  const auto stays = [](const std::function<ValueId(Maker&, ValueId)>& f) {
    Maker m;
    m.g.AddOutput("y", m.Quantize(f(m, m.Dequantize(m.Codes("x"), 0.04f, 115)), 0.03f, 100));
    const Fused after = Fuse(m.g);
    EXPECT_EQ(after.lookups, 0);
    ExpectSameBits(m.g, after.graph);
  };
  stays([](Maker& m, ValueId x) { return m.Node(Op::kAdd, {x, m.Dequantize(m.Codes("z"), 0.04f, 115)}); });
  stays([](Maker& m, ValueId x) {  // a bias: 64 functions
    std::vector<float> bias(64);
    for (size_t i = 0; i < 64; ++i) bias[i] = 0.01f * static_cast<float>(i);
    return m.Node(Op::kAdd, {x, m.g.AddConstant(Tensor::F32({64}, bias))});
  });
  stays([](Maker& m, ValueId x) {
    return m.Node(Op::kSub, {x, m.Node(Op::kReduceMax, {x, m.g.AddConstant(Tensor::S64({1}, {-1}))})});
  });
}

// The longest function that there is: a sum with another tensor in front is where it begins.
TEST(Tables, BeginWhereThereIsOneTensor) {
  Maker m;
  const ValueId x = m.Dequantize(m.Codes("x"), 0.04f, 115), z = m.Dequantize(m.Codes("z"), 0.05f, 100);
  const ValueId sum = m.Coded(m.Node(Op::kAdd, {x, z}), 0.06f, 110);
  m.g.AddOutput("y", m.Quantize(Gelu(m, sum), 0.017f, 9));
  const Fused after = Fuse(m.g);
  EXPECT_EQ(after.lookups, 1);
  EXPECT_EQ(after.others, 4);  // two DequantizeLinear, Add, QuantizeLinear
  ExpectSameBits(m.g, after.graph);
}

}  // namespace
}  // namespace octavo::passes::fusions
