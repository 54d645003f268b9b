#include "octavo/ir/vendor/packed.h"

namespace octavo::ir::vendor {

namespace {

// code(row, i) for every element of [rows, count]
template <typename F>
Tensor Make(int64_t rows, int64_t count, int64_t bits, F code) {
  Tensor out = Tensor::Zeros(bits == 8 ? DType::kU8 : DType::kU4, {rows, count});
  auto to = out.mutable_as<uint8_t>();
  for (int64_t i = 0; i < out.size(); ++i) {
    const int c = code(i / count, i % count);
    if (bits == 8) {
      to[static_cast<size_t>(i)] = static_cast<uint8_t>(c);
    } else {
      to[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>(c << (i % 2 * 4));
    }
  }
  return out;
}

}  // namespace

Tensor UnpackCodes(const Tensor& t, int64_t rows, int64_t count, int64_t bits) {
  const int64_t row_bytes = rows > 0 ? static_cast<int64_t>(t.byte_size()) / rows : 0;
  const uint8_t* bytes = t.as<uint8_t>().data();
  return Make(rows, count, bits, [=](int64_t row, int64_t i) { return CodeAt(bytes + row * row_bytes, i, bits); });
}

Tensor MidCodes(int64_t rows, int64_t count, int64_t bits) {
  return Make(rows, count, bits, [=](int64_t, int64_t) { return 1 << (bits - 1); });
}

bool IsOfScales(DType t) { return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16; }

Tensor InFloats(const Tensor& t) {
  if (t.dtype() == DType::kF32) return t;
  Tensor out = Tensor::Empty(DType::kF32, t.shape());
  for (int64_t i = 0; i < t.size(); ++i)
    out.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(t.GetDouble(i));
  return out;
}

}  // namespace octavo::ir::vendor
