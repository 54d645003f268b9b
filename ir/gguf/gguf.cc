#include "octavo/ir/gguf/gguf.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "octavo/ir/closed.h"
#include "octavo/ir/mapped.h"
#include "octavo/ir/names.h"

namespace octavo::ir::gguf {

namespace {

constexpr Form kForms[] = {
    {.type = Type::kF32, .name = "F32", .elements = 1, .bytes = 4},
    {.type = Type::kF16, .name = "F16", .elements = 1, .bytes = 2},
    {.type = Type::kBF16, .name = "BF16", .elements = 1, .bytes = 2},
    {.type = Type::kQ4_0, .name = "Q4_0", .elements = 32, .bytes = 18, .group = 32, .codes = DType::kS4},
    {.type = Type::kQ4_1, .name = "Q4_1", .elements = 32, .bytes = 20},
    {.type = Type::kQ5_0, .name = "Q5_0", .elements = 32, .bytes = 22, .group = 32},
    {.type = Type::kQ5_1, .name = "Q5_1", .elements = 32, .bytes = 24},
    {.type = Type::kQ8_0, .name = "Q8_0", .elements = 32, .bytes = 34, .group = 32},
    {.type = Type::kQ2_K, .name = "Q2_K", .elements = 256, .bytes = 84, .group = 16, .codes = DType::kU4, .mins = true},
    {.type = Type::kQ3_K, .name = "Q3_K", .elements = 256, .bytes = 110, .group = 16, .codes = DType::kS4},
    {.type = Type::kQ4_K,
     .name = "Q4_K",
     .elements = 256,
     .bytes = 144,
     .group = 32,
     .codes = DType::kU4,
     .mins = true},
    {.type = Type::kQ5_K, .name = "Q5_K", .elements = 256, .bytes = 176, .group = 32, .mins = true},
    {.type = Type::kQ6_K, .name = "Q6_K", .elements = 256, .bytes = 210, .group = 16},
    {.type = Type::kIQ4_NL, .name = "IQ4_NL", .elements = 32, .bytes = 18, .group = 32},
    {.type = Type::kIQ4_XS, .name = "IQ4_XS", .elements = 256, .bytes = 136, .group = 32},
    {.type = Type::kMXFP4, .name = "MXFP4", .elements = 32, .bytes = 17, .group = 32},
};

// The types of metadata, by the file's numbers.
enum Kind : uint32_t { kU8, kS8, kU16, kS16, kU32, kS32, kF32, kBool, kString, kArray, kU64, kS64, kF64, kKinds };
constexpr size_t kBytesOfKind[kKinds] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

}  // namespace

const Form* FormOf(uint32_t type) {
  const auto* const form = std::ranges::find(kForms, static_cast<Type>(type), &Form::type);
  return form == std::end(kForms) ? nullptr : form;
}

// Walks over the bytes. What does not fit ends the walk with a sentence.
class Parser {
 public:
  Parser(std::shared_ptr<const Buffer> bytes, std::string_view place) : place_(place) {
    file_.bytes_ = std::move(bytes);
    rest_ = {file_.bytes_->data(), file_.bytes_->size()};
  }

  Result<File> Run() {
    OCTAVO_TRY(const uint32_t magic, Take<uint32_t>("its first bytes"));
    if (magic != 0x46554747) return ir::Fail("{} is no GGUF file: its first bytes are not 'GGUF'", place_);
    OCTAVO_TRY(const uint32_t version, Take<uint32_t>("its version"));
    if (version != 2 && version != 3)
      return ir::Fail("{} is GGUF of version {}; octavo reads 2 and 3 of little endian", place_, version);
    OCTAVO_TRY(const uint64_t tensors, Take<uint64_t>("the number of tensors"));
    OCTAVO_TRY(const uint64_t pairs, Take<uint64_t>("the number of metadata"));
    for (uint64_t i = 0; i < pairs; ++i) OCTAVO_TRY_STATUS(Pair());
    for (uint64_t i = 0; i < tensors; ++i) OCTAVO_TRY_STATUS(Info());
    OCTAVO_TRY_STATUS(Locate());
    return std::move(file_);
  }

 private:
  std::unexpected<Error> CutOff(std::string_view what) const {
    return ir::Fail("{} ends within {}: it is cut off or damaged, fetch it again", place_, what);
  }

  template <typename T>
  Result<T> Take(std::string_view what) {
    if (rest_.size() < sizeof(T)) return CutOff(what);
    T value;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }

  Status Skip(uint64_t bytes, std::string_view what) {
    if (rest_.size() < bytes) return CutOff(what);
    rest_ = rest_.subspan(bytes);
    return {};
  }

  Result<std::string_view> Text(std::string_view what) {
    OCTAVO_TRY(const uint64_t size, Take<uint64_t>(what));
    const auto* const at = reinterpret_cast<const char*>(rest_.data());
    OCTAVO_TRY_STATUS(Skip(size, what));
    return std::string_view(at, size);
  }

  Status SkipArray(int depth) {
    constexpr std::string_view kWhat = "its metadata";
    OCTAVO_TRY(const uint32_t kind, Take<uint32_t>(kWhat));
    OCTAVO_TRY(const uint64_t count, Take<uint64_t>(kWhat));
    if (kind >= kKinds || depth > 4) return ir::Fail("{} has metadata of a kind that GGUF does not have", place_);
    if (kBytesOfKind[kind] != 0) {
      if (count > rest_.size()) return CutOff(kWhat);
      return Skip(count * kBytesOfKind[kind], kWhat);
    }
    for (uint64_t i = 0; i < count; ++i) {  // each takes 8 bytes and more
      if (kind == kString) {
        OCTAVO_TRY_STATUS(Text(kWhat).transform([](auto) {}));
      } else {
        OCTAVO_TRY_STATUS(SkipArray(depth + 1));
      }
    }
    return {};
  }

  Status Pair() {
    OCTAVO_TRY(const std::string_view key, Text("its metadata"));
    OCTAVO_TRY(const uint32_t kind, Take<uint32_t>("its metadata"));
    if (kind >= kKinds) return ir::Fail("{} has metadata of a kind that GGUF does not have", place_);
    if (kind == kArray) return SkipArray(0);
    if (kind == kString) {
      OCTAVO_TRY(const std::string_view text, Text("its metadata"));
      if (key == "general.architecture") file_.architecture_ = text;
      return {};
    }
    const std::byte* const at = rest_.data();
    OCTAVO_TRY_STATUS(Skip(kBytesOfKind[kind], "its metadata"));
    if (kind == kF32 || kind == kF64) return {};
    uint64_t bits = 0;  // little endian: the low bytes come first
    std::memcpy(&bits, at, kBytesOfKind[kind]);
    const int unused = 64 - 8 * static_cast<int>(kBytesOfKind[kind]);
    const bool is_signed = kind == kS8 || kind == kS16 || kind == kS32;
    file_.numbers_[std::string(key)] =
        is_signed ? static_cast<int64_t>(bits << unused) >> unused : std::bit_cast<int64_t>(bits);
    return {};
  }

  Status Info() {
    constexpr std::string_view kWhat = "its list of tensors";
    TensorInfo t;
    OCTAVO_TRY(t.name, Text(kWhat));
    OCTAVO_TRY(const uint32_t rank, Take<uint32_t>(kWhat));
    if (rank > 4) return ir::Fail("{}: the tensor {} has {} dims; GGUF has at most 4", place_, Quoted(t.name), rank);
    for (uint32_t i = 0; i < rank; ++i) {
      OCTAVO_TRY(const uint64_t dim, Take<uint64_t>(kWhat));
      constexpr uint64_t kMost = uint64_t{1} << 40;
      if (dim == 0 || dim > kMost) return ir::Fail("{}: the tensor {} has a dim of {}", place_, Quoted(t.name), dim);
      t.shape.insert(t.shape.begin(), static_cast<int64_t>(dim));
    }
    OCTAVO_TRY(t.type, Take<uint32_t>(kWhat));
    OCTAVO_TRY(const uint64_t offset, Take<uint64_t>(kWhat));
    if (!file_.by_name_.emplace(t.name, file_.tensors_.size()).second)
      return ir::Fail("{} has two tensors {}", place_, Quoted(t.name));
    file_.tensors_.push_back(std::move(t));
    offsets_.push_back(offset);
    return {};
  }

  // Bytes of tensors of types that octavo knows.
  Status Locate() {
    const int64_t alignment = file_.Number("general.alignment").value_or(32);
    if (alignment < 1 || alignment > (1 << 20) || !std::has_single_bit(static_cast<uint64_t>(alignment)))
      return ir::Fail("{} aligns its tensors to {} bytes, which is no power of two up to a megabyte", place_,
                      alignment);
    const size_t size = file_.bytes_->size(), head = size - rest_.size();
    const size_t start =
        (head + static_cast<size_t>(alignment) - 1) / static_cast<size_t>(alignment) * static_cast<size_t>(alignment);
    for (size_t i = 0; i < offsets_.size(); ++i) {
      TensorInfo& t = file_.tensors_[i];
      const Form* form = FormOf(t.type);
      if (form == nullptr) continue;
      int64_t bytes = form->bytes;
      const int64_t row = t.shape.empty() ? 1 : t.shape.back();
      if (row % form->elements != 0)
        return ir::Fail("{}: the rows of the tensor {} have {} elements, which are no whole blocks of {} ({})", place_,
                        Quoted(t.name), row, form->elements, form->name);
      for (size_t d = 0; d < t.shape.size(); ++d) {
        const int64_t dim = d + 1 == t.shape.size() ? row / form->elements : t.shape[d];
        if (__builtin_mul_overflow(bytes, dim, &bytes)) bytes = -1;
        if (bytes < 0) break;
      }
      if (bytes < 0 || start > size || offsets_[i] > size - start ||
          static_cast<uint64_t>(bytes) > size - start - offsets_[i])
        return ir::Fail(
            "{}: the tensor {} lies beyond the end of the file, which is cut off or damaged: fetch it again", place_,
            Quoted(t.name));
      t.data = {file_.bytes_->data() + start + offsets_[i], static_cast<size_t>(bytes)};
    }
    return {};
  }

  std::string place_;
  File file_;
  std::span<const std::byte> rest_;
  std::vector<uint64_t> offsets_;
};

Result<File> File::Parse(std::shared_ptr<const Buffer> bytes, std::string_view place) {
  return Closed(place, [&] { return Parser(std::move(bytes), place).Run(); });
}

Result<File> File::Read(const std::filesystem::path& path) {
  const std::string place = Quoted(path.string());
  return Closed(place, [&]() -> Result<File> {
    OCTAVO_TRY(auto bytes, MapFile(path, {}));
    return Parse(std::move(bytes), place);
  });
}

const TensorInfo* File::Find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

std::string File::architecture() const { return architecture_; }

std::optional<int64_t> File::Number(std::string_view key) const {
  const auto it = numbers_.find(key);
  return it == numbers_.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace octavo::ir::gguf
