#include "octavo/ir/npz/npz.h"

#include <zip.h>

#include <cstring>
#include <list>
#include <memory>

#include "octavo/ir/closed.h"
#include "octavo/ir/names.h"
#include "octavo/ir/npz/npy.h"
#include "octavo/ir/whole_file.h"

namespace octavo::ir {

namespace {

struct Discard {
  void operator()(zip_t* z) const { zip_discard(z); }
  void operator()(zip_file_t* f) const { zip_fclose(f); }
  void operator()(zip_source_t* s) const { zip_source_free(s); }
};
using Archive = std::unique_ptr<zip_t, Discard>;
using Member = std::unique_ptr<zip_file_t, Discard>;
using Source = std::unique_ptr<zip_source_t, Discard>;

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

// `packed`: bytes of the members before this one. Members that overlap take more than the file has.
Result<Tensor> ReadMember(zip_t* archive, zip_uint64_t index, uint64_t file_bytes, uint64_t& packed,
                          const std::string& place) {
  zip_stat_t stat;
  zip_stat_init(&stat);
  if (zip_stat_index(archive, index, 0, &stat) != 0) return Fail("{} cannot be found in the archive", place);
  OCTAVO_TRY_STATUS(CheckClaim(stat, file_bytes, place));
  packed += stat.comp_size;
  if (packed > file_bytes) return Fail("{} overlaps others: together they take more bytes than the file has", place);
  const Member member(zip_fopen_index(archive, index, 0));
  if (!member) return Fail("{} cannot be read: {}", place, zip_error_strerror(zip_get_error(archive)));
  MemberSource source(member.get(), stat.size, place);
  OCTAVO_TRY(Tensor tensor, internal::ReadNpyFrom(source, place));
  OCTAVO_TRY_STATUS(source.Finish());
  return tensor;
}

Result<TensorMap> ReadArchive(zip_t* archive, uint64_t file_bytes, const std::string& file) {
  TensorMap arrays;
  uint64_t packed = 0;
  const zip_int64_t count = zip_get_num_entries(archive, 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<zip_uint64_t>(i);
    const char* member = zip_get_name(archive, index, ZIP_FL_ENC_RAW);
    if (member == nullptr) return Fail("{} has a member without a name", file);
    std::string name = member;
    if (!name.ends_with(".npy")) return Fail("{} holds {}, which is no .npy member", file, Quoted(name));
    name.resize(name.size() - 4);
    const std::string place = std::format("array {} of {}", Quoted(name), file);
    if (arrays.contains(name)) return Fail("{} is there twice", place);
    OCTAVO_TRY(Tensor tensor, ReadMember(archive, index, file_bytes, packed, place));
    arrays.emplace(std::move(name), std::move(tensor));
  }
  return arrays;
}

// What libzip writes to, in place of a file of its own.
struct Sink {
  NewFile file;
  zip_uint64_t at = 0, size = 0;
  Status status = {};

  zip_int64_t Write(const void* data, zip_uint64_t n) {
    status = file.WriteAt(at, {static_cast<const char*>(data), n});
    if (!status) return -1;
    at += n;
    size = std::max(size, at);
    return static_cast<zip_int64_t>(n);
  }
  zip_int64_t Seek(void* data, zip_uint64_t n) {
    const zip_int64_t to = zip_source_seek_compute_offset(at, size, data, n, nullptr);
    if (to >= 0) at = static_cast<zip_uint64_t>(to);
    return to < 0 ? -1 : 0;
  }
};

zip_int64_t CallSink(void* user, void* data, zip_uint64_t n, zip_source_cmd_t command) {
  auto& sink = *static_cast<Sink*>(user);
  switch (command) {
    case ZIP_SOURCE_SUPPORTS:
      return zip_source_make_command_bitmap(
          ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
          ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_BEGIN_WRITE, ZIP_SOURCE_COMMIT_WRITE, ZIP_SOURCE_ROLLBACK_WRITE,
          ZIP_SOURCE_WRITE, ZIP_SOURCE_SEEK_WRITE, ZIP_SOURCE_TELL_WRITE, ZIP_SOURCE_REMOVE, -1);
    case ZIP_SOURCE_STAT: {
      auto* stat = static_cast<zip_stat_t*>(data);
      zip_stat_init(stat);
      stat->size = 0;
      stat->valid = ZIP_STAT_SIZE;
      return sizeof(*stat);
    }
    case ZIP_SOURCE_ERROR: {
      const int error[2] = {ZIP_ER_WRITE, 0};  // the sink's status says more
      std::memcpy(data, error, sizeof(error));
      return sizeof(error);
    }
    case ZIP_SOURCE_WRITE:
      return sink.Write(data, n);
    case ZIP_SOURCE_SEEK_WRITE:
      return sink.Seek(data, n);
    case ZIP_SOURCE_TELL_WRITE:
      return static_cast<zip_int64_t>(sink.at);
    default:  // it is empty, and whether it stays is up to NewFile
      return 0;
  }
}

// An archive's names end at a zero byte.
std::string MemberName(const std::string& array) {
  return (array.find('\0') == std::string::npos ? array : Clean(array, array.size())) + ".npy";
}

Status WriteArchive(zip_source_t* source, Sink& sink, const TensorMap& arrays, const NpzOptions& options) {
  const std::string file = Quoted(sink.file.path().string());
  zip_error_t error;
  zip_error_init(&error);
  Archive archive(zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &error));
  const std::string problem = zip_error_strerror(&error);
  zip_error_fini(&error);
  if (!archive) return Fail("cannot write {}: {}", file, problem);
  zip_source_keep(source);
  std::list<std::string> members;  // libzip reads them in zip_close
  for (const auto& [name, tensor] : arrays) {
    OCTAVO_TRY(std::string bytes, NpyBytes(tensor));
    const std::string& kept = members.emplace_back(std::move(bytes));
    const std::string member = MemberName(name);
    zip_source_t* array = zip_source_buffer(archive.get(), kept.data(), kept.size(), 0);
    const zip_int64_t index =
        zip_file_add(archive.get(), member.c_str(), array, IsUtf8(member) ? ZIP_FL_ENC_UTF_8 : ZIP_FL_ENC_GUESS);
    if (index < 0) {
      zip_source_free(array);
      return Fail("cannot write array {} to {}: {}", Quoted(name), file,
                  zip_error_strerror(zip_get_error(archive.get())));
    }
    const auto at = static_cast<zip_uint64_t>(index);
    zip_set_file_compression(archive.get(), at, options.deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
    // 1980-01-01 00:00, the first date a zip archive knows and the one numpy writes.
    zip_file_set_dostime(archive.get(), at, 0, (1 << 5) | 1, 0);
  }
  if (zip_close(archive.get()) != 0) {
    OCTAVO_TRY_STATUS(sink.status);
    return Fail("cannot write {}: {}", file, zip_error_strerror(zip_get_error(archive.get())));
  }
  static_cast<void>(archive.release());
  return {};
}

}  // namespace

Result<TensorMap> ReadNpz(const std::filesystem::path& path, const Limits& limits) {
  return Closed("reading arrays", [&]() -> Result<TensorMap> {
    const std::string file = Quoted(path.string());
    std::error_code ec;
    const uint64_t bytes = std::filesystem::file_size(path, ec);
    if (ec) return Fail("cannot read {}: {}", file, ec.message());
    int code = 0;
    const Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
    if (!archive) {
      return Fail("cannot read {} as a numpy .npz archive: {}; is it cut off, or another format?", file, Message(code));
    }
    return Closed(file, MemoryLimit(limits, static_cast<int64_t>(bytes)),
                  [&] { return ReadArchive(archive.get(), bytes, file); });
  });
}

Status WriteNpz(const std::filesystem::path& path, const TensorMap& arrays, const NpzOptions& options) {
  return Closed("writing arrays", [&]() -> Status {
    if (arrays.empty()) return Fail("cannot write {}: there is no array to write", Quoted(path.string()));
    OCTAVO_TRY(NewFile file, NewFile::Create(path));
    Sink sink{std::move(file)};
    const Source source(zip_source_function_create(CallSink, &sink, nullptr));
    if (!source) return Fail("cannot write {}: out of memory", Quoted(path.string()));
    OCTAVO_TRY_STATUS(WriteArchive(source.get(), sink, arrays, options));
    return sink.file.Commit();
  });
}

}  // namespace octavo::ir
