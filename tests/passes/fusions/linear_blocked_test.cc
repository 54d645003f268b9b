// The rule of weights in blocks: both storage orders, bias, and a sentence for each refusal.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/runtime/model.h"
#include "octavo/tests/passes/rule_graphs.h"

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
  PassRun context;
  context.misses = &f.misses;
  auto changed = FuseWeights(f.graph, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  for (NodeId id : f.graph.NodesInOrder()) f.ops += f.graph.node(id).op == Op::kLinearBlocked;
  return f;
}

TEST(LinearBlocked, FiresAndMeansWhatStoodThere) {
  for (DType dtype : {DType::kU2, DType::kS2, DType::kE2M1, DType::kU4, DType::kS4, DType::kU8, DType::kS8}) {
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
      auto model = runtime::Model::Compile(f.graph, {.arch = kernels::Arch::kScalar});
      ASSERT_TRUE(model.has_value()) << model.error().message;
      EXPECT_TRUE(model->KernelOfEachStep()[0].starts_with("linear_blocked")) << model->KernelOfEachStep()[0];
    }
  }
}

// Activations of 8 bits: the body and the reference of the kernel, blocks that end inside k included.
TEST(DynamicBlocks, TheBodySaysWhatTheKernelDoes) {
  for (DType dtype : {DType::kU4, DType::kS8}) {
    for (int64_t block : {16, 32}) {
      Graph g = Fuse(Make({.dtype = dtype, .block = block, .transposed = block == 32})).graph;
      std::mt19937 rng(7);
      const Tensor x = RandomFloats({3, kDepth}, rng);
      auto floats = ir::Interpret(g, {{"x", x}});
      PassRun context;
      auto changed = quantize::DynamicBlocks(g, context);
      ASSERT_TRUE(changed.has_value() && *changed && context.log.empty());
      changed = quantize::DynamicBlocks(g, context);
      EXPECT_TRUE(changed.has_value() && !*changed);
      auto body = ir::Interpret(g, {{"x", x}});
      ASSERT_TRUE(floats.has_value() && body.has_value()) << body.error().message;
      auto model = runtime::Model::Compile(g, {.arch = kernels::Arch::kScalar});
      ASSERT_TRUE(model.has_value()) << model.error().message;
      EXPECT_EQ(model->KernelOfEachStep()[0],
                dtype == DType::kU4 ? "linear_blocked4_int8 scalar" : "linear_blocked8_int8 scalar");
      auto kernel = model->Run({{"x", x}});
      ASSERT_TRUE(kernel.has_value()) << kernel.error().message;
      double most = 0, off = 0, size = 0;
      for (int64_t i = 0; i < x.size() / kDepth * kWidth; ++i) {
        size = std::max(size, std::fabs((*body)[0].GetDouble(i)));
        off = std::max(off, std::fabs((*body)[0].GetDouble(i) - (*floats)[0].GetDouble(i)));
        most = std::max(most, std::fabs((*body)[0].GetDouble(i) - (*kernel)[0].GetDouble(i)));
      }
      EXPECT_LT(most, size * 1e-5) << "rounding";
      EXPECT_GT(off, size * 1e-4) << "the activations were not quantized";
      EXPECT_LT(off, size * 0.05);
    }
  }
}

// The codes of a prompt are made some rows at a time (4 MB: 384 of these): rows have the bits that they have alone.
TEST(DynamicBlocks, RowsOfALongPromptHaveTheBitsOfEach) {
  constexpr int64_t kDeep = 8192, kRows = 500, kColumns = 16;
  std::mt19937 rng(11);
  Graph g;
  g.info.opsets[""] = 21;
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("rows"), kDeep}});
  const ValueId w = g.AddConstant(RandomCodes(DType::kU4, {kDeep, kColumns}, rng)),
                s = g.AddConstant(RandomFloats({kDeep / 32, kColumns}, rng));
  g.AddOutput("y", g.node(g.AddNode(Op::kLinearBlocked, {x, w, s}, 1,
                                    {{"block_size", int64_t{32}}, {"x_bits", int64_t{8}}}, "n"))
                       .output());
  ASSERT_TRUE(ir::Inference::Run(g).has_value());
  auto model = runtime::Model::Compile(g, {.threads = 2});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const Tensor rows = RandomFloats({kRows, kDeep}, rng);
  auto all = model->Run({{"x", rows}});
  ASSERT_TRUE(all.has_value()) << all.error().message;
  for (int64_t first = 0; first < kRows; first += 50) {
    Tensor some = Tensor::Zeros(DType::kF32, {50, kDeep});
    std::copy_n(rows.as<float>().data() + first * kDeep, 50 * kDeep, some.mutable_as<float>().data());
    auto y = model->Run({{"x", some}});
    ASSERT_TRUE(y.has_value()) << y.error().message;
    for (int64_t i = 0; i < 50 * kColumns; ++i) {
      ASSERT_EQ((*y)[0].as<float>()[static_cast<size_t>(i)],
                (*all)[0].as<float>()[static_cast<size_t>(first * kColumns + i)])
          << "row " << first + i / kColumns;
    }
  }
}

TEST(DynamicBlocks, SaysWhatItLeaves) {
  Graph g;
  g.info.opsets[""] = 21;
  std::mt19937 rng(3);
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{2, 1024}});
  const ValueId w = g.AddConstant(RandomCodes(DType::kU4, {1024, 2}, rng)),
                s = g.AddConstant(RandomFloats({1, 2}, rng));
  g.AddOutput("y", g.node(g.AddNode(Op::kLinearBlocked, {x, w, s}, 1, {{"block_size", int64_t{1024}}}, "n")).output());
  ASSERT_TRUE(ir::Inference::Run(g).has_value());
  PassRun context;
  auto changed = quantize::DynamicBlocks(g, context);
  ASSERT_TRUE(changed.has_value() && !*changed);
  ASSERT_EQ(context.log.size(), 1u);
  EXPECT_EQ(context.log[0],
            "dynamic_blocks: n keeps float activations: blocks of 1024; with activations of 8 bits the kernels take up "
            "to 512");
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

TEST(LinearBlocked, RefusesBlocksAlongColumns) {
  Refuses("the blocks of the weight lie along its columns, not along k", LinearBlocked(false), [](Graphs& m) {
    const ValueId w = m.Node(Op::kDequantizeLinear, {m.Codes({32, 64}), m.Filled({32, 2})},
                             {{"axis", int64_t{1}}, {"block_size", int64_t{32}}});
    m.g.AddOutput("y", m.Node(Op::kMatMul, {m.In({2, 32}), w}));
  });
}

}  // namespace
}  // namespace octavo::passes::fusions
