// Tensor: immutable, shared, dense row-major data with a dtype and a shape. Used for constants and for what the
// interpreter and the runtime pass around. The bytes may be mapped from a file.
#ifndef OCTAVO_IR_TENSOR_H_
#define OCTAVO_IR_TENSOR_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "octavo/ir/status.h"
#include "octavo/quant/numeric/dtype.h"

namespace octavo::ir {

using quant::DType;
using Shape = std::vector<int64_t>;

// Product of the dims; 1 for a scalar.
int64_t ElementCount(std::span<const int64_t> shape);
// Bytes of a tensor that is to be made. Throws OutOfMemory (memory.h) where they, or its elements, do not fit into int64.
size_t BytesToMake(DType dtype, std::span<const int64_t> shape);
// "[2,3]".
std::string ToString(std::span<const int64_t> shape);

// Bytes that somebody keeps alive: heap memory, a mapped file, or a caller's buffer.
class Buffer {
 public:
  virtual ~Buffer() = default;
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // Where the bytes come from, for export as external data: file name relative to the model and offset; empty: memory.
  const std::string& file() const { return file_; }
  int64_t file_offset() const { return file_offset_; }
  // Nobody sees the bytes but through tensors, so the last tensor that holds them may overwrite them.
  bool exclusive() const { return exclusive_; }

 protected:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string file_;
  int64_t file_offset_ = 0;
  bool exclusive_ = false;
};

class Tensor {
 public:
  Tensor() = default;
  // Zero-filled, 64-byte aligned, writable through mutable_data() until shared with readers.
  static Tensor Zeros(DType dtype, Shape shape);
  // As Zeros, but the bytes are undefined.
  static Tensor Empty(DType dtype, Shape shape);
  // Copies `values`; sizeof(T) must fit dtype (bool as uint8_t, f16/bf16 as uint16_t, fp8 as uint8_t).
  template <typename T>
  static Tensor Of(DType dtype, Shape shape, std::span<const T> values) {
    Tensor t = Empty(dtype, std::move(shape));
    OCTAVO_CHECK(t.byte_size() == values.size_bytes(), "{} bytes for a tensor of {}", values.size_bytes(),
                 t.byte_size());
    if (!values.empty()) std::memcpy(t.mutable_data(), values.data(), values.size_bytes());
    return t;
  }
  static Tensor F32(Shape shape, std::vector<float> values);
  static Tensor S64(Shape shape, std::vector<int64_t> values);
  static Tensor ScalarF32(float v) { return F32({}, {v}); }
  static Tensor ScalarS64(int64_t v) { return S64({}, {v}); }
  static Tensor Strings(Shape shape, std::vector<std::string> values);
  // A view of bytes that `owner` keeps alive. `offset` bytes into it; must lie inside.
  static Tensor View(DType dtype, Shape shape, std::shared_ptr<const Buffer> owner, size_t offset);

  bool defined() const { return dtype_ != DType::kUndefined; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
  int64_t size() const { return ElementCount(shape_); }
  size_t byte_size() const { return quant::BytesOf(dtype_, static_cast<size_t>(size())); }
  const std::byte* data() const { return data_; }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), byte_size() / sizeof(T)};
  }
  const std::vector<std::string>& strings() const { return *strings_; }
  const std::shared_ptr<const Buffer>& buffer() const { return buffer_; }

  // True: no other tensor and nobody else holds these bytes, whoever has this tensor may write them.
  bool sole() const { return buffer_ != nullptr && buffer_->exclusive() && buffer_.use_count() == 1; }
  // Only for the code that made the tensor and has not given it away, or where sole() says so.
  std::byte* mutable_data() { return const_cast<std::byte*>(data_); }
  template <typename T>
  std::span<T> mutable_as() {
    return {reinterpret_cast<T*>(mutable_data()), byte_size() / sizeof(T)};
  }

  // Same bytes, other shape (same element count) - no copy.
  Tensor Reshaped(Shape shape) const;

  // Element i converted to double / int64 (any numeric dtype, 4-bit and fp8 included).
  double GetDouble(int64_t i) const;
  int64_t GetInt(int64_t i) const;
  // All elements as int64 (integer or bool dtypes) or float32 (any numeric dtype).
  std::vector<int64_t> ToInts() const;
  std::vector<float> ToFloats() const;

  // Same dtype, shape and bytes (NaN equals itself, -0 differs from 0).
  bool SameBits(const Tensor& other) const;
  bool operator==(const Tensor& other) const { return SameBits(other); }
  // FNV-1a over dtype, shape and bytes: for CSE and for printing.
  uint64_t Hash() const;

 private:
  DType dtype_ = DType::kUndefined;
  Shape shape_;
  const std::byte* data_ = nullptr;
  std::shared_ptr<const Buffer> buffer_;
  std::shared_ptr<const std::vector<std::string>> strings_;
};

}  // namespace octavo::ir

#endif  // OCTAVO_IR_TENSOR_H_
