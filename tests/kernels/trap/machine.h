// The instructions that a test may execute on a CPU without them: AMX tiles (LDTILECFG, STTILECFG, TILERELEASE, TILEZERO,
// TILELOADD, TILELOADDT1, TILESTORED, TDPB{SS,SU,US,UU}D, TDPBF16PS), the VEX form of VPDPBUSD ymm (AVX-VNNI) and VDPBF16PS zmm
// without a mask (AVX512_BF16). Decoded from the machine code and executed as the manual says; what a CPU would answer with #UD
// or #GP, and a form that is not known here, is a problem in words.
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
#ifndef OCTAVO_TESTS_KERNELS_TRAP_MACHINE_H_
#define OCTAVO_TESTS_KERNELS_TRAP_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace octavo::trap {

// Palette 1: eight tiles of up to 16 rows of up to 64 bytes.
struct TileFile {
  bool configured = false;
  uint8_t rows[8] = {};
  uint16_t row_bytes[8] = {};
  alignas(64) uint8_t data[8][16][64] = {};
};

// How VDPBF16PS adds the two products of a pair. Not the manual's: what a CPU might do, to test that it would be noticed.
enum class PairOrder { kManual, kSwapped, kProductsFirst, kRoundedOnce, kTruncated };

struct Machine {
  uint64_t gpr[16] = {};  // in the order of their encoding: rax rcx rdx rbx rsp rbp rsi rdi r8 ...
  const uint8_t* rip = nullptr;
  alignas(64) uint8_t zmm[32][64] = {};  // ymm are their lower halves
  bool vectors_changed = false;
  bool has_zmm = true;  // false: of 16 registers, the lower halves alone
  TileFile* tiles = nullptr;
  PairOrder pair_order = PairOrder::kManual;
};

struct Outcome {
  bool known = false;  // false: not one of these instructions, nothing was done
  size_t length = 0;   // in bytes
  bool is_tile = false;
  std::string problem;  // empty, or why a CPU would have refused; then nothing was done
};

// Executes the instruction at `rip`, which is not moved.
Outcome Execute(Machine& machine);

}  // namespace octavo::trap

#endif  // OCTAVO_TESTS_KERNELS_TRAP_MACHINE_H_
