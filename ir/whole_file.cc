#include "octavo/ir/whole_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

namespace octavo::ir {

namespace {

struct Closer {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, Closer>;

std::string Reason(int error) { return std::generic_category().message(error); }

Status WriteThrough(const std::filesystem::path& path, std::string_view bytes) {
  File file(std::fopen(path.c_str(), "wb"));
  if (!file) return Fail("cannot write '{}': {}", path.string(), Reason(errno));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  if (std::fclose(file.release()) != 0 || !written) return Fail("cannot write '{}': {}", path.string(), Reason(errno));
  return {};
}

}  // namespace

Result<std::string> ReadWholeFile(const std::filesystem::path& path) {
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) {
    return Fail("cannot read '{}': it is a folder, a file is needed", path.string());
  }
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) return Fail("cannot read '{}': {}", path.string(), Reason(errno));
  std::string bytes;
  const auto size = std::filesystem::file_size(path, ec);
  if (!ec) bytes.reserve(size);
  char chunk[1 << 16];
  for (;;) {
    const size_t n = std::fread(chunk, 1, sizeof(chunk), file.get());
    bytes.append(chunk, n);
    if (n < sizeof(chunk)) break;
  }
  if (std::ferror(file.get()) != 0) return Fail("cannot read '{}': {}", path.string(), Reason(errno));
  return bytes;
}

WriteTarget TargetOf(const std::filesystem::path& wish) {
  std::error_code ec;
  WriteTarget target{wish};
  if (std::filesystem::is_symlink(wish, ec)) {
    if (auto behind = std::filesystem::weakly_canonical(wish, ec); !ec) target.path = std::move(behind);
  }
  const auto status = std::filesystem::status(target.path, ec);
  target.through = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
                   !std::filesystem::is_directory(status);
  return target;
}

Status WriteWholeFile(const std::filesystem::path& wish, std::string_view bytes) {
  const auto [path, through] = TargetOf(wish);
  if (through) return WriteThrough(path, bytes);
  std::string temporary = path.string() + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());  // beside the target: rename works within one file system only
  if (fd < 0) return Fail("cannot write '{}': {}", path.string(), Reason(errno));
  File file(::fdopen(fd, "wb"));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  const int write_error = errno;
  // mkstemp makes files that only the owner can read; a result gets what any new file gets.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd, 0666 & ~mask);
  const bool closed = std::fclose(file.release()) == 0;
  if (!written || !closed) {
    const int error = written ? errno : write_error;
    std::remove(temporary.c_str());
    return Fail("cannot write '{}': {}", path.string(), Reason(error));
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    std::remove(temporary.c_str());
    return Fail("cannot write '{}': {}", path.string(), Reason(error));
  }
  return {};
}

}  // namespace octavo::ir
