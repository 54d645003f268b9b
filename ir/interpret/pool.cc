// AveragePool, MaxPool, GlobalAveragePool.
#include <limits>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/ir/interpret/window.h"
#include "octavo/quant/numeric/math.h"

namespace octavo::ir::interpret {

namespace {

Result<Window> WindowOf(const Call& call) {
  return MakeWindow(call, call.T(0).shape(), call.node.attrs.Ints("kernel_shape"), call.Int("ceil_mode", 0) != 0);
}

Shape ResultShape(const Shape& x, const Window& w) {
  Shape s = {x[0], x[1]};
  s.insert(s.end(), w.out.begin(), w.out.end());
  return s;
}

// Positions of the input that lie in each window, told once where many lines have the same windows: some ten times as fast as to walk them for each.
class Places {
 public:
  Places(const Window& w, int64_t lines) : walker_(w) {
    constexpr int64_t kMost = int64_t{1} << 22;
    if (lines < 4 || w.kernel_size == 0 || w.out_size > kMost / w.kernel_size) return;
    first_.reserve(static_cast<size_t>(w.out_size) + 1);
    for (int64_t o = 0; o < w.out_size; ++o) {
      first_.push_back(at_.size());
      walker_.ForInside(o, [&](int64_t, int64_t at) { at_.push_back(at); });
    }
    first_.push_back(at_.size());
  }

  template <typename F>
  void ForInside(int64_t o, F f) {
    if (first_.empty()) return walker_.ForInside(o, [&](int64_t, int64_t at) { f(at); });
    const auto window = static_cast<size_t>(o);
    for (size_t i = first_[window]; i < first_[window + 1]; ++i) f(at_[i]);
  }
  int64_t CountInPadded(int64_t o) { return walker_.CountInPadded(o); }

 private:
  WindowWalker walker_;
  std::vector<size_t> first_;  // of each window in at_, and the end; empty: walked
  std::vector<int64_t> at_;
};

Status AveragePool(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const Window w, WindowOf(call));
  OCTAVO_TRY(Tensor y, Alloc(x.dtype(), ResultShape(x.shape(), w)));
  const bool count_pads = call.Int("count_include_pad", 0) != 0;
  OCTAVO_TRY_STATUS(ForFloats(x.dtype(), [&]<typename T>() -> Status {
    using C = Compute<T>;
    const int64_t lines = x.shape()[0] * x.shape()[1];
    Places places(w, lines);
    for (int64_t line = 0; line < lines; ++line) {
      const T* in = Ptr<T>(x) + line * w.in_size;
      for (int64_t o = 0; o < w.out_size; ++o) {
        C sum = 0;
        int64_t count = 0;
        places.ForInside(o, [&](int64_t at) {
          sum += Up(in[at]);
          ++count;
        });
        if (count_pads) count = places.CountInPadded(o);
        MutablePtr<T>(y)[line * w.out_size + o] = Down<T>(count == 0 ? C(0) : sum / static_cast<C>(count));
      }
    }
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

// Flat position with the first spatial dim fastest (storage_order 1).
int64_t ColumnMajor(int64_t at, const std::vector<int64_t>& in) {
  int64_t flat = 0;
  std::vector<int64_t> index(in.size());
  for (size_t d = in.size(); d-- > 0;) {
    index[d] = at % in[d];
    at /= in[d];
  }
  for (size_t d = in.size(); d-- > 0;) flat = flat * in[d] + index[d];
  return flat;
}

Status MaxPool(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const Window w, WindowOf(call));
  OCTAVO_TRY(Tensor y, Alloc(x.dtype(), ResultShape(x.shape(), w)));
  Tensor indices = Tensor::Empty(DType::kS64, call.Wants(1) ? y.shape() : Shape{0});
  const bool columns = call.Int("storage_order", 0) != 0;
  OCTAVO_TRY_STATUS(ForNumbers(x.dtype(), [&]<typename T>() -> Status {
    using C = Compute<T>;
    const int64_t lines = x.shape()[0] * x.shape()[1];
    Places places(w, lines);
    for (int64_t line = 0; line < lines; ++line) {
      const T* in = Ptr<T>(x) + line * w.in_size;
      for (int64_t o = 0; o < w.out_size; ++o) {
        C best = std::numeric_limits<C>::has_infinity ? -std::numeric_limits<C>::infinity()
                                                      : std::numeric_limits<C>::lowest();
        int64_t where = -1;
        places.ForInside(o, [&](int64_t at) {
          const C v = Up(in[at]);
          if (where >= 0 && !(v > best || (v != v && best == best))) return;
          best = v;
          where = at;
        });
        MutablePtr<T>(y)[line * w.out_size + o] = Down<T>(best);
        if (!call.Wants(1)) continue;
        MutablePtr<int64_t>(indices)[line * w.out_size + o] =
            where < 0 ? -1 : line * w.in_size + (columns ? ColumnMajor(where, w.in) : where);
      }
    }
    return {};
  }));
  call.Return(std::move(y));
  if (call.Wants(1)) call.Return(std::move(indices), 1);
  return {};
}

Status GlobalAveragePool(Call& call) {
  const Tensor& x = call.T(0);
  if (x.rank() < 3) return Fail("the operand must have rank 3 or more");
  Shape shape = x.shape();
  for (size_t d = 2; d < shape.size(); ++d) shape[d] = 1;
  const int64_t n = Count(x.shape(), 2, x.shape().size());
  Tensor y = Tensor::Empty(x.dtype(), std::move(shape));
  OCTAVO_TRY_STATUS(ForFloats(x.dtype(), [&]<typename T>() -> Status {
    using C = Compute<T>;
    for (int64_t line = 0; line < y.size(); ++line) {
      const T* in = Ptr<T>(x) + line * n;
      C sum = 0;
      if constexpr (std::is_same_v<T, float>) {
        sum = quant::Sum16(in, n);
      } else {
        for (int64_t i = 0; i < n; ++i) sum += Up(in[i]);
      }
      MutablePtr<T>(y)[line] = Down<T>(sum / static_cast<C>(n));
    }
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterPool(Table& t) {
  t.Set(Op::kAveragePool, AveragePool);
  t.Set(Op::kMaxPool, MaxPool);
  t.Set(Op::kGlobalAveragePool, GlobalAveragePool);
}

}  // namespace octavo::ir::interpret
