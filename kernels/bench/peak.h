// What this core can do at most, measured: the rates that kernels are compared to. Every function is one sample that a
// caller interleaves with the kernel, so that both see the same clock.
#ifndef OCTAVO_KERNELS_BENCH_PEAK_H_
#define OCTAVO_KERNELS_BENCH_PEAK_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "octavo/kernels/arch/arch.h"

namespace octavo::kernels::bench {

// Seconds of processor time that the calling thread spends in `work`: other programs cost it little but warm caches.
double Seconds(const std::function<void()>& work);

// Clock of this core now in GHz, by a chain of dependent multiplications.
double ClockGhz();

// A register-only loop of the widest exact dot product instruction of `arch`, and of its float FMA.
struct PeakLoop {
  std::string_view instruction;  // empty: there is no such loop
  void (*run)() = nullptr;
  int64_t macs = 0;  // multiply-accumulates of one call
};
PeakLoop DotPeak(Arch arch);
PeakLoop FmaPeak(Arch arch);

// Loads every byte once (AVX2; 8 bytes at a time where that is missing).
void ReadAll(Arch arch, const void* data, int64_t bytes);

}  // namespace octavo::kernels::bench

#endif  // OCTAVO_KERNELS_BENCH_PEAK_H_
