// sdpa_merge.cc: attention writes heads side by side, with the same bits; another order of the axes stays.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

// Attention of 3 heads and a mask; `merged`: the shape behind the Transpose of the heads.
Graphs Attention(const std::vector<int64_t>& merged) {
  Graphs b(3, 18);
  const ValueId q = b.Input("q", {2, 3, 5, 4});
  const ValueId k = b.Input("k", {2, 3, 5, 4});
  const ValueId v = b.Input("v", {2, 3, 5, 6});
  const ValueId kt = b.Node(Op::kTranspose, {k}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  const ValueId s = b.Node(Op::kMul, {b.Node(Op::kMatMul, {q, kt}), b.Real(0.5f)});
  const ValueId masked = b.Node(Op::kAdd, {s, b.Input("mask", {2, 1, 1, 5})});
  const ValueId p = b.Node(Op::kSoftmax, {masked}, {{"axis", int64_t{-1}}});
  b.g.AddOutput("y", b.Reshape(b.Perm(b.Node(Op::kMatMul, {p, v}), {0, 2, 1, 3}), merged));
  return b;
}

TEST(SdpaMergeRule, WritesTheHeadsSideBySide) {
  using Shape = std::vector<int64_t>;
  // Three dims, two (GPT-2's view of all rows), and one that takes the heads apart again.
  for (const auto& [merged, reshapes, transposes] :
       {std::tuple{Shape{2, 5, 18}, 0, 0}, std::tuple{Shape{-1, 18}, 1, 0}, std::tuple{Shape{10, 3, 6}, 1, 1}}) {
    const Graphs b = Attention(merged);
    const Fused f = Fuse(b.g);
    ASSERT_EQ(CountOf(f.graph, Op::kSdpa), 1);
    EXPECT_EQ(CountOf(f.graph, Op::kReshape), reshapes) << merged.size();
    EXPECT_EQ(CountOf(f.graph, Op::kTranspose), transposes) << merged.size();
    const ir::TensorMap inputs{{"q", Random({2, 3, 5, 4}, 3)},
                               {"k", Random({2, 3, 5, 4}, 4)},
                               {"v", Random({2, 3, 5, 6}, 5)},
                               {"mask", Random({2, 1, 1, 5}, 6)}};
    EXPECT_EQ(Difference(b.g, f.graph, inputs), 0.0);
  }
}

TEST(SdpaMergeRule, HeadsAreMergedByOneTranspose) {
  const auto merged = [](std::vector<int64_t> back) {
    return [back](Graphs& m) {
      const ValueId q = m.Input("q", {2, 4, 5, 6}), k = m.Input("k", {2, 4, 5, 6}), v = m.Input("v", {2, 4, 5, 6});
      const ValueId s = m.Node(Op::kMatMul, {q, m.Perm(k, {0, 1, 3, 2})});
      const ValueId o = m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}), v});
      m.g.AddOutput("y", m.Reshape(m.Perm(o, back), {2, 5, 24}));
    };
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kReshape, merged({0, 2, 1, 3})), 0);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kReshape, merged({0, 2, 3, 1})), 1);  // columns between heads
}

TEST(SdpaMergeRule, RefusesWithASentence) {
  Refuses("the head merge does not go from rank 4 to rank 3 or 2", SdpaMerge(Op::kSdpa), [](Graphs& m) {
    const ValueId y = m.Node(Op::kSdpa, {m.In({1, 2, 5, 4}), m.In({1, 2, 5, 4}), m.In({1, 2, 5, 4})}, m.Heads(2, 2));
    m.g.AddOutput("y", m.Reshape(m.Perm(y, {0, 2, 1, 3}), {-1}));
  });
}

}  // namespace
}  // namespace octavo::passes::fusions
