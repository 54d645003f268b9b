// The truth of norm.h in plain loops.
#ifndef OCTAVO_KERNELS_NORM_NORM_REF_H_
#define OCTAVO_KERNELS_NORM_NORM_REF_H_

#include "octavo/kernels/norm/norm.h"

namespace octavo::kernels::internal {

void NormReference(const NormArgs& args, int64_t begin, int64_t end, float* scratch);

}  // namespace octavo::kernels::internal

#endif  // OCTAVO_KERNELS_NORM_NORM_REF_H_
