// The numbers behind math.h, shared by the scalar truth and the vector kernels. Fitted by us (weighted least squares
// towards the minimax of the relative error, then rounded to float32); accuracy after rounding is asserted in
// tests/numeric.
#ifndef OCTAVO_QUANT_NUMERIC_MATH_CONSTANTS_H_
#define OCTAVO_QUANT_NUMERIC_MATH_CONSTANTS_H_

#include <cstdint>

namespace octavo::quant::constants {

// e^x = 2^n * e^r, n a multiple of 1/8: adding 1.5 * 2^20 leaves 8n in the low bits, since one ulp there is 1/8.
inline constexpr float kExpMagic = 0x1.8p20f;
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2Hi = 0x1.62e430p-1f;
inline constexpr float kLn2Lo = -0x1.05c610p-29f;
// e^r - 1 = r + r^2 (C2 + C3 r) for |r| <= ln2 / 16: 2.6e-8 relative to e^r, that is 0.4 ulp at most.
inline constexpr float kExpC2 = 0x1.000874p-1f;
inline constexpr float kExpC3 = 0x1.555656p-3f;
// Smallest x with e^x >= 2^-126 and largest x with e^x <= FLT_MAX.
inline constexpr float kExpMin = -0x1.5d589ep+6f;
inline constexpr float kExpMax = 0x1.62e42ep+6f;
// bits(2^(i/8)) - (i << 20): adding the low bits of x + magic, shifted by 20, gives the bits of 2^n.
inline constexpr uint32_t kExpTable[8] = {0x3f800000u, 0x3f7b95c2u, 0x3f7837f0u, 0x3f75fed7u,
                                          0x3f7504f3u, 0x3f75672au, 0x3f7744fdu, 0x3f7ac0c7u};

// erf(x) = x P(x^2) / Q(x^2) up to the limit, where the float32 evaluation reaches 1 (1 - erf(4.03) is 1.2e-8).
inline constexpr float kErfLimit = 0x1.0204ccp+2f;
inline constexpr float kErfP[6] = {0x1.20dd74p+0f, 0x1.8ee3a4p-3f,  0x1.b42a64p-5f,
                                   0x1.018bb2p-8f, 0x1.2a6440p-12f, 0x1.07987ep-19f};
inline constexpr float kErfQ[6] = {1.0f,           0x1.030af6p-1f,  0x1.da7836p-4f,
                                   0x1.f56748p-7f, 0x1.393a7ep-10f, 0x1.37e9e6p-15f};
// tanh(x) likewise (1 - tanh(9.03) is 2.9e-8).
inline constexpr float kTanhLimit = 0x1.211884p+3f;
inline constexpr float kTanhP[5] = {1.0f, 0x1.11fd10p-3f, 0x1.c9c198p-9f, 0x1.58e1b6p-16f, 0x1.c85a4ap-27f};
inline constexpr float kTanhQ[5] = {1.0f, 0x1.de53d2p-2f, 0x1.a7c522p-6f, 0x1.57fa20p-12f, 0x1.9fe612p-21f};

// What exporters write for sqrt(2), 0.044715 and sqrt(2 / pi).
inline constexpr float kSqrt2 = 1.41421354f;
inline constexpr float kQuickGelu = 1.702f;
inline constexpr float kGeluCubic = 0.044715f;
inline constexpr float kGeluScale = 0.797884583f;

}  // namespace octavo::quant::constants

#endif  // OCTAVO_QUANT_NUMERIC_MATH_CONSTANTS_H_
