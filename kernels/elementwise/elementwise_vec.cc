#include "octavo/kernels/elementwise/elementwise_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/elementwise/elementwise_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/elementwise/activations-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = hn::MaxLanes(D());

// minps and maxps give the second operand where either is NaN.
HWY_INLINE V Within01(V x) {
  const D d;
  return hn::Max(hn::Min(x, hn::Set(d, 1.0f)), hn::Zero(d));
}

template <UnaryOp kOp>
HWY_INLINE V ApplyUnary(V x, V a, V b) {
  const D d;
  if constexpr (kOp == UnaryOp::kAbs) return hn::Abs(x);
  if constexpr (kOp == UnaryOp::kClip) return hn::Min(b, hn::Max(a, x));
  if constexpr (kOp == UnaryOp::kElu)
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(a, hn::Sub(Exp(d, x), hn::Set(d, 1.0f))), x);
  if constexpr (kOp == UnaryOp::kErf) return Erf(d, x);
  if constexpr (kOp == UnaryOp::kExp) return Exp(d, x);
  if constexpr (kOp == UnaryOp::kGelu) return Gelu(d, x);
  if constexpr (kOp == UnaryOp::kGeluTanh) return GeluTanh(d, x);
  if constexpr (kOp == UnaryOp::kHardSigmoid) return Within01(hn::Add(hn::Mul(a, x), b));
  if constexpr (kOp == UnaryOp::kHardSwish)
    return hn::Mul(x, Within01(hn::Add(hn::Mul(x, hn::Set(d, 1.0f / 6)), hn::Set(d, 0.5f))));
  if constexpr (kOp == UnaryOp::kLeakyRelu) return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(a, x), x);
  if constexpr (kOp == UnaryOp::kNeg) return hn::Neg(x);
  if constexpr (kOp == UnaryOp::kReciprocal) return hn::Div(hn::Set(d, 1.0f), x);
  if constexpr (kOp == UnaryOp::kRelu) return Relu(d, x);
  if constexpr (kOp == UnaryOp::kSigmoid) return Sigmoid(d, x);
  if constexpr (kOp == UnaryOp::kSilu) return Silu(d, x);
  if constexpr (kOp == UnaryOp::kSqrt) return hn::Sqrt(x);
  if constexpr (kOp == UnaryOp::kTanh) return Tanh(d, x);
}

template <UnaryOp kOp>
void UnaryRow(const float* x, float* y, int64_t n, UnaryParams p) {
  const D d;
  const V a = hn::Set(d, p.a), b = hn::Set(d, p.b);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(ApplyUnary<kOp>(hn::LoadU(d, x + i), a, b), d, y + i);
  const auto rest = static_cast<size_t>(n - i);
  if (rest != 0) hn::StoreN(ApplyUnary<kOp>(hn::LoadN(d, x + i, rest), a, b), d, y + i, rest);
}

void UnaryVec(UnaryOp op, const float* x, float* y, int64_t n, UnaryParams p) {
  using Row = void(const float*, float*, int64_t, UnaryParams);
  constexpr Row* kRows[kUnaryOps] = {
      UnaryRow<UnaryOp::kAbs>,       UnaryRow<UnaryOp::kClip>,        UnaryRow<UnaryOp::kElu>,
      UnaryRow<UnaryOp::kErf>,       UnaryRow<UnaryOp::kExp>,         UnaryRow<UnaryOp::kGelu>,
      UnaryRow<UnaryOp::kGeluTanh>,  UnaryRow<UnaryOp::kHardSigmoid>, UnaryRow<UnaryOp::kHardSwish>,
      UnaryRow<UnaryOp::kLeakyRelu>, UnaryRow<UnaryOp::kNeg>,         UnaryRow<UnaryOp::kReciprocal>,
      UnaryRow<UnaryOp::kRelu>,      UnaryRow<UnaryOp::kSigmoid>,     UnaryRow<UnaryOp::kSilu>,
      UnaryRow<UnaryOp::kSqrt>,      UnaryRow<UnaryOp::kTanh>};
  kRows[static_cast<int>(op)](x, y, n, p);
}

template <BinaryOp kOp>
HWY_INLINE V ApplyBinary(V a, V b) {
  if constexpr (kOp == BinaryOp::kAdd) return hn::Add(a, b);
  if constexpr (kOp == BinaryOp::kDiv) return hn::Div(a, b);
  // maxps and minps give b where either is NaN.
  if constexpr (kOp == BinaryOp::kMax) return hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b));
  if constexpr (kOp == BinaryOp::kMin) return hn::IfThenElse(hn::IsNaN(a), a, hn::Min(a, b));
  if constexpr (kOp == BinaryOp::kMul) return hn::Mul(a, b);
  if constexpr (kOp == BinaryOp::kSub) return hn::Sub(a, b);
}

// kA, kB: the operand is a row; otherwise one number for the whole row.
template <BinaryOp kOp, bool kA, bool kB>
HWY_INLINE void BinaryRow(const float* a, const float* b, float* y, int64_t n) {
  const D d;
  const V a0 = hn::Set(d, n > 0 ? a[0] : 0.0f);
  const V b0 = hn::Set(d, n > 0 ? b[0] : 0.0f);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(ApplyBinary<kOp>(kA ? hn::LoadU(d, a + i) : a0, kB ? hn::LoadU(d, b + i) : b0), d, y + i);
  }
  const auto rest = static_cast<size_t>(n - i);
  if (rest == 0) return;
  hn::StoreN(ApplyBinary<kOp>(kA ? hn::LoadN(d, a + i, rest) : a0, kB ? hn::LoadN(d, b + i, rest) : b0), d, y + i,
             rest);
}

template <BinaryOp kOp>
void BinaryRows(const Operand& a, const Operand& b, float* y, int64_t y_row, int64_t begin, int64_t end, int64_t cols) {
  for (int64_t r = begin; r < end; ++r) {
    const float* pa = a.data + r * a.row;
    const float* pb = b.data + r * b.row;
    float* py = y + r * y_row;
    if (a.col != 0 && b.col != 0) {
      BinaryRow<kOp, true, true>(pa, pb, py, cols);
    } else if (a.col != 0) {
      BinaryRow<kOp, true, false>(pa, pb, py, cols);
    } else if (b.col != 0) {
      BinaryRow<kOp, false, true>(pa, pb, py, cols);
    } else {
      BinaryRow<kOp, false, false>(pa, pb, py, cols);
    }
  }
}

void BinaryVec(BinaryOp op, const Operand& a, const Operand& b, float* y, int64_t y_row, int64_t begin, int64_t end,
               int64_t cols) {
  constexpr decltype(&BinaryRows<BinaryOp::kAdd>) kOps[kBinaryOps] = {
      BinaryRows<BinaryOp::kAdd>, BinaryRows<BinaryOp::kDiv>, BinaryRows<BinaryOp::kMax>,
      BinaryRows<BinaryOp::kMin>, BinaryRows<BinaryOp::kMul>, BinaryRows<BinaryOp::kSub>};
  kOps[static_cast<int>(op)](a, b, y, y_row, begin, end, cols);
}

#if HWY_TARGET <= HWY_AVX3_DL
// The table in four registers: two lookups of 128 bytes and a choice by the top bit.
void LookupVec(const uint8_t* x, const uint8_t* table, uint8_t* y, int64_t n) {
  const hn::Full512<uint8_t> d;
  const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
  const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
  const auto at = [&](hn::Vec512<uint8_t> v) HWY_ATTR {
    const __m512i low = _mm512_permutex2var_epi8(t0, v.raw, t1), high = _mm512_permutex2var_epi8(t2, v.raw, t3);
    return hn::Vec512<uint8_t>{_mm512_mask_mov_epi8(low, _mm512_movepi8_mask(v.raw), high)};
  };
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) hn::StoreU(at(hn::LoadU(d, x + i)), d, y + i);
  const auto rest = static_cast<size_t>(n - i);
  if (rest != 0) hn::StoreN(at(hn::LoadN(d, x + i, rest)), d, y + i, rest);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/forms.h"

namespace octavo::kernels {
namespace {

constexpr PerArch<decltype(internal::UnaryReference)> kUnary = {&internal::UnaryReference, &N_AVX2::UnaryVec,
                                                                &N_AVX3::UnaryVec, &N_AVX3_DL::UnaryVec};
constexpr PerArch<decltype(internal::BinaryReference)> kBinary = {&internal::BinaryReference, &N_AVX2::BinaryVec,
                                                                  &N_AVX3::BinaryVec, &N_AVX3_DL::BinaryVec};

// Two loads a byte: 16 lookups of 16 bytes would not be faster.
constexpr PerArch<decltype(internal::LookupReference)> kLookup = {
    &internal::LookupReference, &internal::LookupReference, &internal::LookupReference, &N_AVX3_DL::LookupVec};

}  // namespace

void Lookup(Arch arch, const uint8_t* x, const uint8_t (&table)[256], uint8_t* y, int64_t n) {
  kLookup[arch](x, table, y, n);
}

void Unary(Arch arch, UnaryOp op, const float* x, float* y, int64_t n, UnaryParams p) { kUnary[arch](op, x, y, n, p); }

void Binary(Arch arch, BinaryOp op, const Operand& a, const Operand& b, float* y, int64_t y_row, int64_t begin,
            int64_t end, int64_t cols) {
  kBinary[arch](op, a, b, y, y_row, begin, end, cols);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
