// The float rules: each fires on the form in its header, keeps the numbers within its bound, and refuses with a sentence
// that names the culprit.
#include "octavo/passes/fusions/fusions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::Tensor;

class Builder {
 public:
  Builder() { g.info.opsets[""] = 18; }
  ValueId Input(const std::string& name, ir::SymShape shape) {
    return g.AddInput(name, {DType::kF32, std::move(shape)});
  }
  ValueId Make(Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), "n" + std::to_string(g.node_count()))).output();
  }
  ValueId Scalar(float v) { return g.AddConstant(Tensor::ScalarF32(v)); }
  ValueId Ints(std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return g.AddConstant(Tensor::S64({n}, std::move(v)));
  }
  ValueId Vector(int64_t n, float from) {
    std::vector<float> v;
    for (int64_t i = 0; i < n; ++i) v.push_back(from + 0.1f * static_cast<float>(i));
    return g.AddConstant(Tensor::F32({n}, v));
  }
  Graph g;
};

int CountOf(const Graph& g, Op op) {
  int n = 0;
  for (NodeId id : g.NodesInOrder()) n += g.node(id).op == op;
  return n;
}

struct Fused {
  Graph graph;
  std::vector<NearMiss> misses;
};
Fused Fuse(const Graph& g) {
  Fused f{g, {}};
  EXPECT_TRUE(ir::Inference::Run(f.graph).has_value());
  PassRun context;
  context.misses = &f.misses;
  auto changed = FuseFloat(f.graph, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  return f;
}

std::string DeepestReason(const Fused& f, std::string_view rule) {
  const NearMiss* best = nullptr;
  for (const NearMiss& m : f.misses) {
    if (m.rule == rule && (best == nullptr || m.matched > best->matched)) best = &m;
  }
  return best == nullptr ? "" : best->kind + ": " + best->reason;
}

Tensor Random(ir::Shape shape, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (float& x : t.mutable_as<float>()) x = normal(rng);
  return t;
}

// Largest difference of the first output before and after, on seeded inputs.
double Difference(const Graph& before, const Graph& after, const ir::TensorMap& inputs) {
  auto a = ir::Interpret(before, inputs);
  auto b = ir::Interpret(after, inputs);
  EXPECT_TRUE(a.has_value() && b.has_value());
  double worst = 0;
  double size = 0;
  for (int64_t i = 0; i < (*a)[0].size(); ++i) {
    worst = std::max(worst, std::fabs((*a)[0].GetDouble(i) - (*b)[0].GetDouble(i)));
    size = std::max(size, std::fabs((*a)[0].GetDouble(i)));
  }
  EXPECT_GT(size, 0.1);
  return worst;
}

Builder DecomposedNorm(int64_t axis, float power) {
  Builder b;
  const ValueId x = b.Input("x", {2, 3, 8});
  const ir::Attrs keep{{"keepdims", int64_t{1}}};
  const ValueId d = b.Make(Op::kSub, {x, b.Make(Op::kReduceMean, {x, b.Ints({axis})}, keep)});
  const ValueId var = b.Make(Op::kReduceMean, {b.Make(Op::kPow, {d, b.Scalar(power)}), b.Ints({axis})}, keep);
  const ValueId root = b.Make(Op::kSqrt, {b.Make(Op::kAdd, {var, b.Scalar(1e-5f)})});
  const ValueId y = b.Make(Op::kMul, {b.Make(Op::kDiv, {d, root}), b.Vector(8, 0.5f)});
  b.g.AddOutput("y", b.Make(Op::kAdd, {b.Vector(8, -0.2f), y}));  // bias first, as TorchScript writes it
  return b;
}

TEST(LayerNormRule, Fires) {
  const Builder b = DecomposedNorm(-1, 2.0f);
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kLayerNormalization), 1);
  EXPECT_EQ(CountOf(f.graph, Op::kReduceMean), 0);
  EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 1)}}), 2e-6);
}
TEST(LayerNormRule, RefusesAnotherAxis) {
  const Fused f = Fuse(DecomposedNorm(1, 2.0f).g);
  EXPECT_EQ(CountOf(f.graph, Op::kLayerNormalization), 0);
  EXPECT_NE(DeepestReason(f, "layer_norm").find("is not the last one"), std::string::npos)
      << DeepestReason(f, "layer_norm");
}
TEST(LayerNormRule, RefusesAnotherPower) {
  const Fused f = Fuse(DecomposedNorm(-1, 3.0f).g);
  EXPECT_EQ(CountOf(f.graph, Op::kLayerNormalization), 0);
}

Builder ErfGelu(float divisor) {
  Builder b;
  const ValueId x = b.Input("x", {2, 9});
  const ValueId erf = b.Make(Op::kErf, {b.Make(Op::kDiv, {x, b.Scalar(divisor)})});
  const ValueId sum = b.Make(Op::kAdd, {erf, b.Scalar(1.0f)});
  b.g.AddOutput("y", b.Make(Op::kMul, {b.Make(Op::kMul, {x, sum}), b.Scalar(0.5f)}));
  return b;
}
TEST(GeluRule, FiresOnTheErfForm) {
  const Builder b = ErfGelu(1.41421354f);
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kGelu), 1);
  EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 9}, 2)}}), 1e-6);
}
TEST(GeluRule, RefusesAnotherDivisor) {
  const Fused f = Fuse(ErfGelu(1.5f).g);
  EXPECT_EQ(CountOf(f.graph, Op::kGelu), 0);
  EXPECT_NE(DeepestReason(f, "gelu_erf").find("is 1.5"), std::string::npos) << DeepestReason(f, "gelu_erf");
}

struct AttentionOptions {
  int64_t softmax_axis = -1;
  bool scores_escape = false;
  std::vector<int64_t> merged = {};  // shape behind the Transpose of the heads; empty: neither
};
Builder Attention(const AttentionOptions& o) {
  Builder b;
  const ValueId q = b.Input("q", {2, 3, 5, 4});
  const ValueId k = b.Input("k", {2, 3, 5, 4});
  const ValueId v = b.Input("v", {2, 3, 5, 6});
  const ValueId kt = b.Make(Op::kTranspose, {k}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  const ValueId s = b.Make(Op::kMul, {b.Make(Op::kMatMul, {q, kt}), b.Scalar(0.5f)});
  const ValueId masked = b.Make(Op::kAdd, {s, b.Input("mask", {2, 1, 1, 5})});
  const ValueId p = b.Make(Op::kSoftmax, {masked}, {{"axis", o.softmax_axis}});
  ValueId y = b.Make(Op::kMatMul, {p, v});
  if (!o.merged.empty()) {
    y = b.Make(Op::kTranspose, {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    y = b.Make(Op::kReshape, {y, b.Ints(o.merged)});
  }
  b.g.AddOutput("y", y);
  if (o.scores_escape) b.g.AddOutput("scores", masked);
  return b;
}
TEST(SdpaRule, FiresAndIsExact) {
  const Builder b = Attention({});
  const Fused f = Fuse(b.g);
  ASSERT_EQ(CountOf(f.graph, Op::kSdpa), 1);
  EXPECT_EQ(CountOf(f.graph, Op::kSoftmax), 0);
  const double difference = Difference(b.g, f.graph,
                                       {{"q", Random({2, 3, 5, 4}, 3)},
                                        {"k", Random({2, 3, 5, 4}, 4)},
                                        {"v", Random({2, 3, 5, 6}, 5)},
                                        {"mask", Random({2, 1, 1, 5}, 6)}});
  EXPECT_EQ(difference, 0.0);
}
TEST(SdpaRule, WritesTheHeadsSideBySide) {
  using Shape = std::vector<int64_t>;
  // Three dims, two (GPT-2's view of all rows), and one that takes the heads apart again.
  for (const auto& [merged, reshapes, transposes] :
       {std::tuple{Shape{2, 5, 18}, 0, 0}, std::tuple{Shape{-1, 18}, 1, 0}, std::tuple{Shape{10, 3, 6}, 1, 1}}) {
    const Builder b = Attention({.merged = merged});
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
TEST(SdpaRule, RefusesSoftmaxOverTheQueries) {
  const Fused f = Fuse(Attention({.softmax_axis = 2}).g);
  EXPECT_EQ(CountOf(f.graph, Op::kSdpa), 0);
  EXPECT_NE(DeepestReason(f, "sdpa").find("axis 2 is not the last one"), std::string::npos) << DeepestReason(f, "sdpa");
}
TEST(SdpaRule, LeavesTheScoresToTheirOtherReaders) {
  const Builder b = Attention({.scores_escape = true});
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kSdpa), 1);
  EXPECT_EQ(CountOf(f.graph, Op::kSoftmax), 0);
  ASSERT_EQ(f.graph.outputs().size(), 2u);
  const ir::TensorMap inputs{{"q", Random({2, 3, 5, 4}, 3)},
                             {"k", Random({2, 3, 5, 4}, 4)},
                             {"v", Random({2, 3, 5, 6}, 5)},
                             {"mask", Random({2, 1, 1, 5}, 6)}};
  auto before = ir::Interpret(b.g, inputs), after = ir::Interpret(f.graph, inputs);
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_TRUE((*before)[0].SameBits((*after)[0]));
  EXPECT_TRUE((*before)[1].SameBits((*after)[1]));
}

TEST(SkipLayerNormRule, FiresAndKeepsTheSumForItsReaders) {
  Builder b;
  const ValueId x = b.Input("x", {2, 3, 8});
  const ValueId sum = b.Make(Op::kAdd, {x, b.Input("skip", {2, 3, 8})});
  const ValueId y =
      b.Make(Op::kLayerNormalization, {sum, b.Vector(8, 0.5f), b.Vector(8, 0.1f)}, {{"axis", int64_t{-1}}});
  b.g.AddOutput("y", b.Make(Op::kAdd, {sum, y}));
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kSkipLayerNorm), 1);
  EXPECT_EQ(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 7)}, {"skip", Random({2, 3, 8}, 8)}}), 0.0);
}

// x / sqrt(mean(x^2) + eps) * gamma as TorchScript writes it, over `axis`.
Builder RmsChain(int64_t axis) {
  Builder b;
  const ValueId x = b.Input("x", {2, 3, 8});
  const ValueId square = b.Make(Op::kPow, {x, b.Scalar(2.0f)});
  const ValueId mean = b.Make(Op::kReduceMean, {square, b.Ints({axis})});
  const ValueId root = b.Make(Op::kSqrt, {b.Make(Op::kAdd, {mean, b.Scalar(1e-6f)})});
  const ValueId inverse = b.Make(Op::kDiv, {b.Scalar(1.0f), root});
  b.g.AddOutput("y", b.Make(Op::kMul, {b.Vector(8, 0.5f), b.Make(Op::kMul, {x, inverse})}));
  return b;
}
TEST(RmsNormRule, Fires) {
  const Builder b = RmsChain(-1);
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kRMSNormalization), 1);
  const double difference = Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 9)}});
  EXPECT_LT(difference, 1e-6);  // perhaps another order of roundings: a few ulp of values around 1
}
TEST(RmsNormRule, RefusesAnotherAxis) {
  const Fused f = Fuse(RmsChain(1).g);
  EXPECT_EQ(CountOf(f.graph, Op::kRMSNormalization), 0);
  EXPECT_NE(DeepestReason(f, "rms_norm").find("axis 1 is not the last one"), std::string::npos)
      << DeepestReason(f, "rms_norm");
}
TEST(SkipLayerNormRule, TakesRmsNorm) {
  Builder b;
  const ValueId x = b.Input("x", {2, 3, 8});
  const ValueId sum = b.Make(Op::kAdd, {x, b.Input("skip", {2, 3, 8})});
  const ValueId y = b.Make(Op::kRMSNormalization, {sum, b.Vector(8, 0.5f)}, {{"axis", int64_t{-1}}});
  b.g.AddOutput("y", b.Make(Op::kAdd, {sum, y}));
  const Fused f = Fuse(b.g);
  EXPECT_EQ(CountOf(f.graph, Op::kSkipLayerNorm), 1);
  EXPECT_EQ(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 7)}, {"skip", Random({2, 3, 8}, 8)}}), 0.0);
}

}  // namespace
}  // namespace octavo::passes::fusions
