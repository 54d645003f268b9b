// The truth of gram.h in plain loops.
#ifndef OCTAVO_KERNELS_GEMM_GRAM_REF_H_
#define OCTAVO_KERNELS_GEMM_GRAM_REF_H_

#include "octavo/kernels/gemm/gram.h"

namespace octavo::kernels::internal {

void GramReference(const GramArgs& args);

}  // namespace octavo::kernels::internal

#endif  // OCTAVO_KERNELS_GEMM_GRAM_REF_H_
