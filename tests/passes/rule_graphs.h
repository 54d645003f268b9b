// Graphs for the tests of rules, and what these ask: does it fire, are the numbers the same, is the sentence of a refusal the right one.
#ifndef OCTAVO_TESTS_PASSES_RULE_GRAPHS_H_
#define OCTAVO_TESTS_PASSES_RULE_GRAPHS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/tests/passes/maker.h"

namespace octavo::passes {

struct Graphs : Maker {
  explicit Graphs(uint32_t seed = 11, int opset = 21) : Maker(seed, opset) {}

  ValueId Input(const std::string& name, ir::SymShape shape, ir::DType t = ir::DType::kF32) {
    return g.AddInput(name, {t, std::move(shape)});
  }
  // Named in0, in1, ...
  ValueId In(ir::SymShape shape, ir::DType t = ir::DType::kF32) {
    return Input("in" + std::to_string(g.inputs().size()), std::move(shape), t);
  }
  ValueId Filled(ir::Shape shape, float v = 0.5f) {
    ir::Tensor t = ir::Tensor::Zeros(ir::DType::kF32, std::move(shape));
    for (float& x : t.mutable_as<float>()) x = v;
    return g.AddConstant(std::move(t));
  }
  ValueId Reals(ir::Shape shape) {
    ir::Tensor t = ir::Tensor::Empty(ir::DType::kF32, std::move(shape));
    for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(0.5f, 1.5f)(rng);
    return g.AddConstant(std::move(t));
  }
  ValueId Vector(int64_t n, float from) {
    std::vector<float> v;
    for (int64_t i = 0; i < n; ++i) v.push_back(from + 0.1f * static_cast<float>(i));
    return g.AddConstant(ir::Tensor::F32({n}, v));
  }
  ValueId Codes(ir::Shape shape, ir::DType t = ir::DType::kS8) {
    return g.AddConstant(ir::Tensor::Zeros(t, std::move(shape)));
  }
  ValueId Perm(ValueId x, std::vector<int64_t> perm) { return Node(Op::kTranspose, {x}, {{"perm", std::move(perm)}}); }
  ValueId Reshape(ValueId x, std::vector<int64_t> shape) { return Node(Op::kReshape, {x, Ints(std::move(shape))}); }
  ValueId Norm(ValueId x) {
    return Node(Op::kLayerNormalization, {x, Reals({8}), Reals({8})}, {{"axis", int64_t{-1}}});
  }
  // Softmax(q k^T) v.
  void Attention(ValueId q, ValueId kt, ValueId v, ValueId mask = {}) {
    ValueId s = Node(Op::kMatMul, {q, kt});
    if (mask.valid()) s = Node(Op::kAdd, {s, mask});
    g.AddOutput("y", Node(Op::kMatMul, {Node(Op::kSoftmax, {s}), v}));
  }
  ir::Attrs Heads(int64_t heads, int64_t kv_heads) {
    return {{"num_heads", heads},       {"kv_num_heads", kv_heads}, {"head_dim", int64_t{4}},
            {"v_head_dim", int64_t{4}}, {"q_rank", int64_t{4}},     {"k_rank", int64_t{4}},
            {"v_rank", int64_t{4}},     {"out_rank", int64_t{4}},   {"scale", 1.0f}};
  }
  // u8 [..,16] times [16,8].
  ValueId Linear(ValueId x, ValueId scale, ValueId zero) {
    ir::Tensor w = ir::Tensor::Empty(ir::DType::kS8, {16, 8});
    for (uint8_t& v : w.mutable_as<uint8_t>()) v = static_cast<uint8_t>(rng());
    return Node(Op::kQuantizedLinear, {x, scale, zero, g.AddConstant(std::move(w)), Reals({8})});
  }
};

inline int CountOf(const Graph& g, Op op) {
  int n = 0;
  for (NodeId id : g.NodesInOrder()) n += g.node(id).op == op;
  return n;
}

// How many nodes of the kind the pass leaves or makes.
inline int CountAfter(Result<bool> (*pass)(Graph&, PassRun&), Op op, const std::function<void(Graphs&)>& build) {
  Graphs m(3, 18);
  build(m);
  EXPECT_TRUE(ir::Inference::Run(m.g).has_value());
  PassRun context;
  const auto changed = pass(m.g, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  return CountOf(m.g, op);
}

struct Fused {
  Graph graph;
  std::vector<NearMiss> misses;
};
inline Fused Fuse(const Graph& g) {
  Fused f{g, {}};
  EXPECT_TRUE(ir::Inference::Run(f.graph).has_value());
  PassRun context;
  context.misses = &f.misses;
  auto changed = fusions::FuseFloat(f.graph, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  return f;
}

// Of the near misses of a rule, or of any.
inline std::string DeepestReason(const std::vector<NearMiss>& misses, std::string_view rule = {}) {
  const NearMiss* best = nullptr;
  for (const NearMiss& m : misses) {
    if ((rule.empty() || m.rule == rule) && (best == nullptr || m.matched > best->matched)) best = &m;
  }
  return best == nullptr ? "" : best->kind + ": " + best->reason;
}
inline std::string DeepestReason(const Fused& f, std::string_view rule) { return DeepestReason(f.misses, rule); }

// Nothing is fused by the rule, and the reason that reached deepest is this one.
inline void Refuses(const std::string& sentence, fusions::Rule rule, const std::function<void(Graphs&)>& build) {
  SCOPED_TRACE(sentence);
  Graphs m;
  build(m);
  ASSERT_TRUE(ir::Inference::Run(m.g));
  PassRun context;
  std::vector<NearMiss> misses;
  context.misses = &misses;
  const Result<bool> changed = pattern::ApplyRules({rule}, m.g, context);
  ASSERT_TRUE(changed) << changed.error().message;
  EXPECT_FALSE(*changed);
  ASSERT_FALSE(misses.empty());
  EXPECT_NE(DeepestReason(misses).find(sentence), std::string::npos) << DeepestReason(misses);
}

inline ir::Tensor Random(ir::Shape shape, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  ir::Tensor t = ir::Tensor::Empty(ir::DType::kF32, std::move(shape));
  for (float& x : t.mutable_as<float>()) x = normal(rng);
  return t;
}

// Largest difference of the first output before and after.
inline double Difference(const Graph& before, const Graph& after, const ir::TensorMap& inputs) {
  auto a = ir::Interpret(before, inputs), b = ir::Interpret(after, inputs);
  EXPECT_TRUE(a.has_value() && b.has_value());
  double worst = 0, size = 0;
  for (int64_t i = 0; i < (*a)[0].size(); ++i) {
    worst = std::max(worst, std::fabs((*a)[0].GetDouble(i) - (*b)[0].GetDouble(i)));
    size = std::max(size, std::fabs((*a)[0].GetDouble(i)));
  }
  EXPECT_GT(size, 0.1);
  return worst;
}

}  // namespace octavo::passes

#endif  // OCTAVO_TESTS_PASSES_RULE_GRAPHS_H_
