// One function per compiled form of a kernel, chosen by an Arch that the caller passes (not by Highway's global
// dispatch).
//
//   using Fn = void(const Args&);
//   constexpr PerArch<Fn> kTable = {&Reference, &N_AVX2::F, &N_AVX3::F, &N_AVX3_DL::F};   // in the #if HWY_ONCE part
//   kTable[arch](args);
#ifndef OCTAVO_KERNELS_SIMD_DISPATCH_H_
#define OCTAVO_KERNELS_SIMD_DISPATCH_H_

#include "octavo/kernels/arch/arch.h"

namespace octavo::kernels {

template <typename Fn>
struct PerArch {
  Fn* scalar;
  Fn* avx2;
  Fn* avx512;
  Fn* avx512vnni;
  Fn* avxvnni = nullptr;  // null: the family has no dot products to gain by it, and runs avx2
  Fn* amx = nullptr;      // null: runs avx512vnni

  constexpr Fn* operator[](Arch arch) const {
    switch (arch) {
      case Arch::kScalar:
        return scalar;
      case Arch::kAvx2:
        return avx2;
      case Arch::kAvxVnni:
        return avxvnni != nullptr ? avxvnni : avx2;
      case Arch::kAvx512:
        return avx512;
      case Arch::kAvx512Vnni:
        return avx512vnni;
      case Arch::kAmx:
        return amx != nullptr ? amx : avx512vnni;
    }
    return scalar;
  }
};

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_SIMD_DISPATCH_H_
