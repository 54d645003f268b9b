#include "octavo/kernels/elementwise/elementwise_ref.h"

namespace octavo::kernels {

void Unary(Arch, UnaryOp op, const float* x, float* y, int64_t n) { internal::UnaryReference(op, x, y, n); }

void Binary(Arch, BinaryOp op, const Operand& a, const Operand& b, float* y, int64_t y_row, int64_t begin, int64_t end,
            int64_t cols) {
  internal::BinaryReference(op, a, b, y, y_row, begin, end, cols);
}

}  // namespace octavo::kernels
