// Element types. The numbers are ONNX's TensorProto.DataType, so that no table maps one to the other.
#ifndef OCTAVO_QUANT_NUMERIC_DTYPE_H_
#define OCTAVO_QUANT_NUMERIC_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace octavo::quant {

enum class DType : uint8_t {
  kUndefined = 0,
  kF32 = 1,
  kU8 = 2,
  kS8 = 3,
  kU16 = 4,
  kS16 = 5,
  kS32 = 6,
  kS64 = 7,
  kString = 8,
  kBool = 9,
  kF16 = 10,
  kF64 = 11,
  kU32 = 12,
  kU64 = 13,
  kBF16 = 16,
  kE4M3FN = 17,
  kE4M3FNUZ = 18,
  kE5M2 = 19,
  kE5M2FNUZ = 20,
  kU4 = 21,
  kS4 = 22,
  kE2M1 = 23,
  kE8M0 = 24,
  kU2 = 25,
  kS2 = 26,
};

// Bits per element; types of 4 and 2 bits are packed into bytes from the low bits up, as ONNX does. 0 for strings and kUndefined.
constexpr int BitsOf(DType t) {
  switch (t) {
    case DType::kU2:
    case DType::kS2:
      return 2;
    case DType::kU4:
    case DType::kS4:
    case DType::kE2M1:
      return 4;
    case DType::kU8:
    case DType::kS8:
    case DType::kBool:
    case DType::kE4M3FN:
    case DType::kE4M3FNUZ:
    case DType::kE5M2:
    case DType::kE5M2FNUZ:
    case DType::kE8M0:
      return 8;
    case DType::kU16:
    case DType::kS16:
    case DType::kF16:
    case DType::kBF16:
      return 16;
    case DType::kF32:
    case DType::kS32:
    case DType::kU32:
      return 32;
    case DType::kS64:
    case DType::kU64:
    case DType::kF64:
      return 64;
    case DType::kString:
    case DType::kUndefined:
      return 0;
  }
  return 0;
}

// Bytes that `count` packed elements take.
constexpr size_t BytesOf(DType t, size_t count) { return (count * static_cast<size_t>(BitsOf(t)) + 7) / 8; }

// Floats that are only stored, cast and quantized to, never computed with; no kernel has them.
constexpr bool IsStoredFloat(DType t) {
  return t == DType::kE4M3FNUZ || t == DType::kE5M2FNUZ || t == DType::kE2M1 || t == DType::kE8M0;
}
constexpr bool IsFloat(DType t) {
  return t == DType::kF32 || t == DType::kF64 || t == DType::kF16 || t == DType::kBF16 || t == DType::kE4M3FN ||
         t == DType::kE5M2 || IsStoredFloat(t);
}
// The floats that are computed with.
constexpr bool IsComputedFloat(DType t) {
  return t == DType::kF32 || t == DType::kF64 || t == DType::kF16 || t == DType::kBF16;
}
// Several elements to a byte.
constexpr bool IsPacked(DType t) { return BitsOf(t) == 2 || BitsOf(t) == 4; }
constexpr bool IsFp8(DType t) { return t == DType::kE4M3FN || t == DType::kE5M2; }
constexpr bool IsInt8(DType t) { return t == DType::kU8 || t == DType::kS8; }
constexpr bool IsInteger(DType t) {
  return t == DType::kU8 || t == DType::kS8 || t == DType::kU16 || t == DType::kS16 || t == DType::kS32 ||
         t == DType::kS64 || t == DType::kU32 || t == DType::kU64 || t == DType::kU4 || t == DType::kS4 ||
         t == DType::kU2 || t == DType::kS2;
}

// Smallest and largest integer of an integer type of at most 32 bits (ONNX's saturation limits for QuantizeLinear).
struct IntRange {
  int64_t lo;
  int64_t hi;
};
constexpr IntRange RangeOf(DType t) {
  switch (t) {
    case DType::kU2:
      return {0, 3};
    case DType::kS2:
      return {-2, 1};
    case DType::kU4:
      return {0, 15};
    case DType::kS4:
      return {-8, 7};
    case DType::kU8:
      return {0, 255};
    case DType::kS8:
      return {-128, 127};
    case DType::kU16:
      return {0, 65535};
    case DType::kS16:
      return {-32768, 32767};
    default:
      return {INT32_MIN, INT32_MAX};
  }
}

// "f32", "u8", "e4m3fn", ...: the spelling of the text form, of tables and of JSON.
constexpr std::string_view Name(DType t) {
  switch (t) {
    case DType::kF32:
      return "f32";
    case DType::kU8:
      return "u8";
    case DType::kS8:
      return "s8";
    case DType::kU16:
      return "u16";
    case DType::kS16:
      return "s16";
    case DType::kS32:
      return "s32";
    case DType::kS64:
      return "s64";
    case DType::kString:
      return "string";
    case DType::kBool:
      return "bool";
    case DType::kF16:
      return "f16";
    case DType::kF64:
      return "f64";
    case DType::kU32:
      return "u32";
    case DType::kU64:
      return "u64";
    case DType::kBF16:
      return "bf16";
    case DType::kE4M3FN:
      return "e4m3fn";
    case DType::kE5M2:
      return "e5m2";
    case DType::kU4:
      return "u4";
    case DType::kS4:
      return "s4";
    case DType::kE4M3FNUZ:
      return "e4m3fnuz";
    case DType::kE5M2FNUZ:
      return "e5m2fnuz";
    case DType::kE2M1:
      return "e2m1";
    case DType::kE8M0:
      return "e8m0";
    case DType::kU2:
      return "u2";
    case DType::kS2:
      return "s2";
    case DType::kUndefined:
      return "undefined";
  }
  return "undefined";
}
inline constexpr int kLastDType = 26;
// Whether ONNX's number is that of a type in the list.
constexpr bool IsDType(int64_t number) {
  return number > 0 && number <= kLastDType && Name(static_cast<DType>(number)) != "undefined";
}
// kUndefined for a word that names no type.
constexpr DType DTypeFromName(std::string_view name) {
  for (int i = 1; i <= kLastDType; ++i) {
    const auto t = static_cast<DType>(i);
    if (Name(t) != "undefined" && Name(t) == name) return t;
  }
  return DType::kUndefined;
}

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_NUMERIC_DTYPE_H_
