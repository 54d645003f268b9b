// Ops that sort out or turn around what an axis holds: Unique, ReverseSequence, CenterCropPad.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/strided.h"
#include "octavo/ir/interpret/strings.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

namespace {

// --- Unique ----------------------------------------------------------------------------------------------------

// The operand as [outer, n, inner]; its n slices are compared.
struct Slices {
  int64_t outer = 1, n = 0, inner = 1;
  int64_t At(int64_t slice, int64_t i) const { return (i / inner * n + slice) * inner + i % inner; }
  int64_t size() const { return outer * inner; }
};

// Negative, 0 or positive; NaN is the largest and equals itself.
template <typename T>
int Compare(const T& a, const T& b) {
  if (a < b) return -1;
  if (b < a) return 1;
  return a == b ? 0 : static_cast<int>(a != a) - static_cast<int>(b != b);
}

template <typename Get>
auto Comparator(const Slices& s, Get get) {
  return [&s, get](int64_t a, int64_t b) {
    for (int64_t i = 0; i < s.size(); ++i) {
      if (const int c = Compare(get(s.At(a, i)), get(s.At(b, i))); c != 0) return c;
    }
    return 0;
  };
}

struct Groups {
  std::vector<int64_t> first, inverse, counts;
};

template <typename F>
Groups GroupBy(int64_t n, bool sorted, F compare) {
  ChargeWork(static_cast<size_t>(n) * 6 * sizeof(int64_t));
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
  Groups g;
  g.inverse.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || compare(order[i - 1], order[i]) != 0) g.first.push_back(order[i]), g.counts.push_back(0);
    g.inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(g.first.size()) - 1;
    ++g.counts.back();
  }
  if (sorted) return g;
  std::vector<int64_t> by_place(g.first.size()), place(g.first.size());
  std::iota(by_place.begin(), by_place.end(), int64_t{0});
  std::ranges::sort(by_place, {}, [&](int64_t i) { return g.first[static_cast<size_t>(i)]; });
  Groups out;
  for (const int64_t i : by_place) {
    place[static_cast<size_t>(i)] = static_cast<int64_t>(out.first.size());
    out.first.push_back(g.first[static_cast<size_t>(i)]), out.counts.push_back(g.counts[static_cast<size_t>(i)]);
  }
  for (const int64_t i : g.inverse) out.inverse.push_back(place[static_cast<size_t>(i)]);
  return out;
}

Result<Groups> GroupsOf(const Tensor& x, const Slices& s, bool sorted) {
  if (x.dtype() == DType::kString) {
    const auto& words = x.strings();
    return GroupBy(s.n, sorted,
                   Comparator(s, [&](int64_t i) -> const std::string& { return words[static_cast<size_t>(i)]; }));
  }
  Groups g;
  const auto run = [&]<typename T>() -> Status {
    g = GroupBy(s.n, sorted, Comparator(s, [in = Ptr<T>(x)](int64_t i) { return Up(in[i]); }));
    return {};
  };
  OCTAVO_TRY_STATUS(x.dtype() == DType::kBool ? run.template operator()<uint8_t>() : ForNumbers(x.dtype(), run));
  return g;
}

// The slices of x that `chosen` names, in their order.
Result<Tensor> Chosen(const Tensor& x, const Slices& s, const std::vector<int64_t>& chosen, Shape shape) {
  const Slices to{s.outer, static_cast<int64_t>(chosen.size()), s.inner};
  if (x.dtype() == DType::kString) {
    ChargeWords(chosen.size() * static_cast<size_t>(s.size()), 0);
    std::vector<std::string> words(chosen.size() * static_cast<size_t>(s.size()));
    for (int64_t k = 0; k < to.n; ++k) {
      for (int64_t i = 0; i < s.size(); ++i)
        words[static_cast<size_t>(to.At(k, i))] =
            x.strings()[static_cast<size_t>(s.At(chosen[static_cast<size_t>(k)], i))];
    }
    return Tensor::Strings(std::move(shape), std::move(words));
  }
  OCTAVO_TRY(Tensor y, Alloc(x.dtype(), std::move(shape)));
  OCTAVO_TRY_STATUS(ForSizes(x.dtype(), [&]<typename T>() -> Status {
    for (int64_t k = 0; k < to.n; ++k) {
      for (int64_t i = 0; i < s.size(); ++i)
        MutablePtr<T>(y)[to.At(k, i)] = Ptr<T>(x)[s.At(chosen[static_cast<size_t>(k)], i)];
    }
    return {};
  }));
  return y;
}

Status Unique(Call& call) {
  const Tensor& x = call.T(0);
  const bool flat = !call.node.attrs.Has("axis");
  Slices s{1, x.size(), 1};
  Shape shape = {0};
  size_t along = 0;
  if (!flat) {
    OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", 0), x.rank()));
    along = static_cast<size_t>(axis);
    shape = x.shape();
    s = {Count(shape, 0, along), shape[along], Count(shape, along + 1, shape.size())};
  }
  OCTAVO_TRY(const Groups g, GroupsOf(x, s, call.Int("sorted", 1) != 0));
  shape[along] = static_cast<int64_t>(g.first.size());
  OCTAVO_TRY(Tensor y, Chosen(x, s, g.first, std::move(shape)));
  call.Return(std::move(y), 0);
  size_t i = 1;
  for (const auto* list : {&g.first, &g.inverse, &g.counts}) {
    if (call.Wants(i)) call.Return(Tensor::Of<int64_t>(DType::kS64, {static_cast<int64_t>(list->size())}, *list), i);
    ++i;
  }
  return {};
}

// --- ReverseSequence -------------------------------------------------------------------------------------------

Status ReverseSequence(Call& call) {
  const Tensor& x = call.T(0);
  const int64_t batch_axis = call.Int("batch_axis", 1), time_axis = call.Int("time_axis", 0);
  if (x.rank() < 2) return Fail("the operand must have rank 2 or more");
  if (batch_axis + time_axis != 1 || (batch_axis != 0 && batch_axis != 1))
    return Fail("batch_axis and time_axis must be 0 and 1");
  const int64_t batch = x.shape()[static_cast<size_t>(batch_axis)], times = x.shape()[static_cast<size_t>(time_axis)];
  OCTAVO_TRY(const auto lengths, IntsOf(call.T(1), "sequence_lens"));
  if (call.T(1).shape() != Shape{batch}) return Fail("sequence_lens is {}, expected [{}]", Describe(call.T(1)), batch);
  for (const int64_t n : lengths) {
    if (n < 0 || n > times) return Fail("a sequence of length {} in {} steps", n, times);
  }
  OCTAVO_TRY(Tensor y, Alloc(x.dtype(), x.shape()));
  const int64_t inner = Count(x.shape(), 2, x.shape().size());
  OCTAVO_TRY_STATUS(ForSizes(x.dtype(), [&]<typename T>() -> Status {
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t n = lengths[static_cast<size_t>(b)];
      for (int64_t t = 0; t < times; ++t) {
        const auto row = [&](int64_t time) { return (batch_axis == 0 ? b * times + time : time * batch + b) * inner; };
        std::copy_n(Ptr<T>(x) + row(t < n ? n - 1 - t : t), inner, MutablePtr<T>(y) + row(t));
      }
    }
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

// --- CenterCropPad ---------------------------------------------------------------------------------------------

Status CenterCropPad(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const auto wanted, IntsOf(call.T(1), "the shape"));
  std::vector<int64_t> axes = call.node.attrs.Ints("axes");
  if (!call.node.attrs.Has("axes")) {
    axes.resize(x.shape().size());
    std::iota(axes.begin(), axes.end(), int64_t{0});
  }
  OCTAVO_TRY(axes, Axes(std::move(axes), x.rank(), false));
  if (axes.size() != wanted.size()) return Fail("{} sizes for {} axes", wanted.size(), axes.size());
  Shape shape = x.shape(), common = x.shape();
  int64_t from = 0, to = 0;
  const auto from_strides = StridesOf(x.shape());
  for (size_t i = 0; i < axes.size(); ++i) shape[static_cast<size_t>(axes[i])] = wanted[i];
  OCTAVO_TRY(Tensor y, AllocZeros(x.dtype(), shape));
  const auto to_strides = StridesOf(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    common[d] = std::min(x.shape()[d], shape[d]);
    from += (x.shape()[d] - common[d]) / 2 * from_strides[d];
    to += (shape[d] - common[d]) / 2 * to_strides[d];
  }
  const int bits = quant::BitsOf(x.dtype());
  if (bits < 8) return BadType(x.dtype());
  if (ElementCount(common) > 0) {
    CopyStrided(x.data() + from * bits / 8, from_strides, y.mutable_data() + to * bits / 8, to_strides, common,
                static_cast<size_t>(bits / 8));
  }
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterOrder(Table& t) {
  t.Set(Op::kUnique, Unique);
  t.Set(Op::kReverseSequence, ReverseSequence);
  t.Set(Op::kCenterCropPad, CenterCropPad);
}

}  // namespace octavo::ir::interpret
