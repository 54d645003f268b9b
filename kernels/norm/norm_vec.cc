#include "octavo/kernels/norm/norm_ref.h"

namespace octavo::kernels {

void NormRows(Arch, const NormArgs& args, int64_t begin, int64_t end, float* scratch) {
  internal::NormReference(args, begin, end, scratch);
}

}  // namespace octavo::kernels
