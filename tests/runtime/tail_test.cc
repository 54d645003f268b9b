// Element-wise nodes behind products of one activation are the end of the products' step, with the bits of steps of their own.
#include "octavo/runtime/tail.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;

constexpr int64_t kDepth = 96;

class Maker {
 public:
  Graph g;

  Maker() {
    g.info.opsets[""] = 21;
    rows_ = {ir::SymShape{2, ir::Dim::Symbol("rows")}};
  }
  ValueId Input(const std::string& name, int64_t columns, DType type = DType::kF32) {
    inputs_.push_back({name, columns, type});
    return g.AddInput(name, {type, ir::SymShape{rows_[0], rows_[1], columns}});
  }
  Tensor Random(DType type, const Shape& shape) {
    Tensor t = Tensor::Zeros(type, shape);
    if (type == DType::kF32) {
      for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-2, 2)(gen_);
    } else {
      for (size_t i = 0; i < t.byte_size(); ++i) t.mutable_data()[i] = static_cast<std::byte>(gen_());
    }
    return t;
  }
  ValueId Constant(DType type, const Shape& shape) { return g.AddConstant(Random(type, shape)); }
  ValueId Node(Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
  }
  ValueId Blocked(ValueId x, int64_t n, int64_t x_bits = 8) {
    return Node(Op::kLinearBlocked,
                {x, Constant(DType::kU4, {kDepth, n}), Constant(DType::kF32, {kDepth / 32, n}),
                 Constant(DType::kU4, {kDepth / 32, n}), Constant(DType::kF32, {n})},
                {{"block_size", int64_t{32}}, {"transposed", int64_t{0}}, {"x_bits", x_bits}});
  }
  ValueId Linear(ValueId x, int64_t n, const std::string& activation = "none") {
    const ValueId scale = scale_.valid() ? scale_ : g.AddConstant(Tensor::ScalarF32(0.01f));
    const ValueId zero = zero_.valid() ? zero_ : g.AddConstant(Number(DType::kU8, 117));
    scale_ = scale, zero_ = zero;
    return Node(
        Op::kQuantizedLinear,
        {x, scale, zero, Constant(DType::kS8, {kDepth, n}), Constant(DType::kF32, {n}), Constant(DType::kF32, {n})},
        {{"activation", activation}});
  }
  ValueId Silu(ValueId gate, ValueId up) {
    return Node(Op::kMul, {Node(Op::kMul, {gate, Node(Op::kSigmoid, {gate})}), up});
  }
  ValueId Codes(ValueId y) {
    return Node(Op::kQuantizeLinear,
                {y, g.AddConstant(Tensor::ScalarF32(0.05f)), g.AddConstant(Number(DType::kU8, 99))});
  }
  void Output(ValueId v) { g.AddOutput("y" + std::to_string(g.outputs().size()), v); }

  // Steps and bits, with one row, few and many, each run twice, the second by its plan.
  void Expect(size_t steps, std::initializer_list<int64_t> sizes = {1, 3, 65, 400, 400, 0}) {
    Graph apart = g;  // where products are read by others, too, they are steps of their own
    for (const ir::NodeId id : g.NodesInOrder()) {
      const auto& n = g.node(id);
      const bool product = n.op == Op::kLinearBlocked || n.op == Op::kQuantizedLinear;
      if (product && !g.IsGraphOutput(n.output())) apart.AddOutput("p" + std::to_string(id.index), n.output());
    }
    auto truth = Model::Compile(std::move(apart), {.threads = 1});
    ASSERT_TRUE(truth) << truth.error().message;
    for (const int threads : {1, 2, 5}) {
      auto model = Model::Compile(g, {.threads = threads});
      ASSERT_TRUE(model) << model.error().message;
      std::string all;
      for (const std::string& name : model->KernelOfEachStep()) all += "\n" + name;
      EXPECT_EQ(model->KernelOfEachStep().size(), steps) << all;
      for (const int64_t rows : sizes) {
        ir::TensorMap inputs;
        for (const auto& in : inputs_) inputs[in.name] = Random(in.type, {2, rows, in.columns});
        const auto want = truth->Run(inputs), got = model->Run(inputs);
        ASSERT_TRUE(want) << want.error().message;
        ASSERT_TRUE(got) << got.error().message;
        for (size_t i = 0; i < got->size(); ++i)
          EXPECT_TRUE((*got)[i].SameBits((*want)[i]))
              << "output " << i << ", " << rows << " rows, " << threads << " threads";
      }
    }
  }

 private:
  struct In {
    std::string name;
    int64_t columns;
    DType type;
  };
  static Tensor Number(DType type, int value) {
    Tensor t = Tensor::Zeros(type, {});
    t.mutable_data()[0] = static_cast<std::byte>(value);
    return t;
  }
  std::mt19937 gen_{30};
  ir::SymShape rows_;
  std::vector<In> inputs_;
  ValueId scale_ = {}, zero_ = {};
};

TEST(Tail, SiluOfGateTimesUpIsOneStepWithThem) {
  for (const int64_t n : {64, 200, 1000}) {
    for (const int64_t x_bits : {8, 0}) {
      Maker m;
      const ValueId x = m.Input("x", kDepth), gate = m.Blocked(x, n, x_bits);
      m.Output(m.Silu(gate, m.Blocked(x, n, x_bits)));
      m.Expect(1);
    }
    Maker m;
    const ValueId x = m.Input("x", kDepth, DType::kU8), gate = m.Linear(x, n, "silu");
    m.Output(m.Node(Op::kMul, {gate, m.Linear(x, n)}));
    m.Expect(1);
  }
}

TEST(Tail, MayBeCodesAndReadWhatWasThereBefore) {
  Maker m;
  const ValueId x = m.Input("x", kDepth, DType::kU8), z = m.Input("z", 200);
  const ValueId other = m.Node(Op::kExp, {z});
  const ValueId sum = m.Node(Op::kAdd, {other, m.Linear(x, 200, "gelu")});
  m.Output(m.Codes(m.Node(Op::kMul, {sum, m.Constant(DType::kF32, {200})})));
  m.Output(other);
  m.Expect(2);
}

TEST(Tail, ProductsBesideItKeepTheirOutputs) {
  for (const int threads_of_columns : {64, 2000}) {
    Maker m;
    const ValueId x = m.Input("x", kDepth), z = m.Input("z", 200);
    const ValueId a = m.Blocked(x, threads_of_columns), gate = m.Blocked(x, 200), b = m.Blocked(x, 70),
                  up = m.Blocked(x, 200);
    const ValueId c = m.Blocked(x, 200);
    m.Output(b);
    m.Output(m.Silu(gate, up));
    m.Output(a);
    m.Output(m.Node(Op::kAdd, {c, z}));
    m.Expect(1);
  }
}

TEST(Tail, LongPromptsGoInParts) {
  Maker m;
  const ValueId x = m.Input("x", kDepth), gate = m.Blocked(x, 64);
  m.Output(m.Silu(gate, m.Blocked(x, 64)));
  m.Expect(1, {12000});
}

TEST(Tail, WhatOthersReadOrComesLaterStaysAStep) {
  {
    Maker m;
    const ValueId x = m.Input("x", kDepth), gate = m.Blocked(x, 64);
    m.Output(m.Silu(gate, m.Blocked(x, 64)));
    m.Output(gate);
    m.Expect(2);
  }
  {
    Maker m;
    const ValueId x = m.Input("x", kDepth), z = m.Input("z", kDepth), y = m.Blocked(x, 64);
    m.Output(m.Node(Op::kAdd, {y, m.Node(Op::kSoftmax, {m.Blocked(z, 64)}, {{"axis", int64_t{-1}}})}));
    m.Expect(4);
  }
  {
    Maker m;
    const ValueId x = m.Input("x", kDepth, DType::kU8), gate = m.Linear(x, 64, "silu");
    m.Output(m.Node(Op::kMul, {gate, m.Linear(x, 64)}));
    m.Output(gate);
    m.Expect(2);  // both products, and Mul
  }
}

}  // namespace
}  // namespace octavo::runtime
