// Element-wise ops of one operand. float32 takes its transcendental functions from quant/numeric/math.h where there is
// one (so that kernels can have the same bits), double from <cmath>; 16-bit floats are computed in float.
#include <cmath>
#include <numbers>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/elementwise.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/quant/numeric/math.h"

namespace octavo::ir::interpret {

namespace {

inline float Exp(float x) { return quant::Exp(x); }
inline double Exp(double x) { return std::exp(x); }
inline float Tanh(float x) { return quant::Tanh(x); }
inline double Tanh(double x) { return std::tanh(x); }
inline float Erf(float x) { return quant::Erf(x); }
inline double Erf(double x) { return std::erf(x); }
// log(1 + e^x) without overflow
template <typename C>
C Softplus(C x) {
  return (x > C(0) ? x : C(0)) + std::log1p(Exp(-std::fabs(x)));
}
// NaN: 1, as fmin and fmax have it.
template <typename C>
C Within01(C x) {
  const C least = x < C(1) ? x : C(1);
  return least > C(0) ? least : C(0);
}

template <typename T, typename F>
void Map(const Tensor& x, Tensor& y, F f) {
  const T* in = Ptr<T>(x);
  T* out = MutablePtr<T>(y);
  const int64_t n = x.size();
  for (int64_t i = 0; i < n; ++i) out[i] = Down<T>(static_cast<Compute<T>>(f(Up(in[i]))));
}

// F is made from the call (attributes) or has no state.
template <typename F>
F Make(const Call& call) {
  if constexpr (std::is_constructible_v<F, const Call&>) {
    return F(call);
  } else {
    return F{};
  }
}

template <typename F>
Status Floats(Call& call) {
  const Tensor& x = call.T(0);
  Tensor y = Tensor::Empty(x.dtype(), x.shape());
  const F f = Make<F>(call);
  OCTAVO_TRY_STATUS(ForFloats(x.dtype(), [&]<typename T>() -> Status {
    Map<T>(x, y, f);
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

template <typename F>
Status Numbers(Call& call) {
  const Tensor& x = call.T(0);
  Tensor y = Tensor::Empty(x.dtype(), x.shape());
  const F f = Make<F>(call);
  OCTAVO_TRY_STATUS(ForNumbers(x.dtype(), [&]<typename T>() -> Status {
    Map<T>(x, y, f);
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

#define OCTAVO_STATELESS(Name, expression) \
  struct Name {                            \
    template <typename C>                  \
    C operator()(C x) const {              \
      return static_cast<C>(expression);   \
    }                                      \
  };
OCTAVO_STATELESS(AcosF, std::acos(x))
OCTAVO_STATELESS(AcoshF, std::acosh(x))
OCTAVO_STATELESS(AsinF, std::asin(x))
OCTAVO_STATELESS(AsinhF, std::asinh(x))
OCTAVO_STATELESS(AtanF, std::atan(x))
OCTAVO_STATELESS(AtanhF, std::atanh(x))
OCTAVO_STATELESS(CeilF, std::ceil(x))
OCTAVO_STATELESS(CosF, std::cos(x))
OCTAVO_STATELESS(CoshF, std::cosh(x))
OCTAVO_STATELESS(ErfF, Erf(x))
OCTAVO_STATELESS(ExpF, Exp(x))
OCTAVO_STATELESS(FloorF, std::floor(x))
OCTAVO_STATELESS(HardSwishF, x* Within01(x* static_cast<C>(1.0 / 6) + C(0.5)))
OCTAVO_STATELESS(LogF, std::log(x))
OCTAVO_STATELESS(MishF, x* Tanh(Softplus(x)))
OCTAVO_STATELESS(ReciprocalF, C(1) / x)
OCTAVO_STATELESS(RoundF, std::nearbyint(x))
OCTAVO_STATELESS(SigmoidF, Sigmoid(x))
OCTAVO_STATELESS(SinF, std::sin(x))
OCTAVO_STATELESS(SinhF, std::sinh(x))
OCTAVO_STATELESS(SoftplusF, Softplus(x))
OCTAVO_STATELESS(SoftsignF, x / (C(1) + std::fabs(x)))
OCTAVO_STATELESS(SqrtF, std::sqrt(x))
OCTAVO_STATELESS(TanF, std::tan(x))
OCTAVO_STATELESS(TanhF, Tanh(x))
OCTAVO_STATELESS(ReluF, x < C(0) ? C(0) : x)  // NaN stays
OCTAVO_STATELESS(SignF, x > C(0) ? C(1) : (x < C(0) ? C(-1) : x))
#undef OCTAVO_STATELESS

struct AbsF {
  template <typename C>
  C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>) {
      return std::fabs(x);
    } else {
      return x < C(0) ? static_cast<C>(std::make_unsigned_t<C>(0) - static_cast<std::make_unsigned_t<C>>(x)) : x;
    }
  }
};
struct NegF {
  template <typename C>
  C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>) {
      return -x;
    } else {
      return static_cast<C>(std::make_unsigned_t<C>(0) - static_cast<std::make_unsigned_t<C>>(x));  // wraps
    }
  }
};

// Functors with attributes. The attribute is a float; for double operands it is widened.
struct CeluF {
  explicit CeluF(const Call& c) : alpha(c.Float("alpha", 1.0f)) {}
  template <typename C>
  C operator()(C x) const {
    return x > C(0) ? x : (x == x ? C(alpha) * (Exp(x / C(alpha)) - C(1)) : x);
  }
  float alpha;
};
struct EluF {
  explicit EluF(const Call& c) : alpha(c.Float("alpha", 1.0f)) {}
  template <typename C>
  C operator()(C x) const {
    return x < C(0) ? C(alpha) * (Exp(x) - C(1)) : x;
  }
  float alpha;
};
struct SeluF {
  explicit SeluF(const Call& c) : alpha(c.Float("alpha", 1.67326319f)), gamma(c.Float("gamma", 1.05070102f)) {}
  template <typename C>
  C operator()(C x) const {
    return x <= C(0) ? C(gamma) * (C(alpha) * Exp(x) - C(alpha)) : C(gamma) * x;
  }
  float alpha, gamma;
};
struct HardSigmoidF {
  explicit HardSigmoidF(const Call& c) : alpha(c.Float("alpha", 0.2f)), beta(c.Float("beta", 0.5f)) {}
  template <typename C>
  C operator()(C x) const {
    return Within01(C(alpha) * x + C(beta));
  }
  float alpha, beta;
};
struct LeakyReluF {
  explicit LeakyReluF(const Call& c) : alpha(c.Float("alpha", 0.01f)) {}
  template <typename C>
  C operator()(C x) const {
    return x < C(0) ? C(alpha) * x : x;
  }
  float alpha;
};
struct SwishF {
  explicit SwishF(const Call& c) : alpha(c.Float("alpha", 1.0f)) {}
  template <typename C>
  C operator()(C x) const {
    return x * Sigmoid(C(alpha) * x);
  }
  float alpha;
};
struct ThresholdedReluF {
  explicit ThresholdedReluF(const Call& c) : alpha(c.Float("alpha", 1.0f)) {}
  template <typename C>
  C operator()(C x) const {
    return x > C(alpha) || x != x ? x : C(0);
  }
  float alpha;
};

struct ShrinkF {
  explicit ShrinkF(const Call& c) : lambda(c.Float("lambd", 0.5f)), bias(c.Float("bias", 0.0f)) {}
  template <typename C>
  C operator()(C x) const {
    const auto v = static_cast<double>(x);
    const double y = v < -lambda ? v + bias : v > lambda ? v - bias : 0.0;
    if constexpr (std::is_integral_v<C>) {  // within the type, so that the conversion is defined
      constexpr auto lowest = static_cast<double>(std::numeric_limits<C>::lowest());
      constexpr auto highest = static_cast<double>(std::numeric_limits<C>::max());
      return y >= highest ? std::numeric_limits<C>::max()
             : y > lowest ? static_cast<C>(y)
                          : std::numeric_limits<C>::lowest();
    } else {
      return static_cast<C>(y);
    }
  }
  double lambda, bias;
};

struct GeluErfF {
  float operator()(float x) const { return quant::Gelu(x); }
  double operator()(double x) const { return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2)); }
};
struct GeluTanhF {
  float operator()(float x) const { return quant::GeluTanh(x); }
  double operator()(double x) const {
    return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
};

Status Gelu(Call& call) {
  const std::string form = call.node.attrs.Str("approximate", "none");
  if (form == "none") return Floats<GeluErfF>(call);
  if (form == "tanh") return Floats<GeluTanhF>(call);
  return Fail("approximate is '{}'; it must be 'none' or 'tanh'", form);
}

Status BitwiseNot(Call& call) {
  const Tensor& x = call.T(0);
  Tensor y = Tensor::Empty(x.dtype(), x.shape());
  OCTAVO_TRY_STATUS(ForInts(x.dtype(), [&]<typename T>() -> Status {
    Map<T>(x, y, [](T v) { return static_cast<T>(~v); });
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

Status Not(Call& call) {
  const Tensor& x = call.T(0);
  if (x.dtype() != DType::kBool) return BadType(x.dtype());
  Tensor y = Tensor::Empty(DType::kBool, x.shape());
  Map<uint8_t>(x, y, [](uint8_t v) { return static_cast<uint8_t>(v == 0); });
  call.Return(std::move(y));
  return {};
}

template <typename F>
Status Test(Call& call, F f) {
  Tensor x = call.T(0);
  if (quant::IsFloat(x.dtype()) && !quant::IsComputedFloat(x.dtype())) {
    OCTAVO_TRY(x, CastTo(x, DType::kF32));
  }
  Tensor y = Tensor::Empty(DType::kBool, x.shape());
  OCTAVO_TRY_STATUS(ForFloats(x.dtype(), [&]<typename T>() -> Status {
    const T* in = Ptr<T>(x);
    auto* out = MutablePtr<uint8_t>(y);
    const int64_t n = x.size();
    for (int64_t i = 0; i < n; ++i) out[i] = f(Up(in[i]));
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

Status IsNaN(Call& call) {
  return Test(call, [](auto v) { return static_cast<uint8_t>(v != v); });
}
Status IsInf(Call& call) {
  const bool up = call.Int("detect_positive", 1) != 0;
  const bool down = call.Int("detect_negative", 1) != 0;
  return Test(call, [=](auto v) { return static_cast<uint8_t>(std::isinf(v) && (v > 0 ? up : down)); });
}

}  // namespace

void RegisterUnary(Table& t) {
  t.Set(Op::kAbs, Numbers<AbsF>);
  t.Set(Op::kAcos, Floats<AcosF>);
  t.Set(Op::kAcosh, Floats<AcoshF>);
  t.Set(Op::kAsin, Floats<AsinF>);
  t.Set(Op::kAsinh, Floats<AsinhF>);
  t.Set(Op::kAtan, Floats<AtanF>);
  t.Set(Op::kAtanh, Floats<AtanhF>);
  t.Set(Op::kBitwiseNot, BitwiseNot);
  t.Set(Op::kCeil, Floats<CeilF>);
  t.Set(Op::kCelu, Floats<CeluF>);
  t.Set(Op::kCos, Floats<CosF>);
  t.Set(Op::kCosh, Floats<CoshF>);
  t.Set(Op::kElu, Floats<EluF>);
  t.Set(Op::kErf, Floats<ErfF>);
  t.Set(Op::kExp, Floats<ExpF>);
  t.Set(Op::kFloor, Floats<FloorF>);
  t.Set(Op::kGelu, Gelu);
  t.Set(Op::kHardSigmoid, Floats<HardSigmoidF>);
  t.Set(Op::kHardSwish, Floats<HardSwishF>);
  t.Set(Op::kIsInf, IsInf);
  t.Set(Op::kIsNaN, IsNaN);
  t.Set(Op::kLeakyRelu, Floats<LeakyReluF>);
  t.Set(Op::kLog, Floats<LogF>);
  t.Set(Op::kMish, Floats<MishF>);
  t.Set(Op::kNeg, Numbers<NegF>);
  t.Set(Op::kNot, Not);
  t.Set(Op::kReciprocal, Floats<ReciprocalF>);
  t.Set(Op::kRelu, Numbers<ReluF>);
  t.Set(Op::kRound, Floats<RoundF>);
  t.Set(Op::kSelu, Floats<SeluF>);
  t.Set(Op::kSigmoid, Floats<SigmoidF>);
  t.Set(Op::kSign, Numbers<SignF>);
  t.Set(Op::kSin, Floats<SinF>);
  t.Set(Op::kSinh, Floats<SinhF>);
  t.Set(Op::kSoftplus, Floats<SoftplusF>);
  t.Set(Op::kSoftsign, Floats<SoftsignF>);
  t.Set(Op::kSqrt, Floats<SqrtF>);
  t.Set(Op::kSwish, Floats<SwishF>);
  t.Set(Op::kTan, Floats<TanF>);
  t.Set(Op::kTanh, Floats<TanhF>);
  t.Set(Op::kShrink, Numbers<ShrinkF>);
  t.Set(Op::kThresholdedRelu, Floats<ThresholdedReluF>);
}

}  // namespace octavo::ir::interpret
