// rotate_values: values of attention turn, what the product behind it computes stays; and what the pass leaves alone.
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/passes/quantize/quantize.h"
#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::quantize {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kHeads = 4, kValueHeads = 2, kRows = 5, kDepth = 12;

struct Options {
  int64_t head = 8;
  int64_t rank = 3;  // of V
  bool bias = false, read_twice = false, two_products = false, output = false, added = false, cached = false;
};

// The first channel of each head of V is a hundred times the others.
Graphs Attention(const Options& o) {
  Graphs m;
  const ValueId x = m.Input("x", {1, kRows, kDepth});
  const int64_t width = kValueHeads * o.head;
  Tensor w = *m.g.ConstantOf(m.Reals({kDepth, width}));
  for (int64_t i = 0; i < w.size(); ++i)
    w.mutable_as<float>()[static_cast<size_t>(i)] *= i % o.head == 0 ? 100.0f : 1.0f;
  ValueId v = m.Node(Op::kMatMul, {x, m.g.AddConstant(std::move(w))});
  if (o.bias) v = m.Node(Op::kAdd, {v, m.Vector(width, -0.5f)});
  m.g.SetName(v, "v");
  if (o.read_twice) m.g.AddOutput("values", v);
  if (o.cached) v = m.Node(Op::kConcat, {m.Input("past", {1, kRows, width}), v}, {{"axis", int64_t{1}}});
  if (o.rank == 4) v = m.Perm(m.Reshape(v, {0, 0, kValueHeads, o.head}), {0, 2, 1, 3});
  const ValueId q = m.Node(Op::kMatMul, {x, m.Reals({kDepth, kHeads * 4})});
  const ValueId k = o.cached ? m.Input("keys", {1, 2 * kRows, kValueHeads * 4})
                             : m.Node(Op::kMatMul, {x, m.Reals({kDepth, kValueHeads * 4})});
  ValueId y = m.Node(Op::kSdpa, {q, k, v},
                     {{"num_heads", kHeads},
                      {"kv_num_heads", kValueHeads},
                      {"head_dim", int64_t{4}},
                      {"v_head_dim", o.head},
                      {"q_rank", int64_t{3}},
                      {"k_rank", int64_t{3}},
                      {"v_rank", o.rank},
                      {"out_rank", int64_t{3}},
                      {"scale", 0.01f}});
  if (o.output) m.g.AddOutput("attention", y);
  if (o.added) m.g.AddOutput("sum", m.Node(Op::kAdd, {y, m.Filled({kHeads * o.head})}));
  m.g.AddOutput("y", m.Node(Op::kMatMul, {y, m.Reals({kHeads * o.head, 7})}));
  if (o.two_products) m.g.AddOutput("z", m.Node(Op::kMatMul, {y, m.Reals({kHeads * o.head, 3})}));
  EXPECT_TRUE(ir::Inference::Run(m.g));
  return m;
}

double Largest(const Tensor& t) {
  double largest = 0;
  for (int64_t i = 0; i < t.size(); ++i) largest = std::max(largest, std::fabs(t.GetDouble(i)));
  return largest;
}

TEST(RotateValues, ProductsStayAndValuesAreEven) {
  for (const Options& o : {Options{}, Options{.bias = true}, Options{.head = 24, .bias = true},
                           Options{.head = 32, .two_products = true}}) {
    SCOPED_TRACE(o.head);
    const Graphs m = Attention(o);
    Graph after = m.g;
    PassRun run;
    const auto changed = RotateValues(after, run);
    ASSERT_TRUE(changed && *changed);
    for (const Op op : {Op::kMatMul, Op::kAdd, Op::kSdpa}) EXPECT_EQ(CountOf(after, op), CountOf(m.g, op));
    after.AddOutput("values", after.FindValue("v"));
    Graph before = m.g;
    before.AddOutput("values", before.FindValue("v"));
    Tensor x = Tensor::Zeros(DType::kF32, {1, kRows, kDepth});
    for (int64_t i = 0; i < x.size(); ++i)
      x.mutable_as<float>()[static_cast<size_t>(i)] = std::sin(static_cast<float>(i));
    const auto want = ir::Interpret(before, {{"x", x}}), got = ir::Interpret(after, {{"x", x}});
    ASSERT_TRUE(want && got);
    const Tensor &values = want->back(), &turned = got->back();
    // A turned channel is at most the root of the head's size times the largest, in V and in the weight behind: so much more can cancel. Sums of kDepth
    // products, of keys, of the result's channels, and the rounding of both weights.
    const double sums = kDepth + kRows + kHeads * static_cast<double>(o.head) + 4;
    const double size = static_cast<double>(o.head & -o.head) * kHeads * static_cast<double>(o.head);
    const double bound = sums * std::ldexp(size, -24) * Largest(values) * 1.5;  // weights are at most 1.5
    for (size_t out = 0; out + 1 < want->size(); ++out) {
      EXPECT_GT(Largest((*want)[out]), 5 * bound);
      for (int64_t i = 0; i < (*want)[out].size(); ++i)
        EXPECT_NEAR((*want)[out].GetDouble(i), (*got)[out].GetDouble(i), bound);
    }
    // One channel of 8 that is a hundred times the others comes to a root of 8 of that in each.
    EXPECT_LT(Largest(turned), 0.6 * Largest(values));
    double before_squares = 0, after_squares = 0;
    for (int64_t i = 0; i < values.size(); ++i)
      before_squares += std::pow(values.GetDouble(i), 2), after_squares += std::pow(turned.GetDouble(i), 2);
    EXPECT_NEAR(after_squares, before_squares, 1e-5 * before_squares);
  }
}

TEST(RotateValues, LeavesWhatReadsValuesOtherwise) {
  for (const Options& o : {Options{.head = 4}, Options{.head = 20}, Options{.rank = 4}, Options{.read_twice = true},
                           Options{.output = true}, Options{.added = true}, Options{.cached = true}}) {
    Graph g = Attention(o).g;
    PassRun run;
    const auto changed = RotateValues(g, run);
    ASSERT_TRUE(changed);
    EXPECT_FALSE(*changed);
  }
  Graph g = Attention({}).g;
  PassRun run;
  run.keep_float = {"*"};
  const auto changed = RotateValues(g, run);
  ASSERT_TRUE(changed);
  EXPECT_FALSE(*changed) << "attention that stays float gains nothing";
}

}  // namespace
}  // namespace octavo::passes::quantize
