#include "octavo/ir/tensor.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <format>
#include <limits>

#include "octavo/ir/memory.h"
#include "octavo/quant/numeric/float16.h"
#include "octavo/quant/numeric/fp8.h"
#include "octavo/quant/numeric/stored_float.h"

namespace octavo::ir {

namespace {

// 64-byte aligned heap memory, padded to a whole cache line.
class HeapBuffer : public Buffer {
 public:
  explicit HeapBuffer(size_t size) : charge_(size) {
    size_ = size;
    exclusive_ = true;
    data_ = AllocateLines(size);
  }
  ~HeapBuffer() override { FreeLines(data_); }
  HeapBuffer(const HeapBuffer&) = delete;
  HeapBuffer& operator=(const HeapBuffer&) = delete;

 private:
  MemoryCharge charge_;
};

constexpr size_t kShortWord = 15;  // of libstdc++: longer ones have memory of their own

// Texts and what they are charged.
struct Words {
  MemoryCharge charge;
  const std::vector<std::string> words;
};
std::shared_ptr<const std::vector<std::string>> Share(MemoryCharge charge, std::vector<std::string> words) {
  const auto shared = std::make_shared<const Words>(Words{std::move(charge), std::move(words)});
  return {shared, &shared->words};
}

int Packed(const std::byte* data, int64_t i, int bits) {
  const int in_byte = 8 / bits;
  const int byte = std::to_integer<int>(data[i / in_byte]);
  return byte >> (i % in_byte * bits) & ((1 << bits) - 1);
}

template <typename T>
T Load(const std::byte* data, int64_t i) {
  T v;
  std::memcpy(&v, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}

}  // namespace

int64_t ElementCount(std::span<const int64_t> shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

size_t BytesToMake(DType dtype, std::span<const int64_t> shape) {
  int64_t count = 1;
  bool empty = false, fits = true;
  for (const int64_t d : shape) {
    OCTAVO_CHECK(d >= 0, "a tensor of shape {}", ToString(shape));
    empty = empty || d == 0;
    fits = fits && !__builtin_mul_overflow(count, d == 0 ? 1 : d, &count);
  }
  constexpr int64_t kWidest = 64;  // bytes of an element; std::string is the widest, with 32
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / kWidest;
  if (!fits || count > kMost) {
    if (!empty) throw OutOfMemory(static_cast<size_t>(kMost) * kWidest, 0);
  }
  if (empty) return 0;
  return dtype == DType::kString ? static_cast<size_t>(count) * sizeof(std::string)
                                 : quant::BytesOf(dtype, static_cast<size_t>(count));
}

std::string ToString(std::span<const int64_t> shape) {
  constexpr size_t kMost = 64;  // no shape has more, and an attribute of a million numbers is no part of a sentence
  std::string s = "[";
  for (size_t i = 0; i < std::min(shape.size(), kMost); ++i) s += (i ? "," : "") + std::to_string(shape[i]);
  return s + (shape.size() > kMost ? std::format(",... {} in all]", shape.size()) : "]");
}

Tensor Tensor::Empty(DType dtype, Shape shape) {
  const size_t bytes = BytesToMake(dtype, shape);
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = std::move(shape);
  if (dtype == DType::kString) {
    MemoryCharge charge(bytes);
    t.strings_ = Share(std::move(charge), std::vector<std::string>(static_cast<size_t>(t.size())));
    return t;
  }
  auto heap = std::make_shared<HeapBuffer>(bytes);
  t.data_ = heap->data();
  t.buffer_ = std::move(heap);
  return t;
}

Tensor Tensor::Zeros(DType dtype, Shape shape) {
  Tensor t = Empty(dtype, std::move(shape));
  if (dtype != DType::kString) std::memset(t.mutable_data(), 0, t.byte_size());
  return t;
}

Tensor Tensor::F32(Shape shape, std::vector<float> values) { return Of<float>(DType::kF32, std::move(shape), values); }
Tensor Tensor::S64(Shape shape, std::vector<int64_t> values) {
  return Of<int64_t>(DType::kS64, std::move(shape), values);
}
Tensor Tensor::Strings(Shape shape, std::vector<std::string> values) {
  Tensor t;
  t.dtype_ = DType::kString;
  t.shape_ = std::move(shape);
  size_t bytes = 0;
  for (const std::string& word : values) bytes += sizeof(word) + (word.capacity() > kShortWord ? word.capacity() : 0);
  t.strings_ = Share(MemoryCharge(bytes), std::move(values));
  return t;
}

Tensor Tensor::View(DType dtype, Shape shape, std::shared_ptr<const Buffer> owner, size_t offset) {
  Tensor t;
  t.dtype_ = dtype;
  t.shape_ = std::move(shape);
  OCTAVO_CHECK(offset + t.byte_size() <= owner->size(), "view of {} bytes at {} in a buffer of {}", t.byte_size(),
               offset, owner->size());
  t.data_ = owner->data() + offset;
  t.buffer_ = std::move(owner);
  return t;
}

Tensor Tensor::Reshaped(Shape shape) const {
  OCTAVO_CHECK(ElementCount(shape) == size(), "{} to {}", ToString(shape_), ToString(shape));
  Tensor t = *this;
  t.shape_ = std::move(shape);
  return t;
}

double Tensor::GetDouble(int64_t i) const {
  switch (dtype_) {
    case DType::kF32:
      return Load<float>(data_, i);
    case DType::kF64:
      return Load<double>(data_, i);
    case DType::kF16:
      return quant::F16ToF32(Load<uint16_t>(data_, i));
    case DType::kBF16:
      return quant::BF16ToF32(Load<uint16_t>(data_, i));
    case DType::kE4M3FN:
      return quant::E4M3FNToF32(Load<uint8_t>(data_, i));
    case DType::kE5M2:
      return quant::E5M2ToF32(Load<uint8_t>(data_, i));
    case DType::kE4M3FNUZ:
    case DType::kE5M2FNUZ:
    case DType::kE8M0:
      return quant::StoredToF32(Load<uint8_t>(data_, i), dtype_);
    case DType::kE2M1:
      return quant::StoredToF32(static_cast<uint8_t>(Packed(data_, i, 4)), dtype_);
    case DType::kU64:
      return static_cast<double>(Load<uint64_t>(data_, i));
    default:
      return static_cast<double>(GetInt(i));
  }
}

int64_t Tensor::GetInt(int64_t i) const {
  switch (dtype_) {
    case DType::kU8:
    case DType::kBool:
      return Load<uint8_t>(data_, i);
    case DType::kS8:
      return Load<int8_t>(data_, i);
    case DType::kU16:
      return Load<uint16_t>(data_, i);
    case DType::kS16:
      return Load<int16_t>(data_, i);
    case DType::kS32:
      return Load<int32_t>(data_, i);
    case DType::kU32:
      return Load<uint32_t>(data_, i);
    case DType::kS64:
    case DType::kU64:
      return Load<int64_t>(data_, i);
    case DType::kU4:
    case DType::kU2:
      return Packed(data_, i, quant::BitsOf(dtype_));
    case DType::kS4:
      return (Packed(data_, i, 4) ^ 8) - 8;
    case DType::kS2:
      return (Packed(data_, i, 2) ^ 2) - 2;
    case DType::kString:
    case DType::kUndefined:
      return 0;  // no numbers; the default below would come back here for ever
    default:
      return static_cast<int64_t>(GetDouble(i));
  }
}

std::vector<int64_t> Tensor::ToInts() const {
  std::vector<int64_t> v(static_cast<size_t>(size()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = GetInt(static_cast<int64_t>(i));
  return v;
}

std::vector<float> Tensor::ToFloats() const {
  std::vector<float> v(static_cast<size_t>(size()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(GetDouble(static_cast<int64_t>(i)));
  return v;
}

bool Tensor::SameBits(const Tensor& other) const {
  if (dtype_ != other.dtype_ || shape_ != other.shape_) return false;
  if (dtype_ == DType::kUndefined) return true;
  if (dtype_ == DType::kString) return *strings_ == *other.strings_;
  return data_ == other.data_ || std::memcmp(data_, other.data_, byte_size()) == 0;
}

uint64_t Tensor::Hash() const {
  uint64_t h = 1469598103934665603ULL;
  const auto mix = [&h](const void* p, size_t n) {
    const auto* bytes = static_cast<const unsigned char*>(p);
    for (size_t i = 0; i < n; ++i) h = (h ^ bytes[i]) * 1099511628211ULL;
  };
  mix(&dtype_, sizeof(dtype_));
  if (!shape_.empty()) mix(shape_.data(), shape_.size() * sizeof(int64_t));
  if (dtype_ == DType::kString) {
    for (const auto& s : *strings_) mix(s.data(), s.size() + 1);
  } else if (defined()) {
    mix(data_, byte_size());
  }
  return h;
}

}  // namespace octavo::ir
