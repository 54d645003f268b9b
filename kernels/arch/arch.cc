#include "octavo/kernels/arch/arch.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "hwy/targets.h"
#include "octavo/kernels/arch/pairs.h"

namespace octavo::kernels {
namespace {

constexpr std::pair<Arch, std::string_view> kNames[] = {
    {Arch::kScalar, "scalar"},         {Arch::kAvx2, "avx2"}, {Arch::kAvxVnni, "avxvnni"}, {Arch::kAvx512, "avx512"},
    {Arch::kAvx512Vnni, "avx512vnni"}, {Arch::kAmx, "amx"},
};

uint64_t Xcr0() {
  uint32_t eax = 0, edx = 0;
  asm volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return (uint64_t{edx} << 32) | eax;
}

bool Bit(uint32_t word, int bit) { return ((word >> bit) & 1u) != 0; }

// Tiles need the kernel's permission before XCR0 can be believed: ARCH_REQ_XCOMP_PERM for XFEATURE_XTILEDATA (18). It
// holds for the whole process.
bool TileState() {
  constexpr long kRequestPermission = 0x1023;
  if (syscall(SYS_arch_prctl, kRequestPermission, 18L) != 0) return false;
  constexpr uint64_t kTileState = (uint64_t{1} << 17) | (uint64_t{1} << 18);
  return (Xcr0() & kTileState) == kTileState;
}

// AMD, and Hygon's cores, which are Zen's.
bool IsAmd() {
  uint32_t eax = 0, words[3] = {};
  if (__get_cpuid(0, &eax, &words[0], &words[2], &words[1]) == 0) return false;
  char vendor[sizeof(words)];
  std::memcpy(vendor, words, sizeof(words));
  const std::string_view name(vendor, sizeof(vendor));
  return name == "AuthenticAMD" || name == "HygonGenuine";
}

// Family 25 is Zen 3 and 4: models 16 to 31 and 96 to 175 are Zen 4 (Linux, arch/x86/kernel/cpu/amd.c, bsp_init_amd).
bool IsZen4() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!IsAmd() || __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  const uint32_t family = (eax >> 8 & 0xf) + (eax >> 20 & 0xff), model = (eax >> 4 & 0xf) + (eax >> 12 & 0xf0);
  if (family != 25) return family > 25;
  return (model >= 16 && model < 32) || (model >= 96 && model < 176);
}

// Highway's own conditions for the targets that the kernels are compiled for (they include XCR0), CPUID for the others.
CpuFeatures Detect() {
  CpuFeatures f;
  const int64_t targets = hwy::SupportedTargets();
  f.avx2 = (targets & HWY_AVX2) != 0;
  if (!f.avx2) return f;
  f.four_pipes = IsAmd();
  f.zen4 = IsZen4();
  f.avx512 = (targets & HWY_AVX3) != 0;
  f.avx512_ice_lake = (targets & HWY_AVX3_DL) != 0;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return f;
  f.avx512_vnni = f.avx512 && Bit(ecx, 11);
  f.amx_bf16 = Bit(edx, 22);
  f.amx_tile = Bit(edx, 24);
  f.amx_int8 = Bit(edx, 25);
  f.tile_state = f.amx_tile && TileState();
  if (eax == 0 || __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0) return f;
  f.avx_vnni = Bit(eax, 4);
  f.avx512_bf16 = f.avx512 && Bit(eax, 5);
  f.bf16_pairs = f.avx512_bf16 && PairsAreAddedInOrder();
  return f;
}

bool Has(Arch arch) { return std::ranges::find(SupportedArchs(), arch) != SupportedArchs().end(); }

std::string BrandString() {
  uint32_t words[12] = {};
  if (__get_cpuid_max(0x80000000u, nullptr) < 0x80000004u) return "unknown CPU";
  for (uint32_t i = 0; i < 3; ++i) {
    uint32_t* w = words + size_t{4} * i;
    __get_cpuid(0x80000002u + i, &w[0], &w[1], &w[2], &w[3]);
  }
  char text[sizeof(words) + 1] = {};
  std::memcpy(text, words, sizeof(words));
  const std::string_view brand = text;
  const size_t first = brand.find_first_not_of(' ');
  if (first == std::string_view::npos) return "unknown CPU";
  return std::string(brand.substr(first, brand.find_last_not_of(' ') - first + 1));
}

}  // namespace

std::string_view Name(Arch arch) {
  for (const auto& [value, name] : kNames) {
    if (value == arch) return name;
  }
  return "unknown";
}

bool ArchFromName(std::string_view name, Arch* arch) {
  for (const auto& [value, text] : kNames) {
    if (text != name) continue;
    *arch = value;
    return true;
  }
  return false;
}

const CpuFeatures& DetectedFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

std::vector<Arch> ArchsOf(const CpuFeatures& f) {
  std::vector<Arch> archs = {Arch::kScalar};
  if (!f.avx2) return archs;
  archs.push_back(Arch::kAvx2);
  if (f.avx_vnni) archs.push_back(Arch::kAvxVnni);
  if (!f.avx512) return archs;
  archs.push_back(Arch::kAvx512);
  if (!f.avx512_ice_lake) return archs;
  archs.push_back(Arch::kAvx512Vnni);
  if (f.amx_tile && f.amx_int8 && f.amx_bf16 && f.tile_state) archs.push_back(Arch::kAmx);
  return archs;
}

const std::vector<Arch>& SupportedArchs() {
  static const std::vector<Arch> archs = ArchsOf(DetectedFeatures());
  return archs;
}

Arch BestArch(std::string* problem) {
  const Arch best = SupportedArchs().back();
  const char* wanted = std::getenv("OCTAVO_ARCH");
  if (wanted == nullptr || *wanted == '\0') return best;
  std::string sentence;
  Arch arch = best;
  if (!ArchFromName(wanted, &arch)) {
    sentence = "OCTAVO_ARCH is '" + std::string(wanted) +
               "', which names no instruction set (scalar, avx2, avxvnni, avx512, avx512vnni, amx)";
  } else if (!Has(arch)) {
    sentence = "OCTAVO_ARCH asks for " + std::string(wanted) + ", which this CPU does not have";
  } else {
    return arch;
  }
  if (problem != nullptr) *problem = sentence + "; " + std::string(Name(best)) + " is used.";
  return best;
}

std::string CpuDescription() { return BrandString() + ", " + std::string(Name(SupportedArchs().back())); }

}  // namespace octavo::kernels
