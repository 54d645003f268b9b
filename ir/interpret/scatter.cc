// ScatterElements, ScatterND, TensorScatter.
#include <cstring>

#include "octavo/ir/interpret/cache_write.h"
#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/indices.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/ir/names.h"

namespace octavo::ir::interpret {

namespace {

enum class Merge { kReplace, kAdd, kMul, kMax, kMin };

Result<Merge> MergeOf(const Call& call) {
  const std::string name = call.node.attrs.Str("reduction", "none");
  if (name == "none") return Merge::kReplace;
  if (name == "add") return Merge::kAdd;
  if (name == "mul") return Merge::kMul;
  if (name == "max") return Merge::kMax;
  if (name == "min") return Merge::kMin;
  return Fail("reduction is {}; it must be none, add, mul, max or min", Quoted(name));
}

Tensor CopyOf(const Tensor& x) {
  Tensor y = Tensor::Empty(x.dtype(), x.shape());
  if (y.byte_size() > 0) std::memcpy(y.mutable_data(), x.data(), y.byte_size());
  return y;
}

// visit(f) calls f(position in y, position in updates) for every element.
template <typename Visit>
Status Apply(Merge merge, const Tensor& updates, Tensor& y, Visit visit) {
  if (merge == Merge::kReplace) {
    return ForSizes(y.dtype(), [&]<typename T>() -> Status {
      visit([out = MutablePtr<T>(y), in = Ptr<T>(updates)](int64_t to, int64_t from) { out[to] = in[from]; });
      return {};
    });
  }
  return ForNumbers(y.dtype(), [&]<typename T>() -> Status {
    using C = Compute<T>;
    visit([merge, out = MutablePtr<T>(y), in = Ptr<T>(updates)](int64_t to, int64_t from) {
      const C a = Up(out[to]), b = Up(in[from]);
      using W = std::conditional_t<kIsFloat<T>, C, uint64_t>;  // integers wrap
      C r = a;
      if (merge == Merge::kAdd) r = static_cast<C>(static_cast<W>(a) + static_cast<W>(b));
      if (merge == Merge::kMul) r = static_cast<C>(static_cast<W>(a) * static_cast<W>(b));
      if (merge == Merge::kMax) r = a > b || a != a ? a : b;
      if (merge == Merge::kMin) r = a < b || a != a ? a : b;
      out[to] = Down<T>(r);
    });
    return {};
  });
}

Status ScatterElements(Call& call) {
  const Tensor &x = call.T(0), &indices = call.T(1), &updates = call.T(2);
  OCTAVO_TRY(const Merge merge, MergeOf(call));
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", 0), x.rank()));
  const auto a = static_cast<size_t>(axis);
  if (updates.dtype() != x.dtype() || updates.shape() != indices.shape() || indices.rank() != x.rank()) {
    return Fail("indices and updates must have equal shapes, the operand's rank and type");
  }
  for (size_t d = 0; d < x.shape().size(); ++d) {
    if (d != a && indices.shape()[d] > x.shape()[d]) return Fail("the indices exceed the operand on axis {}", d);
  }
  OCTAVO_TRY(const auto at, IndicesInto(indices, x.shape()[a]));
  Tensor y = CopyOf(x);
  const auto strides = StridesOf(x.shape());
  std::vector<int64_t> steps = strides;
  steps[a] = 0;
  OCTAVO_TRY_STATUS(Apply(merge, updates, y, [&](auto put) {
    std::vector<int64_t> index(indices.shape().size(), 0);
    int64_t base = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      put(base + at[i] * strides[a], static_cast<int64_t>(i));
      for (size_t d = index.size(); d-- > 0;) {
        base += steps[d];
        if (++index[d] < indices.shape()[d]) break;
        base -= steps[d] * indices.shape()[d];
        index[d] = 0;
      }
    }
  }));
  call.Return(std::move(y));
  return {};
}

Status ScatterND(Call& call) {
  const Tensor &x = call.T(0), &indices = call.T(1), &updates = call.T(2);
  OCTAVO_TRY(const Merge merge, MergeOf(call));
  if (updates.dtype() != x.dtype()) return Fail("the updates must have the operand's type");
  OCTAVO_TRY(const auto offsets, TupleOffsets(indices, x.shape(), 0));
  const auto used = static_cast<size_t>(indices.shape().back());
  Shape wanted(indices.shape().begin(), indices.shape().end() - 1);
  wanted.insert(wanted.end(), x.shape().begin() + static_cast<int64_t>(used), x.shape().end());
  if (updates.shape() != wanted) return Fail("the updates must have the shape {}", ToString(wanted));
  const int64_t row = Count(x.shape(), used, x.shape().size());
  Tensor y = CopyOf(x);
  OCTAVO_TRY_STATUS(Apply(merge, updates, y, [&](auto put) {
    for (size_t i = 0; i < offsets.size(); ++i) {
      for (int64_t j = 0; j < row; ++j) put(offsets[i] + j, static_cast<int64_t>(i) * row + j);
    }
  }));
  call.Return(std::move(y));
  return {};
}

Status TensorScatter(Call& call) {
  OCTAVO_TRY(const CacheWrite write,
             PlanCacheWrite(call.node, call.T(0), TypeOf(call.T(1)), call.Has(2) ? &call.T(2) : nullptr));
  Tensor y = CopyOf(call.T(0));
  WriteCache(write, call.T(1), y);
  call.Return(std::move(y));
  return {};
}

}  // namespace

Result<CacheWrite> PlanCacheWrite(const Node& node, const Tensor& cache, const Type& update, const Tensor* at) {
  const int64_t axis = node.attrs.Int("axis", -2) + (node.attrs.Int("axis", -2) < 0 ? cache.rank() : 0);
  if (axis <= 0 || axis >= cache.rank()) {
    return Fail("axis {} is not one of the axes 1 to {} that a batch leaves", node.attrs.Int("axis", -2),
                cache.rank() - 1);
  }
  const std::string mode = node.attrs.Str("mode", "linear");
  if (mode != "linear" && mode != "circular") return Fail("mode is '{}'; it must be linear or circular", mode);
  const auto a = static_cast<size_t>(axis);
  const SymShape& rows = *update.shape;
  bool fits = rows.size() == cache.shape().size() && update.dtype == cache.dtype();
  for (size_t d = 0; fits && d < cache.shape().size(); ++d) {
    fits = d == a ? rows[d].number() <= cache.shape()[d] : rows[d].number() == cache.shape()[d];
  }
  if (cache.dtype() == DType::kString || quant::BitsOf(cache.dtype()) % 8 != 0) {
    return Fail("a cache of {} has no whole bytes to write", quant::Name(cache.dtype()));
  }
  if (!fits)
    return Fail("the update {} does not fit the cache {} along axis {}", ToString(update), Describe(cache), axis);
  CacheWrite w;
  w.rows = cache.shape()[a];
  w.new_rows = rows[a].number();
  w.outer = Count(cache.shape(), 0, a);
  w.row_bytes =
      static_cast<size_t>(Count(cache.shape(), a + 1, cache.shape().size()) * quant::BitsOf(cache.dtype()) / 8);
  w.start.assign(static_cast<size_t>(cache.shape()[0]), 0);
  if (at != nullptr) {
    OCTAVO_TRY(std::vector<int64_t> start, IntsOf(*at, "the write positions"));
    if (start.size() != w.start.size()) {
      return Fail("{} write positions for a batch of {}", start.size(), w.start.size());
    }
    w.start = std::move(start);
  }
  for (int64_t p : w.start) {
    if (p < 0 || p > w.rows || (mode == "linear" && p > w.rows - w.new_rows)) {
      return Fail("write position {} is outside axis of size {}", p, w.rows);
    }
  }
  return w;
}

void WriteCache(const CacheWrite& w, const Tensor& update, Tensor& cache) {
  if (w.outer == 0 || w.rows == 0 || w.row_bytes == 0) return;
  const int64_t per_batch = w.outer / static_cast<int64_t>(w.start.size());
  for (int64_t o = 0; o < w.outer; ++o) {
    for (int64_t i = 0; i < w.new_rows; ++i) {
      const int64_t to = o * w.rows + (w.start[static_cast<size_t>(o / per_batch)] + i) % w.rows;
      std::memcpy(cache.mutable_data() + static_cast<size_t>(to) * w.row_bytes,
                  update.data() + static_cast<size_t>(o * w.new_rows + i) * w.row_bytes, w.row_bytes);
    }
  }
}

void RegisterScatter(Table& t) {
  t.Set(Op::kScatterElements, ScatterElements);
  t.Set(Op::kScatterND, ScatterND);
  t.Set(Op::kTensorScatter, TensorScatter);
}

}  // namespace octavo::ir::interpret
