#include "octavo/fuzz/work.h"

#include <gtest/gtest.h>

namespace octavo::fuzz {
namespace {

using ir::Dim;
using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;

// x [batch,64] times a constant [64,32].
double WorkOfProduct(int64_t rows, bool batch_is_known) {
  Graph g;
  const Dim batch = batch_is_known ? Dim::Symbol("batch") : Dim::Unknown();
  const ir::ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{batch, 64}});
  const ir::NodeId product = g.AddNode(Op::kMatMul, {x, g.AddConstant(Tensor::Zeros(DType::kF32, {64, 32}))}, 1);
  g.SetType(g.node(product).output(), {DType::kF32, ir::SymShape{batch, 32}});
  g.AddOutput("y", g.node(product).output());
  return DeclaredWork(g, {{"x", Tensor::Zeros(DType::kF32, {rows, 64})}});
}

TEST(Work, RowsOfTheInputsCount) {
  EXPECT_EQ(WorkOfProduct(5, true), 5 * 32 * 64 + 10 * (5 * 64 + 64 * 32 + 5 * 32));
  EXPECT_LT(WorkOfProduct(512, true), kMostWork);
  EXPECT_GT(WorkOfProduct(1 << 18, true), kMostWork);
}

TEST(Work, WhatNothingTellsCountsAsOne) {
  EXPECT_EQ(WorkOfProduct(5, false), 1 * 32 * 64 + 10 * (1 * 64 + 64 * 32 + 1 * 32));
}

}  // namespace
}  // namespace octavo::fuzz
