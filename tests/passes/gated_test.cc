// gated: halves of a product that are multiplied get products of their own, with the same bits; and what the pass leaves alone.
#include <gtest/gtest.h>

#include "octavo/passes/quantize/quantize.h"
#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::quantize {
namespace {

using ir::Tensor;

constexpr int64_t kRows = 3, kDepth = 8, kHalf = 6;

enum class Act { kNone, kSilu, kGelu, kTanhGelu };
struct Options {
  Act act = Act::kSilu;
  bool bias = false, second = false;  // second: the second half is the gate
  // What must stay:
  int64_t parts = 2, first = kHalf;
  bool added = false, product_read = false, half_read = false, rows_first = false, weights = true, fixed = true;
};

ValueId Gate(Graphs& m, ValueId x, Act act) {
  const auto times = [&](ValueId a, ValueId b) { return m.Node(Op::kMul, {a, b}); };
  const auto plus = [&](ValueId a, float b) { return m.Node(Op::kAdd, {a, m.Real(b)}); };
  switch (act) {
    case Act::kNone:
      return x;
    case Act::kSilu:
      return times(x, m.Node(Op::kSigmoid, {x}));
    case Act::kGelu:
      return times(times(x, plus(m.Node(Op::kErf, {times(x, m.Real(0.70710677f))}), 1)), m.Real(0.5f));
    case Act::kTanhGelu: {
      const ValueId cube = times(times(x, times(x, x)), m.Real(0.044715f));
      const ValueId turned = m.Node(Op::kTanh, {times(m.Node(Op::kAdd, {x, cube}), m.Real(0.79788456f))});
      return times(times(x, plus(turned, 1)), m.Real(0.5f));
    }
  }
  return x;
}

Graphs Ffn(const Options& o) {
  Graphs m;
  const ValueId x = m.Input("x", {1, kRows, kDepth});
  const int64_t columns = o.parts * kHalf;
  ValueId y = m.Node(Op::kMatMul, {x, o.weights ? m.Reals({kDepth, columns}) : m.Input("w", {kDepth, columns})});
  if (o.product_read) m.g.AddOutput("product", y);
  if (o.bias) y = m.Node(Op::kAdd, {y, m.Vector(columns, -1)});
  std::vector<int64_t> sizes(static_cast<size_t>(o.parts), kHalf);
  sizes[0] = o.first, sizes[1] = 2 * kHalf - o.first;
  if (o.rows_first) y = m.Perm(y, {0, 2, 1});
  const ir::Attrs axis = {{"axis", int64_t{o.rows_first ? 1 : -1}}};
  const NodeId split = m.g.AddNode(Op::kSplit, {y, m.Ints(sizes)}, sizes.size(), axis, "Split");
  ValueId a = m.g.node(split).output(o.second), b = m.g.node(split).output(!o.second);
  if (o.first != kHalf) a = m.Node(Op::kReduceSum, {a, m.Ints({-1})}, {{"keepdims", int64_t{1}}});
  if (o.half_read) m.g.AddOutput("half", m.Reshape(b, {0, 2, -1}));
  m.g.AddOutput("y", m.Node(o.added ? Op::kAdd : Op::kMul, {Gate(m, a, o.act), b}));
  EXPECT_TRUE(ir::Inference::Run(m.g));
  if (!o.fixed)
    m.g.SetInput(split, 1,
                 m.g.AddInput("sizes", {ir::DType::kS64, ir::SymShape{2}}));  // the types are what a file declares
  return m;
}

TEST(Gated, EachHalfHasAProductOfTheSameBits) {
  for (const Options& o : {Options{}, Options{.act = Act::kNone}, Options{.act = Act::kGelu, .bias = true},
                           Options{.act = Act::kTanhGelu, .second = true}, Options{.bias = true, .second = true}}) {
    const Graphs m = Ffn(o);
    Graph after = m.g;
    PassRun run;
    const auto changed = Gated(after, run);
    ASSERT_TRUE(changed && *changed);
    EXPECT_EQ(CountOf(after, Op::kMatMul), 2);
    EXPECT_EQ(CountOf(after, Op::kSplit), 0);
    EXPECT_EQ(CountOf(after, Op::kAdd), CountOf(m.g, Op::kAdd) + o.bias);
    Tensor x = Tensor::Zeros(ir::DType::kF32, {1, kRows, kDepth});
    for (int64_t i = 0; i < x.size(); ++i)
      x.mutable_as<float>()[static_cast<size_t>(i)] = std::sin(static_cast<float>(i));
    const auto want = ir::Interpret(m.g, {{"x", x}}), got = ir::Interpret(after, {{"x", x}});
    ASSERT_TRUE(want && got);
    for (int64_t i = 0; i < want->front().size(); ++i) EXPECT_EQ(want->front().GetDouble(i), got->front().GetDouble(i));
    const auto again = Gated(after, run);
    EXPECT_TRUE(again && !*again);
  }
}

TEST(Gated, TheHalvesKeepTheNameOfTheirSource) {
  Graph g = Ffn({}).g;
  std::string source;
  for (const NodeId id : g.NodesInOrder()) {
    if (g.node(id).op == Op::kMatMul) g.SetOrigin(id, {source = "/layers.0/gate_up/MatMul"});
  }
  PassRun run;
  ASSERT_TRUE(Gated(g, run));
  std::vector<std::string> names;
  for (const NodeId id : g.NodesInOrder()) {
    if (g.node(id).op != Op::kMatMul) continue;
    names.push_back(OriginName(g.node(id)));
    EXPECT_TRUE(IsNamed({source}, g.node(id)));
  }
  EXPECT_EQ(names, (std::vector{source + " (half 1)", source + " (half 2)"}));
}

TEST(Gated, LeavesOtherParts) {
  for (const Options& o :
       {Options{.parts = 3}, Options{.first = 4}, Options{.added = true}, Options{.product_read = true},
        Options{.half_read = true}, Options{.rows_first = true}, Options{.weights = false}, Options{.fixed = false},
        Options{.bias = true, .product_read = true}}) {
    Graph g = Ffn(o).g;
    PassRun run;
    const auto changed = Gated(g, run);
    ASSERT_TRUE(changed);
    EXPECT_FALSE(*changed);
  }
}

}  // namespace
}  // namespace octavo::passes::quantize
