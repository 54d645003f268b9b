// Max, Min, Sum, Mean, Clip, Dropout.
#include <cmath>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/elementwise.h"

namespace octavo::ir::interpret {

namespace {

// NaN on either side wins, as in NumPy.
struct MaxF {
  template <typename C>
  C operator()(C a, C b) const {
    return a > b || a != a ? a : b;
  }
};
struct MinF {
  template <typename C>
  C operator()(C a, C b) const {
    return a < b || a != a ? a : b;
  }
};
struct SumF {
  template <typename C>
  C operator()(C a, C b) const {
    return a + b;
  }
};

// ((x0 f x1) f x2) ... in the type `mid` (Sum and Mean of 16-bit floats are rounded once, at the end).
template <typename F>
Result<Tensor> Fold(const Call& call, DType mid) {
  OCTAVO_TRY(Tensor acc, CastTo(call.T(0), mid));
  for (size_t i = 1; i < call.in.size(); ++i) {
    if (call.T(i).dtype() != call.T(0).dtype()) return Fail("the operands have different element types");
    OCTAVO_TRY(Tensor x, CastTo(call.T(i), mid));
    OCTAVO_TRY(Pair p, MakePair(acc, x, mid));
    OCTAVO_TRY_STATUS(ForNumbers(mid, [&]<typename T>() -> Status {
      BinaryLoop<T, T>(p.space, acc, x, p.y, F{});
      return {};
    }));
    acc = std::move(p.y);
  }
  return acc;
}

template <typename F>
Status Extreme(Call& call) {
  const DType t = call.T(0).dtype();
  if (!quant::IsInteger(t) && !quant::IsFloat(t)) return BadType(t);
  OCTAVO_TRY(Tensor y, Fold<F>(call, t));
  call.Return(std::move(y));
  return {};
}

DType SumType(DType t) { return t == DType::kF16 || t == DType::kBF16 ? DType::kF32 : t; }

Status Sum(Call& call) {
  const DType t = call.T(0).dtype();
  if (!quant::IsFloat(t)) return BadType(t);
  OCTAVO_TRY(Tensor sum, Fold<SumF>(call, SumType(t)));
  OCTAVO_TRY(Tensor y, CastTo(sum, t));
  call.Return(std::move(y));
  return {};
}

Status Mean(Call& call) {
  const DType t = call.T(0).dtype();
  if (!quant::IsFloat(t)) return BadType(t);
  OCTAVO_TRY(Tensor sum, Fold<SumF>(call, SumType(t)));
  Tensor mean = Tensor::Empty(sum.dtype(), sum.shape());
  OCTAVO_TRY_STATUS(ForFloats(sum.dtype(), [&]<typename T>() -> Status {
    const auto n = static_cast<Compute<T>>(call.in.size());
    for (int64_t i = 0; i < sum.size(); ++i) MutablePtr<T>(mean)[i] = Down<T>(Up(Ptr<T>(sum)[i]) / n);
    return {};
  }));
  OCTAVO_TRY(Tensor y, CastTo(mean, t));
  call.Return(std::move(y));
  return {};
}

Status Clip(Call& call) {
  const Tensor& x = call.T(0);
  for (size_t i = 1; i < 3; ++i) {
    if (call.Has(i) && (call.T(i).size() != 1 || call.T(i).dtype() != x.dtype())) {
      return Fail("bound {} must be one element of the operand's type, not {}", i, Describe(call.T(i)));
    }
  }
  Tensor y = Tensor::Empty(x.dtype(), x.shape());
  OCTAVO_TRY_STATUS(ForNumbers(x.dtype(), [&]<typename T>() -> Status {
    const T* in = Ptr<T>(x);
    T* out = MutablePtr<T>(y);
    const int64_t n = x.size();
    using C = Compute<T>;
    const bool has_lo = call.Has(1), has_hi = call.Has(2);
    const C lo = has_lo ? Up(Ptr<T>(call.T(1))[0]) : C(0);
    const C hi = has_hi ? Up(Ptr<T>(call.T(2))[0]) : C(0);
    for (int64_t i = 0; i < n; ++i) {  // NaN stays; hi wins over lo
      C v = Up(in[i]);
      if (has_lo) v = v < lo ? lo : v;
      if (has_hi) v = v > hi ? hi : v;
      out[i] = Down<T>(v);
    }
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

// Inference only: dropping at random has no meaning that two runs could agree on.
Status Dropout(Call& call) {
  const Tensor& x = call.T(0);
  if (call.Has(2) && (call.T(2).dtype() != DType::kBool || call.T(2).size() != 1)) {
    return Fail("training_mode must be one bool, not {}", Describe(call.T(2)));
  }
  const bool training = call.Has(2) && call.T(2).as<uint8_t>()[0] != 0;
  const double ratio = call.Has(1) && call.T(1).size() == 1 ? call.T(1).GetDouble(0) : 0.5;
  if (training && ratio != 0.0) return Fail("training mode drops at random; set training_mode to false");
  if (call.Wants(1)) {
    Tensor mask = Tensor::Empty(DType::kBool, x.shape());
    for (uint8_t& m : mask.mutable_as<uint8_t>()) m = 1;
    call.Return(std::move(mask), 1);
  }
  call.Return(x);
  return {};
}

}  // namespace

void RegisterVariadic(Table& t) {
  t.Set(Op::kMax, Extreme<MaxF>);
  t.Set(Op::kMin, Extreme<MinF>);
  t.Set(Op::kSum, Sum);
  t.Set(Op::kMean, Mean);
  t.Set(Op::kClip, Clip);
  t.Set(Op::kDropout, Dropout);
}

}  // namespace octavo::ir::interpret
