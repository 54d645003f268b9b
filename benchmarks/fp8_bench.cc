// fp8 products (E4M3FN in and out, bias) beside oneDNN's float product of the same shapes, one
// thread. Both run in turns, so that both see the same clock; the fastest samples are compared.
//   fp8_bench --benchmark_filter='ffn1.*/avx512vnni'
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "octavo/kernels/bench/onednn.h"
#include "octavo/kernels/bench/peak.h"
#include "octavo/kernels/fp8/fp8.h"

namespace octavo::benchmarks {
namespace {

using kernels::Arch;
namespace bench = kernels::bench;

struct Shape {
  const char* name;
  int64_t k;
  std::vector<int64_t> n;
  kernels::Activation activation = kernels::Activation::kNone;
};

struct Problem {
  std::vector<uint8_t> x;
  std::vector<std::vector<uint8_t>> y;
  std::vector<float> scale, bias;
  std::vector<kernels::PackedFp8> w;
  kernels::Fp8Args args;
  kernels::AlignedArray<uint8_t> scratch;

  Problem(const Shape& shape, int64_t m, Arch arch, bool pairs) : scratch(kernels::Fp8ScratchBytes(arch, shape.k)) {
    std::mt19937 random(7);
    const auto code = [&random] { return static_cast<uint8_t>(random() % 0x7f | (random() & 0x80)); };
    x.resize(static_cast<size_t>(m * shape.k));
    for (auto& v : x) v = code();
    const int64_t widest = *std::ranges::max_element(shape.n);
    scale.assign(static_cast<size_t>(widest), 0.001f);
    bias.assign(static_cast<size_t>(widest), 0.25f);
    args.x = {.data = x.data(), .dtype = quant::DType::kE4M3FN, .stride = shape.k, .scale = 0.02f};
    args.count = static_cast<int>(shape.n.size());
    args.bf16_pairs = pairs;
    for (size_t i = 0; i < shape.n.size(); ++i) {
      const int64_t n = shape.n[i];
      std::vector<uint8_t> weights(static_cast<size_t>(shape.k * n));
      for (auto& v : weights) v = code();
      w.push_back(*kernels::PackFp8({.data = weights.data(), .dtype = quant::DType::kE4M3FN, .k = shape.k, .n = n}));
      y.emplace_back(static_cast<size_t>(m * n));
    }
    for (size_t i = 0; i < shape.n.size(); ++i) {
      args.out[i] = {&w[i],
                     {.w_scale = scale.data(),
                      .bias = bias.data(),
                      .activation = shape.activation,
                      .y = y[i].data(),
                      .dtype = quant::DType::kE4M3FN,
                      .scale = 0.5f,
                      .stride = shape.n[i]}};
    }
  }
};

double Fastest(const std::vector<double>& v) { return v.empty() ? 0.0 : *std::ranges::min_element(v); }

void Run(benchmark::State& state, const Shape& shape, Arch arch, bool pairs) {
  const int64_t m = state.range(0);
  Problem ours(shape, m, arch, pairs);
  int64_t n = 0;
  for (int64_t width : shape.n) n += width;
  bench::OneDnnFloat in_float(m, shape.k, n, true);
  const int64_t blocks = kernels::Fp8Blocks(ours.args);
  std::vector<double> ours_s, float_s;
  for (auto _ : state) {
    const double s =
        bench::Seconds([&] { kernels::LinearFp8(arch, ours.args, {0, m}, {0, blocks}, ours.scratch.data()); });
    state.SetIterationTime(s);
    ours_s.push_back(s);
    float_s.push_back(bench::Seconds([&] { in_float.Run(); }));
  }
  const double mine = Fastest(ours_s);
  state.counters["GMAC/s"] = static_cast<double>(m * shape.k * n) / mine * 1e-9;
  state.counters["x_onednn_f32"] = Fastest(float_s) / mine;
}

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {"minilm_qkv", 384, {384, 384, 384}},
      {"minilm_ffn1", 384, {1536}},
      {"minilm_ffn1_gelu", 384, {1536}, kernels::Activation::kGelu},
      {"minilm_ffn2", 1536, {384}},
      {"bert_qkv", 768, {768, 768, 768}},
      {"bert_ffn1", 768, {3072}},
  };
  return shapes;
}

// One form on one shape: float or, `pairs`, vdpbf16ps.
void RegisterForm(const Shape& shape, Arch arch, bool pairs) {
  const std::string name = std::string(shape.name) + "/" + (pairs ? "avx512bf16" : std::string(Name(arch)));
  auto* b = benchmark::RegisterBenchmark(
      name, [&shape, arch, pairs](benchmark::State& state) { Run(state, shape, arch, pairs); });
  for (const int64_t m : {1, 8, 16, 32, 64, 128, 512}) b->Arg(m);
  b->UseManualTime()->Unit(benchmark::kMicrosecond)->MinTime(0.05);
}

void Register() {
  for (Arch arch : {Arch::kAvx2, Arch::kAvx512, Arch::kAvx512Vnni, Arch::kAmx}) {
    if (std::ranges::count(kernels::SupportedArchs(), arch) == 0) continue;
    const bool pairs = kernels::Fp8InPairs(arch, kernels::DetectedFeatures().bf16_pairs);
    for (const Shape& shape : Shapes()) {
      RegisterForm(shape, arch, false);
      if (pairs) RegisterForm(shape, arch, true);
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
