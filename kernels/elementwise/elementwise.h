// Element-wise kernels, float32 but for Lookup. Every Arch gives the bits of the scalar form: IEEE operations in the order written, and
// quant/numeric/math.h for the functions.
#ifndef OCTAVO_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
#define OCTAVO_KERNELS_ELEMENTWISE_ELEMENTWISE_H_

#include <cstdint>

#include "octavo/kernels/arch/arch.h"

namespace octavo::kernels {

enum class UnaryOp : uint8_t {
  kAbs,
  kClip,  // x < a ? a : x, then x > b ? b : x, so NaN stays
  kElu,   // x < 0 ? a * (exp(x) - 1) : x
  kErf,
  kExp,
  kGelu,
  kGeluTanh,
  kHardSigmoid,  // a * x + b within 0 and 1; NaN gives 1
  kHardSwish,    // x * (x / 6 + 0.5 within 0 and 1)
  kLeakyRelu,    // x < 0 ? a * x : x
  kNeg,
  kReciprocal,  // 1 / x
  kRelu,        // x < 0 ? 0 : x, so NaN and -0 stay
  kSigmoid,
  kSilu,
  kSqrt,
  kTanh,
};
inline constexpr int kUnaryOps = 17;

// The numbers a and b of ops that have some.
struct UnaryParams {
  float a = 0, b = 0;
};

enum class BinaryOp : uint8_t {
  kAdd,
  kDiv,
  kMax,  // NaN if either is NaN; of +0 and -0 the second
  kMin,
  kMul,
  kSub,
};
inline constexpr int kBinaryOps = 6;

// y[i] = table[x[i]], bytes; y may be x.
void Lookup(Arch arch, const uint8_t* x, const uint8_t (&table)[256], uint8_t* y, int64_t n);

// y[i] = op(x[i]); y may be x.
void Unary(Arch arch, UnaryOp op, const float* x, float* y, int64_t n, UnaryParams p = {});

// A matrix seen through strides in elements; 0 broadcasts. `col` is 0 or 1.
struct Operand {
  const float* data = nullptr;
  int64_t row = 0;
  int64_t col = 1;
};

// y[r * y_row + c] = op(a(r, c), b(r, c)) for rows [begin, end) and all columns; y may be a or b where strides agree.
// One row of n columns is the plain vector form; scalars have row = col = 0.
void Binary(Arch arch, BinaryOp op, const Operand& a, const Operand& b, float* y, int64_t y_row, int64_t begin,
            int64_t end, int64_t cols);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
