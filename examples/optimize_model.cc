// optimize_model IN.onnx OUT.onnx REPORT.html: a float model to int8, calibrated on random data, with a report.
// Real programs give their own batches: octavo::quant::InMemoryData, or a folder of .npz files by octavo::quant::OpenData.
#include <octavo/octavo.h>

#include <cstdio>
#include <utility>

namespace {

octavo::ir::Status Optimize(const char* in, const char* out, const char* html) {
  OCTAVO_TRY(octavo::ir::Graph graph, octavo::ir::onnx::ReadFile(in));
  octavo::quant::DataOptions data;
  data.random.limits = octavo::quant::IdLimits(graph);
  OCTAVO_TRY(const auto batches, octavo::quant::OpenData("random:4", octavo::quant::InputsOf(graph), data));

  octavo::api::OptimizeOptions options;
  options.recipe = "int8";
  options.data = batches.get();
  OCTAVO_TRY(const octavo::api::Optimized result, octavo::api::Optimize(std::move(graph), options));

  OCTAVO_TRY_STATUS(octavo::ir::onnx::WriteFile(result.graph, out));
  OCTAVO_TRY_STATUS(octavo::ir::WriteWholeFile(html, octavo::api::ReportHtml(result, {}, in)));
  const octavo::passes::Report& r = result.report;
  std::printf("attention %d of %d fused, Linears %d of %d quantized\n", r.attention.done, r.attention.found,
              r.linear.done, r.linear.found);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: optimize_model IN.onnx OUT.onnx REPORT.html\n"), 2;
  const auto done = Optimize(argv[1], argv[2], argv[3]);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
