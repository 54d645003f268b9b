#include "octavo/kernels/elementwise/elementwise_ref.h"

#include <cmath>

#include "octavo/quant/numeric/math.h"

namespace octavo::kernels::internal {
namespace {

float Within01(float x) {
  const float least = x < 1.0f ? x : 1.0f;  // NaN: 1
  return least > 0.0f ? least : 0.0f;
}

float ApplyUnary(UnaryOp op, UnaryParams p, float x) {
  switch (op) {
    case UnaryOp::kAbs:
      return std::fabs(x);
    case UnaryOp::kClip:
      x = x < p.a ? p.a : x;
      return x > p.b ? p.b : x;
    case UnaryOp::kElu:
      return x < 0.0f ? p.a * (quant::Exp(x) - 1.0f) : x;
    case UnaryOp::kErf:
      return quant::Erf(x);
    case UnaryOp::kExp:
      return quant::Exp(x);
    case UnaryOp::kGelu:
      return quant::Gelu(x);
    case UnaryOp::kGeluTanh:
      return quant::GeluTanh(x);
    case UnaryOp::kHardSigmoid:
      return Within01(p.a * x + p.b);
    case UnaryOp::kHardSwish:
      return x * Within01(x * (1.0f / 6) + 0.5f);
    case UnaryOp::kLeakyRelu:
      return x < 0.0f ? p.a * x : x;
    case UnaryOp::kNeg:
      return -x;
    case UnaryOp::kReciprocal:
      return 1.0f / x;
    case UnaryOp::kRelu:
      return x < 0.0f ? 0.0f : x;
    case UnaryOp::kSigmoid:
      return quant::Sigmoid(x);
    case UnaryOp::kSilu:
      return quant::Silu(x);
    case UnaryOp::kSqrt:
      return std::sqrt(x);
    case UnaryOp::kTanh:
      return quant::Tanh(x);
  }
  return x;
}

float ApplyBinary(BinaryOp op, float a, float b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kDiv:
      return a / b;
    case BinaryOp::kMax:
      return a != a ? a : (a > b ? a : b);
    case BinaryOp::kMin:
      return a != a ? a : (a < b ? a : b);
    case BinaryOp::kMul:
      return a * b;
    case BinaryOp::kSub:
      return a - b;
  }
  return a;
}

}  // namespace

void LookupReference(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = table[x[i]];
}

void UnaryReference(UnaryOp op, const float* x, float* y, int64_t n, UnaryParams p) {
  for (int64_t i = 0; i < n; ++i) y[i] = ApplyUnary(op, p, x[i]);
}

void BinaryReference(BinaryOp op, const Operand& a, const Operand& b, float* y, int64_t y_row, int64_t begin,
                     int64_t end, int64_t cols) {
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      y[r * y_row + c] = ApplyBinary(op, a.data[r * a.row + c * a.col], b.data[r * b.row + c * b.col]);
    }
  }
}

}  // namespace octavo::kernels::internal
