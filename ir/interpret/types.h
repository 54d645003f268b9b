// Typed access: element types, the type they are computed in, and dispatch from a dtype to a type, once per op.
#ifndef OCTAVO_IR_INTERPRET_TYPES_H_
#define OCTAVO_IR_INTERPRET_TYPES_H_

#include <cstdint>
#include <type_traits>

#include "octavo/ir/status.h"
#include "octavo/ir/tensor.h"
#include "octavo/quant/numeric/float16.h"

namespace octavo::ir::interpret {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

// The type that elements are computed in: 16-bit floats in float, rounded once per op.
template <typename T>
struct ComputeOf {
  using type = T;
};
template <>
struct ComputeOf<F16> {
  using type = float;
};
template <>
struct ComputeOf<BF16> {
  using type = float;
};
template <typename T>
using Compute = typename ComputeOf<T>::type;

template <typename T>
Compute<T> Up(T x) {
  if constexpr (std::is_same_v<T, F16>) {
    return quant::F16ToF32(x.bits);
  } else if constexpr (std::is_same_v<T, BF16>) {
    return quant::BF16ToF32(x.bits);
  } else {
    return x;
  }
}
template <typename T>
T Down(Compute<T> x) {
  if constexpr (std::is_same_v<T, F16>) {
    return F16{quant::F32ToF16(x)};
  } else if constexpr (std::is_same_v<T, BF16>) {
    return BF16{quant::F32ToBF16(x)};
  } else {
    return x;
  }
}

template <typename T>
inline constexpr bool kIsFloat = std::is_floating_point_v<Compute<T>>;

template <typename T>
const T* Ptr(const Tensor& t) {
  return reinterpret_cast<const T*>(t.data());
}
template <typename T>
T* MutablePtr(Tensor& t) {
  return reinterpret_cast<T*>(t.mutable_data());
}

inline std::unexpected<Error> BadType(DType t) {
  return Fail("the element type {} is not one of this op", quant::Name(t));
}

// f.template operator()<T>() for the type of `t`; f returns Status.
template <typename F>
Status ForFloats(DType t, F&& f) {
  switch (t) {
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kF64:
      return f.template operator()<double>();
    case DType::kF16:
      return f.template operator()<F16>();
    case DType::kBF16:
      return f.template operator()<BF16>();
    default:
      return BadType(t);
  }
}
template <typename F>
Status ForInts(DType t, F&& f) {
  switch (t) {
    case DType::kU8:
      return f.template operator()<uint8_t>();
    case DType::kS8:
      return f.template operator()<int8_t>();
    case DType::kU16:
      return f.template operator()<uint16_t>();
    case DType::kS16:
      return f.template operator()<int16_t>();
    case DType::kU32:
      return f.template operator()<uint32_t>();
    case DType::kS32:
      return f.template operator()<int32_t>();
    case DType::kU64:
      return f.template operator()<uint64_t>();
    case DType::kS64:
      return f.template operator()<int64_t>();
    default:
      return BadType(t);
  }
}
template <typename F>
Status ForNumbers(DType t, F&& f) {
  return quant::IsFloat(t) ? ForFloats(t, std::forward<F>(f)) : ForInts(t, std::forward<F>(f));
}
// By element size, for ops that only move elements.
template <typename F>
Status ForSizes(DType t, F&& f) {
  switch (quant::BitsOf(t)) {
    case 8:
      return f.template operator()<uint8_t>();
    case 16:
      return f.template operator()<uint16_t>();
    case 32:
      return f.template operator()<uint32_t>();
    case 64:
      return f.template operator()<uint64_t>();
    default:
      return BadType(t);
  }
}

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_TYPES_H_
