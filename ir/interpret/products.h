// Matrix products on dense row-major blocks. The order is the meaning: every result is 0 + a[0]*b[0] + a[1]*b[1] + ...,
// accumulated in order of k, each product and each sum rounded (no FMA).
#ifndef OCTAVO_IR_INTERPRET_PRODUCTS_H_
#define OCTAVO_IR_INTERPRET_PRODUCTS_H_

#include <cstdint>

#include "octavo/ir/interpret/call.h"

namespace octavo::ir::interpret {

// c[m,n] += a[m,k] * b[k,n]; c starts as the caller filled it.
void MultiplyF32(const float* a, const float* b, float* c, int64_t m, int64_t k, int64_t n);
void MultiplyF64(const double* a, const double* b, double* c, int64_t m, int64_t k, int64_t n);
// Exact as long as k * max|a| * max|b| < 2^31; operands are 9-bit numbers (8 bits less a zero point).
void MultiplyS16(const int16_t* a, const int16_t* b, int32_t* c, int64_t m, int64_t k, int64_t n);
void MultiplyS16Wide(const int16_t* a, const int16_t* b, int64_t* c, int64_t m, int64_t k, int64_t n);
// Modulo 2^64.
void MultiplyU64(const uint64_t* a, const uint64_t* b, uint64_t* c, int64_t m, int64_t k, int64_t n);

// Longest k for which int32 holds every sum of products of two 9-bit numbers: 2^31 / 255^2.
inline constexpr int64_t kMaxExactDepth = 33025;

// The shapes of a MatMul after NumPy's rules: [batch.., m, k] x [batch.., k, n].
struct MatMulShape {
  int64_t m = 1, k = 1, n = 1;
  Shape result;
  std::vector<int64_t> a_batch, b_batch;  // per batch of the result: number of the operand's matrix
};
Result<MatMulShape> MatMulShapeOf(const Shape& a, const Shape& b);

// Elements of an 8-bit tensor minus their zero point. `zero` has one element, or one per index of `axis`; an absent one
// is zero.
Result<std::vector<int16_t>> Centered(const Tensor& q, const Tensor& zero, int64_t axis);
// As above with a zero point that broadcasts to q.
Result<std::vector<int16_t>> CenteredBy(const Tensor& q, const Tensor& zero);
// Exact integer product of centered operands: int32 sums as int64 only where k is beyond kMaxExactDepth.
struct IntProduct {
  std::vector<int32_t> narrow;  // either this
  std::vector<int64_t> wide;    // or this
  float AsFloat(int64_t i) const {
    return wide.empty() ? static_cast<float>(narrow[static_cast<size_t>(i)])
                        : static_cast<float>(wide[static_cast<size_t>(i)]);
  }
  int64_t At(int64_t i) const { return wide.empty() ? narrow[static_cast<size_t>(i)] : wide[static_cast<size_t>(i)]; }
};
IntProduct MultiplyCentered(const MatMulShape& s, const std::vector<int16_t>& a, const std::vector<int16_t>& b);

// Float MatMul of two f32 tensors, as the op does it.
Result<Tensor> MatMulF32(const Tensor& a, const Tensor& b);

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_PRODUCTS_H_
