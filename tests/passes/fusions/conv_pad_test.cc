// conv_pad.cc: zeros around pixels go into the convolution behind them; other padding stays.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

using Ints = std::vector<int64_t>;

struct Options {
  Ints pads = {0, 0, 0, 0, 0, 0, 1, 2};
  float value = 0;
  bool says_value = true;
  std::string mode = "constant";
  ir::Attrs conv = {};
};

ValueId Padded(Graphs& m, const Options& o) {
  std::vector<ValueId> in = {m.Input("x", {2, 6, 8, 7}), m.Ints(o.pads)};
  if (o.says_value) in.push_back(m.Real(o.value));
  return m.Node(Op::kPad, in, {{"mode", o.mode}});
}
ValueId Conv(Graphs& m, ValueId x, const Options& o) {
  return m.Node(Op::kConv, {x, m.Reals({8, 6, 3, 3}), m.Vector(8, -0.4f)}, o.conv);
}

TEST(ConvPadRule, FiresWithTheSameBits) {
  const Ints strides = {2, 2};
  for (const Options& o : {Options{}, Options{.says_value = false}, Options{.conv = {{"strides", strides}}},
                           Options{.pads = {0, 0, 1, 0, 0, 0, 0, 2}, .conv = {{"pads", Ints{1, 0, 2, 1}}}},
                           Options{.conv = {{"auto_pad", std::string("VALID")}, {"strides", strides}}}}) {
    Graphs m(3, 18);
    m.g.AddOutput("y", Conv(m, Padded(m, o), o));
    const Fused f = Fuse(m.g);
    EXPECT_EQ(CountOf(f.graph, Op::kPad), 0);
    const ir::TensorMap x = {{"x", Random({2, 6, 8, 7}, 1)}};
    const auto want = ir::Interpret(m.g, x), got = ir::Interpret(f.graph, x);
    ASSERT_TRUE(want && got);
    EXPECT_TRUE(got->front().SameBits(want->front()));
  }
}

TEST(ConvPadRule, AllThatReadOnePad) {
  Graphs m(3, 18);
  const ValueId pad = Padded(m, {});
  m.g.AddOutput("y", Conv(m, pad, {}));
  m.g.AddOutput("z", Conv(m, pad, {}));
  m.g.AddOutput("pad", pad);
  const Fused f = Fuse(m.g);
  EXPECT_EQ(CountOf(f.graph, Op::kPad), 1);
  for (const NodeId id : f.graph.NodesInOrder()) {
    if (f.graph.node(id).op != Op::kConv) continue;
    EXPECT_EQ(f.graph.node(id).attrs.Ints("pads"), (Ints{0, 0, 1, 2}));
  }
}

TEST(ConvPadRule, RefusesWithASentence) {
  for (const Options& o :
       {Options{.value = 0.5f}, Options{.mode = "reflect"}, Options{.pads = {0, 0, 0, 0, 0, 0, -1, 2}},
        Options{.pads = {1, 0, 0, 0, 0, 0, 1, 2}}, Options{.pads = {0, 0, 0, 0, 0, 0, int64_t{1} << 40, 0}},
        Options{.conv = {{"auto_pad", std::string("SAME_UPPER")}}}}) {
    Refuses("the Pad puts something else than zeros, or not around pixels alone", ConvPad(),
            [&](Graphs& m) { m.g.AddOutput("y", Conv(m, Padded(m, o), o)); });
  }
}

}  // namespace
}  // namespace octavo::passes::fusions
