#include "octavo/kernels/bench/peak.h"

#include <time.h>

#include <algorithm>
#include <chrono>

#include "octavo/kernels/tile/amx.h"

namespace octavo::kernels::bench {
namespace {

constexpr int kRounds = 40000;  // 50 to 100 us: reading the clock of a thread costs up to 1 us in a guest

// One instruction per register of a list; enough chains to hide a latency of 5 cycles at two a cycle.
#define OCTAVO_12(I) I(0) I(1) I(2) I(3) I(4) I(5) I(6) I(7) I(8) I(9) I(10) I(11)
#define OCTAVO_16(I) OCTAVO_12(I) I(12) I(13) I(14) I(15)
#define OCTAVO_CLOBBERS                                                                                               \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15"

#define OCTAVO_DOT512(n) "vpdpbusd %%zmm31, %%zmm30, %%zmm" #n "\n\t"
__attribute__((target("avx512f,avx512vnni"))) void Dot512() {
  for (int i = 0; i < kRounds; ++i) asm volatile(OCTAVO_16(OCTAVO_DOT512)::: OCTAVO_CLOBBERS);
}
#define OCTAVO_DOT256(n) "%{vex%} vpdpbusd %%ymm15, %%ymm14, %%ymm" #n "\n\t"
__attribute__((target("avx2"))) void Dot256() {
  for (int i = 0; i < kRounds; ++i) asm volatile(OCTAVO_12(OCTAVO_DOT256)::: OCTAVO_CLOBBERS);
}
// The exact product of 16-bit pairs and its accumulation are two instructions; the product goes to a register of its own.
#define OCTAVO_PAIR(w, a, p)               \
  "vpmaddwd %%" w "15, %%" w "14, %%" w #p \
  "\n\t"                                   \
  "vpaddd %%" w #p ", %%" w #a ", %%" w #a "\n\t"
#define OCTAVO_PAIRS(w) \
  OCTAVO_PAIR(w, 0, 6)  \
  OCTAVO_PAIR(w, 1, 7) OCTAVO_PAIR(w, 2, 8) OCTAVO_PAIR(w, 3, 9) OCTAVO_PAIR(w, 4, 10) OCTAVO_PAIR(w, 5, 11)
__attribute__((target("avx2"))) void Pairs256() {
  for (int i = 0; i < kRounds; ++i) asm volatile(OCTAVO_PAIRS("ymm")::: OCTAVO_CLOBBERS);
}
__attribute__((target("avx512f,avx512bw"))) void Pairs512() {
  for (int i = 0; i < kRounds; ++i) asm volatile(OCTAVO_PAIRS("zmm")::: OCTAVO_CLOBBERS);
}
#define OCTAVO_FMA256(n) "vfmadd231ps %%ymm15, %%ymm14, %%ymm" #n "\n\t"
// Zeros first: what stands in the registers may be denormal, which costs a hundred cycles an instruction.
#define OCTAVO_ZERO256(n) "vxorps %%ymm" #n ", %%ymm" #n ", %%ymm" #n "\n\t"
__attribute__((target("avx2,fma"))) void Fma256() {
  asm volatile(OCTAVO_16(OCTAVO_ZERO256)::: OCTAVO_CLOBBERS);
  for (int i = 0; i < kRounds; ++i) asm volatile(OCTAVO_12(OCTAVO_FMA256)::: OCTAVO_CLOBBERS);
}
#define OCTAVO_FMA512(n) "vfmadd231ps %%zmm31, %%zmm30, %%zmm" #n "\n\t"
__attribute__((target("avx512f"))) void Fma512() {
  asm volatile(OCTAVO_16(OCTAVO_ZERO256) "vpxord %%zmm30, %%zmm30, %%zmm30\n\tvpxord %%zmm31, %%zmm31, %%zmm31" ::
                   : OCTAVO_CLOBBERS, "xmm30", "xmm31");
  for (int i = 0; i < kRounds; ++i) asm volatile(OCTAVO_16(OCTAVO_FMA512)::: OCTAVO_CLOBBERS);
}

// Four sums hide the latency of 52 cycles at one product in 16.
void DotTiles() {
  tile::LoadConfig(tile::kWholeTiles);
  for (int i = 0; i < kRounds; ++i) {
    tile::DotUS<0, 4, 6>();
    tile::DotUS<1, 4, 7>();
    tile::DotUS<2, 5, 6>();
    tile::DotUS<3, 5, 7>();
  }
  tile::Release();
}

__attribute__((target("avx2"))) void Read256(const char* p, int64_t bytes) {
  for (const char* end = p + bytes; p + 256 <= end; p += 256) {
    asm volatile(
        "vmovdqu (%0), %%ymm0\n\tvmovdqu 32(%0), %%ymm1\n\tvmovdqu 64(%0), %%ymm2\n\tvmovdqu 96(%0), %%ymm3\n\t"
        "vmovdqu 128(%0), %%ymm4\n\tvmovdqu 160(%0), %%ymm5\n\tvmovdqu 192(%0), %%ymm6\n\tvmovdqu 224(%0), %%ymm7" ::
            "r"(p)
        : "memory", OCTAVO_CLOBBERS);
  }
}

}  // namespace

double Seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const double start = now();
  work();
  return now() - start;
}

double ClockGhz() {
  // A chain of multiplications, 3 cycles each on every x86-64 since 2008 (Zen too). Not of additions: Golden Cove and its
  // successors carry out `add $1` while they rename, six a cycle.
  constexpr int kProducts = 8000, kLatency = 3;
  double best = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    uint64_t x = 1;
    for (int i = 0; i < kProducts / 4; ++i) {
      asm volatile("imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0" : "+r"(x));
    }
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    best = std::max(best, kProducts * kLatency / time.count());
  }
  return best;
}

PeakLoop DotPeak(Arch arch) {
  switch (arch) {
    case Arch::kScalar:
      return {};
    case Arch::kAvx2:
      return {"vpmaddwd + vpaddd ymm", Pairs256, int64_t{kRounds} * 6 * 16};
    case Arch::kAvxVnni:
      return {"vpdpbusd ymm", Dot256, int64_t{kRounds} * 12 * 32};
    case Arch::kAvx512:
      return {"vpmaddwd + vpaddd zmm", Pairs512, int64_t{kRounds} * 6 * 32};
    case Arch::kAvx512Vnni:
      return {"vpdpbusd zmm", Dot512, int64_t{kRounds} * 16 * 64};
    case Arch::kAmx:
      return {"tdpbusd", DotTiles, int64_t{kRounds} * 4 * 16 * 16 * 64};
  }
  return {};
}

PeakLoop FmaPeak(Arch arch) {
  if (arch == Arch::kScalar) return {};
  if (arch == Arch::kAvx2 || arch == Arch::kAvxVnni) return {"vfmadd231ps ymm", Fma256, int64_t{kRounds} * 12 * 8};
  return {"vfmadd231ps zmm", Fma512, int64_t{kRounds} * 16 * 16};
}

void ReadAll(Arch arch, const void* data, int64_t bytes) {
  if (arch != Arch::kScalar) return Read256(static_cast<const char*>(data), bytes);
  const auto* words = static_cast<const volatile uint64_t*>(data);
  for (int64_t i = 0; i < bytes / 8; ++i) (void)words[i];
}

}  // namespace octavo::kernels::bench
