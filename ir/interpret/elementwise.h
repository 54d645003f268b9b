// Two operands with broadcasting: the loop that every binary op shares.
#ifndef OCTAVO_IR_INTERPRET_ELEMENTWISE_H_
#define OCTAVO_IR_INTERPRET_ELEMENTWISE_H_

#include <cmath>

#include "octavo/ir/interpret/strided.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/quant/numeric/math.h"

namespace octavo::ir::interpret {

inline float Sigmoid(float x) { return quant::Sigmoid(x); }
inline double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// y[i] = f(a[i*sa], b[i*sb]); the strides are 0 or 1 almost always, and those loops vectorize.
template <typename T, typename R, typename F>
void BinaryRow(const T* a, int64_t sa, const T* b, int64_t sb, R* y, int64_t n, F f) {
  if (sa == 1 && sb == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = Down<R>(f(Up(a[i]), Up(b[i])));
  } else if (sa == 1 && sb == 0) {
    const auto right = Up(*b);
    for (int64_t i = 0; i < n; ++i) y[i] = Down<R>(f(Up(a[i]), right));
  } else if (sa == 0 && sb == 1) {
    const auto left = Up(*a);
    for (int64_t i = 0; i < n; ++i) y[i] = Down<R>(f(left, Up(b[i])));
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = Down<R>(f(Up(a[i * sa]), Up(b[i * sb])));
  }
}

// `space` has the strides of a, b and y.
template <typename T, typename R, typename F>
void BinaryLoop(const Space<3>& space, const Tensor& a, const Tensor& b, Tensor& y, F f) {
  const T* left = Ptr<T>(a);
  const T* right = Ptr<T>(b);
  R* out = MutablePtr<R>(y);
  const auto step = space.strides.back();
  ForEachRow(space, [&](const std::array<int64_t, 3>& at) {
    BinaryRow<T, R>(left + at[0], step[0], right + at[1], step[1], out + at[2], space.dims.back(), f);
  });
}

struct Pair {
  Space<3> space;
  Tensor y;
};
// The broadcast of two operands and the tensor of dtype `out` for the result.
Result<Pair> MakePair(const Tensor& a, const Tensor& b, DType out);

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_ELEMENTWISE_H_
