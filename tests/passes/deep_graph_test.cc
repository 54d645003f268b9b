// Matching costs in proportion to the nodes (issue 4): 96 layers, more than 10,000 nodes, through all float passes in under two
// seconds of CPU time, everything fused; and ten times the nodes take about ten times as long, not a hundred.
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>

#include "octavo/passes/pipelines.h"
#include "octavo/passes/report.h"
#include "octavo/benchmarks/layers.h"

namespace octavo::passes {
namespace {

struct Measured {
  size_t nodes = 0;
  double seconds = 0;  // CPU time of this process
  Report report = {};
};

Measured Optimize(int layers) {
  Graph graph = LayerStack(layers).Take();
  Measured run{.nodes = graph.node_count()};
  PassContext context;
  std::vector<NearMiss> misses;
  context.misses = &misses;
  const std::clock_t start = std::clock();
  Status s = RunPasses({"canonical"}, graph, context);
  run.report = TakeInventory(graph);
  if (s) s = RunPasses({"fuse_float", "qkv_float", "canonical"}, graph, context);
  Judge(graph, misses, context.log, run.report);
  run.seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_TRUE(s) << s.error().message;
  EXPECT_EQ(run.report.attention.done, layers);
  EXPECT_EQ(run.report.qkv.done, layers);
  std::printf("%6zu nodes: %.3f s, %.0f nodes/s\n", run.nodes, run.seconds, static_cast<double>(run.nodes) / run.seconds);
  return run;
}

TEST(DeepGraph, NinetySixLayersInTwoSeconds) {
  const Measured run = Optimize(96);
  EXPECT_GE(run.nodes, 10000u);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(run.seconds, 2.0);
#endif
}

TEST(DeepGraph, CostGrowsWithTheNodes) {
  const Measured small = Optimize(24), large = Optimize(192);
  const double per_small = small.seconds / static_cast<double>(small.nodes), per_large = large.seconds / static_cast<double>(large.nodes);
  EXPECT_LT(per_large, 3 * per_small);  // eight times the nodes: a quadratic pass would make it eight
}

}  // namespace
}  // namespace octavo::passes
