// layer_norm_batch.cc: a norm that Keras computes as one of a batch fires within its bound; other rows, counts and vectors keep it.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

struct Form {
  ir::Shape rows = {1, 6, 8, 1};  // what x [2,3,8] becomes
  std::vector<int64_t> back = {2, 3, 8};
  float count = 8, one = 1, zero = 0;
  int64_t training = 0;
  ir::Shape gamma = {8};
  std::vector<int64_t> axes = {0, 2, 3};
};

void Batch(Graphs& m, const Form& form = {}) {
  const ValueId rows = m.Reshape(m.Input("x", {2, 3, 8}), form.rows);
  const ValueId mean = m.Node(Op::kReduceMean, {rows, m.Ints(form.axes)}, {{"keepdims", int64_t{1}}});
  const ValueId squares =
      m.Node(Op::kReduceSumSquare, {m.Node(Op::kSub, {rows, mean}), m.Ints(form.axes)}, {{"keepdims", int64_t{0}}});
  const ValueId variance = m.Node(Op::kDiv, {squares, m.Real(form.count)});
  const ValueId flat = m.Node(Op::kSqueeze, {mean, m.Ints({0, 2, 3})});
  const ValueId count = m.Ints({form.rows[1]});
  const auto filled = [&](float x) { return m.Node(Op::kExpand, {m.Real(x), count}); };
  const ValueId norm = m.Node(Op::kBatchNormalization, {rows, filled(form.one), filled(form.zero), flat, variance},
                              {{"epsilon", 1e-3f}, {"training_mode", form.training}});
  const ValueId scaled = m.Node(Op::kMul, {m.Reshape(norm, form.back), m.Filled(form.gamma, 0.7f)});
  m.g.AddOutput("y", m.Node(Op::kAdd, {scaled, m.Vector(8, -0.2f)}));
}

TEST(LayerNormBatchRule, Fires) {
  Graphs b(3, 18);
  Batch(b);
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kLayerNormalization), 1) << DeepestReason(f, "layer_norm_batch");
  EXPECT_EQ(CountOf(f.graph, Op::kBatchNormalization), 0);
  EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 1)}}), 2e-6);
}

TEST(LayerNormBatchRule, OtherScales) {
  for (const Form& form : {Form{.one = 2}, Form{.zero = 1}})
    EXPECT_EQ(CountAfter(FuseFloat, Op::kLayerNormalization, [&](Graphs& m) { Batch(m, form); }), 0);
}

TEST(LayerNormBatchRule, RefusesWithASentence) {
  const auto refuses = [](const std::string& sentence, const Form& form) {
    Refuses(sentence, LayerNormBatch(), [&](Graphs& m) { Batch(m, form); });
  };
  refuses("its channels are not the rows of x", {.rows = {1, 12, 4, 1}});
  refuses("its variance is no mean of a row", {.count = 7});
  refuses("its axes are not 0, 2 and 3", {.axes = {0, 1, 2}});
  refuses("it is in training", {.training = 1});
  refuses("its result has another shape than x", {.back = {6, 8}});
  refuses("gamma or beta is no vector of the last dimension", {.gamma = {3, 8}});
}

}  // namespace
}  // namespace octavo::passes::fusions
