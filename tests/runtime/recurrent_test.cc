// LSTM and GRU by the step beside the interpreter, in all forms that the step has and some that it leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "octavo/ir/interpret.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;

// States are at most 1 and gates squeeze: an error of a step halves at least, and a sum of 40 terms below 1 has one of 40 * 40 * 2^-24.
constexpr double kRounding = 2e-4;

struct Form {
  Op op = Op::kLSTM;
  std::string direction = "forward";
  int64_t width = 7, hidden = 5;
  bool bias = true, states = false;
  ir::Attrs more = {};
  std::vector<bool> outputs = {true, true, true};
  bool lengths = false, peepholes = false, layout = false;
};

Tensor Reals(const Shape& shape, std::mt19937& gen, float most = 1) {
  Tensor t = Tensor::Empty(DType::kF32, shape);
  for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-most, most)(gen);
  return t;
}

Graph Make(const Form& f, std::mt19937& gen) {
  Graph g;
  const int64_t d = f.direction == "bidirectional" ? 2 : 1, gates = f.op == Op::kLSTM ? 4 : f.op == Op::kGRU ? 3 : 1;
  const ir::Dim steps = ir::Dim::Symbol("steps"), batch = ir::Dim::Symbol("batch");
  const auto constant = [&](const Shape& shape) { return g.AddConstant(Reals(shape, gen, 0.5f)); };
  std::vector<ValueId> in{g.AddInput("x", {DType::kF32, f.layout ? ir::SymShape{batch, steps, f.width}
                                                                 : ir::SymShape{steps, batch, f.width}}),
                          constant({d, gates * f.hidden, f.width}), constant({d, gates * f.hidden, f.hidden}),
                          f.bias ? constant({d, 2 * gates * f.hidden}) : ValueId{}};
  in.push_back(f.lengths ? g.AddInput("lengths", {DType::kS32, ir::SymShape{batch}}) : ValueId{});
  for (int i = 0; i < (f.op == Op::kLSTM ? 2 : 1); ++i)
    in.push_back(f.states ? g.AddInput("s" + std::to_string(i), {DType::kF32, ir::SymShape{d, batch, f.hidden}})
                          : ValueId{});
  if (f.peepholes) in.push_back(constant({d, 3 * f.hidden}));
  ir::Attrs attrs = f.more;
  attrs.Set("direction", f.direction);
  attrs.Set("hidden_size", f.hidden);
  if (f.layout) attrs.Set("layout", int64_t{1});
  const size_t count = f.op == Op::kLSTM ? 3 : 2;
  const ir::NodeId node = g.AddNode(f.op, in, count, attrs, "cell");
  for (size_t i = 0; i < count; ++i) {
    if (f.outputs[i]) g.AddOutput("y" + std::to_string(i), g.node(node).output(i));
  }
  return g;
}

ir::TensorMap Inputs(const Form& f, int64_t steps, int64_t batch, std::mt19937& gen) {
  const int64_t d = f.direction == "bidirectional" ? 2 : 1;
  ir::TensorMap in{{"x", Reals(f.layout ? Shape{batch, steps, f.width} : Shape{steps, batch, f.width}, gen)}};
  if (f.lengths) {
    in["lengths"] = Tensor::Empty(DType::kS32, {batch});
    for (int32_t& n : in["lengths"].mutable_as<int32_t>()) n = static_cast<int32_t>(gen() % (steps + 1));
  }
  for (int i = 0; f.states && i < (f.op == Op::kLSTM ? 2 : 1); ++i)
    in["s" + std::to_string(i)] = Reals({d, batch, f.hidden}, gen);
  return in;
}

// By `kernel`, with the interpreter's results.
void Agrees(const Form& f, const std::string& kernel) {
  SCOPED_TRACE(std::string(ir::InfoOf(f.op).name) + " " + f.direction);
  std::mt19937 gen(20261128);
  const Graph g = Make(f, gen);
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{6, 3}, {1, 1}, {400, 3}, {0, 2}, {1100, 1}, {3, 150}};
  for (const auto& [steps, batch] : sizes) {
    SCOPED_TRACE(std::to_string(steps) + " steps of " + std::to_string(batch));
    const ir::TensorMap in = Inputs(f, steps, batch, gen);
    const auto want = ir::Interpret(g, in);
    ASSERT_TRUE(want) << want.error().message;
    for (const int threads : {1, 2}) {
      const auto model = Model::Compile(g, {.threads = threads});
      ASSERT_TRUE(model) << model.error().message;
      EXPECT_EQ(model->KernelOfEachStep(), std::vector<std::string>{kernel});
      const auto got = model->Run(in);
      ASSERT_TRUE(got) << got.error().message;
      ASSERT_EQ(got->size(), want->size());
      for (size_t o = 0; o < want->size(); ++o) {
        ASSERT_EQ((*got)[o].shape(), (*want)[o].shape());
        for (int64_t i = 0; i < (*want)[o].size(); ++i)
          ASSERT_NEAR((*got)[o].GetDouble(i), (*want)[o].GetDouble(i), kRounding) << "output " << o << " at " << i;
      }
    }
  }
}

TEST(Recurrent, EachDirectionOfBoth) {
  for (const std::string direction : {"forward", "reverse", "bidirectional"}) {
    Agrees({.direction = direction}, "lstm");
    Agrees({.op = Op::kGRU, .direction = direction}, "gru");
    Agrees({.op = Op::kGRU, .direction = direction, .more = {{"linear_before_reset", int64_t{1}}}}, "gru");
  }
}

TEST(Recurrent, StatesThatAreGiven) {
  Agrees({.direction = "bidirectional", .states = true}, "lstm");
  Agrees({.op = Op::kGRU, .direction = "bidirectional", .states = true}, "gru");
  Agrees({.op = Op::kGRU, .bias = false, .states = true, .more = {{"linear_before_reset", int64_t{1}}}}, "gru");
}

TEST(Recurrent, LargerCellsAndSomeOutputs) {
  Agrees({.width = 33, .hidden = 40, .bias = false, .outputs = {false, true, false}}, "lstm");
  Agrees({.width = 1, .hidden = 17, .outputs = {true, false, false}}, "lstm");
  Agrees({.op = Op::kGRU, .width = 33, .hidden = 40, .outputs = {false, true}}, "gru");
}

TEST(Recurrent, UsualActivationsByName) {
  const std::vector<std::string> names{"Sigmoid", "TANH", "tanh"};
  Agrees({.more = {{"activations", names}}}, "lstm");
  Agrees({.more = {{"activations", std::vector<std::string>{"Sigmoid", "Tanh", "Relu"}}}}, "interpreter LSTM");
}

TEST(Recurrent, WhatTheInterpreterKeeps) {
  Agrees({.more = {{"clip", 0.5f}}}, "interpreter LSTM");
  Agrees({.more = {{"input_forget", int64_t{1}}}}, "interpreter LSTM");
  Agrees({.op = Op::kRNN, .outputs = {true, true}}, "interpreter RNN");
  Agrees({.lengths = true}, "interpreter LSTM");
  Agrees({.peepholes = true}, "interpreter LSTM");
  Agrees({.layout = true}, "interpreter LSTM");
}

}  // namespace
}  // namespace octavo::runtime
