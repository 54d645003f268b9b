// Attention, one thread: cycles per score (one score = one query row times one key, all of softmax and both products),
// for every Arch of this CPU, int8 with and without a float mask, float, and oneDNN (matmul, softmax, matmul) beside them. Cycles: the time multiplied by the clock that a chain of dependent additions shows before and after; the
// best iteration.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "octavo/kernels/bench/onednn.h"
#include "octavo/kernels/bench/peak.h"
#include "octavo/kernels/sdpa/sdpa.h"
#include "octavo/kernels/simd/aligned.h"

namespace octavo::kernels {
namespace {

// A BERT-base layer has 12 heads; long sequences take 1, so that an iteration stays in the order of a millisecond.
constexpr int64_t Heads(int64_t s) { return s > 128 ? 1 : 12; }

// The fewest cycles of all iterations that began and ended at the same clock: whatever else runs only adds cycles.
template <typename Body>
void Measure(benchmark::State& state, int64_t s, Body body) {
  body();
  double fewest = 1e30;
  double clock = bench::ClockGhz();
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    benchmark::ClobberMemory();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(time.count());
    const double before = clock;
    clock = bench::ClockGhz();
    if (std::fabs(clock / before - 1) < 0.01) fewest = std::min(fewest, time.count() * 1e9 * clock);
  }
  state.counters["cyc/score"] = fewest / static_cast<double>(Heads(s) * s * s);
  state.counters["GHz"] = clock;
}

void Int8(benchmark::State& state, Arch arch, int64_t s, int64_t d, bool with_mask) {
  const int64_t heads = Heads(s);
  SdpaInt8Args a;
  a.shape = {1, heads, heads, s, s, d, d};
  AlignedArray<uint8_t> q(heads * s * d), k(heads * s * d), v(heads * s * d), o(heads * s * d);
  AlignedArray<float> mask(s);
  for (size_t i = 0; i < q.size(); ++i)
    q.data()[i] = i * 37 % 251, k.data()[i] = i * 91 % 253, v.data()[i] = i * 53 % 241;
  a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data();
  a.q_strides = a.k_strides = a.v_strides = a.o_strides = {0, d, heads * d};
  a.o_type = quant::DType::kU8;
  a.q_zero_point = a.k_zero_point = a.v_zero_point = a.o_zero_point = 121;
  a.q_scale = a.k_scale = a.v_scale = a.o_scale = 0.02f, a.p_scale = 1 / 255.0f;
  a.scale = 1 / std::sqrt(static_cast<float>(d));
  if (with_mask) a.mask.data = mask.data();
  AlignedArray<uint8_t> packed(SdpaPackedBytes(arch, a)), scratch(SdpaScratchBytes(arch, a));
  Measure(state, s, [&] { SdpaHeads(arch, a, 0, heads, packed.data(), scratch.data()); });
}

void FillFloats(AlignedArray<float>& x) {
  for (size_t i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(i * 37 % 251) / 125.0f - 1.0f;
}

void Float(benchmark::State& state, Arch arch, int64_t s, int64_t d) {
  const int64_t heads = Heads(s);
  SdpaFloatArgs a;
  a.shape = {1, heads, heads, s, s, d, d};
  AlignedArray<float> q(heads * s * d), k(heads * s * d), v(heads * s * d), o(heads * s * d), mask(s);
  FillFloats(q), FillFloats(k), FillFloats(v);
  a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data();
  a.q_strides = a.k_strides = a.v_strides = a.o_strides = {0, d, heads * d};
  a.scale = 1 / std::sqrt(static_cast<float>(d));
  a.mask.data = mask.data();
  AlignedArray<uint8_t> packed(SdpaPackedBytes(arch, a)), scratch(SdpaScratchBytes(arch, a));
  Measure(state, s, [&] { SdpaHeads(arch, a, 0, heads, packed.data(), scratch.data()); });
}

void OneDnn(benchmark::State& state, int64_t s, int64_t d, bool int8) {
  bench::OneDnnAttention attention(Heads(s), s, d, int8);
  Measure(state, s, [&] { attention.Run(); });
}

void Register() {
  for (const int64_t d : {32, 64}) {
    for (const int64_t s : {32, 64, 128, 384, 1024}) {
      const std::string shape = "/d" + std::to_string(d) + "/S" + std::to_string(s);
      for (const Arch arch : SupportedArchs()) {
        if (arch == Arch::kScalar && s > 64) continue;
        const std::string name = std::string(Name(arch)) + shape;
        const auto add = [](const std::string& title, auto f) {
          benchmark::RegisterBenchmark(title, f)->MinTime(0.1)->UseManualTime()->Unit(benchmark::kMicrosecond);
        };
        add("sdpa_int8_mask/" + name, [=](benchmark::State& state) { Int8(state, arch, s, d, true); });
        add("sdpa_int8/" + name, [=](benchmark::State& state) { Int8(state, arch, s, d, false); });
        add("sdpa_f32_mask/" + name, [=](benchmark::State& state) { Float(state, arch, s, d); });
      }
      for (const bool int8 : {true, false}) {
        benchmark::RegisterBenchmark((int8 ? "onednn_int8_mask" : "onednn_f32_mask") + shape,
                                     [=](benchmark::State& state) { OneDnn(state, s, d, int8); })
            ->MinTime(0.1)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

}  // namespace
}  // namespace octavo::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  octavo::kernels::Register();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
