// Gather, GatherElements, GatherND, Compress.
#include <cstring>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/indices.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

Result<std::vector<int64_t>> TupleOffsets(const Tensor& indices, const Shape& shape, size_t batch_dims) {
  if (indices.rank() < 1) return Fail("the indices must have rank 1 or more");
  const int64_t width = indices.shape().back();
  if (width < 1 || static_cast<size_t>(width) + batch_dims > shape.size()) {
    return Fail("index tuples of {} elements do not fit a tensor of rank {}", width, shape.size());
  }
  for (size_t d = 0; d < batch_dims; ++d) {
    if (d + 1 >= indices.shape().size() || indices.shape()[d] != shape[d]) return Fail("the batch dims differ");
  }
  OCTAVO_TRY(const std::vector<int64_t> flat, IntsOf(indices, "the indices"));
  const auto strides = StridesOf(shape);
  const int64_t batches = Count(shape, 0, batch_dims);
  const int64_t tuples = indices.size() / width;
  const int64_t per_batch = batches == 0 ? 0 : tuples / batches;
  const int64_t batch_stride = Count(shape, batch_dims, shape.size());
  std::vector<int64_t> offsets = WorkVector<int64_t>(tuples);
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t& at = offsets[static_cast<size_t>(t)];
    at = batch_dims == 0 ? 0 : t / per_batch * batch_stride;
    for (int64_t k = 0; k < width; ++k) {
      const size_t d = batch_dims + static_cast<size_t>(k);
      int64_t i = flat[static_cast<size_t>(t * width + k)];
      if (i < -shape[d] || i >= shape[d]) return Fail("index {} is outside axis {} of size {}", i, d, shape[d]);
      at += (i < 0 ? i + shape[d] : i) * strides[d];
    }
  }
  return offsets;
}

namespace {

Status Gather(Call& call) {
  const Tensor &x = call.T(0), &indices = call.T(1);
  if (quant::BitsOf(x.dtype()) < 8) return BadType(x.dtype());
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", 0), x.rank()));
  const auto a = static_cast<size_t>(axis);
  const int64_t n = x.shape()[a];
  OCTAVO_TRY(const auto at, IndicesInto(indices, n));
  Shape shape(x.shape().begin(), x.shape().begin() + axis);
  shape.insert(shape.end(), indices.shape().begin(), indices.shape().end());
  shape.insert(shape.end(), x.shape().begin() + axis + 1, x.shape().end());
  OCTAVO_TRY(Tensor y, Alloc(x.dtype(), std::move(shape)));
  const auto row = static_cast<size_t>(Count(x.shape(), a + 1, x.shape().size())) *
                   static_cast<size_t>(quant::BitsOf(x.dtype()) / 8);
  std::byte* to = y.mutable_data();
  if (y.size() == 0) {
    call.Return(std::move(y));
    return {};
  }
  for (int64_t o = 0; o < Count(x.shape(), 0, a); ++o) {
    for (int64_t i : at) {
      std::memcpy(to, x.data() + static_cast<size_t>(o * n + i) * row, row);
      to += row;
    }
  }
  call.Return(std::move(y));
  return {};
}

Status GatherElements(Call& call) {
  const Tensor &x = call.T(0), &indices = call.T(1);
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", 0), x.rank()));
  const auto a = static_cast<size_t>(axis);
  if (indices.rank() != x.rank()) return Fail("the indices must have the operand's rank");
  for (size_t d = 0; d < x.shape().size(); ++d) {
    if (d != a && indices.shape()[d] > x.shape()[d]) return Fail("the indices exceed the operand on axis {}", d);
  }
  OCTAVO_TRY(const auto at, IndicesInto(indices, x.shape()[a]));
  OCTAVO_TRY(Tensor y, Alloc(x.dtype(), indices.shape()));
  const auto strides = StridesOf(x.shape());
  std::vector<int64_t> steps = strides;
  steps[a] = 0;
  OCTAVO_TRY_STATUS(ForSizes(x.dtype(), [&]<typename T>() -> Status {
    std::vector<int64_t> index(indices.shape().size(), 0);
    int64_t base = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      MutablePtr<T>(y)[i] = Ptr<T>(x)[base + at[i] * strides[a]];
      for (size_t d = index.size(); d-- > 0;) {
        base += steps[d];
        if (++index[d] < indices.shape()[d]) break;
        base -= steps[d] * indices.shape()[d];
        index[d] = 0;
      }
    }
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

Status GatherND(Call& call) {
  const Tensor &x = call.T(0), &indices = call.T(1);
  if (quant::BitsOf(x.dtype()) < 8) return BadType(x.dtype());
  const int64_t batch = call.Int("batch_dims", 0);
  if (batch < 0 || batch >= std::min(x.rank(), indices.rank())) return Fail("batch_dims {} is not possible", batch);
  const auto batch_dims = static_cast<size_t>(batch);
  OCTAVO_TRY(const auto offsets, TupleOffsets(indices, x.shape(), batch_dims));
  const size_t used = batch_dims + static_cast<size_t>(indices.shape().back());
  Shape shape(indices.shape().begin(), indices.shape().end() - 1);
  shape.insert(shape.end(), x.shape().begin() + static_cast<int64_t>(used), x.shape().end());
  OCTAVO_TRY(Tensor y, Alloc(x.dtype(), std::move(shape)));
  const auto element = static_cast<size_t>(quant::BitsOf(x.dtype()) / 8);
  const size_t row = static_cast<size_t>(Count(x.shape(), used, x.shape().size())) * element;
  std::byte* to = y.mutable_data();
  for (size_t i = 0; i < offsets.size() && row > 0; ++i, to += row) {
    std::memcpy(to, x.data() + static_cast<size_t>(offsets[i]) * element, row);
  }
  call.Return(std::move(y));
  return {};
}

Status Compress(Call& call) {
  const Tensor& condition = call.T(1);
  if (condition.dtype() != DType::kBool || condition.rank() != 1) return Fail("the condition must be a bool vector");
  if (quant::BitsOf(call.T(0).dtype()) < 8) return BadType(call.T(0).dtype());
  const bool flat = !call.node.attrs.Has("axis");
  const Tensor x = flat ? call.T(0).Reshaped({call.T(0).size()}) : call.T(0);
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", 0), x.rank()));
  const auto a = static_cast<size_t>(axis);
  const int64_t n = x.shape()[a];
  ChargeWork(static_cast<size_t>(condition.size()) * sizeof(int64_t));
  std::vector<int64_t> picked;
  for (int64_t i = 0; i < condition.size(); ++i) {
    if (condition.as<uint8_t>()[static_cast<size_t>(i)] == 0) continue;
    if (i >= n) return Fail("the condition picks index {} of an axis of size {}", i, n);
    picked.push_back(i);
  }
  Shape shape = x.shape();
  shape[a] = static_cast<int64_t>(picked.size());
  Tensor y = Tensor::Empty(x.dtype(), std::move(shape));
  const auto row = static_cast<size_t>(Count(x.shape(), a + 1, x.shape().size()) * (quant::BitsOf(x.dtype()) / 8));
  std::byte* to = y.mutable_data();
  for (int64_t o = 0; o < Count(x.shape(), 0, a) && row > 0; ++o) {
    for (int64_t i : picked) {
      std::memcpy(to, x.data() + static_cast<size_t>(o * n + i) * row, row);
      to += row;
    }
  }
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterGather(Table& t) {
  t.Set(Op::kGather, Gather);
  t.Set(Op::kGatherElements, GatherElements);
  t.Set(Op::kGatherND, GatherND);
  t.Set(Op::kCompress, Compress);
}

}  // namespace octavo::ir::interpret
