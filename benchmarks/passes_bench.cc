// Nodes per second of the passes of both recipes on generated encoders of 1,000, 10,000 and 100,000 nodes, and what each pass takes of it.
//   passes_bench [NODES...]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "octavo/benchmarks/layers.h"
#include "octavo/passes/pipelines.h"
#include "octavo/passes/report.h"

namespace {

using octavo::passes::PassTiming;

// What calibration would have chosen; which numbers does not matter here.
const octavo::quant::QParams* SomeParams(std::string_view) {
  static const octavo::quant::QParams params{octavo::ir::DType::kU8, 0.02f, 128};
  return &params;
}

void Measure(size_t wanted, bool int8) {
  const size_t a_layer =
      octavo::passes::LayerStack(2).Take().node_count() - octavo::passes::LayerStack(1).Take().node_count();
  octavo::ir::Graph graph = octavo::passes::LayerStack(static_cast<int>(wanted / a_layer) + 1).Take();
  const size_t nodes = graph.node_count();
  octavo::passes::PassRun context;
  std::vector<octavo::passes::NearMiss> misses;
  std::vector<PassTiming> timings;
  context.misses = &misses;
  const auto start = std::chrono::steady_clock::now();
  auto status = octavo::passes::RunPasses({"canonical"}, graph, context, {.after = {}, .timings = &timings});
  octavo::passes::Report report = octavo::passes::TakeInventory(graph);
  context.evidence.qparams = SomeParams;
  const std::vector<std::string> rest =
      int8 ? std::vector<std::string>{"fuse_float", "canonical", "quantize", "cse", "qdq",
                                      "fuse_quantized",  "quantized_qkv",  "cse",      "dce"}
           : std::vector<std::string>{"fuse_float", "qkv_float", "canonical"};
  if (status) status = octavo::passes::RunPasses(rest, graph, context, {.after = {}, .timings = &timings});
  octavo::passes::Judge(graph, context, report);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!status) {
    std::printf("%zu nodes: %s\n", nodes, status.error().message.c_str());
    return;
  }
  std::printf("%s %8zu nodes  %8.3f s  %9.0f nodes/s  attention %d/%d, qkv %d/%d;", int8 ? "int8 " : "float", nodes,
              took.count(), static_cast<double>(nodes) / took.count(), report.attention.done, report.attention.found,
              report.qkv.done, report.qkv.found);
  for (const PassTiming& t : timings) std::printf(" %s %.0f ms", t.pass.c_str(), t.milliseconds);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<size_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoul(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {1000, 10000, 100000};
  for (size_t n : sizes) {
    for (bool int8 : {false, true}) Measure(n, int8);
  }
}
