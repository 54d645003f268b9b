// The rule of weights in blocks: both storage orders, bias, and a sentence for each refusal.
#include <gtest/gtest.h>

#include <random>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kDepth = 40, kWidth = 6;

struct Form {
  DType dtype = DType::kU4;
  int64_t block = 16;
  bool transposed = false, zeros = true, bias = true;
  int64_t axis = -9;  // -9: the right one
};

Tensor RandomCodes(DType dtype, ir::Shape shape, std::mt19937& rng) {
  Tensor t = Tensor::Zeros(dtype, std::move(shape));
  for (uint8_t& b : t.mutable_as<uint8_t>()) b = static_cast<uint8_t>(rng());
  return t;
}

Tensor RandomFloats(ir::Shape shape, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (float& v : t.mutable_as<float>()) v = normal(rng);
  return t;
}

Graph Make(const Form& f) {
  std::mt19937 rng(5);
  Graph g;
  g.info.opsets[""] = 21;
  const auto node = [&](Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), "n" + std::to_string(g.node_count()))).output();
  };
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("s"), kDepth}});
  const int64_t block = f.block == 0 ? 16 : f.block, blocks = (kDepth + block - 1) / block;
  const ir::Shape shape = f.transposed ? ir::Shape{kWidth, kDepth} : ir::Shape{kDepth, kWidth};
  const ir::Shape parameters = f.block == 0   ? ir::Shape{kWidth}
                               : f.transposed ? ir::Shape{kWidth, blocks}
                                              : ir::Shape{blocks, kWidth};
  std::vector<ValueId> in{g.AddConstant(RandomCodes(f.dtype, shape, rng)),
                          g.AddConstant(RandomFloats(parameters, rng))};
  if (f.zeros) in.push_back(g.AddConstant(RandomCodes(f.dtype, parameters, rng)));
  ValueId w =
      node(Op::kDequantizeLinear, std::move(in),
           {{"axis", f.axis != -9 ? f.axis : int64_t{f.block == 0 || f.transposed ? 1 : 0}}, {"block_size", f.block}});
  if (f.transposed) w = node(Op::kTranspose, {w}, {{"perm", std::vector<int64_t>{1, 0}}});
  ValueId y = node(Op::kMatMul, {x, w});
  if (f.bias) y = node(Op::kAdd, {y, g.AddConstant(RandomFloats({kWidth}, rng))});
  g.AddOutput("y", y);
  return g;
}

struct Fused {
  Graph graph;
  std::vector<NearMiss> misses;
  int ops = 0;
};
Fused Fuse(const Graph& g) {
  Fused f{g, {}};
  EXPECT_TRUE(ir::Inference::Run(f.graph).has_value());
  PassContext context;
  context.misses = &f.misses;
  auto changed = FuseWeights(f.graph, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  for (NodeId id : f.graph.NodesInOrder()) f.ops += f.graph.node(id).op == Op::kLinearBlocked;
  return f;
}

TEST(LinearBlocked, FiresAndMeansWhatStoodThere) {
  for (DType dtype : {DType::kU4, DType::kS4, DType::kU8, DType::kS8}) {
    for (int bits = 0; bits < 8; ++bits) {
      const Form form{dtype, bits % 2 != 0 ? 32 : 16, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
      const Graph before = Make(form);
      const Fused f = Fuse(before);
      ASSERT_EQ(f.ops, 1) << Name(dtype) << " " << bits;
      int others = 0;
      for (NodeId id : f.graph.NodesInOrder()) others += f.graph.node(id).op != Op::kConstant;
      EXPECT_EQ(others, 1) << "the bias or the dequantization was left";
      std::mt19937 rng(7);
      const ir::TensorMap inputs{{"x", RandomFloats({3, kDepth}, rng)}};
      auto want = ir::Interpret(before, inputs), got = ir::Interpret(f.graph, inputs);
      ASSERT_TRUE(want.has_value() && got.has_value());
      EXPECT_TRUE((*want)[0].SameBits((*got)[0]));
    }
  }
}

std::string Reason(const Form& form) {
  const Fused f = Fuse(Make(form));
  EXPECT_EQ(f.ops, 0);
  const NearMiss* best = nullptr;
  for (const NearMiss& m : f.misses) {
    if (best == nullptr || m.matched > best->matched) best = &m;
  }
  return best == nullptr ? "" : best->kind + ": " + best->reason;
}

TEST(LinearBlocked, RefusesWithASentence) {
  EXPECT_EQ(Reason({.dtype = DType::kS8, .block = 0}), "Illegal: the weight is not quantized in blocks");
  EXPECT_EQ(Reason({.block = 8}), "NoKernel: blocks of 8; the kernels take multiples of 16 up to 1024");
}

}  // namespace
}  // namespace octavo::passes::fusions
