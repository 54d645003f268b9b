// Element-wise nodes as one step: the bits of the interpreter, whatever the shape, the threads and the nodes; and what must
// stay a step of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "octavo/ir/interpret.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Shape;
using ir::SymShape;
using ir::Tensor;
using ir::ValueId;

struct Maker {
  Graph g;
  int64_t cols;
  explicit Maker(int64_t columns) : cols(columns) { g.info.opsets[""] = 20; }

  SymShape Full() const { return {ir::Dim::Symbol("rows"), 3, cols}; }
  ValueId Input(const std::string& name, DType t) { return g.AddInput(name, {t, Full()}); }
  ValueId Node(Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), "n" + std::to_string(g.node_count()))).output();
  }
  ValueId Number(float v) { return g.AddConstant(Tensor::ScalarF32(v)); }
  ValueId Columns(std::mt19937& gen, bool vector = false) {
    Tensor t = Tensor::Empty(DType::kF32, vector || gen() % 2 == 0 ? Shape{cols} : Shape{1, cols});
    for (float& v : t.mutable_as<float>()) v = std::normal_distribution<float>(0.5f, 1)(gen);
    return g.AddConstant(std::move(t));
  }
  ValueId Zero(DType t, int code) {
    Tensor zero = Tensor::Zeros(t, {});
    zero.mutable_as<uint8_t>()[0] = static_cast<uint8_t>(code);
    return g.AddConstant(std::move(zero));
  }
  // With numbers of its own where the op has some.
  ValueId Unary(Op op, ValueId x, std::mt19937& gen) {
    const auto real = [&] { return std::normal_distribution<float>(0, 1)(gen); };
    ir::Attrs attrs;
    if (op == Op::kClip) {
      std::vector<ValueId> in = {x, gen() % 3 == 0 ? ValueId() : Number(real()), Number(real())};
      if (in[1].valid() && gen() % 3 == 0) in.pop_back();
      return Node(op, std::move(in));
    }
    if (gen() % 2 == 0 && (op == Op::kElu || op == Op::kHardSigmoid || op == Op::kLeakyRelu))
      attrs.Set("alpha", real());
    if (gen() % 2 == 0 && op == Op::kHardSigmoid) attrs.Set("beta", real());
    return Node(op, {x}, std::move(attrs));
  }
  ValueId Quantize(ValueId x, float scale, DType t, int zero) {
    return Node(Op::kQuantizeLinear, {x, Number(scale), Zero(t, zero)});
  }
  ValueId Dequantize(ValueId x, float scale, DType t, int zero) {
    return Node(Op::kDequantizeLinear, {x, Number(scale), Zero(t, zero)});
  }
};

ir::TensorMap RandomInputs(const Graph& g, int64_t rows, std::mt19937& gen) {
  ir::TensorMap inputs;
  for (ValueId v : g.inputs()) {
    const ir::Type& type = g.value(v).type;
    Shape shape;
    for (const ir::Dim& d : *type.shape) shape.push_back(d.is_number() ? d.number() : rows);
    Tensor t = Tensor::Empty(type.dtype, shape);
    if (type.dtype == DType::kF32) {
      for (float& x : t.mutable_as<float>()) x = std::normal_distribution<float>(0, 2)(gen);
    } else {
      for (uint8_t& x : t.mutable_as<uint8_t>()) x = static_cast<uint8_t>(gen());
    }
    inputs[g.value(v).name] = std::move(t);
  }
  return inputs;
}

// Elements with other bits. The sign of a NaN depends on the order of operands in the instruction, so NaN is NaN.
int64_t Different(const Tensor& want, const Tensor& got) {
  if (want.dtype() != DType::kF32) return want.SameBits(got) ? 0 : want.size();
  if (want.shape() != got.shape() || want.dtype() != got.dtype()) return -1;
  int64_t different = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    const float a = want.as<float>()[static_cast<size_t>(i)], b = got.as<float>()[static_cast<size_t>(i)];
    different += std::isnan(a) ? !std::isnan(b) : std::bit_cast<uint32_t>(a) != std::bit_cast<uint32_t>(b);
  }
  return different;
}

// Returns the kernels of the steps.
std::vector<std::string> ExpectBitsOfInterpreter(const Graph& g, int64_t rows, int threads, std::mt19937& gen) {
  const ir::TensorMap inputs = RandomInputs(g, rows, gen);
  const auto want = ir::Interpret(g, inputs);
  EXPECT_TRUE(want) << want.error().message;
  auto model = Model::Compile(g, {.threads = threads});
  EXPECT_TRUE(model) << model.error().message;
  if (!want || !model) return {};
  for (int run = 0; run < 2; ++run) {  // without a memory plan and with it
    const auto got = model->Run(inputs);
    EXPECT_TRUE(got) << got.error().message;
    for (size_t i = 0; got && i < want->size(); ++i) {
      EXPECT_EQ(Different((*want)[i], (*got)[i]), 0) << "output " << i << " in run " << run;
    }
  }
  return model->KernelOfEachStep();
}

size_t Chains(const std::vector<std::string>& kernels) {
  return static_cast<size_t>(
      std::count_if(kernels.begin(), kernels.end(), [](const std::string& k) { return k.starts_with("chain "); }));
}

// Random element-wise nodes over floats and codes, some of whose results are outputs of the graph.
Graph RandomGraph(std::mt19937& gen) {
  constexpr int64_t kColumns[] = {1, 5, 16, 100, 384, 2048, 2049, 5000};
  Maker m(kColumns[gen() % 8]);
  std::vector<ValueId> floats = {m.Input("f", DType::kF32)};
  std::vector<std::pair<ValueId, DType>> codes = {{m.Input("u", DType::kU8), DType::kU8},
                                                  {m.Input("s", DType::kS8), DType::kS8}};
  const auto pick = [&](const auto& from) { return from[from.size() - 1 - gen() % std::min<size_t>(from.size(), 3)]; };
  constexpr Op kUnary[] = {Op::kAbs,       Op::kErf,   Op::kNeg,     Op::kRelu,        Op::kSigmoid,
                           Op::kTanh,      Op::kGelu,  Op::kElu,     Op::kHardSigmoid, Op::kHardSwish,
                           Op::kLeakyRelu, Op::kSwish, Op::kSigmoid, Op::kClip,        Op::kClip};
  constexpr Op kBinary[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv};
  const float scales[] = {0.02f, 0.05f, 0.31f};
  for (int i = 0, n = 3 + static_cast<int>(gen() % 14); i < n; ++i) {
    const float scale = scales[gen() % 3];
    const int zero = static_cast<int>(gen() % 256);
    switch (gen() % 6) {
      case 0: {
        const auto [v, type] = pick(codes);
        floats.push_back(m.Dequantize(v, scale, type, zero));
        break;
      }
      case 1: {
        const DType type = gen() % 2 == 0 ? DType::kU8 : DType::kS8;
        codes.emplace_back(m.Quantize(pick(floats), scale, type, zero), type);
        break;
      }
      case 2:
        floats.push_back(m.Unary(kUnary[gen() % std::size(kUnary)], pick(floats), gen));
        break;
      case 3: {
        Tensor table = Tensor::Empty(DType::kU8, {256});
        for (uint8_t& x : table.mutable_as<uint8_t>()) x = static_cast<uint8_t>(gen());
        codes.emplace_back(m.Node(Op::kLookup, {pick(codes).first, m.g.AddConstant(std::move(table))}), DType::kU8);
        break;
      }
      default: {
        std::vector<ValueId> in = {pick(floats), gen() % 3 == 0   ? m.Number(1.5f)
                                                 : gen() % 2 == 0 ? m.Columns(gen)
                                                                  : pick(floats)};
        if (gen() % 2 == 0) std::swap(in[0], in[1]);
        floats.push_back(m.Node(kBinary[gen() % 4], std::move(in)));
      }
    }
  }
  m.g.AddOutput("floats", floats.back());
  m.g.AddOutput("codes", codes.back().first);
  if (gen() % 2 == 0) m.g.AddOutput("between", floats[gen() % floats.size()]);
  return std::move(m.g);
}

TEST(Chain, RandomGraphsKeepTheirBits) {
  size_t chains = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 gen(seed);
    const Graph g = RandomGraph(gen);
    constexpr int64_t kRows[] = {0, 1, 2, 7, 40};
    chains += Chains(ExpectBitsOfInterpreter(g, kRows[gen() % 5], 1 + static_cast<int>(gen() % 3), gen));
  }
  EXPECT_GT(chains, 200u);
}

TEST(Chain, ASumOfCodesIsOneStep) {
  std::mt19937 gen(1);
  Maker m(384);
  const ValueId a = m.Dequantize(m.Input("a", DType::kU8), 0.02f, DType::kU8, 120);
  const ValueId b = m.Dequantize(m.Input("b", DType::kS8), 0.05f, DType::kS8, 3);
  m.g.AddOutput("y", m.Quantize(m.Node(Op::kAdd, {m.Node(Op::kAdd, {a, b}), m.Columns(gen)}), 0.07f, DType::kU8, 128));
  const auto kernels = ExpectBitsOfInterpreter(m.g, 9, 2, gen);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_TRUE(kernels[0].starts_with("chain DequantizeLinear+3+QuantizeLinear ")) << kernels[0];
}

TEST(Chain, WhatOthersReadIsWritten) {
  std::mt19937 gen(2);
  Maker m(16);
  const ValueId sum = m.Node(Op::kAdd, {m.Input("a", DType::kF32), m.Number(1)});
  m.g.AddOutput("tanh", m.Node(Op::kTanh, {sum}));
  m.g.AddOutput("sum", sum);
  EXPECT_EQ(Chains(ExpectBitsOfInterpreter(m.g, 5, 1, gen)), 0u);
}

TEST(Chain, OperandsOfOtherShapesStayOutside) {
  std::mt19937 gen(3);
  Maker m(16);
  const ValueId row = m.g.AddInput("row", {DType::kF32, SymShape{16}});
  m.g.AddOutput("y", m.Node(Op::kTanh, {m.Node(Op::kAdd, {m.Input("a", DType::kF32), row})}));
  EXPECT_EQ(Chains(ExpectBitsOfInterpreter(m.g, 5, 1, gen)), 0u);
}

TEST(Chain, CodesReachTheProductBehindThem) {
  std::mt19937 gen(4);
  Maker m(16);
  const ValueId x =
      m.Dequantize(m.Quantize(m.Node(Op::kAdd, {m.Input("a", DType::kF32), m.Number(1)}), 0.03f, DType::kU8, 100),
                   0.03f, DType::kU8, 100);
  Tensor w = Tensor::Empty(DType::kS8, {16, 8});
  for (uint8_t& v : w.mutable_as<uint8_t>()) v = static_cast<uint8_t>(gen());
  m.g.AddOutput("y", m.Node(Op::kMatMul, {x, m.Dequantize(m.g.AddConstant(std::move(w)), 0.01f, DType::kS8, 0)}));
  const auto kernels = ExpectBitsOfInterpreter(m.g, 5, 1, gen);  // the exact product, which floats would miss
  EXPECT_EQ(Chains(kernels), 1u);
}

TEST(Chain, ADequantizedSumForANormIsOneStep) {
  std::mt19937 gen(5);
  Maker m(16);
  const ValueId sum = m.Node(Op::kAdd, {m.Input("a", DType::kF32), m.Input("b", DType::kF32)});
  const ValueId x = m.Dequantize(m.Quantize(sum, 0.03f, DType::kU8, 100), 0.03f, DType::kU8, 100);
  m.g.AddOutput(
      "y", m.Node(Op::kLayerNormalization, {x, m.Columns(gen, true)}, {{"axis", int64_t{-1}}, {"epsilon", 1e-5f}}));
  const auto kernels = ExpectBitsOfInterpreter(m.g, 5, 1, gen);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_TRUE(kernels[0].starts_with("chain Add+QuantizeLinear+DequantizeLinear ")) << kernels[0];
}

// One operand has the other's shape along axes that follow each other, or not at all.
TEST(ElementWise, OperandsThatAreRepeated) {
  const std::vector<std::pair<Shape, Shape>> cases = {{{2, 3, 4, 5}, {1, 3, 1, 1}},
                                                      {{2, 3, 4, 5}, {3, 1, 1}},
                                                      {{2, 3, 4, 5}, {2, 3, 1, 1}},
                                                      {{2, 3, 4, 5}, {5}},
                                                      {{2, 3, 4, 5}, {4, 5}},
                                                      {{2, 3, 4, 5}, {2, 1, 1, 1}},
                                                      {{2, 3, 4, 5}, {4, 1}},
                                                      {{2, 3, 4, 5}, {1, 3, 4, 1}},
                                                      {{2, 3, 4, 5}, {2, 1, 4, 5}},
                                                      {{2, 3, 4, 5}, {1, 1, 1, 1}},
                                                      {{2, 3, 4, 5}, {}},
                                                      {{3, 1}, {1, 3}},
                                                      {{3, 1}, {3}},
                                                      {{3}, {1, 1}},
                                                      {{7, 1}, {7, 1}},
                                                      {{1, 6, 1, 1}, {6, 1, 1}},
                                                      {{0, 3}, {3}},
                                                      {{40, 64, 33}, {64, 1}},
                                                      {{40, 64, 33}, {40, 64, 33}},
                                                      {{90000}, {1}},
                                                      {{2, 3, 1, 5}, {2, 3, 4, 1}},
                                                      {{1}, {0}}};
  std::mt19937 gen(20261127);
  for (const auto& [big, small] : cases) {
    for (const bool swapped : {false, true}) {
      Graph g;
      const auto shape = [](const Shape& s) { return SymShape(s.begin(), s.end()); };
      std::vector<ValueId> in = {g.AddInput("a", {DType::kF32, shape(big)}),
                                 g.AddInput("b", {DType::kF32, shape(small)})};
      if (swapped) std::swap(in[0], in[1]);
      g.AddOutput("y", g.node(g.AddNode(Op::kSub, std::move(in), 1, {}, "sub")).output());
      SCOPED_TRACE(ir::ToString(big) + " " + ir::ToString(small));
      for (const int threads : {1, 3}) ExpectBitsOfInterpreter(g, 0, threads, gen);
    }
  }
}

}  // namespace
}  // namespace octavo::runtime
