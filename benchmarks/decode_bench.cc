// One row of queries against a cache of one kv head of 64 (MQA, 8 heads), int8 and float: one thread, and the keys split among
// all threads of the machine, in turns. Caches follow each other through 64 MB, so that K and V are not in L2. us: the fastest.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <type_traits>
#include <vector>

#include "octavo/kernels/sdpa/sdpa.h"
#include "octavo/kernels/simd/aligned.h"
#include "octavo/runtime/threads.h"

namespace octavo {
namespace {

using kernels::AlignedArray;
using kernels::Arch;

double Microseconds(auto f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

template <typename Args>
void Decode(benchmark::State& state, Arch arch, int64_t keys, int64_t heads) {
  using T = std::conditional_t<std::is_same_v<Args, kernels::SdpaInt8Args>, uint8_t, float>;
  constexpr int64_t kSize = 64;
  const int64_t elements = keys * kSize,
                copies = std::max<int64_t>(1, (int64_t{64} << 20) / (2 * elements * sizeof(T)));
  AlignedArray<T> q(heads * kSize), caches(copies * 2 * elements);
  AlignedArray<float> o(heads * kSize);
  for (size_t i = 0; i < q.size(); ++i) q.data()[i] = static_cast<T>(i * 37 % 251);
  for (size_t i = 0; i < caches.size(); ++i) caches.data()[i] = static_cast<T>(i * 91 % 253);
  Args a;
  a.shape = {1, heads, 1, 1, keys, kSize, kSize};
  a.q = q.data(), a.o = o.data();
  a.q_strides = a.o_strides = {0, kSize, kSize}, a.k_strides = a.v_strides = {0, 0, kSize};
  if constexpr (sizeof(T) == 1) {
    a.q_zero_point = a.k_zero_point = a.v_zero_point = 121;
    a.q_scale = 1e-4f, a.k_scale = a.v_scale = 0.02f, a.scale = 0.125f;
    a.p_scale = 1 / (64.0f * static_cast<float>(keys));  // no code is 0
  } else {
    a.scale = 1e-6f;
  }
  const runtime::Threads threads(0);
  const int64_t parts = threads.count();
  const size_t bytes = kernels::SdpaDecodeScratchBytes(arch, a);
  AlignedArray<uint8_t> shared(kernels::SdpaSplitKvBytes(arch, a, parts));
  std::vector<double> one, all;
  int64_t at = 0;
  const auto next = [&] {
    a.k = caches.data() + at * 2 * elements, a.v = caches.data() + (at * 2 + 1) * elements;
    at = (at + 1) % copies;
  };
  for (auto _ : state) {
    next();
    one.push_back(Microseconds([&] { kernels::SdpaDecode(arch, a, 0, 0, runtime::TaskScratch(bytes).data()); }));
    next();
    all.push_back(Microseconds([&] {
      for (int step = 0; step < kernels::kSplitKvSteps; ++step) {
        threads.For(parts, [&](int64_t part) {
          kernels::SdpaSplitKv(arch, a, 0, 0, {step, part, parts}, shared.data(), runtime::TaskScratch(bytes).data());
        });
      }
    }));
    state.SetIterationTime((one.back() + all.back()) * 1e-6);
  }
  const double single = *std::ranges::min_element(one), split = *std::ranges::min_element(all);
  state.counters["one us"] = single;
  state.counters["split us"] = split;
  state.counters["times"] = single / split;
}

void Register() {
  for (const Arch arch : kernels::SupportedArchs()) {
    if (arch == Arch::kScalar) continue;
    for (const int64_t heads : {1, 8}) {
      for (const int64_t keys : {512, 1024, 2048, 4096, 8192, 32768}) {
        const std::string name =
            std::string(Name(arch)) + "/heads" + std::to_string(heads) + "/" + std::to_string(keys);
        const auto add = [&](const std::string& kind, auto f) {
          benchmark::RegisterBenchmark("split_" + kind + "/" + name, f)->MinTime(0.1)->UseManualTime();
        };
        add("int8", [=](benchmark::State& s) { Decode<kernels::SdpaInt8Args>(s, arch, keys, heads); });
        add("f32", [=](benchmark::State& s) { Decode<kernels::SdpaFloatArgs>(s, arch, keys, heads); });
      }
    }
  }
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  octavo::Register();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
