// Small checks that every family shares.
#include <algorithm>
#include <utility>

#include "octavo/ir/interpret/call.h"

namespace octavo::ir::interpret {

Status CheckShape(DType dtype, std::span<const int64_t> shape) {
  constexpr int64_t kMaxBytes = int64_t{1} << 36;
  // A dim of 0 empties the tensor, but the product of the others must not overflow either: strides are made of it.
  const int64_t bits = dtype == DType::kString ? 256 : quant::BitsOf(dtype);
  int64_t total = bits;
  bool empty = false;
  for (int64_t d : shape) {
    if (d < 0) return Fail("the shape {} has a negative dim", ToString(shape));
    empty |= d == 0;
    if (d > 1 && __builtin_mul_overflow(total, d, &total)) total = INT64_MAX;
    if (total / 8 > kMaxBytes) return Fail("a tensor {}{} would exceed 64 GB", quant::Name(dtype), ToString(shape));
  }
  if (empty) const MemoryCharge enough(static_cast<size_t>(total / 8));
  return {};
}

Result<Tensor> Alloc(DType dtype, Shape shape) {
  OCTAVO_TRY_STATUS(CheckShape(dtype, shape));
  return Tensor::Empty(dtype, std::move(shape));
}

Result<Tensor> AllocZeros(DType dtype, Shape shape) {
  OCTAVO_TRY_STATUS(CheckShape(dtype, shape));
  return Tensor::Zeros(dtype, std::move(shape));
}

namespace {
thread_local WorkScope* work = nullptr;
}  // namespace

WorkScope::WorkScope() : before_(std::exchange(work, this)) {}
WorkScope::~WorkScope() { work = before_; }
void ChargeWork(size_t bytes) {
  MemoryCharge charge(bytes);
  if (work != nullptr) work->charges_.push_back(std::move(charge));
}

Result<int64_t> Axis(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank) return Fail("axis {} is outside a tensor of rank {}", axis, rank);
  return axis < 0 ? axis + rank : axis;
}

Result<std::vector<int64_t>> Axes(std::vector<int64_t> axes, int64_t rank, bool sort) {
  for (int64_t& a : axes) {
    OCTAVO_TRY(a, Axis(a, rank));
  }
  std::vector<int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return Fail("an axis is named twice");
  return sort ? sorted : axes;
}

Result<std::vector<int64_t>> IntsOf(const Tensor& t, std::string_view what) {
  if (!quant::IsInteger(t.dtype())) return Fail("{} must be integers, not {}", what, Describe(t));
  ChargeWork(static_cast<size_t>(t.size()) * sizeof(int64_t));
  return t.ToInts();
}

Result<int64_t> IntOf(const Tensor& t, std::string_view what) {
  if (!quant::IsInteger(t.dtype()) || t.size() != 1) return Fail("{} must be one integer, not {}", what, Describe(t));
  return t.GetInt(0);
}

std::vector<int64_t> StridesOf(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

Result<DType> TypeAttr(const Call& call, std::string_view name, DType fallback) {
  const int64_t number = call.Int(name, static_cast<int64_t>(fallback));
  if (number == static_cast<int64_t>(fallback)) return fallback;
  const auto type = static_cast<DType>(number);
  if (!quant::IsDType(number)) {
    return Fail("{} is {}, an ONNX element type that octavo does not have", name, number);
  }
  return type;
}

std::string Describe(const Tensor& t) {
  if (!t.defined()) return "absent";
  return std::string(quant::Name(t.dtype())) + ToString(t.shape());
}

}  // namespace octavo::ir::interpret
