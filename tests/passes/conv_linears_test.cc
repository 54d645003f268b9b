// conv_linears: convolutions of kernel 1 are Linears with the same bits, and what the pass leaves alone.
#include <gtest/gtest.h>

#include "octavo/passes/pipelines.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::quantize {
namespace {

using ir::Tensor;

constexpr int64_t kChannels = 64, kFilters = 72;

struct Options {
  size_t dims = 2;
  bool bias = true;
  // What must stay:
  int64_t kernel = 1, stride = 1, groups = 1, channels = kChannels, filters = kFilters, size = 3;
  bool weights = true;
};

Graphs Net(const Options& o) {
  Graphs m;
  ir::SymShape shape(o.dims + 2, ir::Dim(o.size));
  shape[0] = ir::Dim::Symbol("n"), shape[1] = o.channels;
  ir::Shape w(o.dims + 2, o.kernel);
  w[0] = o.filters, w[1] = o.channels / o.groups;
  const ValueId x = m.Input("x", shape);
  std::vector<ValueId> in = {x, o.weights ? m.Reals(w) : m.Input("w", ir::SymShape(w.begin(), w.end()))};
  if (o.bias) in.push_back(m.Reals({o.filters}));
  m.g.AddOutput(
      "y", m.Node(Op::kRelu,
                  {m.Node(Op::kConv, in, {{"strides", std::vector<int64_t>(o.dims, o.stride)}, {"group", o.groups}})}));
  EXPECT_TRUE(ir::Inference::Run(m.g));
  return m;
}

TEST(ConvLinears, TheSameBits) {
  for (const Options& o : {Options{}, Options{.bias = false}, Options{.dims = 1}, Options{.dims = 3, .bias = false},
                           Options{.channels = 65, .size = 5}}) {
    const Graphs m = Net(o);
    Graph after = m.g;
    PassRun run;
    const auto changed = ConvLinears(after, run);
    ASSERT_TRUE(changed && *changed);
    EXPECT_EQ(CountOf(after, Op::kConv), 0);
    EXPECT_EQ(CountOf(after, Op::kMatMul), 1);
    EXPECT_EQ(CountOf(after, Op::kAdd), o.bias);
    EXPECT_EQ(CountOf(after, Op::kTranspose), 2);
    ir::Shape shape(o.dims + 2, o.size);
    shape[0] = 2, shape[1] = o.channels;
    Tensor x = Tensor::Zeros(ir::DType::kF32, shape);
    for (int64_t i = 0; i < x.size(); ++i)
      x.mutable_as<float>()[static_cast<size_t>(i)] = std::sin(static_cast<float>(i));
    const auto want = ir::Interpret(m.g, {{"x", x}}), got = ir::Interpret(after, {{"x", x}});
    ASSERT_TRUE(want && got);
    EXPECT_TRUE(got->front().SameBits(want->front()));
    const auto again = ConvLinears(after, run);
    EXPECT_TRUE(again && !*again);
  }
}

TEST(ConvLinears, KeepTheirNames) {
  Graph g = Net({}).g;
  for (const NodeId id : g.NodesInOrder()) {
    if (g.node(id).op == Op::kConv) g.SetOrigin(id, {"stage1/expand"});
  }
  PassRun run;
  ASSERT_TRUE(ConvLinears(g, run));
  for (const NodeId id : g.NodesInOrder()) {
    if (g.node(id).op != Op::kMatMul) continue;
    EXPECT_TRUE(IsNamed({"stage1/*"}, g.node(id)));
  }
}

TEST(ConvLinears, LeavesOtherConvolutions) {
  for (const Options& o :
       {Options{.kernel = 3}, Options{.stride = 2}, Options{.groups = 2, .channels = 128}, Options{.channels = 63},
        Options{.filters = 63}, Options{.size = 1}, Options{.weights = false}}) {
    Graph g = Net(o).g;
    PassRun run;
    const auto changed = ConvLinears(g, run);
    ASSERT_TRUE(changed);
    EXPECT_FALSE(*changed);
  }
}

// Where its codes cost nothing: fp8 has no product that is faster than floats on most CPUs.
TEST(ConvLinears, RecipesOfInt8HaveIt) {
  for (const Recipe& recipe : Recipes()) {
    const bool wanted = std::string(recipe.name) == "int8" || std::string(recipe.name) == "dynamic";
    EXPECT_EQ(std::ranges::contains(recipe.passes, "conv_linears"), wanted) << recipe.name;
  }
}

}  // namespace
}  // namespace octavo::passes::quantize
