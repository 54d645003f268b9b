// Int8 products of MiniLM and BERT-base shapes, one thread. Every sample runs ours, oneDNN int8, oneDNN float and the
// register-only dot product one after another, so that all four see the same clock; the fastest samples are compared.
// What runs between two samples of ours displaces its weights from L2, as the rest of a model does.
//   kernels_bench --benchmark_filter='qkv/avx512vnni'
#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "octavo/kernels/bench/onednn.h"
#include "octavo/kernels/bench/peak.h"
#include "octavo/kernels/qkv/qkv.h"

namespace octavo::benchmarks {
namespace {

using kernels::Arch;
namespace bench = kernels::bench;

struct Shape {
  const char* name;
  int64_t k;
  std::vector<int64_t> n;  // more than one: qkv
  kernels::Activation activation = kernels::Activation::kNone;
};

// Ours, with everything it reads.
struct Problem {
  std::vector<uint8_t> x;
  std::vector<std::vector<uint8_t>> y;
  std::vector<float> scale, bias;
  std::vector<kernels::PackedWeights> w;
  kernels::QkvArgs args;
  kernels::AlignedArray<uint8_t> scratch;

  Problem(const Shape& shape, int64_t m, Arch arch)
      : scratch(kernels::GemmScratchBytes(arch, quant::DType::kU8, shape.k)) {
    std::mt19937 random(7);
    x.resize(static_cast<size_t>(m * shape.k));
    for (auto& v : x) v = static_cast<uint8_t>(random());
    const int64_t widest = *std::ranges::max_element(shape.n);
    scale.assign(static_cast<size_t>(widest), 0.001f);
    bias.assign(static_cast<size_t>(widest), 0.25f);
    args.x = {x.data(), quant::DType::kU8, shape.k, 128, 0.02f};
    args.count = static_cast<int>(shape.n.size());
    for (int64_t n : shape.n) {
      std::vector<int8_t> weights(static_cast<size_t>(shape.k * n));
      for (auto& v : weights) v = static_cast<int8_t>(random());
      w.push_back(*kernels::PackWeights({.data = weights.data(), .k = shape.k, .n = n}));
      y.emplace_back(static_cast<size_t>(m * n));
    }
    for (size_t i = 0; i < shape.n.size(); ++i) {
      args.branch[i] = {.w = &w[i],
                        .w_scale = scale.data(),
                        .bias = bias.data(),
                        .activation = shape.activation,
                        .y = y[i].data(),
                        .dtype = quant::DType::kU8,
                        .scale = 0.05f,
                        .zero_point = 120,
                        .stride = shape.n[i]};
    }
  }
};

// One statistic for all: what disturbs a sample only ever makes it longer. A lower one for the peak alone would make
// every kernel look worse, a higher one better.
double Fastest(const std::vector<double>& v) { return v.empty() ? 0.0 : *std::ranges::min_element(v); }

void Run(benchmark::State& state, const Shape& shape, Arch arch) {
  const int64_t m = state.range(0);
  Problem ours(shape, m, arch);
  int64_t n = 0;
  for (int64_t width : shape.n) n += width;
  bench::OneDnnInt8 int8(m, shape.k, n);
  bench::OneDnnFloat in_float(m, shape.k, n, false);
  const int64_t blocks = kernels::QkvBlocks(ours.args);
  const bench::PeakLoop peak = bench::DotPeak(arch);
  std::vector<double> ours_s, int8_s, float_s, peak_s;
  for (auto _ : state) {
    const double s = bench::Seconds([&] { kernels::Qkv(arch, ours.args, {0, m}, {0, blocks}, ours.scratch.data()); });
    state.SetIterationTime(s);
    ours_s.push_back(s);
    int8_s.push_back(bench::Seconds([&] { int8.Run(); }));
    float_s.push_back(bench::Seconds([&] { in_float.Run(); }));
    if (peak.macs != 0) peak_s.push_back(bench::Seconds(peak.run));
  }
  const auto macs = static_cast<double>(m * shape.k * n);
  const double mine = Fastest(ours_s);
  state.counters["GMAC/s"] = macs / mine * 1e-9;
  state.counters["x_onednn_int8"] = Fastest(int8_s) / mine;
  state.counters["x_onednn_f32"] = Fastest(float_s) / mine;
  if (!peak_s.empty()) state.counters["of_peak"] = macs / mine / (static_cast<double>(peak.macs) / Fastest(peak_s));
}

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {"minilm_qkv", 384, {384, 384, 384}}, {"minilm_out", 384, {384}},
      {"minilm_ffn1", 384, {1536}},         {"minilm_ffn1_gelu", 384, {1536}, kernels::Activation::kGelu},
      {"minilm_ffn2", 1536, {384}},         {"bert_qkv", 768, {768, 768, 768}},
      {"bert_ffn1", 768, {3072}},           {"bert_ffn2", 3072, {768}},
  };
  return shapes;
}

void Register() {
  for (Arch arch : kernels::SupportedArchs()) {
    if (arch == Arch::kScalar) continue;
    for (const Shape& shape : Shapes()) {
      const std::string name = std::string(shape.name) + "/" + std::string(Name(arch));
      benchmark::RegisterBenchmark(name, [&shape, arch](benchmark::State& state) { Run(state, shape, arch); })
          ->Arg(1)
          ->Arg(8)
          ->Arg(32)
          ->Arg(64)
          ->Arg(128)
          ->Arg(512)
          ->Arg(4096)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond)
          ->MinTime(0.05);
    }
  }
}

}  // namespace
}  // namespace octavo::benchmarks

int main(int argc, char** argv) {
  octavo::benchmarks::Register();
  benchmark::AddCustomContext("cpu", octavo::kernels::CpuDescription());
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
