// Arithmetic of two operands. Integers are exact: they wrap on overflow, Div truncates toward zero, Mod has the
// divisor's sign (Python) unless fmod says C, Pow is exact, x ** negative is what truncating the real number gives.
#include <algorithm>
#include <cmath>
#include <functional>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/elementwise.h"

namespace octavo::ir::interpret {

Result<Pair> MakePair(const Tensor& a, const Tensor& b, DType out) {
  OCTAVO_TRY(Shape shape, BroadcastShapes(a.shape(), b.shape()));
  OCTAVO_TRY(Tensor y, Alloc(out, shape));
  return Pair{
      MakeSpace<3>(shape, {BroadcastStrides(a.shape(), shape), BroadcastStrides(b.shape(), shape), StridesOf(shape)}),
      std::move(y)};
}

namespace {

// Integer arithmetic in the unsigned type of at least 32 bits: wraps without undefined behaviour.
template <typename C>
using Wrap = std::conditional_t<sizeof(C) == 8, uint64_t, uint32_t>;

#define OCTAVO_ARITHMETIC(Name, op)                                                \
  struct Name {                                                                    \
    template <typename C>                                                          \
    C operator()(C a, C b) const {                                                 \
      if constexpr (std::is_floating_point_v<C>) {                                 \
        return a op b;                                                             \
      } else {                                                                     \
        return static_cast<C>(static_cast<Wrap<C>>(a) op static_cast<Wrap<C>>(b)); \
      }                                                                            \
    }                                                                              \
  };
OCTAVO_ARITHMETIC(AddF, +)
OCTAVO_ARITHMETIC(SubF, -)
OCTAVO_ARITHMETIC(MulF, *)
#undef OCTAVO_ARITHMETIC

Status SameTypes(const Call& call) {
  if (call.T(0).dtype() == call.T(1).dtype()) return {};
  return Fail("the operands have different element types; cast one of them");
}

template <typename F>
Status Arithmetic(Call& call) {
  OCTAVO_TRY_STATUS(SameTypes(call));
  const Tensor &a = call.T(0), &b = call.T(1);
  OCTAVO_TRY(Pair p, MakePair(a, b, a.dtype()));
  OCTAVO_TRY_STATUS(ForNumbers(a.dtype(), [&]<typename T>() -> Status {
    BinaryLoop<T, T>(p.space, a, b, p.y, F{});
    return {};
  }));
  call.Return(std::move(p.y));
  return {};
}

// -1: the smallest integer divided by -1 overflows; 0 - a wraps instead.
template <typename C>
C DivInt(C a, C b) {
  if constexpr (std::is_signed_v<C>) {
    if (b == -1) return static_cast<C>(Wrap<C>(0) - static_cast<Wrap<C>>(a));
  }
  return static_cast<C>(a / b);
}
template <typename C>
C RemInt(C a, C b) {
  if constexpr (std::is_signed_v<C>) {
    if (b == -1) return 0;
  }
  return static_cast<C>(a % b);
}
template <typename C>
C FloorModInt(C a, C b) {
  const C r = RemInt(a, b);
  if constexpr (std::is_signed_v<C>) {
    if (r != 0 && (r < 0) != (b < 0)) return static_cast<C>(r + b);
  }
  return r;
}

template <typename T>
Status NoZero(const Tensor& b, int64_t results) {
  const T* v = Ptr<T>(b);
  if (results == 0 || std::find(v, v + b.size(), T(0)) == v + b.size()) return {};
  return Fail("an integer is divided by zero");
}

Status Div(Call& call) {
  OCTAVO_TRY_STATUS(SameTypes(call));
  const Tensor &a = call.T(0), &b = call.T(1);
  OCTAVO_TRY(Pair p, MakePair(a, b, a.dtype()));
  OCTAVO_TRY_STATUS(ForNumbers(a.dtype(), [&]<typename T>() -> Status {
    if constexpr (kIsFloat<T>) {
      BinaryLoop<T, T>(p.space, a, b, p.y, [](auto x, auto y) { return x / y; });
    } else {
      OCTAVO_TRY_STATUS(NoZero<T>(b, p.y.size()));
      BinaryLoop<T, T>(p.space, a, b, p.y, DivInt<T>);
    }
    return {};
  }));
  call.Return(std::move(p.y));
  return {};
}

template <typename C>
C FloorMod(C x, C y) {
  const C r = std::fmod(x, y);
  return r != C(0) && (r < C(0)) != (y < C(0)) ? r + y : r;
}

Status Mod(Call& call) {
  OCTAVO_TRY_STATUS(SameTypes(call));
  const Tensor &a = call.T(0), &b = call.T(1);
  const bool c_form = call.Int("fmod", 0) != 0;
  OCTAVO_TRY(Pair p, MakePair(a, b, a.dtype()));
  OCTAVO_TRY_STATUS(ForNumbers(a.dtype(), [&]<typename T>() -> Status {
    if constexpr (kIsFloat<T>) {
      BinaryLoop<T, T>(p.space, a, b, p.y, [=](auto x, auto y) { return c_form ? std::fmod(x, y) : FloorMod(x, y); });
    } else {
      OCTAVO_TRY_STATUS(NoZero<T>(b, p.y.size()));
      BinaryLoop<T, T>(p.space, a, b, p.y, [=](T x, T y) { return c_form ? RemInt(x, y) : FloorModInt(x, y); });
    }
    return {};
  }));
  call.Return(std::move(p.y));
  return {};
}

// Exact modulo 2^64, so that narrowing to any integer type wraps as repeated multiplication would.
uint64_t PowInt(uint64_t base, uint64_t exponent) {
  uint64_t r = 1;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) r *= base;
    base *= base;
  }
  return r;
}

template <typename T>
Status PowIntegers(const Pair& p, const Tensor& a, const Tensor& b64, Tensor& y) {
  const T* x = Ptr<T>(a);
  const int64_t* e = Ptr<int64_t>(b64);
  T* out = MutablePtr<T>(y);
  const auto step = p.space.strides.back();
  bool by_zero = false;
  ForEachRow(p.space, [&](const std::array<int64_t, 3>& at) {
    for (int64_t i = 0; i < p.space.dims.back(); ++i) {
      const T base = x[at[0] + i * step[0]];
      const int64_t exponent = e[at[1] + i * step[1]];
      if (exponent < 0) {
        by_zero |= base == T(0);
        const bool minus_one = std::is_signed_v<T> && base == static_cast<T>(-1);
        out[at[2] + i] = static_cast<T>(base == T(1) ? 1 : (minus_one ? ((exponent & 1) != 0 ? -1 : 1) : 0));
      } else {
        out[at[2] + i] = static_cast<T>(PowInt(static_cast<uint64_t>(base), static_cast<uint64_t>(exponent)));
      }
    }
  });
  if (by_zero) return Fail("zero is raised to a negative power");
  return {};
}

// The base's type is the result's. float32 and narrower are computed by the float pow (glibc's is correctly rounded for
// squares, so x ** 2 may be x * x); as soon as a double or a 64-bit integer takes part, in double.
Status PowFloats(Call& call, const Tensor& a, const Tensor& b) {
  const auto fits_float = [](DType t) { return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16; };
  const DType mid = fits_float(a.dtype()) && b.dtype() != DType::kF64 ? DType::kF32 : DType::kF64;
  OCTAVO_TRY(Tensor x, CastTo(a, mid));
  OCTAVO_TRY(Tensor e, CastTo(b, mid));
  OCTAVO_TRY(Pair p, MakePair(x, e, mid));
  const auto run = [&]<typename T>() -> Status {
    if (e.size() == 1 && Ptr<T>(e)[0] == T(2)) {
      BinaryLoop<T, T>(p.space, x, e, p.y, [](T v, T) { return v * v; });
    } else {
      BinaryLoop<T, T>(p.space, x, e, p.y, [](T v, T w) { return std::pow(v, w); });
    }
    return {};
  };
  OCTAVO_TRY_STATUS(mid == DType::kF32 ? run.operator()<float>() : run.operator()<double>());
  OCTAVO_TRY(Tensor y, CastTo(p.y, a.dtype()));
  call.Return(std::move(y));
  return {};
}

Status Pow(Call& call) {
  const Tensor &a = call.T(0), &b = call.T(1);
  const auto number = [](DType t) { return quant::IsInteger(t) || quant::IsComputedFloat(t); };
  if (!number(a.dtype())) return BadType(a.dtype());
  if (!number(b.dtype())) return BadType(b.dtype());
  if (quant::IsFloat(a.dtype()) || quant::IsFloat(b.dtype())) return PowFloats(call, a, b);
  OCTAVO_TRY(Tensor b64, CastTo(b, DType::kS64));
  OCTAVO_TRY(Pair p, MakePair(a, b64, a.dtype()));
  OCTAVO_TRY_STATUS(ForInts(a.dtype(), [&]<typename T>() -> Status { return PowIntegers<T>(p, a, b64, p.y); }));
  call.Return(std::move(p.y));
  return {};
}

Status BitShift(Call& call) {
  OCTAVO_TRY_STATUS(SameTypes(call));
  const Tensor &a = call.T(0), &b = call.T(1);
  const std::string direction = call.node.attrs.Str("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    return Fail("direction is '{}'; it must be LEFT or RIGHT", direction);
  const bool left = direction == "LEFT";
  OCTAVO_TRY(Pair p, MakePair(a, b, a.dtype()));
  OCTAVO_TRY_STATUS(ForInts(a.dtype(), [&]<typename T>() -> Status {
    // By all bits or more, or by less than none: what the sign fills in.
    BinaryLoop<T, T>(p.space, a, b, p.y, [=](T x, T s) {
      if (s < 0 || static_cast<uint64_t>(s) >= sizeof(T) * 8) return static_cast<T>(!left && x < 0 ? -1 : 0);
      return left ? static_cast<T>(static_cast<uint64_t>(x) << s) : static_cast<T>(x >> s);
    });
    return {};
  }));
  call.Return(std::move(p.y));
  return {};
}

template <typename F>
Status Bitwise(Call& call) {
  OCTAVO_TRY_STATUS(SameTypes(call));
  const Tensor &a = call.T(0), &b = call.T(1);
  if (!quant::IsInteger(a.dtype())) return BadType(a.dtype());
  OCTAVO_TRY(Pair p, MakePair(a, b, a.dtype()));
  OCTAVO_TRY_STATUS(ForSizes(a.dtype(), [&]<typename T>() -> Status {
    BinaryLoop<T, T>(p.space, a, b, p.y, [](T x, T y) { return static_cast<T>(F{}(x, y)); });
    return {};
  }));
  call.Return(std::move(p.y));
  return {};
}

// A * sigmoid(alpha * A) * B, without broadcasting.
Status SwiGlu(Call& call) {
  OCTAVO_TRY_STATUS(SameTypes(call));
  const Tensor &a = call.T(0), &b = call.T(1);
  if (a.shape() != b.shape()) return Fail("A and B must have equal shapes");
  const float alpha = call.Float("alpha", 1.0f);
  OCTAVO_TRY(Pair p, MakePair(a, b, a.dtype()));
  OCTAVO_TRY_STATUS(ForFloats(a.dtype(), [&]<typename T>() -> Status {
    using C = Compute<T>;
    BinaryLoop<T, T>(p.space, a, b, p.y, [=](C x, C y) { return x * Sigmoid(C(alpha) * x) * y; });
    return {};
  }));
  call.Return(std::move(p.y));
  return {};
}

Status PRelu(Call& call) {
  OCTAVO_TRY_STATUS(SameTypes(call));
  const Tensor &a = call.T(0), &b = call.T(1);
  OCTAVO_TRY(Pair p, MakePair(a, b, a.dtype()));
  if (p.y.shape() != a.shape()) return Fail("the slope does not broadcast to the first operand");
  OCTAVO_TRY_STATUS(ForNumbers(a.dtype(), [&]<typename T>() -> Status {
    BinaryLoop<T, T>(p.space, a, b, p.y, [](auto x, auto slope) { return x < 0 ? MulF{}(x, slope) : x; });
    return {};
  }));
  call.Return(std::move(p.y));
  return {};
}

}  // namespace

void RegisterBinary(Table& t) {
  t.Set(Op::kAdd, Arithmetic<AddF>);
  t.Set(Op::kSub, Arithmetic<SubF>);
  t.Set(Op::kMul, Arithmetic<MulF>);
  t.Set(Op::kDiv, Div);
  t.Set(Op::kMod, Mod);
  t.Set(Op::kPow, Pow);
  t.Set(Op::kBitShift, BitShift);
  t.Set(Op::kBitwiseAnd, Bitwise<std::bit_and<>>);
  t.Set(Op::kBitwiseOr, Bitwise<std::bit_or<>>);
  t.Set(Op::kBitwiseXor, Bitwise<std::bit_xor<>>);
  t.Set(Op::kPRelu, PRelu);
  t.Set(Op::kSwiGLU, SwiGlu);
}

}  // namespace octavo::ir::interpret
