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

// What this CPU has, ascending, always with kScalar. CPUID, XCR0 and (for AMX) the permission request, asked once.
const std::vector<Arch>& SupportedArchs();
// The Arch whose code runs for `arch`: itself if it has kernels, otherwise the next lower one that has and that every
// CPU with `arch` has too (avxvnni: avx2; amx: avx512vnni).
Arch KernelArch(Arch arch);
// The best supported Arch for which kernels exist, or what OCTAVO_ARCH names (a test and debug override, not an
// interface). An OCTAVO_ARCH that this CPU lacks or that names nothing: `*problem` gets a sentence and the best one is
// returned.
Arch BestArch(std::string* problem = nullptr);
// "Intel(R) Xeon(R) ..., avx512vnni": for tables and reports.
std::string CpuDescription();

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_ARCH_ARCH_H_
