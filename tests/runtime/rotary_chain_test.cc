// Rotary embeddings as exporters write them are one step with the bits of the single nodes, and nothing else is.
#include <gtest/gtest.h>

#include <vector>

#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

struct Form {
  int64_t second = 4, end = 1000;  // where the second half begins, and ends
  int64_t axis = 3, first = 0;
  bool swapped = false, negates_first = false, shows_halves = false, other_x = false;
  int64_t rest = 0;  // columns behind those that are turned
  bool other_rest = false, shows_part = false;
  bool pairs = false;  // side by side
  int64_t first_of_pair = 0;
};

ValueId Made(ir::Graph& g, Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
  return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
}

ir::Graph Rotary(const Form& f, const ir::SymShape& table) {
  ir::Graph g;
  const ir::SymShape shape{ir::Dim::Symbol("b"), 3, ir::Dim::Symbol("s"), 8 + f.rest};
  const ValueId whole = g.AddInput("x", {DType::kF32, shape}), z = g.AddInput("z", {DType::kF32, shape});
  const auto cut = [&](ValueId v, int64_t begin, int64_t end, int64_t step) {
    return Made(g, Op::kSlice,
                {v, g.AddConstant(Tensor::S64({1}, {begin})), g.AddConstant(Tensor::S64({1}, {end})),
                 g.AddConstant(Tensor::S64({1}, {3})), g.AddConstant(Tensor::S64({1}, {step}))});
  };
  const ValueId x = f.rest > 0 ? cut(whole, 0, 8, 1) : whole;
  if (f.shows_part) g.AddOutput("part", x);
  const ValueId cos = g.AddInput("cos", {DType::kF32, table}), sin = g.AddInput("sin", {DType::kF32, table});
  const auto slice = [&](int64_t begin, int64_t end) {
    return Made(g, Op::kSlice,
                {f.other_x ? z : x, g.AddConstant(Tensor::S64({1}, {begin})), g.AddConstant(Tensor::S64({1}, {end})),
                 g.AddConstant(Tensor::S64({1}, {f.axis}))});
  };
  ValueId low = f.pairs ? cut(x, f.first_of_pair, 8, 2) : slice(f.first, f.second);
  ValueId high = f.pairs ? cut(x, 1, 8, 2) : slice(f.second, f.end);
  if (f.shows_halves) g.AddOutput("low", low);
  if (f.negates_first)
    low = Made(g, Op::kNeg, {low});
  else
    high = Made(g, Op::kNeg, {high});
  const auto stacked = [&](ValueId v) { return Made(g, Op::kUnsqueeze, {v, g.AddConstant(Tensor::S64({1}, {-1}))}); };
  if (f.pairs) high = stacked(high), low = stacked(low);
  ValueId turned = Made(g, Op::kConcat, {high, low}, {{"axis", int64_t{-1}}});
  if (f.pairs) turned = Made(g, Op::kReshape, {turned, g.AddConstant(Tensor::S64({4}, {0, 0, 0, 8}))});
  const ValueId a = Made(g, Op::kMul, f.swapped ? std::vector{cos, x} : std::vector{x, cos});
  const ValueId b = Made(g, Op::kMul, f.swapped ? std::vector{sin, turned} : std::vector{turned, sin});
  const ValueId sum = Made(g, Op::kAdd, f.swapped ? std::vector{b, a} : std::vector{a, b});
  const auto joined = [&](ValueId from) {
    return Made(g, Op::kConcat, {sum, cut(from, 8, 1000, 1)}, {{"axis", int64_t{3}}});
  };
  g.AddOutput("y", f.rest > 0 ? joined(f.other_rest ? z : whole) : sum);
  return g;
}

Tensor Numbers(ir::Shape shape, uint32_t state) {
  Tensor t = Tensor::Zeros(DType::kF32, std::move(shape));
  for (float& f : t.mutable_as<float>())
    f = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / 8388608.0f - 1;
  return t;
}

// How many steps it takes; its outputs are those of the interpreter.
size_t Steps(const Form& form, const ir::SymShape& table, const ir::Shape& of_table, int64_t batch = 2) {
  size_t steps = 0;
  for (const int threads : {1, 3}) {
    auto plain = Model::Compile(Rotary(form, table), {.threads = 1, .kernels = false});
    auto model = Model::Compile(Rotary(form, table), {.threads = threads});
    EXPECT_TRUE(plain && model);
    const ir::TensorMap inputs = {{"x", Numbers({batch, 3, 700, 8 + form.rest}, 1)},
                                  {"z", Numbers({batch, 3, 700, 8 + form.rest}, 2)},
                                  {"cos", Numbers(of_table, 3)},
                                  {"sin", Numbers(of_table, 4)}};
    const auto want = plain->Run(inputs), got = model->Run(inputs);
    EXPECT_TRUE(want && got) << (got ? "" : got.error().message);
    if (!want || !got) return 0;
    for (size_t i = 0; i < want->size(); ++i) EXPECT_TRUE((*got)[i].SameBits((*want)[i])) << i;
    steps = model->KernelOfEachStep().size();
  }
  return steps;
}

const ir::SymShape kTable{ir::Dim::Symbol("t"), 1, ir::Dim::Symbol("u"), 8};

TEST(RotaryChain, OneStepForAllForms) {
  EXPECT_EQ(Steps({}, kTable, {2, 1, 700, 8}), 1u);
  EXPECT_EQ(Steps({}, kTable, {1, 1, 700, 8}), 1u);
  EXPECT_EQ(Steps({}, kTable, {1, 1, 1, 8}), 1u);
  EXPECT_EQ(Steps({.swapped = true}, kTable, {2, 1, 700, 8}), 1u);
  EXPECT_EQ(Steps({}, ir::SymShape{ir::Dim::Symbol("u"), 8}, {700, 8}), 1u);
  EXPECT_EQ(Steps({.axis = -1}, ir::SymShape{8}, {8}), 1u);
}

TEST(RotaryChain, PairsSideBySideAndColumnsThatStay) {
  EXPECT_EQ(Steps({.pairs = true}, kTable, {2, 1, 700, 8}), 1u);
  EXPECT_EQ(Steps({.swapped = true, .pairs = true}, kTable, {1, 1, 700, 8}), 1u);
  EXPECT_EQ(Steps({.rest = 5}, kTable, {2, 1, 700, 8}), 1u);
  EXPECT_EQ(Steps({.rest = 24, .pairs = true}, kTable, {2, 1, 700, 8}), 1u);
  EXPECT_GT(Steps({.rest = 5, .other_rest = true}, kTable, {2, 1, 700, 8}), 1u);
  EXPECT_GT(Steps({.rest = 5, .shows_part = true}, kTable, {2, 1, 700, 8}), 1u);
  EXPECT_GT(Steps({.pairs = true, .first_of_pair = 1}, kTable, {2, 1, 700, 8}), 1u);
}

TEST(RotaryChain, ATableMayBeWiderThanX) { EXPECT_EQ(Steps({}, kTable, {2, 1, 700, 8}, 1), 1u); }

TEST(RotaryChain, OthersAreNone) {
  EXPECT_GT(Steps({.second = 3}, kTable, {2, 1, 700, 8}), 1u);
  EXPECT_GT(Steps({.negates_first = true}, kTable, {2, 1, 700, 8}), 1u);
  EXPECT_GT(Steps({.shows_halves = true}, kTable, {2, 1, 700, 8}), 1u);
  EXPECT_GT(Steps({.other_x = true}, kTable, {2, 1, 700, 8}), 1u);
}

}  // namespace
}  // namespace octavo::runtime
