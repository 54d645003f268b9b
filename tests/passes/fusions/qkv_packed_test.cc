// Packed int8 projections become one product with an output a part, with the same bits; what QuantizedQkv cannot say stays.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "octavo/ir/infer.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/tests/passes/rule_graphs.h"
#include "octavo/tests/passes/same_bits.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::Tensor;

struct Maker : passes::Maker {
  Maker() : passes::Maker(7, 18) {}
  ValueId Reals(ir::Shape shape, float around) {
    Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
    for (float& v : t.mutable_as<float>()) v = around * (1 + std::uniform_real_distribution<float>(0, 1)(rng));
    return g.AddConstant(std::move(t));
  }
  ValueId Bytes(DType type, ir::Shape shape) {
    Tensor t = Tensor::Empty(type, std::move(shape));
    for (uint8_t& v : t.mutable_as<uint8_t>()) v = static_cast<uint8_t>(rng());
    return g.AddConstant(std::move(t));
  }
  // x [2,5,16] of u8 times [16,columns]; more: the inputs behind the bias.
  ValueId Linear(int64_t columns, bool one_scale, bool bias, std::vector<ValueId> more = {}, ir::Attrs attrs = {}) {
    const ValueId x = g.AddInput("x", {DType::kU8, ir::SymShape{2, 5, 16}});
    std::vector<ValueId> in = {x,
                               Reals({}, 0.02f),
                               Bytes(DType::kU8, {}),
                               Bytes(DType::kS8, {16, columns}),
                               one_scale ? Reals({}, 0.01f) : Reals({columns}, 0.01f),
                               bias ? Reals({columns}, 0.5f) : ValueId{}};
    in.insert(in.end(), more.begin(), more.end());
    while (!in.back().valid()) in.pop_back();
    return Node(Op::kQuantizedLinear, std::move(in), std::move(attrs));
  }
  std::vector<ValueId> Split(ValueId x, const std::vector<int64_t>& widths) {
    const NodeId n = g.AddNode(Op::kSplit, {x, Ints(widths)}, widths.size(), {{"axis", int64_t{-1}}}, "split");
    return {g.node(n).outputs.begin(), g.node(n).outputs.end()};
  }
  ValueId Quantize(ValueId x) {  // each at a scale of its own
    return Node(Op::kQuantizeLinear, {x, Reals({}, 0.3f), Zero(DType::kU8, 60)});
  }
};

// "QuantizedQkv 3x" and so on: what is left beside constants, and the outputs of each node.
std::string Check(Maker& m) {
  EXPECT_TRUE(ir::Inference::Run(m.g).has_value());
  Graph after = m.g;
  PassRun context;
  const auto changed = FuseQuantizedQkv(after, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  std::string ops;
  for (NodeId id : after.NodesInOrder()) {
    const auto& n = after.node(id);
    if (n.op != Op::kConstant) ops += std::string(ir::InfoOf(n.op).name) + " " + std::to_string(n.outputs.size()) + " ";
  }
  Tensor x = Tensor::Empty(DType::kU8, {2, 5, 16});
  for (uint8_t& v : x.mutable_as<uint8_t>()) v = static_cast<uint8_t>(m.rng());
  ExpectSameBits(m.g, after, {{"x", x}});
  return ops;
}

TEST(QkvPacked, EachPartGetsItsOwnCodes) {
  for (const bool one_scale : {false, true}) {
    for (const bool bias : {false, true}) {
      Maker m;
      const std::vector<ValueId> parts = m.Split(m.Linear(24, one_scale, bias), {12, 4, 8});
      for (size_t i = 0; i < 3; ++i) m.g.AddOutput("y" + std::to_string(i), m.Quantize(parts[i]));
      EXPECT_EQ(Check(m), "QuantizedQkv 3 ");
    }
  }
}

TEST(QkvPacked, PartsThatOthersReadStayFloat) {
  Maker m;
  const std::vector<ValueId> parts = m.Split(m.Linear(24, false, true), {8, 16});
  m.g.AddOutput("codes", m.Quantize(parts[0]));
  m.g.AddOutput("more", m.Quantize(parts[1]));
  m.g.AddOutput("real", parts[1]);
  EXPECT_EQ(Check(m), "QuantizedQkv 2 QuantizeLinear 1 ");
}

TEST(QkvPacked, CodesInFrontOfTheSplitAreThoseOfEveryPart) {
  Maker m;
  const ValueId scale = m.Reals({}, 0.3f), zero = m.Bytes(DType::kU8, {});
  const std::vector<ValueId> parts = m.Split(m.Linear(24, false, true, {scale, zero}), {8, 8, 8});
  for (size_t i = 0; i < 3; ++i) m.g.AddOutput("y" + std::to_string(i), parts[i]);
  EXPECT_EQ(Check(m), "QuantizedQkv 3 ");
}

TEST(QkvPacked, WhatBranchesLackStays) {
  const auto stays = [](const std::function<ValueId(Maker&)>& linear, const char* ops) {
    Maker m;
    const std::vector<ValueId> parts = m.Split(linear(m), {8, 16});
    m.g.AddOutput("a", m.Quantize(parts[0]));
    m.g.AddOutput("b", m.Quantize(parts[1]));
    EXPECT_EQ(Check(m), ops);
  };
  const char* const all = "QuantizedLinear 1 Split 2 QuantizeLinear 1 QuantizeLinear 1 ";
  stays([](Maker& m) { return m.Linear(24, false, true, {}, {{"activation", "relu"}}); }, all);
  stays([](Maker& m) { return m.Linear(24, false, true, {{}, {}, m.Reals({24}, 1)}); }, all);
  stays([](Maker& m) { return m.Linear(24, false, true, {{}, {}, {}, m.Reals({2, 5, 24}, 1)}); }, all);
  stays(
      [](Maker& m) {
        const ValueId y = m.Linear(24, false, true);
        m.g.AddOutput("whole", y);
        return y;
      },
      all);
}

TEST(QkvPacked, RefusesWithASentence) {
  const auto split = [](Graphs& m, std::vector<ValueId> more, ir::Attrs attrs, int64_t axis) {
    std::vector<ValueId> in{m.In({2, 6, 16}, DType::kU8), m.Real(0.02f), m.Zero(DType::kU8, 100), m.Codes({16, 6}),
                            m.Real(0.01f)};
    in.insert(in.end(), more.begin(), more.end());
    const ValueId y = m.Node(Op::kQuantizedLinear, in, std::move(attrs));
    const NodeId parts = m.g.AddNode(Op::kSplit, {y, m.Ints({2, 4})}, 2, {{"axis", axis}}, "split");
    for (size_t i = 0; i < 2; ++i) m.g.AddOutput("y" + std::to_string(i), m.g.node(parts).output(i));
  };
  Refuses("it is no split into 2 to 8 parts of known widths", QkvPacked(), [&](Graphs& m) { split(m, {}, {}, 1); });
  Refuses("it is no split into 2 to 8 parts of known widths", QkvPacked(), [&](Graphs& m) {
    split(m, {}, {}, 2);  // with declared widths, of which a run may give others
    EXPECT_TRUE(ir::Inference::Run(m.g));
    m.g.SetInput(m.g.last(), 1, m.g.AddInput("widths", {DType::kS64, ir::SymShape{2}}));
  });
  Refuses("the Linear has an activation, its parts cannot", QkvPacked(),
          [&](Graphs& m) { split(m, {}, {{"activation", std::string("relu")}}, 2); });
  Refuses("the bias of the Linear is no constant", QkvPacked(), [&](Graphs& m) { split(m, {m.In({6})}, {}, 2); });
}

}  // namespace
}  // namespace octavo::passes::fusions
