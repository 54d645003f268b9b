// Reductions. Where the reduced axes are the last ones (each result is made from one contiguous row), float32 sums take
// quant::Sum16 and SumSquares16, as kernels do; everywhere else every result is accumulated sequentially in row-major
// order. 16-bit floats are widened to float32 first and rounded once.
#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/strided.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/quant/numeric/math.h"

namespace octavo::ir::interpret {

namespace {

struct Reduction {
  Tensor x;
  Shape shape;                   // of the result
  std::vector<int64_t> strides;  // of the result over x's dims, 0 where reduced
  int64_t count = 1;             // elements per result
  bool rows = false;             // the reduced axes are the last ones
  bool nothing = false;          // no axes and noop_with_empty_axes
};

Result<Reduction> Prepare(const Call& call) {
  Reduction r;
  r.x = call.T(0);
  const int64_t rank = r.x.rank();
  std::vector<int64_t> axes;
  if (call.Has(1)) {
    OCTAVO_TRY(axes, IntsOf(call.T(1), "the axes"));
    OCTAVO_TRY(axes, Axes(std::move(axes), rank));
  }
  if (axes.empty()) {
    r.nothing = call.Int("noop_with_empty_axes", 0) != 0;
    for (int64_t i = 0; i < rank && !r.nothing; ++i) axes.push_back(i);
  }
  const bool keep = call.Int("keepdims", 1) != 0;
  Shape full = r.x.shape();
  for (int64_t a : axes) {
    r.count *= full[static_cast<size_t>(a)];
    full[static_cast<size_t>(a)] = 1;
  }
  r.strides = StridesOf(full);
  for (int64_t a : axes) r.strides[static_cast<size_t>(a)] = 0;
  r.rows = !axes.empty() && axes.front() == rank - static_cast<int64_t>(axes.size());
  for (int64_t i = 0; i < rank; ++i) {
    if (keep || !std::binary_search(axes.begin(), axes.end(), i)) r.shape.push_back(full[static_cast<size_t>(i)]);
  }
  return r;
}

// acc[result] = f(acc[result], x) in row-major order of x.
template <typename T, typename F>
void Accumulate(const Reduction& r, const T* x, T* acc, F f) {
  const auto space = MakeSpace<2>(r.x.shape(), {StridesOf(r.x.shape()), r.strides});
  const int64_t n = space.dims.back();
  const int64_t step = space.strides.back()[1];
  ForEachRow(space, [&](const std::array<int64_t, 2>& at) {
    const T* row = x + at[0];
    T* out = acc + at[1];
    if (step == 0) {
      T v = *out;
      for (int64_t i = 0; i < n; ++i) v = f(v, row[i]);
      *out = v;
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = f(out[i], row[i]);
    }
  });
}

// Integer sums wrap: they are computed in the unsigned type of the same width.
template <typename T>
T WrapAdd(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a + b;
  } else {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
}
template <typename T>
T WrapMul(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a * b;
  } else {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
}

enum class Kind { kSum, kMean, kL1, kL2, kLogSum, kSumSquare, kProd, kMax, kMin };

template <typename T>
T Start(Kind kind) {
  using Limits = std::numeric_limits<T>;
  switch (kind) {
    case Kind::kProd:
      return T(1);
    case Kind::kMax:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    case Kind::kMin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    default:
      return T(0);
  }
}

// The float32 row sums whose order kernels share. False: not one of them.
bool SumRows(Kind kind, const Reduction& r, const float* x, float* y, int64_t results) {
  if (!r.rows) return false;
  const bool sum = kind == Kind::kSum || kind == Kind::kMean || kind == Kind::kLogSum;
  if (!sum && kind != Kind::kL2 && kind != Kind::kSumSquare) return false;
  for (int64_t i = 0; i < results; ++i) {
    const float* row = x + i * r.count;
    y[i] = sum ? quant::Sum16(row, r.count) : quant::SumSquares16(row, r.count);
  }
  return true;
}

template <typename T>
void AccumulateKind(Kind kind, const Reduction& r, const T* x, T* y) {
  switch (kind) {
    case Kind::kSum:
    case Kind::kMean:
    case Kind::kLogSum:
      return Accumulate(r, x, y, [](T a, T b) { return WrapAdd(a, b); });
    case Kind::kL1:
      return Accumulate(r, x, y, [](T a, T b) { return WrapAdd(a, b < T(0) ? WrapMul(b, static_cast<T>(-1)) : b); });
    case Kind::kL2:
    case Kind::kSumSquare:
      return Accumulate(r, x, y, [](T a, T b) { return WrapAdd(a, WrapMul(b, b)); });
    case Kind::kProd:
      return Accumulate(r, x, y, [](T a, T b) { return WrapMul(a, b); });
    case Kind::kMax:
      return Accumulate(r, x, y, [](T a, T b) { return a > b || a != a ? a : b; });
    case Kind::kMin:
      return Accumulate(r, x, y, [](T a, T b) { return a < b || a != a ? a : b; });
  }
}

template <typename T>
void Finish(Kind kind, int64_t count, T* y, int64_t results) {
  const auto apply = [&](auto f) {
    for (int64_t i = 0; i < results; ++i) y[i] = static_cast<T>(f(y[i]));
  };
  if constexpr (std::is_floating_point_v<T>) {
    if (kind == Kind::kMean) apply([n = static_cast<T>(count)](T v) { return v / n; });
    if (kind == Kind::kL2) apply([](T v) { return std::sqrt(v); });
    if (kind == Kind::kLogSum) apply([](T v) { return std::log(v); });
  }
}

template <typename T>
Status ReduceAs(Kind kind, const Reduction& r, Tensor& y) {
  const T* x = Ptr<T>(r.x);
  T* out = MutablePtr<T>(y);
  const int64_t n = y.size();
  if constexpr (std::is_same_v<T, float>) {
    if (SumRows(kind, r, x, out, n)) {
      Finish(kind, r.count, out, n);
      return {};
    }
  }
  std::fill_n(out, n, Start<T>(kind));
  AccumulateKind(kind, r, x, out);
  Finish(kind, r.count, out, n);
  return {};
}

template <Kind kind>
Status Reduce(Call& call) {
  OCTAVO_TRY(Reduction r, Prepare(call));
  if (r.nothing) {  // the operand as it is, whatever the op would do to single elements
    call.Return(r.x);
    return {};
  }
  const DType original = r.x.dtype();
  const bool half = original == DType::kF16 || original == DType::kBF16;
  const bool extreme = kind == Kind::kMax || kind == Kind::kMin;
  if (half) {
    OCTAVO_TRY(r.x, CastTo(r.x, DType::kF32));
  }
  if ((kind == Kind::kL2 || kind == Kind::kLogSum || kind == Kind::kMean) && quant::IsInteger(original)) {
    if (kind == Kind::kMean && r.count == 0) return Fail("the mean of no integers is not a number");
    OCTAVO_TRY(r.x, CastTo(r.x, DType::kF64));  // as NumPy: in double, truncated at the end
  }
  OCTAVO_TRY(Tensor y, Alloc(r.x.dtype(), r.shape));
  if (original == DType::kBool) {
    if (!extreme) return BadType(original);
    OCTAVO_TRY_STATUS(ReduceAs<uint8_t>(kind, r, y));
    for (uint8_t& v : y.mutable_as<uint8_t>()) v = v != 0;
  } else {
    OCTAVO_TRY_STATUS(ForNumbers(r.x.dtype(), [&]<typename T>() -> Status {
      if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
        return BadType(original);
      } else {
        return ReduceAs<T>(kind, r, y);
      }
    }));
  }
  OCTAVO_TRY(y, CastTo(y, original));
  call.Return(std::move(y));
  return {};
}

// m + log(sum(exp(x - m))), m the maximum (0 where it is infinite, so that infinities come out as they should).
template <typename T>
void LogSumExpAs(const Reduction& r, Tensor& y, Tensor& maximum) {
  const T* x = Ptr<T>(r.x);
  T* sum = MutablePtr<T>(y);
  T* top = MutablePtr<T>(maximum);
  const int64_t n = y.size();
  std::fill_n(top, n, Start<T>(Kind::kMax));
  AccumulateKind(Kind::kMax, r, x, top);
  for (int64_t i = 0; i < n; ++i) top[i] = std::isfinite(top[i]) ? top[i] : T(0);
  std::fill_n(sum, n, T(0));
  const auto space = MakeSpace<2>(r.x.shape(), {StridesOf(r.x.shape()), r.strides});
  const int64_t step = space.strides.back()[1];
  ForEachRow(space, [&](const std::array<int64_t, 2>& at) {
    for (int64_t i = 0; i < space.dims.back(); ++i) {
      const int64_t o = at[1] + i * step;
      const T d = x[at[0] + i] - top[o];
      if constexpr (std::is_same_v<T, float>) {
        sum[o] += quant::Exp(d);
      } else {
        sum[o] += std::exp(d);
      }
    }
  });
  for (int64_t i = 0; i < n; ++i) sum[i] = top[i] + std::log(sum[i]);
}

Status LogSumExp(Call& call) {
  OCTAVO_TRY(Reduction r, Prepare(call));
  if (r.nothing) {  // the operand as it is, whatever the op would do to single elements
    call.Return(r.x);
    return {};
  }
  const DType original = r.x.dtype();
  if (!quant::IsFloat(original) && !quant::IsInteger(original)) return BadType(original);
  const DType mid = original == DType::kF16 || original == DType::kBF16 ? DType::kF32 : original;
  OCTAVO_TRY(r.x, CastTo(r.x, mid == DType::kF32 ? DType::kF32 : DType::kF64));
  OCTAVO_TRY(Tensor y, Alloc(r.x.dtype(), r.shape));
  OCTAVO_TRY(Tensor maximum, Alloc(r.x.dtype(), r.shape));
  if (r.x.dtype() == DType::kF32) {
    LogSumExpAs<float>(r, y, maximum);
  } else {
    LogSumExpAs<double>(r, y, maximum);
  }
  OCTAVO_TRY(y, CastTo(y, original));
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterReduce(Table& t) {
  t.Set(Op::kReduceL1, Reduce<Kind::kL1>);
  t.Set(Op::kReduceL2, Reduce<Kind::kL2>);
  t.Set(Op::kReduceLogSum, Reduce<Kind::kLogSum>);
  t.Set(Op::kReduceLogSumExp, LogSumExp);
  t.Set(Op::kReduceMax, Reduce<Kind::kMax>);
  t.Set(Op::kReduceMean, Reduce<Kind::kMean>);
  t.Set(Op::kReduceMin, Reduce<Kind::kMin>);
  t.Set(Op::kReduceProd, Reduce<Kind::kProd>);
  t.Set(Op::kReduceSum, Reduce<Kind::kSum>);
  t.Set(Op::kReduceSumSquare, Reduce<Kind::kSumSquare>);
}

}  // namespace octavo::ir::interpret
