// Few rows against the memory: what a product of 1 to 8 rows reads of its weights per second, beside the bandwidth of
// plain reading in the same run (one stream and four, the better counts).
//   ./dev bench stream
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "octavo/kernels/blocked/blocked.h"
#include "octavo/kernels/blocked/blocked_int8.h"
#include "octavo/kernels/gemm/gemm.h"

namespace octavo::benchmarks {
namespace {

using kernels::Arch;

volatile uint64_t sink;

// Sums 64-byte lines; kStreams pieces at once.
template <int kStreams>
__attribute__((target("avx2"))) void Read(const int8_t* data, size_t bytes) {
  typedef long long V __attribute__((vector_size(32)));
  const size_t piece = bytes / kStreams / 64 * 64;
  V a[kStreams] = {}, b[kStreams] = {};
  for (size_t i = 0; i < piece; i += 64) {
    for (int s = 0; s < kStreams; ++s) {
      const auto* p = reinterpret_cast<const V*>(data + static_cast<size_t>(s) * piece + i);
      a[s] += p[0];
      b[s] += p[1];
    }
  }
  V total = {};
  for (int s = 0; s < kStreams; ++s) total += a[s] + b[s];
  sink = static_cast<uint64_t>(total[0] + total[1] + total[2] + total[3]);
}

// The fastest of several repetitions, in seconds.
template <class F>
double Fastest(F f, int times = 40) {
  double best = 1e9;
  for (int i = 0; i < times; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void Run(int64_t k, int64_t n) {
  std::vector<int8_t> w(static_cast<size_t>(k * n));
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<int8_t>(i * 2654435761u >> 24);
  const auto packed = kernels::PackWeights({.data = w.data(), .k = k, .n = n});
  if (!packed) return;
  const auto bytes = static_cast<size_t>(packed->k_padded() * packed->n_padded());
  const double read =
      std::min(Fastest([&] { Read<1>(packed->data(), bytes); }), Fastest([&] { Read<4>(packed->data(), bytes); }));
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  std::printf("%lld x %lld, %.1f MB of weights: read %.1f GB/s\n", static_cast<long long>(k), static_cast<long long>(n),
              gigabytes * 1e3, gigabytes / read);
  const std::vector<float> scale(static_cast<size_t>(n), 0.01f);
  const std::vector<uint8_t> x(static_cast<size_t>(8 * k), 77);
  std::vector<uint8_t> y(static_cast<size_t>(8 * n));
  for (Arch arch : kernels::SupportedArchs()) {
    if (arch == Arch::kScalar) continue;
    kernels::AlignedArray<uint8_t> scratch(kernels::GemmScratchBytes(arch, quant::DType::kU8, k));
    std::printf("  %-11s", std::string(Name(arch)).c_str());
    for (int64_t m : {1, 2, 4, 6, 8}) {
      kernels::GemmArgs args;
      args.x = {x.data(), quant::DType::kU8, k, 3, 0.02f};
      args.y = {.w = &*packed, .w_scale = scale.data(), .y = y.data(), .dtype = quant::DType::kU8, .stride = n};
      const double t =
          Fastest([&] { kernels::Gemm(arch, args, {0, m}, {0, kernels::ColumnBlocks(n)}, scratch.data()); });
      std::printf("  M=%lld %5.1f GB/s (%3.0f %%)", static_cast<long long>(m), gigabytes / t, 100 * read / t);
    }
    std::printf("\n");
  }
}

// Float rows, and rows as codes, times 4- or 8-bit weights in blocks; bytes are those of weights and scales.
void RunBlocked(int64_t k, int64_t n, quant::DType dtype, int64_t block, bool zeros) {
  std::vector<uint8_t> w(static_cast<size_t>(k * n));
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  const std::vector<float> scale(static_cast<size_t>(k * n / block), 0.01f);
  const auto packed = kernels::PackBlocked({.data = w.data(),
                                            .dtype = dtype,
                                            .k = k,
                                            .n = n,
                                            .block = block,
                                            .scale = scale.data(),
                                            .zero_point = zeros ? w.data() : nullptr});
  if (!packed) return;
  const auto* panels = reinterpret_cast<const int8_t*>(packed->Panel(0));
  const auto bytes = packed->bytes() - (zeros ? static_cast<size_t>(packed->panels() * packed->blocks() * 16) : 0);
  const double read = std::min(Fastest([&] { Read<1>(panels, bytes); }), Fastest([&] { Read<4>(panels, bytes); })) *
                      static_cast<double>(packed->bytes()) / static_cast<double>(bytes);
  const double gigabytes = static_cast<double>(packed->bytes()) * 1e-9;
  std::printf("%lld x %lld %s, blocks of %lld%s, %.1f MB: read %.1f GB/s\n", static_cast<long long>(k),
              static_cast<long long>(n), std::string(Name(dtype)).c_str(), static_cast<long long>(block),
              zeros ? " with zero points" : "", gigabytes * 1e3, gigabytes / read);
  const std::vector<float> x(static_cast<size_t>(128 * k), 0.5f);
  std::vector<float> y(static_cast<size_t>(128 * n));
  for (Arch arch : kernels::SupportedArchs()) {
    if (arch == Arch::kScalar) continue;
    kernels::AlignedArray<uint8_t> scratch(kernels::BlockedScratchBytes(arch, *packed));
    std::printf("  %-11s", std::string(Name(arch)).c_str());
    for (int64_t m : {1, 2, 4, 8, 128}) {
      const kernels::BlockedArgs args{.x = x.data(), .x_stride = k, .w = &*packed, .y = y.data(), .y_stride = n};
      const double t =
          Fastest([&] { kernels::GemmBlocked(arch, args, {0, m}, {0, kernels::ColumnBlocks(n)}, scratch.data()); },
                  m == 128 ? 5 : 40);
      if (m == 128) {
        std::printf("  M=128 %5.1f GFMA/s", static_cast<double>(m * k * n) / t * 1e-9);
      } else {
        std::printf("  M=%lld %5.1f GB/s (%3.0f %%)", static_cast<long long>(m), gigabytes / t, 100 * read / t);
      }
    }
    std::printf("\n  %11s", "codes");
    kernels::AlignedArray<uint8_t> rows(static_cast<size_t>(128 * kernels::BlockedRowBytes(*packed)));
    kernels::AlignedArray<uint8_t> codes_scratch(kernels::kBlockedInt8ScratchBytes);
    for (int64_t m : {1, 2, 4, 8, 128}) {
      const kernels::BlockedInt8Args args{.x = rows.data(), .w = &*packed, .y = y.data(), .y_stride = n};
      const double t = Fastest(
          [&] {
            kernels::QuantizeBlocks(arch, *packed, x.data(), k, m, rows.data());
            kernels::GemmBlockedInt8(arch, args, {0, m}, {0, kernels::ColumnBlocks(n)}, codes_scratch.data());
          },
          m == 128 ? 5 : 40);
      if (m == 128) {
        std::printf("  M=128 %5.1f GMAC/s", static_cast<double>(m * k * n) / t * 1e-9);
      } else {
        std::printf("  M=%lld %5.1f GB/s (%3.0f %%)", static_cast<long long>(m), gigabytes / t, 100 * read / t);
      }
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace octavo::benchmarks

int main() {
  std::printf("%s\n", octavo::kernels::CpuDescription().c_str());
  octavo::benchmarks::Run(384, 1152);
  octavo::benchmarks::Run(768, 2304);
  octavo::benchmarks::Run(1024, 4096);
  octavo::benchmarks::Run(4096, 4096);
  octavo::benchmarks::Run(4096, 32768);
  for (const int64_t n : {4096, 16384}) {
    octavo::benchmarks::RunBlocked(4096, n, octavo::quant::DType::kS4, 128, false);
    octavo::benchmarks::RunBlocked(4096, n, octavo::quant::DType::kU4, 32, true);
    octavo::benchmarks::RunBlocked(4096, n, octavo::quant::DType::kS8, 64, false);
  }
  return 0;
}
