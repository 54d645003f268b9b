// Ops that make tensors from sizes and positions: ConstantOfShape, Range, EyeLike, NonZero, OneHot.
#include <cmath>
#include <cstring>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/packed.h"
#include "octavo/ir/interpret/strings.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

namespace {

Status ConstantOfShape(Call& call) {
  OCTAVO_TRY(Shape shape, IntsOf(call.T(0), "the shape"));
  const Tensor value = call.node.attrs.TensorOr("value", Tensor::ScalarF32(0.0f));
  if (value.size() != 1) return Fail("the value must have one element, not {}", Describe(value));
  if (value.dtype() == DType::kString) {
    OCTAVO_TRY_STATUS(CheckShape(DType::kString, shape));
    const std::string& word = value.strings()[0];
    const auto count = static_cast<size_t>(ElementCount(shape));
    ChargeWords(count, count * word.size());
    call.Return(Tensor::Strings(std::move(shape), std::vector<std::string>(count, word)));
    return {};
  }
  OCTAVO_TRY(Tensor y, AllocZeros(value.dtype(), std::move(shape)));
  if (quant::IsPacked(value.dtype())) {
    const Tensor byte = Unpack(value);
    Tensor bytes = Tensor::Empty(byte.dtype(), y.shape());
    std::fill_n(MutablePtr<uint8_t>(bytes), bytes.size(), Ptr<uint8_t>(byte)[0]);
    call.Return(Pack(bytes, value.dtype()));
    return {};
  }
  OCTAVO_TRY_STATUS(ForSizes(value.dtype(), [&]<typename T>() -> Status {
    std::fill_n(MutablePtr<T>(y), y.size(), Ptr<T>(value)[0]);
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

// max(ceil((limit - start) / delta), 0) elements start + i * delta, as ONNX defines the count. Integers exactly.
template <typename T>
Status RangeOf(Call& call) {
  using C = Compute<T>;
  const C start = Up(Ptr<T>(call.T(0))[0]), limit = Up(Ptr<T>(call.T(1))[0]), delta = Up(Ptr<T>(call.T(2))[0]);
  if (delta == C(0)) return Fail("the step is 0");
  int64_t count = 0;
  if constexpr (kIsFloat<T>) {
    const double wanted =
        std::ceil((static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta));
    if (!(wanted < 0x1p40)) return Fail("the range from {} to {} by {} has no end", start, limit, delta);
    count = wanted > 0 ? static_cast<int64_t>(wanted) : 0;
  } else {
    const __int128 span = static_cast<__int128>(limit) - start, step = delta;
    const bool forward = (span > 0) == (step > 0) && span != 0;
    const __int128 wanted = forward ? (span + step + (step > 0 ? -1 : 1)) / step : 0;
    if (wanted > (int64_t{1} << 40)) return Fail("the range from {} to {} by {} is too long", start, limit, delta);
    count = static_cast<int64_t>(wanted);
  }
  OCTAVO_TRY(Tensor y, Alloc(call.T(0).dtype(), {count}));
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (kIsFloat<T>) {
      MutablePtr<T>(y)[i] = Down<T>(start + static_cast<C>(i) * delta);
    } else {
      MutablePtr<T>(y)[i] =
          static_cast<T>(static_cast<uint64_t>(start) + static_cast<uint64_t>(i) * static_cast<uint64_t>(delta));
    }
  }
  call.Return(std::move(y));
  return {};
}

Status Range(Call& call) {
  for (size_t i = 0; i < 3; ++i) {
    if (call.T(i).size() != 1 || call.T(i).dtype() != call.T(0).dtype()) {
      return Fail("start, limit and delta must be single elements of one type");
    }
  }
  const DType type = call.T(0).dtype();
  if (quant::BitsOf(type) == 16 && quant::IsFloat(type) && call.Int("stash_type", 1) != 1)
    return Fail("stash_type is {}; octavo computes 16-bit floats in f32", call.Int("stash_type", 1));
  return ForNumbers(type, [&]<typename T>() -> Status { return RangeOf<T>(call); });
}

Status EyeLike(Call& call) {
  const Tensor& x = call.T(0);
  if (x.rank() != 2) return Fail("the operand must have rank 2");
  OCTAVO_TRY(const DType to, TypeAttr(call, "dtype", x.dtype()));
  const int64_t k = call.Int("k", 0), rows = x.shape()[0], cols = x.shape()[1];
  Tensor ones = Tensor::Zeros(DType::kU8, x.shape());
  for (int64_t r = 0; r < rows; ++r) {
    if (k > cols || k < -rows) break;
    const int64_t c = r + k;
    if (c >= 0 && c < cols) ones.mutable_as<uint8_t>()[static_cast<size_t>(r * cols + c)] = 1;
  }
  OCTAVO_TRY(Tensor y, CastTo(ones, to));
  call.Return(std::move(y));
  return {};
}

Status NonZero(Call& call) {
  OCTAVO_TRY(const Tensor flags, CastTo(call.T(0), DType::kBool));
  const auto set = flags.as<uint8_t>();
  std::vector<int64_t> found;
  ChargeWork(set.size() * sizeof(int64_t));
  for (size_t i = 0; i < set.size(); ++i) {
    if (set[i] != 0) found.push_back(static_cast<int64_t>(i));
  }
  const auto n = static_cast<int64_t>(found.size());
  const auto strides = StridesOf(flags.shape());
  Tensor y = Tensor::Empty(DType::kS64, {flags.rank(), n});
  auto out = y.mutable_as<int64_t>();
  for (int64_t d = 0; d < flags.rank(); ++d) {
    const int64_t stride = strides[static_cast<size_t>(d)], dim = flags.shape()[static_cast<size_t>(d)];
    for (int64_t i = 0; i < n; ++i) {
      out[static_cast<size_t>(d * n + i)] = found[static_cast<size_t>(i)] / stride % dim;
    }
  }
  call.Return(std::move(y));
  return {};
}

// Indices outside -depth..depth-1 give a row of "off".
Status OneHot(Call& call) {
  const Tensor &indices = call.T(0), &values = call.T(2);
  if (call.T(1).size() != 1) return Fail("the depth must be one element");
  OCTAVO_TRY(const Tensor whole, CastTo(call.T(1), DType::kS64));
  const int64_t depth = whole.GetInt(0);
  if (values.size() != 2) return Fail("the values must be two elements, off and on");
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", -1), indices.rank() + 1));
  Shape shape = indices.shape();
  shape.insert(shape.begin() + axis, depth);
  OCTAVO_TRY(Tensor y, Alloc(values.dtype(), shape));
  const int64_t inner = Count(shape, static_cast<size_t>(axis) + 1, shape.size());
  OCTAVO_TRY(const Tensor at, CastTo(indices, DType::kS64));
  OCTAVO_TRY_STATUS(ForSizes(values.dtype(), [&]<typename T>() -> Status {
    const T off = Ptr<T>(values)[0], on = Ptr<T>(values)[1];
    T* out = MutablePtr<T>(y);
    std::fill_n(out, y.size(), off);
    for (int64_t i = 0; i < at.size() && inner > 0; ++i) {
      const int64_t index = Ptr<int64_t>(at)[i];
      if (index < -depth || index >= depth) continue;
      out[(i / inner * depth + (index < 0 ? index + depth : index)) * inner + i % inner] = on;
    }
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterGenerate(Table& t) {
  t.Set(Op::kConstantOfShape, ConstantOfShape);
  t.Set(Op::kRange, Range);
  t.Set(Op::kEyeLike, EyeLike);
  t.Set(Op::kNonZero, NonZero);
  t.Set(Op::kOneHot, OneHot);
}

}  // namespace octavo::ir::interpret
