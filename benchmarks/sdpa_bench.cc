// Attention, one thread: cycles per score (one score = one query row times one key, all of softmax and both products),
// for every Arch of this CPU, int8 with and without a float mask, float, and oneDNN (matmul, softmax, matmul) beside them. Cycles: the time multiplied by the clock that a chain of dependent additions shows before and after; the
// best iteration.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
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

enum class Masking { kNone, kPadding, kTriangle, kCausal };  // kTriangle: causal as a mask of all scores

void Int8(benchmark::State& state, Arch arch, int64_t s, int64_t d, Masking masking) {
  const int64_t heads = Heads(s);
  SdpaInt8Args a;
  a.shape = {1, heads, heads, s, s, d, d};
  AlignedArray<uint8_t> q(heads * s * d), k(heads * s * d), v(heads * s * d), o(heads * s * d);
  AlignedArray<float> mask(masking == Masking::kTriangle ? s * s : s);
  for (size_t i = 0; i < mask.size(); ++i) {
    mask.data()[i] = masking == Masking::kTriangle && i % s > i / s ? -std::numeric_limits<float>::infinity() : 0.0f;
  }
  for (size_t i = 0; i < q.size(); ++i)
    q.data()[i] = i * 37 % 251, k.data()[i] = i * 91 % 253, v.data()[i] = i * 53 % 241;
  a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data();
  a.q_strides = a.k_strides = a.v_strides = a.o_strides = {0, d, heads * d};
  a.o_type = quant::DType::kU8;
  a.q_zero_point = a.k_zero_point = a.v_zero_point = a.o_zero_point = 121;
  a.q_scale = a.k_scale = a.v_scale = a.o_scale = 0.02f, a.p_scale = 1 / 255.0f;
  a.scale = 1 / std::sqrt(static_cast<float>(d));
  if (masking == Masking::kPadding || masking == Masking::kTriangle) a.mask.data = mask.data();
  if (masking == Masking::kTriangle) a.mask.row = s;
  if (masking == Masking::kCausal) a.visibility.window.right = 0;
  AlignedArray<uint8_t> packed(SdpaPackedBytes(arch, a)), scratch(SdpaScratchBytes(arch, a));
  Measure(state, s, [&] { SdpaHeads(arch, a, 0, heads, packed.data(), scratch.data()); });
}

double ThreadSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Exact and flash form in turns, 384 rows of one head against s keys; causal: half of the keys are seen. Thread time, the fastest
// of each; packing is in both, as it is for one call.
void Long(benchmark::State& state, Arch arch, int64_t s, bool causal) {
  constexpr int64_t kRows = 384, kSize = 64;
  SdpaInt8Args a;
  a.shape = {1, 1, 1, kRows, s, kSize, kSize};
  AlignedArray<uint8_t> q(kRows * kSize), k(s * kSize), v(s * kSize), o(kRows * kSize);
  for (size_t i = 0; i < q.size(); ++i) q.data()[i] = static_cast<uint8_t>(i * 37 % 251);
  for (size_t i = 0; i < k.size(); ++i)
    k.data()[i] = static_cast<uint8_t>(i * 91 % 253), v.data()[i] = static_cast<uint8_t>(i * 53 % 241);
  a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data();
  a.q_strides = a.k_strides = a.v_strides = a.o_strides = {0, 0, kSize};
  a.o_type = quant::DType::kU8;
  a.q_zero_point = a.k_zero_point = a.v_zero_point = a.o_zero_point = 121;
  a.q_scale = a.k_scale = a.v_scale = a.o_scale = 0.02f, a.p_scale = 1 / 255.0f, a.scale = 0.125f;
  if (causal) a.visibility.window = {.right = 0, .offset = (s - kRows) / 2};
  AlignedArray<uint8_t> packed(SdpaPackedBytes(arch, a)), scratch(SdpaScratchBytes(arch, a));
  AlignedArray<uint8_t> tile(SdpaFlashScratchBytes(arch, a, kRows));
  double exact = 1e30, flash = 1e30;
  const double clock = bench::ClockGhz();
  for (auto _ : state) {
    const double begin = ThreadSeconds();
    SdpaHeads(arch, a, 0, 1, packed.data(), scratch.data());
    const double middle = ThreadSeconds();
    SdpaFlash(arch, a, 0, 0, 0, kRows, tile.data());
    const double end = ThreadSeconds();
    benchmark::ClobberMemory();
    exact = std::min(exact, middle - begin), flash = std::min(flash, end - middle);
    state.SetIterationTime(end - begin);
  }
  const double scores = static_cast<double>(kRows * s);
  state.counters["exact cyc/score"] = exact * 1e9 * clock / scores;
  state.counters["flash cyc/score"] = flash * 1e9 * clock / scores;
  state.counters["GHz"] = clock;
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

// One query row against a cache of `keys` keys, 8 heads; GB/s of K and V.
void Decode(benchmark::State& state, Arch arch, int64_t keys, int64_t d, bool flash) {
  const int64_t heads = 8;
  SdpaFloatArgs a;
  a.shape = {1, heads, heads, 1, keys, d, d};
  AlignedArray<float> q(heads * d), k(heads * keys * d), v(heads * keys * d), o(heads * d);
  FillFloats(q), FillFloats(k), FillFloats(v);
  a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data();
  a.q_strides = a.o_strides = {0, d, d};
  a.k_strides = a.v_strides = {0, keys * d, d};
  AlignedArray<uint8_t> packed(flash ? 64 : SdpaPackedBytes(arch, a));
  AlignedArray<uint8_t> scratch(flash ? SdpaFlashScratchBytes(arch, a, 1) : SdpaScratchBytes(arch, a));
  double best = 1e30;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    if (flash) {
      for (int64_t h = 0; h < heads; ++h) SdpaFlash(arch, a, 0, h, 0, 1, scratch.data());
    } else {
      SdpaHeads(arch, a, 0, heads, packed.data(), scratch.data());
    }
    benchmark::ClobberMemory();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(time.count());
    best = std::min(best, time.count());
  }
  state.counters["GB/s"] = static_cast<double>(heads * keys * d * 8) / best * 1e-9;
}

// The same in int8, each kv head shared by `group` heads. flat: every key has a code that is not 0; else P has a scale of 1/255,
// which leaves few.
void DecodeInt8(benchmark::State& state, Arch arch, int64_t keys, int64_t d, int64_t group, bool flat) {
  const int64_t heads = 8;
  SdpaInt8Args a;
  a.shape = {1, heads * group, heads, 1, keys, d, d};
  AlignedArray<uint8_t> q(heads * group * d), k(heads * keys * d), v(heads * keys * d), o(heads * group * d);
  for (size_t i = 0; i < q.size(); ++i) q.data()[i] = static_cast<uint8_t>(i * 37 % 251);
  for (size_t i = 0; i < k.size(); ++i)
    k.data()[i] = static_cast<uint8_t>(i * 91 % 253), v.data()[i] = static_cast<uint8_t>(i * 53 % 241);
  a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data();
  a.q_strides = a.o_strides = {0, d, d};
  a.k_strides = a.v_strides = {0, keys * d, d};
  a.o_type = quant::DType::kU8;
  a.q_zero_point = a.k_zero_point = a.v_zero_point = a.o_zero_point = 121;
  a.q_scale = a.k_scale = a.v_scale = a.o_scale = 0.02f, a.p_scale = 1 / 255.0f, a.scale = 0.125f;
  if (flat) a.q_scale = 1e-4f, a.p_scale = 1 / (64.0f * static_cast<float>(keys));
  AlignedArray<uint8_t> scratch(SdpaDecodeScratchBytes(arch, a));
  double best = 1e30;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t h = 0; h < heads; ++h) SdpaDecode(arch, a, 0, h, scratch.data());
    benchmark::ClobberMemory();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(time.count());
    best = std::min(best, time.count());
  }
  state.counters["GB/s"] = static_cast<double>(heads * keys * d * 2) / best * 1e-9;
}

// What memory gives to the better of one stream and four, over as many bytes.
void ReadBandwidth(benchmark::State& state, int64_t bytes) {
  AlignedArray<uint64_t> data(bytes / 8);
  for (size_t i = 0; i < data.size(); ++i) data.data()[i] = i;
  double best = 1e30;
  for (auto _ : state) {
    for (const size_t streams : {1, 4}) {
      const auto begin = std::chrono::steady_clock::now();
      const size_t part = data.size() / streams;
      uint64_t sums[8] = {};
      for (size_t i = 0; i < part; i += 8) {
        for (size_t s = 0; s < streams; ++s) {
          for (size_t j = 0; j < 8; ++j) sums[j] ^= data.data()[s * part + i + j];
        }
      }
      for (uint64_t& sum : sums) benchmark::DoNotOptimize(sum);
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
      state.SetIterationTime(time.count());
      best = std::min(best, time.count());
    }
  }
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
}

void OneDnn(benchmark::State& state, int64_t s, int64_t d, bool int8) {
  bench::OneDnnAttention attention(Heads(s), s, d, int8);
  Measure(state, s, [&] { attention.Run(); });
}

void Register() {
  const auto few = [](const std::string& title, auto f) {
    benchmark::RegisterBenchmark(title, f)->MinTime(0.1)->UseManualTime()->Unit(benchmark::kMicrosecond);
  };
  few("decode_read_bandwidth", [](benchmark::State& state) { ReadBandwidth(state, int64_t{8} * 8192 * 64 * 2); });
  for (const Arch arch : SupportedArchs()) {
    for (const int64_t group : {1, 4, 8}) {
      for (const bool flat : {false, true}) {
        if (arch == Arch::kScalar) continue;
        few(std::string(flat ? "decode_int8_flat/" : "decode_int8/") + std::string(Name(arch)) + "/group" +
                std::to_string(group),
            [=](benchmark::State& state) { DecodeInt8(state, arch, 8192, 64, group, flat); });
      }
    }
    for (const bool flash : {false, true}) {
      if (arch == Arch::kScalar) continue;
      benchmark::RegisterBenchmark(std::string(flash ? "decode_f32_flash/" : "decode_f32/") + std::string(Name(arch)),
                                   [=](benchmark::State& state) { Decode(state, arch, 8192, 64, flash); })
          ->MinTime(0.1)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
  for (const int64_t s : {1024, 8192, 32768}) {
    for (const Arch arch : SupportedArchs()) {
      if (arch == Arch::kScalar) continue;
      for (const bool causal : {false, true}) {
        few(std::string(causal ? "long_int8_causal/" : "long_int8/") + std::string(Name(arch)) + "/d64/S" +
                std::to_string(s),
            [=](benchmark::State& state) { Long(state, arch, s, causal); });
      }
    }
  }
  for (const int64_t d : {32, 64}) {
    for (const int64_t s : {32, 64, 128, 384, 1024}) {
      const std::string shape = "/d" + std::to_string(d) + "/S" + std::to_string(s);
      for (const Arch arch : SupportedArchs()) {
        if (arch == Arch::kScalar && s > 64) continue;
        const std::string name = std::string(Name(arch)) + shape;
        const auto add = [](const std::string& title, auto f) {
          benchmark::RegisterBenchmark(title, f)->MinTime(0.1)->UseManualTime()->Unit(benchmark::kMicrosecond);
        };
        add("sdpa_int8_mask/" + name, [=](benchmark::State& state) { Int8(state, arch, s, d, Masking::kPadding); });
        add("sdpa_int8/" + name, [=](benchmark::State& state) { Int8(state, arch, s, d, Masking::kNone); });
        add("sdpa_int8_triangle/" + name,
            [=](benchmark::State& state) { Int8(state, arch, s, d, Masking::kTriangle); });
        add("sdpa_int8_causal/" + name, [=](benchmark::State& state) { Int8(state, arch, s, d, Masking::kCausal); });
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
