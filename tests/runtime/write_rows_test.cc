// Rows that ScatterND writes into a cache: one step with the interpreter's bits, in place where this run alone has the cache, and nothing of it elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "octavo/ir/interpret.h"
#include "octavo/runtime/cache_state.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;
using Perm = std::vector<int64_t>;

constexpr int64_t kHeads = 3, kRows = 9, kSize = 4;

struct Form {
  Perm there = {2, 0, 1, 3}, back = {1, 2, 0, 3};  // empty: no Transpose
  DType dtype = DType::kF32;
  std::string reduction = "none";
  bool shows_turned = false, from_relu = false, other_reader = false, constant_rows = false;
};

ValueId Made(ir::Graph& g, Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
  return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
}

Tensor Numbers(DType dtype, Shape shape, int64_t first) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  for (size_t i = 0; i < t.byte_size(); ++i)
    t.mutable_data()[i] = static_cast<std::byte>((first + static_cast<int64_t>(i) * 7) % 61);
  return t;
}

// past [2, heads, rows, size], at [n, width], now as ScatterND wants it.
ir::Graph Writing(const Form& f, const ir::SymShape& now_shape, int64_t width) {
  ir::Graph g;
  g.info.opsets[""] = 18;
  const ValueId past = g.AddInput("past", {f.dtype, ir::SymShape{2, kHeads, kRows, kSize}});
  const ValueId at = f.constant_rows ? g.AddConstant(Tensor::S64({2, 1}, {1, 3}))
                                     : g.AddInput("at", {DType::kS64, ir::SymShape{ir::Dim::Symbol("n"), width}});
  const ValueId now = g.AddInput("now", {f.dtype, now_shape});
  const ValueId from = f.from_relu ? Made(g, Op::kRelu, {past}) : past;
  const ValueId turned = f.there.empty() ? from : Made(g, Op::kTranspose, {from}, {{"perm", f.there}});
  ir::Attrs attrs;
  if (f.reduction != "none") attrs.Set("reduction", f.reduction);
  const ValueId written = Made(g, Op::kScatterND, {turned, at, now}, attrs);
  g.AddOutput("present", f.back.empty() ? written : Made(g, Op::kTranspose, {written}, {{"perm", f.back}}));
  if (f.shows_turned) g.AddOutput("turned", written);
  if (f.other_reader) g.AddOutput("double", Made(g, Op::kAdd, {past, past}));
  return g;
}

Shape RowsOf(const Form& f, int64_t n, int64_t width) {
  const Shape cache{2, kHeads, kRows, kSize};
  Shape now{n};
  for (size_t d = static_cast<size_t>(width); d < 4; ++d)
    now.push_back(cache[f.there.empty() ? d : static_cast<size_t>(f.there[d])]);
  return now;
}

// Whether one step writes all; its output is the interpreter's.
bool Writes(const Form& f, std::vector<int64_t> at, int64_t width = 1) {
  const auto n = static_cast<int64_t>(at.size()) / width;
  Shape now = RowsOf(f, n, width);
  ir::SymShape symbolic(now.begin(), now.end());
  symbolic[0] = ir::Dim::Symbol("n");
  const ir::Graph graph = Writing(f, symbolic, width);
  ir::TensorMap inputs = {{"past", Numbers(f.dtype, {2, kHeads, kRows, kSize}, 3)}, {"now", Numbers(f.dtype, now, 20)}};
  if (!f.constant_rows) inputs["at"] = Tensor::S64({n, width}, std::move(at));
  const auto model = Model::Compile(graph, {.threads = 2});
  EXPECT_TRUE(model) << model.error().message;
  const auto want = ir::Interpret(graph, inputs);
  EXPECT_TRUE(want) << want.error().message;
  for (int run = 0; run < 2; ++run) {
    const auto got = model->Run(inputs);
    EXPECT_TRUE(got && want) << (got ? "" : got.error().message);
    if (!got || !want) return false;
    for (size_t i = 0; i < want->size(); ++i) EXPECT_TRUE((*got)[i].SameBits((*want)[i])) << i;
  }
  // The caller's cache is as it was, and one that is given away is written where it lies.
  EXPECT_TRUE(inputs["past"].SameBits(Numbers(f.dtype, {2, kHeads, kRows, kSize}, 3)));
  const std::vector<std::string> steps = model->KernelOfEachStep();
  const bool writes = std::ranges::count(steps, "cache_write rows") == 1;
  if (writes && !f.other_reader) {
    EXPECT_EQ(steps.size(), 1u);
    const std::byte* memory = inputs["past"].data();
    const auto got = model->Run(std::move(inputs));
    EXPECT_TRUE(got.has_value());
    EXPECT_EQ((*got)[0].data(), memory);
    EXPECT_TRUE((*got)[0].SameBits((*want)[0]));
  }
  return writes;
}

TEST(WriteRows, OneStepInPlace) {
  EXPECT_TRUE(Writes({}, {4}));
  EXPECT_TRUE(Writes({}, {4, 5, 6}));
  EXPECT_TRUE(Writes({}, {8, -9, 2}));
  EXPECT_TRUE(Writes({}, {5, 5, 5}));  // the last one stays
  EXPECT_TRUE(Writes({.dtype = DType::kF16}, {0, 8}));
  EXPECT_TRUE(Writes({.dtype = DType::kU8}, {0, 8}));
  EXPECT_TRUE(Writes({.there = {}, .back = {}}, {1}));  // whole entries of the batch
  EXPECT_TRUE(Writes({.there = {}, .back = {}}, {1, 2, 8, 0, 0, 0}, 3));
  EXPECT_TRUE(Writes({.there = {0, 2, 1, 3}, .back = {0, 2, 1, 3}}, {1, 8, 0, -1}, 2));
  EXPECT_TRUE(Writes({.there = {3, 2, 1, 0}, .back = {3, 2, 1, 0}}, {2}));
  EXPECT_TRUE(Writes({.there = {3, 2, 1, 0}, .back = {3, 2, 1, 0}}, {2, 3, 1, 0}, 4));
  EXPECT_TRUE(Writes({.constant_rows = true}, {1, 3}));
  EXPECT_TRUE(Writes({.other_reader = true}, {4}));  // into a copy, if that reads behind it
}

TEST(WriteRows, OthersAreNone) {
  EXPECT_FALSE(Writes({.there = {2, 0, 1, 3}, .back = {2, 0, 1, 3}}, {4}));  // not turned back
  EXPECT_FALSE(Writes({.shows_turned = true}, {4}));
  EXPECT_FALSE(Writes({.from_relu = true}, {4}));  // no input
  EXPECT_FALSE(Writes({.reduction = "add"}, {4}));
}

TEST(WriteRows, WhatDoesNotFitIsTold) {
  const auto why = [](Shape now, std::vector<int64_t> at) {
    const auto model = Model::Compile(
        Writing({}, {ir::Dim::Symbol("n"), ir::Dim::Symbol("b"), ir::Dim::Symbol("h"), ir::Dim::Symbol("d")}, 1),
        {.threads = 1});
    ir::TensorMap inputs = {{"past", Numbers(DType::kF32, {2, kHeads, kRows, kSize}, 3)},
                            {"now", Numbers(DType::kF32, std::move(now), 20)}};
    const auto n = static_cast<int64_t>(at.size());
    inputs["at"] = Tensor::S64({n, 1}, std::move(at));
    const auto got = model->Run(std::move(inputs));
    return got ? "none" : got.error().message;
  };
  EXPECT_EQ(why({1, 2, kHeads, kSize}, {8}), "none");
  EXPECT_EQ(why({0, 2, kHeads, kSize}, {}), "none");
  EXPECT_THAT(why({1, 2, kHeads, kSize}, {9}), ::testing::HasSubstr("index 9 is outside axis 0 of size 9"));
  EXPECT_THAT(why({1, 2, kHeads, kSize}, {-10}), ::testing::HasSubstr("index -10 is outside axis 0 of size 9"));
  EXPECT_THAT(why({1, 2, kHeads, kSize + 1}, {0}), ::testing::HasSubstr("the updates must have the shape"));
  EXPECT_THAT(why({2, 2, kHeads, kSize}, {0}), ::testing::HasSubstr("another input has 1"));
}

TEST(WriteRows, AStateKeepsItsMemory) {
  const Form f;
  ir::SymShape symbolic{ir::Dim::Symbol("n"), 2, kHeads, kSize};
  const auto model = Model::Compile(Writing(f, symbolic, 1), {.threads = 1});
  ASSERT_TRUE(model);
  ASSERT_EQ(model->caches().size(), 1u);
  CacheState state;
  const std::byte* memory = nullptr;
  Tensor by_hand = Tensor::Zeros(DType::kF32, {2, kHeads, kRows, kSize});
  for (int64_t token = 0; token < kRows; ++token) {
    ir::TensorMap inputs = {{"at", Tensor::S64({1, 1}, {token})},
                            {"now", Numbers(DType::kF32, {1, 2, kHeads, kSize}, token)}};
    ASSERT_TRUE(model->Run(inputs, state));
    inputs["past"] = by_hand;
    by_hand = (*model->Run(inputs))[0];
    const Tensor kept = state.Tensors()[0];
    EXPECT_TRUE(kept.SameBits(by_hand));
    EXPECT_TRUE(token == 0 || kept.data() == memory);
    memory = kept.data();
  }
}

}  // namespace
}  // namespace octavo::runtime
