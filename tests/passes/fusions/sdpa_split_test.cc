// sdpa_split.cc: attention reads [B,S,H*D] with the same bits; what is no split of the last axis stays.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

TEST(SdpaSplitRule, EachOperandIsReadAsItComes) {
  Graphs before(5);
  const auto split = [&](const char* name) {
    return before.Perm(before.Reshape(before.Input(name, {1, 5, 8}), {1, 5, 2, 4}), {0, 2, 1, 3});
  };
  const ValueId q = split("q"), k = split("k"), v = split("v");
  before.g.AddOutput("y", before.Node(Op::kSdpa, {q, k, v}, before.Heads(2, 2)));
  const Fused f = Fuse(before.g);
  EXPECT_EQ(CountOf(f.graph, Op::kTranspose) + CountOf(f.graph, Op::kReshape), 0);
  for (NodeId id : f.graph.NodesInOrder()) {
    const Node& n = f.graph.node(id);
    for (const char* rank : {"q_rank", "k_rank", "v_rank"}) EXPECT_EQ(n.attrs.Int(rank, 0), 3);
  }
  const ir::TensorMap inputs{{"q", Random({1, 5, 8}, 1)}, {"k", Random({1, 5, 8}, 2)}, {"v", Random({1, 5, 8}, 3)}};
  EXPECT_EQ(Difference(before.g, f.graph, inputs), 0.0);
}

TEST(SdpaSplitRule, RefusesWithASentence) {
  Refuses("the head split does not go from rank 3 to rank 4", SdpaSplitQ(Op::kSdpa), [](Graphs& m) {
    const ValueId q = m.Perm(m.Reshape(m.In({5, 8}), {1, 5, 2, 4}), {0, 2, 1, 3});
    m.g.AddOutput("y", m.Node(Op::kSdpa, {q, m.In({1, 2, 5, 4}), m.In({1, 2, 5, 4})}, m.Heads(2, 2)));
  });
  Refuses("the head split changes more than the last axis: [1,10,32] to [2,5,2,16]", SdpaSplitQ(Op::kSdpa),
          [](Graphs& m) {
            const ValueId q = m.Perm(m.Reshape(m.In({1, 10, 32}), {2, 5, 2, 16}), {0, 2, 1, 3});
            m.g.AddOutput("y", m.Node(Op::kSdpa, {q, m.In({2, 2, 5, 16}), m.In({2, 2, 5, 4})}, m.Heads(2, 2)));
          });
}

}  // namespace
}  // namespace octavo::passes::fusions
