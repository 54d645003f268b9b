// The float functions whose bits are part of the contract (README.md): the interpreter and the scalar kernels
// call these; the vector kernels reproduce them bit for bit. Fixed virtual width of 16 lanes, fixed order, FMA where
// written.
#ifndef OCTAVO_QUANT_NUMERIC_MATH_H_
#define OCTAVO_QUANT_NUMERIC_MATH_H_

#include <cstdint>

namespace octavo::quant {

// e^x by the 8-entry table form, at most 2 ulp; Erf and Tanh at most 6 ulp
// (tests/numeric/math_test.cc). Underflow below 2^-126 gives 0; x = -inf gives 0; x above ln(FLT_MAX) gives inf; NaN
// gives NaN.
float Exp(float x);
// x P(x^2) / Q(x^2); exactly +-1 beyond |x| = 4.04 and 9.04; NaN gives NaN.
float Erf(float x);
float Tanh(float x);
float Sigmoid(float x);  // 1 / (1 + Exp(-x))
// The orders of operations below are those of the bodies in ir/functions.cc; no FMA.
float Gelu(float x);      // (x * (Erf(x / 1.41421354f) + 1)) * 0.5
float GeluTanh(float x);  // (x * (Tanh((x + ((x * x) * x) * 0.044715f) * 0.797884583f) + 1)) * 0.5
float Silu(float x);      // x * Sigmoid(x)

// Sum over 16 lanes: element i is added to lane i % 16 in order of i; lanes are then added pairwise:
// 8 sums l[i] + l[i+8], 4, 2, 1.
float Sum16(const float* x, int64_t n);
// Same with lane = fma(x, x, lane).
float SumSquares16(const float* x, int64_t n);
// Same with lane = fma(a, b, lane).
float Dot16(const float* a, const float* b, int64_t n);
// Maximum; NaN if any element is NaN. -inf for n = 0.
float RowMax(const float* x, int64_t n);

// y = softmax(x): m = RowMax, e_i = Exp(x_i - m), s = Sum16(e), y_i = e_i / s. A row with NaN, with inf, or only -inf
// gives NaN. y may be x, here and below.
void SoftmaxRow(const float* x, int64_t n, float* y);
// mean = Sum16(x)/n; d = x - mean; var = SumSquares16(d)/n; r = 1/sqrt(var + eps); y = fma(d * r, gamma, beta)
// (beta null: d * r * gamma).
void LayerNormRow(const float* x, int64_t n, const float* gamma, const float* beta, float epsilon, float* y);
// r = 1/sqrt(SumSquares16(x)/n + eps); y = (x * r) * gamma.
void RmsNormRow(const float* x, int64_t n, const float* gamma, float epsilon, float* y);

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_NUMERIC_MATH_H_
