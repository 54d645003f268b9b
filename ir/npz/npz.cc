#include "octavo/ir/npz/npz.h"

#include <zip.h>

#include <list>
#include <memory>

#include "octavo/ir/npz/npy.h"
#include "octavo/ir/whole_file.h"

namespace octavo::ir {

namespace {

struct Discard {
  void operator()(zip_t* z) const { zip_discard(z); }
  void operator()(zip_file_t* f) const { zip_fclose(f); }
};
using Archive = std::unique_ptr<zip_t, Discard>;
using Member = std::unique_ptr<zip_file_t, Discard>;

std::string Message(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string message = zip_error_strerror(&error);
  zip_error_fini(&error);
  return message;
}

class MemberSource : public internal::ByteSource {
 public:
  MemberSource(zip_file_t* file, uint64_t size, std::string place)
      : file_(file), remaining_(size), place_(std::move(place)) {}

  Status Read(void* to, size_t n) override {
    auto* at = static_cast<char*>(to);
    while (n > 0) {
      const zip_int64_t got = zip_fread(file_, at, n);
      if (got <= 0) return Fail("{} is damaged: {}", place_, Reason());
      at += got;
      n -= static_cast<size_t>(got);
      remaining_ -= static_cast<uint64_t>(got);
    }
    return {};
  }
  uint64_t remaining() const override { return remaining_; }

  // libzip compares the checksum when it meets the end, so the end must be read.
  Status Finish() {
    char extra;
    const zip_int64_t got = zip_fread(file_, &extra, 1);
    if (got < 0) return Fail("{} is damaged: {}", place_, Reason());
    if (got > 0) return Fail("{} is damaged: it holds more than it declares", place_);
    return {};
  }

 private:
  std::string Reason() {
    zip_error_t* error = zip_file_get_error(file_);
    return error->zip_err == 0 ? "its data ends early" : zip_error_strerror(error);
  }

  zip_file_t* file_;
  uint64_t remaining_;
  std::string place_;
};

// Sizes in an archive are claims. deflate packs at most 1032 to 1, so a larger claim is a lie, and nothing is
// allocated.
Status CheckClaim(const zip_stat_t& stat, uint64_t file_bytes, const std::string& place) {
  constexpr zip_uint64_t kNeeded = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
  if ((stat.valid & kNeeded) != kNeeded) return Fail("{} has no size", place);
  if ((stat.valid & ZIP_STAT_ENCRYPTION_METHOD) != 0 && stat.encryption_method != ZIP_EM_NONE) {
    return Fail("{} is encrypted", place);
  }
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    return Fail("{} is compressed by method {}; numpy.savez and numpy.savez_compressed write what octavo reads", place,
                stat.comp_method);
  }
  const bool stored = stat.comp_method == ZIP_CM_STORE;
  if (stat.comp_size > file_bytes || (stored && stat.size != stat.comp_size) ||
      (!stored && stat.size / 1032 > stat.comp_size + 1)) {
    return Fail("{} claims {} bytes, which the file cannot hold", place, stat.size);
  }
  return {};
}

Result<Tensor> ReadMember(zip_t* archive, zip_uint64_t index, uint64_t file_bytes, const std::string& place) {
  zip_stat_t stat;
  zip_stat_init(&stat);
  if (zip_stat_index(archive, index, 0, &stat) != 0) return Fail("{} cannot be found in the archive", place);
  OCTAVO_TRY_STATUS(CheckClaim(stat, file_bytes, place));
  const Member member(zip_fopen_index(archive, index, 0));
  if (!member) return Fail("{} cannot be read: {}", place, zip_error_strerror(zip_get_error(archive)));
  MemberSource source(member.get(), stat.size, place);
  OCTAVO_TRY(Tensor tensor, internal::ReadNpyFrom(source, place));
  OCTAVO_TRY_STATUS(source.Finish());
  return tensor;
}

}  // namespace

Result<TensorMap> ReadNpz(const std::filesystem::path& path) {
  std::error_code ec;
  const uint64_t file_bytes = std::filesystem::file_size(path, ec);
  if (ec) return Fail("cannot read '{}': {}", path.string(), ec.message());
  int code = 0;
  const Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (!archive) {
    return Fail("cannot read '{}' as a numpy .npz archive: {}; is it cut off, or another format?", path.string(),
                Message(code));
  }
  TensorMap arrays;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<zip_uint64_t>(i);
    const char* member = zip_get_name(archive.get(), index, ZIP_FL_ENC_GUESS);
    if (member == nullptr) return Fail("'{}' has a member without a name", path.string());
    std::string name = member;
    if (!name.ends_with(".npy")) return Fail("'{}' holds '{}', which is no .npy member", path.string(), name);
    name.resize(name.size() - 4);
    const std::string place = std::format("array '{}' of '{}'", name, path.string());
    if (arrays.contains(name)) return Fail("{} is there twice", place);
    OCTAVO_TRY(Tensor tensor, ReadMember(archive.get(), index, file_bytes, place));
    arrays.emplace(std::move(name), std::move(tensor));
  }
  return arrays;
}

Status WriteNpz(const std::filesystem::path& path, const TensorMap& arrays, const NpzOptions& options) {
  if (arrays.empty()) return Fail("cannot write '{}': there is no array to write", path.string());
  int code = 0;
  // libzip writes a temporary file beside the target and renames it in zip_close.
  Archive archive(zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code));
  if (!archive) return Fail("cannot write '{}': {}", path.string(), Message(code));
  std::list<std::string> members;  // libzip reads them in zip_close
  for (const auto& [name, tensor] : arrays) {
    OCTAVO_TRY(std::string bytes, NpyBytes(tensor));
    const std::string& kept = members.emplace_back(std::move(bytes));
    zip_source_t* source = zip_source_buffer(archive.get(), kept.data(), kept.size(), 0);
    const zip_int64_t index = zip_file_add(archive.get(), (name + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      return Fail("cannot write array '{}' to '{}': {}", name, path.string(),
                  zip_error_strerror(zip_get_error(archive.get())));
    }
    const auto at = static_cast<zip_uint64_t>(index);
    zip_set_file_compression(archive.get(), at, options.deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
    // 1980-01-01 00:00, the first date a zip archive knows and the one numpy writes.
    zip_file_set_dostime(archive.get(), at, 0, (1 << 5) | 1, 0);
  }
  if (zip_close(archive.get()) != 0) {
    return Fail("cannot write '{}': {}", path.string(), zip_error_strerror(zip_get_error(archive.get())));
  }
  static_cast<void>(archive.release());
  return {};
}

}  // namespace octavo::ir
