// Instruction sets as values. The ISA is an argument of every kernel, never a global or an #if in logic.
#ifndef OCTAVO_KERNELS_ARCH_ARCH_H_
#define OCTAVO_KERNELS_ARCH_ARCH_H_

#include <string>
#include <string_view>
#include <vector>

namespace octavo::kernels {

// In order of preference. A machine "has" an Arch if it has everything that the code behind it uses.
enum class Arch : int { kScalar = 0, kAvx2 = 1, kAvxVnni = 2, kAvx512 = 3, kAvx512Vnni = 4, kAmx = 5 };

// "scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "amx".
std::string_view Name(Arch arch);
// False for a word that names none.
bool ArchFromName(std::string_view name, Arch* arch);

// What decides the paths, as found: CPUID, XCR0, and for the tiles the permission that Linux gives a process.
struct CpuFeatures {
  bool avx2 = false;             // with FMA, F16C, BMI and the ymm state of the system
  bool avx_vnni = false;         // the VEX form of vpdpbusd
  bool avx512 = false;           // F, BW, CD, DQ, VL, and the zmm state of the system
  bool avx512_vnni = false;      // vpdpbusd zmm; Cascade Lake has it without the next line
  bool avx512_ice_lake = false;  // VNNI with VBMI, VBMI2, BITALG, VPOPCNTDQ, GFNI, VAES: what our zmm VNNI code wants
  bool avx512_bf16 = false;
  bool amx_tile = false;
  bool amx_int8 = false;
  bool amx_bf16 = false;
  bool tile_state = false;  // the system saves tiles and has granted them
  bool bf16_pairs = false;  // avx512_bf16, and it adds as the manual says (pairs.h)
  bool four_pipes = false;  // AMD from Zen on: vector pipes beside the two that multiply. Changes speed alone
  bool zen4 = false;        // Zen 4 or later. Changes speed alone
};
// Whether fp8 gains by vdpbf16ps. On Zen 4 it takes an FMA's time for twice the products (counted); on Granite
// Rapids products with it run at 0.6 of the speed of FMA (measured).
constexpr bool GainsByBf16Pairs(const CpuFeatures& f) { return f.bf16_pairs && f.four_pipes; }
// Of this CPU, asked once.
const CpuFeatures& DetectedFeatures();
// The Archs of a CPU, ascending, always with kScalar. A pure function: choices for CPUs that nobody here owns are
// tested by name.
std::vector<Arch> ArchsOf(const CpuFeatures& features);
// ArchsOf(DetectedFeatures()).
const std::vector<Arch>& SupportedArchs();
// The best supported Arch, or what OCTAVO_ARCH names (a test and debug override, not an interface). An OCTAVO_ARCH that
// this CPU lacks or that names nothing: `*problem` gets a sentence and the best one is returned.
Arch BestArch(std::string* problem = nullptr);
// "Intel(R) Xeon(R) ..., avx512vnni": for tables and reports.
std::string CpuDescription();

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_ARCH_ARCH_H_
