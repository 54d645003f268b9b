#include "octavo/ir/onnx/tensor_proto.h"

#include <onnx_messages.pb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "octavo/ir/names.h"

namespace octavo::ir::onnx {

namespace pb = ::octavo_onnx;

namespace {

// Elements of one tensor; bounds every product below, so that no size computation can overflow.
constexpr int64_t kMaxElements = int64_t{1} << 48;
// Below this, copying is cheaper than keeping a buffer of its own alive.
constexpr size_t kCopyBelow = 4096;

class StringBuffer : public Buffer {
 public:
  explicit StringBuffer(std::string bytes) : bytes_(std::move(bytes)) {
    data_ = reinterpret_cast<std::byte*>(bytes_.data());
    size_ = bytes_.size();
  }

 private:
  std::string bytes_;
};

Result<Shape> ReadDims(const pb::TensorProto& proto) {
  if (proto.dims_size() > kMaxRank) return Fail("it has {} dimensions, more than {}", proto.dims_size(), kMaxRank);
  Shape shape(proto.dims().begin(), proto.dims().end());
  int64_t elements = 1;
  for (int64_t d : shape) {
    if (d < 0) return Fail("its shape {} has a negative dimension", ToString(shape));
    if (d > kMaxElements || elements > kMaxElements / std::max<int64_t>(d, 1)) {
      return Fail("its shape {} is larger than any tensor can be", ToString(shape));
    }
    elements *= std::max<int64_t>(d, 1);
  }
  return shape;
}

// The bits of the last byte that hold elements.
uint8_t LastByteMask(const Tensor& t) {
  const auto bits = static_cast<size_t>(quant::BitsOf(t.dtype())) * static_cast<size_t>(t.size()) % 8;
  return bits == 0 ? 0xff : static_cast<uint8_t>((1u << bits) - 1);
}

// What hostile or sloppy writers leave in bits that carry no meaning: bools other than 0 and 1, and what stands behind
// the last of 4-bit and 2-bit elements. Equal tensors must have equal bytes.
bool NeedsCleaning(const Tensor& t) {
  if (t.dtype() == DType::kBool) {
    return std::ranges::any_of(t.as<uint8_t>(), [](uint8_t b) { return b > 1; });
  }
  return quant::IsPacked(t.dtype()) && t.size() > 0 && (t.as<uint8_t>().back() & ~LastByteMask(t)) != 0;
}
Tensor Cleaned(const Tensor& t) {
  if (!NeedsCleaning(t)) return t;
  Tensor copy = Tensor::Of<uint8_t>(t.dtype(), t.shape(), t.as<uint8_t>());
  if (t.dtype() == DType::kBool) {
    for (uint8_t& b : copy.mutable_as<uint8_t>()) b = b != 0;
  } else {
    copy.mutable_as<uint8_t>().back() &= LastByteMask(t);
  }
  return copy;
}

Tensor CopyBytes(DType dtype, Shape shape, const void* bytes) {
  Tensor t = Tensor::Empty(dtype, std::move(shape));
  if (t.byte_size() != 0) std::memcpy(t.mutable_data(), bytes, t.byte_size());
  return t;
}

std::optional<int64_t> ParseNumber(const std::string& text) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc{} || end != text.data() + text.size() || v < 0) return std::nullopt;
  return v;
}

Result<Tensor> ReadExternal(const pb::TensorProto& proto, DType dtype, Shape shape, size_t bytes,
                            ExternalFiles& files) {
  std::string location;
  int64_t offset = 0;
  std::optional<int64_t> length;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() != "offset" && entry.key() != "length") continue;
    const auto number = ParseNumber(entry.value());
    if (!number) return Fail("the {} of its external data, {}, is no number", entry.key(), Quoted(entry.value()));
    (entry.key() == "offset" ? offset : length.emplace()) = *number;
  }
  if (dtype == DType::kString) return Fail("strings cannot be external data");
  OCTAVO_TRY(auto file, files.Open(location, bytes));
  if (length && static_cast<uint64_t>(*length) != bytes) {
    return Fail("its external data has {} bytes, but {}{} takes {}", *length, quant::Name(dtype), ToString(shape),
                bytes);
  }
  const auto at = static_cast<uint64_t>(offset);
  if (at > file->size() || file->size() - at < bytes) {
    return Fail(
        "its external data, {} bytes at offset {}, lies beyond the end of {} ({} bytes); the file is truncated "
        "or belongs to another model",
        bytes, offset, Quoted(location), file->size());
  }
  // Kernels and the interpreter load whole elements, so a misaligned view would be undefined behaviour.
  const size_t element = std::max<size_t>(1, static_cast<size_t>(quant::BitsOf(dtype)) / 8);
  if (at % element != 0 || bytes == 0) return CopyBytes(dtype, std::move(shape), file->data() + at);
  return Tensor::View(dtype, std::move(shape), std::move(file), at);
}

// Typed fields hold one element each, whatever its width; of 4-bit and 2-bit elements a byte each.
template <typename T, typename Field>
Tensor Narrowed(DType dtype, Shape shape, const Field& field) {
  Tensor t = Tensor::Empty(dtype, std::move(shape));
  auto out = t.mutable_as<T>();
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(field[static_cast<int>(i)]);
  return t;
}

Result<Tensor> ReadTyped(const pb::TensorProto& proto, DType dtype, Shape shape) {
  const auto count = static_cast<size_t>(ElementCount(shape));
  const auto check = [&](size_t have, size_t want) -> Status {
    if (have == want) return {};
    return Fail("it holds {} values, but its shape {} asks for {}", have, ToString(shape), want);
  };
  switch (dtype) {
    case DType::kF32:
      OCTAVO_TRY_STATUS(check(static_cast<size_t>(proto.float_data_size()), count));
      return CopyBytes(dtype, std::move(shape), proto.float_data().data());
    case DType::kF64:
      OCTAVO_TRY_STATUS(check(static_cast<size_t>(proto.double_data_size()), count));
      return CopyBytes(dtype, std::move(shape), proto.double_data().data());
    case DType::kS64:
      OCTAVO_TRY_STATUS(check(static_cast<size_t>(proto.int64_data_size()), count));
      return CopyBytes(dtype, std::move(shape), proto.int64_data().data());
    case DType::kU64:
      OCTAVO_TRY_STATUS(check(static_cast<size_t>(proto.uint64_data_size()), count));
      return CopyBytes(dtype, std::move(shape), proto.uint64_data().data());
    case DType::kU32:
      OCTAVO_TRY_STATUS(check(static_cast<size_t>(proto.uint64_data_size()), count));
      return Narrowed<uint32_t>(dtype, std::move(shape), proto.uint64_data());
    case DType::kString: {
      OCTAVO_TRY_STATUS(check(static_cast<size_t>(proto.string_data_size()), count));
      return Tensor::Strings(std::move(shape), {proto.string_data().begin(), proto.string_data().end()});
    }
    default:
      break;
  }
  const int bits = quant::BitsOf(dtype);
  OCTAVO_TRY_STATUS(
      check(static_cast<size_t>(proto.int32_data_size()), bits < 8 ? quant::BytesOf(dtype, count) : count));
  if (bits == 32) return Narrowed<int32_t>(dtype, std::move(shape), proto.int32_data());
  if (bits == 16) return Narrowed<uint16_t>(dtype, std::move(shape), proto.int32_data());
  return Narrowed<uint8_t>(dtype, std::move(shape), proto.int32_data());
}

bool HasTypedData(const pb::TensorProto& p) {
  return p.float_data_size() + p.int32_data_size() + p.int64_data_size() + p.double_data_size() + p.uint64_data_size() +
             p.string_data_size() !=
         0;
}

Result<Tensor> Read(const pb::TensorProto& proto, std::string* raw_to_take, ExternalFiles& files) {
  if (!IsKnownDType(proto.data_type())) {
    const bool named = pb::TensorProto::DataType_IsValid(proto.data_type()) && proto.data_type() != 0;
    return Fail("its element type {} is not one that octavo has",
                named ? pb::TensorProto::DataType_Name(static_cast<pb::TensorProto::DataType>(proto.data_type()))
                      : std::to_string(proto.data_type()));
  }
  if (proto.has_segment()) return Fail("it is stored in segments, which octavo does not read");
  const auto dtype = static_cast<DType>(proto.data_type());
  OCTAVO_TRY(Shape shape, ReadDims(proto));
  const size_t bytes = quant::BytesOf(dtype, static_cast<size_t>(ElementCount(shape)));
  if (proto.data_location() == pb::TensorProto::EXTERNAL) {
    OCTAVO_TRY(Tensor t, ReadExternal(proto, dtype, std::move(shape), bytes, files));
    return Cleaned(t);
  }
  if (proto.has_raw_data() && dtype != DType::kString) {
    if (HasTypedData(proto) && !proto.raw_data().empty()) return Fail("it holds its data twice, raw and typed");
    if (!HasTypedData(proto)) {
      if (proto.raw_data().size() != bytes) {
        return Fail("it holds {} bytes, but {}{} takes {}", proto.raw_data().size(), quant::Name(dtype),
                    ToString(shape), bytes);
      }
      if (raw_to_take == nullptr || bytes < kCopyBelow) {
        return Cleaned(CopyBytes(dtype, std::move(shape), proto.raw_data().data()));
      }
      return Cleaned(Tensor::View(dtype, std::move(shape), std::make_shared<StringBuffer>(std::move(*raw_to_take)), 0));
    }
  }
  OCTAVO_TRY(Tensor t, ReadTyped(proto, dtype, std::move(shape)));
  return Cleaned(t);
}

}  // namespace

bool IsKnownDType(int32_t data_type) { return quant::IsDType(data_type); }

Result<Tensor> ReadTensor(const pb::TensorProto& proto, ExternalFiles& files) { return Read(proto, nullptr, files); }
Result<Tensor> TakeTensor(pb::TensorProto& proto, ExternalFiles& files) {
  return Read(proto, proto.has_raw_data() ? proto.mutable_raw_data() : nullptr, files);
}

void WriteHeader(const Tensor& tensor, pb::TensorProto* proto) {
  proto->mutable_dims()->Add(tensor.shape().begin(), tensor.shape().end());
  proto->set_data_type(static_cast<int32_t>(tensor.dtype()));
}

void WriteTensor(const Tensor& tensor, pb::TensorProto* proto) {
  WriteHeader(tensor, proto);
  if (tensor.dtype() == DType::kString) {
    for (const std::string& s : tensor.strings()) proto->add_string_data(s);
  } else {
    proto->set_raw_data(tensor.data(), tensor.byte_size());
  }
}

}  // namespace octavo::ir::onnx
