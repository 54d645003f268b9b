#include "octavo/kernels/gemm/gram_ref.h"

namespace octavo::kernels::internal {

void GramReference(const GramArgs& args) {
  for (int64_t i = 0; i < kGramColumns; ++i) {
    for (int64_t j = 0; j < kGramColumns; ++j) {
      int32_t sum = 0;
      for (int64_t p = 0; p < args.pairs; ++p) {
        const int16_t* a = args.a + (p * kGramColumns + i) * 2;
        const int16_t* b = args.b + (p * kGramColumns + j) * 2;
        sum += int32_t{a[0]} * b[0] + int32_t{a[1]} * b[1];
      }
      args.c[i * kGramColumns + j] = sum;
    }
  }
}

}  // namespace octavo::kernels::internal
