// 96 layers, more than 10,000 nodes, through the passes of both recipes: everything fuses, and eight times the nodes take about
// eight times as long, not sixty-four. How long is printed; benchmarks/passes_bench.cc measures it.
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>

#include "octavo/benchmarks/layers.h"
#include "octavo/passes/pipelines.h"
#include "octavo/passes/report.h"

namespace octavo::passes {
namespace {

struct Measured {
  size_t nodes = 0;
  double seconds = 0;  // CPU time of this process
  Report report = {};
};

// What calibration would have chosen; which numbers does not matter here.
const quant::QParams* SomeParams(std::string_view) {
  static const quant::QParams params{ir::DType::kU8, 0.02f, 128};
  return &params;
}

Measured Optimize(int layers, bool int8) {
  Graph graph = LayerStack(layers).Take();
  Measured run{.nodes = graph.node_count()};
  PassRun context;
  std::vector<NearMiss> misses;
  context.misses = &misses;
  const std::clock_t start = std::clock();
  Status s = RunPasses({"canonical"}, graph, context);
  run.report = TakeInventory(graph);
  context.evidence.qparams = SomeParams;
  const std::vector<std::string> rest =
      int8 ? std::vector<std::string>{"fuse_float", "canonical", "quantize", "cse", "qdq",
                                      "fuse_quantized",  "quantized_qkv",  "cse",      "dce"}
           : std::vector<std::string>{"fuse_float", "qkv_float", "canonical"};
  if (s) s = RunPasses(rest, graph, context);
  Judge(graph, context, run.report);
  run.seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_TRUE(s) << s.error().message;
  EXPECT_EQ(run.report.attention.done, layers);
  EXPECT_EQ(run.report.qkv.done, layers);
  std::printf("%s %6zu nodes: %.3f s, %.0f nodes/s\n", int8 ? "int8 " : "float", run.nodes, run.seconds,
              static_cast<double>(run.nodes) / run.seconds);
  return run;
}

TEST(DeepGraph, NinetySixLayersFuse) {
  EXPECT_GE(Optimize(96, false).nodes, 10000u);
  const Measured int8 = Optimize(96, true);
  EXPECT_EQ(int8.report.linear.done, int8.report.linear.found);
}

TEST(DeepGraph, CostGrowsWithTheNodes) {
  const Measured small = Optimize(24, true), large = Optimize(192, true);
  const double per_small = small.seconds / static_cast<double>(small.nodes),
               per_large = large.seconds / static_cast<double>(large.nodes);
  EXPECT_LT(per_large, 5 * per_small);  // eight times the nodes: a quadratic pass would make it eight
}

// Each sum has both operands from the sum before: 2^40 ways back from the Softmax, and no product at the end of any. A search
// that forgets would not come to an end before ctest stops it.
TEST(DeepGraph, AHostileChainOfSumsIsSearchedOnce) {
  Graph g;
  g.info.opsets[""] = 20;
  ir::ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{2, 3, 8, 8}});
  for (int i = 0; i < 40; ++i) x = g.node(g.AddNode(ir::Op::kAdd, {x, x}, 1, {}, "sum" + std::to_string(i))).output();
  for (int i = 0; i < 500; ++i) {
    const ir::ValueId scores = g.node(g.AddNode(ir::Op::kAdd, {x, x}, 1, {}, "scores" + std::to_string(i))).output();
    g.AddOutput("y" + std::to_string(i),
                g.node(g.AddNode(ir::Op::kSoftmax, {scores}, 1, {{"axis", int64_t{-1}}}, "softmax" + std::to_string(i)))
                    .output());
  }
  PassRun context;
  const Status s = RunPasses({"scores"}, g, context);
  EXPECT_TRUE(s) << s.error().message;
  EXPECT_EQ(g.outputs().size(), 500u);
}

}  // namespace
}  // namespace octavo::passes
