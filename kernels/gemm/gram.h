// Products of rows of codes with themselves, in whole numbers: what second moments of activations are made of.
//
// c[i][j] = sum over rows of a[row][i] * b[row][j], exact while it fits in an int32. Columns lie in panels, and rows in pairs, so that one
// instruction multiplies and adds two of them; whoever packs fills up with zeros.
#ifndef OCTAVO_KERNELS_GEMM_GRAM_H_
#define OCTAVO_KERNELS_GEMM_GRAM_H_

#include <cstdint>

#include "octavo/kernels/arch/arch.h"

namespace octavo::kernels {

inline constexpr int64_t kGramColumns = 32;  // of a panel
struct GramArgs {
  int64_t pairs = 0;           // of rows
  const int16_t* a = nullptr;  // [pairs][kGramColumns][2]
  const int16_t* b = nullptr;  // the same of other columns, or the same ones
  int32_t* c = nullptr;        // [kGramColumns][kGramColumns]
};
void Gram(Arch arch, const GramArgs& args);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_GEMM_GRAM_H_
