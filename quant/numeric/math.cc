#include "octavo/quant/numeric/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "octavo/quant/numeric/math_constants.h"

// Every function is written once, inline, and compiled twice: for the baseline, where std::fma is a call into libm, and
// for CPUs with FMA. fma is exactly defined, so both give the same bits; the second is about ten times faster.
#if defined(__x86_64__) && defined(__GNUC__)
#define OCTAVO_HAS_FMA_CLONE 1
#define OCTAVO_FMA_TARGET __attribute__((target("avx2,fma")))
#define OCTAVO_INLINE static inline __attribute__((always_inline))
#else
#define OCTAVO_HAS_FMA_CLONE 0
#define OCTAVO_INLINE static inline
#endif

namespace octavo::quant {
namespace {

using namespace constants;  // NOLINT: the tables of math_constants.h and nothing else

constexpr float kInf = std::numeric_limits<float>::infinity();

// minps and maxps: the second operand when either is NaN.
OCTAVO_INLINE float MinPs(float a, float b) { return a < b ? a : b; }
OCTAVO_INLINE float MaxPs(float a, float b) { return a > b ? a : b; }

OCTAVO_INLINE float ExpImpl(float x) {
  if (x < kExpMin) return 0.0f;
  if (x > kExpMax) return kInf;
  const float z = std::fma(x, kLog2E, kExpMagic);  // x / ln2, rounded to a multiple of 1/8, in the low bits
  const float n = z - kExpMagic;
  float r = std::fma(n, -kLn2Hi, x);
  r = std::fma(n, -kLn2Lo, r);
  const float q = std::fma(kExpC3, r, kExpC2);
  const float p = std::fma(q, r * r, r);  // e^r - 1
  const uint32_t bits = std::bit_cast<uint32_t>(z);
  uint32_t s = kExpTable[bits & 7] + (bits << 20);
  if (!(x > 0.0f)) return std::fma(std::bit_cast<float>(s), p, std::bit_cast<float>(s));
  s -= 1u << 23;  // 2^128 is no float: half the scale, twice the result
  return 2.0f * std::fma(std::bit_cast<float>(s), p, std::bit_cast<float>(s));
}

// x * P(x^2) / Q(x^2), for |x| beyond `limit` the value at the limit, which is exactly 1.
template <int kP, int kQ>
OCTAVO_INLINE float OddRational(float x, float limit, const float (&num)[kP], const float (&den)[kQ]) {
  const float c = MinPs(limit, MaxPs(-limit, x));
  const float u = c * c;
  float p = num[kP - 1];
  for (int i = kP - 2; i >= 0; --i) p = std::fma(p, u, num[i]);
  float q = den[kQ - 1];
  for (int i = kQ - 2; i >= 0; --i) q = std::fma(q, u, den[i]);
  return MinPs(1.0f, MaxPs(-1.0f, (c * p) / q));
}

OCTAVO_INLINE float ErfImpl(float x) { return OddRational(x, kErfLimit, kErfP, kErfQ); }
OCTAVO_INLINE float TanhImpl(float x) { return OddRational(x, kTanhLimit, kTanhP, kTanhQ); }
OCTAVO_INLINE float SigmoidImpl(float x) { return 1.0f / (1.0f + ExpImpl(-x)); }
OCTAVO_INLINE float GeluImpl(float x) { return (x * (ErfImpl(x / kSqrt2) + 1.0f)) * 0.5f; }
OCTAVO_INLINE float GeluTanhImpl(float x) {
  return (x * (TanhImpl((x + ((x * x) * x) * kGeluCubic) * kGeluScale) + 1.0f)) * 0.5f;
}
OCTAVO_INLINE float SiluImpl(float x) { return x * SigmoidImpl(x); }

OCTAVO_INLINE float AddLanes(float (&lane)[16]) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = lane[i] + lane[i + width];
  }
  return lane[0];
}

// Calls step(lane, i) for every element in order; the inner loop of 16 is what the compiler may vectorize.
template <typename Step>
OCTAVO_INLINE float Lanes(int64_t n, Step step) {
  float lane[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int l = 0; l < 16; ++l) lane[l] = step(lane[l], i + l);
  }
  for (int l = 0; i + l < n; ++l) lane[l] = step(lane[l], i + l);
  return AddLanes(lane);
}

OCTAVO_INLINE float Sum16Impl(const float* x, int64_t n) {
  return Lanes(n, [x](float lane, int64_t i) __attribute__((always_inline)) { return lane + x[i]; });
}
OCTAVO_INLINE float SumSquares16Impl(const float* x, int64_t n) {
  return Lanes(n, [x](float lane, int64_t i) __attribute__((always_inline)) { return std::fma(x[i], x[i], lane); });
}
OCTAVO_INLINE float Dot16Impl(const float* a, const float* b, int64_t n) {
  return Lanes(n, [a, b](float lane, int64_t i) __attribute__((always_inline)) { return std::fma(a[i], b[i], lane); });
}

OCTAVO_INLINE float RowMaxImpl(const float* x, int64_t n) {
  float m = -kInf;
  bool nan = false;
  for (int64_t i = 0; i < n; ++i) {
    nan |= x[i] != x[i];
    m = MaxPs(x[i], m);
  }
  return nan ? std::numeric_limits<float>::quiet_NaN() : m;
}

OCTAVO_INLINE void SoftmaxRowImpl(const float* x, int64_t n, float* y) {
  const float m = RowMaxImpl(x, n);
  for (int64_t i = 0; i < n; ++i) y[i] = ExpImpl(x[i] - m);
  const float s = Sum16Impl(y, n);
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] / s;
}

OCTAVO_INLINE void LayerNormRowImpl(const float* x, int64_t n, const float* gamma, const float* beta, float epsilon,
                                    float* y) {
  const auto count = static_cast<float>(n);
  const float mean = Sum16Impl(x, n) / count;
  const float squares = Lanes(n, [x, mean](float lane, int64_t i) __attribute__((always_inline)) {
    const float d = x[i] - mean;
    return std::fma(d, d, lane);
  });
  const float r = 1.0f / std::sqrt(squares / count + epsilon);
  if (beta != nullptr) {
    for (int64_t i = 0; i < n; ++i) y[i] = std::fma((x[i] - mean) * r, gamma[i], beta[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = ((x[i] - mean) * r) * gamma[i];
  }
}

OCTAVO_INLINE void RmsNormRowImpl(const float* x, int64_t n, const float* gamma, float epsilon, float* y) {
  const float r = 1.0f / std::sqrt(SumSquares16Impl(x, n) / static_cast<float>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] * r) * gamma[i];
}

}  // namespace

#if OCTAVO_HAS_FMA_CLONE
namespace {
const bool kHasFma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}  // namespace
#define OCTAVO_BOTH(Return, Name, Params, Args)                                \
  OCTAVO_FMA_TARGET static Return Name##Fma Params { return Name##Impl Args; } \
  Return Name Params { return kHasFma ? Name##Fma Args : Name##Impl Args; }
#else
#define OCTAVO_BOTH(Return, Name, Params, Args) \
  Return Name Params { return Name##Impl Args; }
#endif

OCTAVO_BOTH(float, Exp, (float x), (x))
OCTAVO_BOTH(float, Erf, (float x), (x))
OCTAVO_BOTH(float, Tanh, (float x), (x))
OCTAVO_BOTH(float, Sigmoid, (float x), (x))
OCTAVO_BOTH(float, Gelu, (float x), (x))
OCTAVO_BOTH(float, GeluTanh, (float x), (x))
OCTAVO_BOTH(float, Silu, (float x), (x))
OCTAVO_BOTH(float, Sum16, (const float* x, int64_t n), (x, n))
OCTAVO_BOTH(float, SumSquares16, (const float* x, int64_t n), (x, n))
OCTAVO_BOTH(float, Dot16, (const float* a, const float* b, int64_t n), (a, b, n))
OCTAVO_BOTH(float, RowMax, (const float* x, int64_t n), (x, n))
OCTAVO_BOTH(void, SoftmaxRow, (const float* x, int64_t n, float* y), (x, n, y))
OCTAVO_BOTH(void, LayerNormRow,
            (const float* x, int64_t n, const float* gamma, const float* beta, float epsilon, float* y),
            (x, n, gamma, beta, epsilon, y))
OCTAVO_BOTH(void, RmsNormRow, (const float* x, int64_t n, const float* gamma, float epsilon, float* y),
            (x, n, gamma, epsilon, y))

}  // namespace octavo::quant
