// ArgMax, ArgMin, TopK, CumSum, CumProd: ops that walk one axis.
#include <algorithm>
#include <array>
#include <numeric>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

namespace {

// A tensor seen as [outer, n, inner].
struct Lines {
  int64_t outer = 1, n = 1, inner = 1;
};
Lines LinesOf(const Shape& shape, int64_t axis) {
  const auto a = static_cast<size_t>(axis);
  return {Count(shape, 0, a), shape[a], Count(shape, a + 1, shape.size())};
}

// Strictly before in the order wanted; NaN comes before everything, as NumPy's argmax and argmin have it.
template <bool kLargest, typename C>
bool Beats(C a, C b) {
  if (a != a || b != b) return a != a && b == b;
  return kLargest ? a > b : a < b;
}

template <bool kLargest, typename T>
void ArgLines(const Lines& l, const T* x, int64_t* y, bool last) {
  for (int64_t o = 0; o < l.outer; ++o) {
    for (int64_t i = 0; i < l.inner; ++i) {
      const T* line = x + o * l.n * l.inner + i;
      int64_t best = 0;
      for (int64_t k = 1; k < l.n; ++k) {
        const auto a = Up(line[k * l.inner]), b = Up(line[best * l.inner]);
        if (Beats<kLargest>(a, b) || (last && !Beats<kLargest>(b, a))) best = k;
      }
      y[o * l.inner + i] = best;
    }
  }
}

template <bool kLargest>
Status Arg(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", 0), x.rank()));
  const Lines l = LinesOf(x.shape(), axis);
  Shape shape = x.shape();
  if (call.Int("keepdims", 1) != 0) {
    shape[static_cast<size_t>(axis)] = 1;
  } else {
    shape.erase(shape.begin() + axis);
  }
  if (l.n == 0 && l.outer * l.inner > 0) return Fail("axis {} is empty", axis);
  const bool last = call.Int("select_last_index", 0) != 0;
  Tensor y = Tensor::Empty(DType::kS64, std::move(shape));
  OCTAVO_TRY_STATUS(ForNumbers(x.dtype(), [&]<typename T>() -> Status {
    ArgLines<kLargest>(l, Ptr<T>(x), MutablePtr<int64_t>(y), last);
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

template <typename T>
void TopLines(const Lines& l, int64_t k, bool largest, const Tensor& x, Tensor& values, Tensor& indices) {
  const T* in = Ptr<T>(x);
  T* out = MutablePtr<T>(values);
  auto* at = MutablePtr<int64_t>(indices);
  std::vector<int64_t> order(static_cast<size_t>(l.n));
  for (int64_t o = 0; o < l.outer; ++o) {
    for (int64_t i = 0; i < l.inner; ++i) {
      const T* line = in + o * l.n * l.inner + i;
      std::iota(order.begin(), order.end(), 0);
      // Equal elements: the lower index first. Always sorted, which "sorted = 0" allows too.
      std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t a, int64_t b) {
        const auto p = Up(line[a * l.inner]), q = Up(line[b * l.inner]);
        if (largest ? Beats<true>(p, q) : Beats<false>(p, q)) return true;
        if (largest ? Beats<true>(q, p) : Beats<false>(q, p)) return false;
        return a < b;
      });
      for (int64_t j = 0; j < k; ++j) {
        out[(o * k + j) * l.inner + i] = line[order[static_cast<size_t>(j)] * l.inner];
        at[(o * k + j) * l.inner + i] = order[static_cast<size_t>(j)];
      }
    }
  }
}

Status TopK(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", -1), x.rank()));
  OCTAVO_TRY(const int64_t k, IntOf(call.T(1), "k"));
  const Lines l = LinesOf(x.shape(), axis);
  if (k < 0 || k > l.n) return Fail("{} elements are wanted of an axis of size {}", k, l.n);
  Shape shape = x.shape();
  shape[static_cast<size_t>(axis)] = k;
  Tensor values = Tensor::Empty(x.dtype(), shape);
  Tensor indices = Tensor::Empty(DType::kS64, shape);
  OCTAVO_TRY_STATUS(ForNumbers(x.dtype(), [&]<typename T>() -> Status {
    TopLines<T>(l, k, call.Int("largest", 1) != 0, x, values, indices);
    return {};
  }));
  call.Return(std::move(values), 0);
  call.Return(std::move(indices), 1);
  return {};
}

// kSums lines go side by side: where they lie so, one by itself would read a cache line for each element.
template <typename T, bool kProduct, int64_t kSums>
void AccumulateLines(const Lines& l, const T* x, T* y, bool exclusive, bool reverse) {
  using C = std::conditional_t<kIsFloat<T>, Compute<T>, uint64_t>;  // integers wrap
  for (int64_t o = 0; o < l.outer; ++o) {
    for (int64_t i = 0; i < l.inner; i += kSums) {
      const int64_t lines = std::min(kSums, l.inner - i);
      std::array<C, kSums> sums;
      sums.fill(C(kProduct ? 1 : 0));
      for (int64_t j = 0; j < l.n; ++j) {
        const int64_t at = (o * l.n + (reverse ? l.n - 1 - j : j)) * l.inner + i;
        for (int64_t s = 0; s < lines; ++s) {
          C& sum = sums[static_cast<size_t>(s)];
          const C v = static_cast<C>(Up(x[at + s])), next = kProduct ? sum * v : sum + v;
          y[at + s] = Down<T>(static_cast<Compute<T>>(exclusive ? sum : next));
          sum = next;
        }
      }
    }
  }
}

template <bool kProduct>
Status Accumulate(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(int64_t axis, IntOf(call.T(1), "the axis"));
  OCTAVO_TRY(axis, Axis(axis, x.rank()));
  const bool exclusive = call.Int("exclusive", 0) != 0, reverse = call.Int("reverse", 0) != 0;
  Tensor y = Tensor::Empty(x.dtype(), x.shape());
  OCTAVO_TRY_STATUS(ForNumbers(x.dtype(), [&]<typename T>() -> Status {
    const Lines l = LinesOf(x.shape(), axis);
    const auto accumulate = l.inner < 8 ? AccumulateLines<T, kProduct, 1> : AccumulateLines<T, kProduct, 64>;
    accumulate(l, Ptr<T>(x), MutablePtr<T>(y), exclusive, reverse);
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterArg(Table& t) {
  t.Set(Op::kArgMax, Arg<true>);
  t.Set(Op::kArgMin, Arg<false>);
  t.Set(Op::kTopK, TopK);
  t.Set(Op::kCumSum, Accumulate<false>);
  t.Set(Op::kCumProd, Accumulate<true>);
}

}  // namespace octavo::ir::interpret
