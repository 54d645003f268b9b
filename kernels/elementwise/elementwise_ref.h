// The truth of elementwise.h in plain loops.
#ifndef OCTAVO_KERNELS_ELEMENTWISE_ELEMENTWISE_REF_H_
#define OCTAVO_KERNELS_ELEMENTWISE_ELEMENTWISE_REF_H_

#include "octavo/kernels/elementwise/elementwise.h"

namespace octavo::kernels::internal {

void LookupReference(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t n);
void UnaryReference(UnaryOp op, const float* x, float* y, int64_t n, UnaryParams p);
void BinaryReference(BinaryOp op, const Operand& a, const Operand& b, float* y, int64_t y_row, int64_t begin,
                     int64_t end, int64_t cols);

}  // namespace octavo::kernels::internal

#endif  // OCTAVO_KERNELS_ELEMENTWISE_ELEMENTWISE_REF_H_
