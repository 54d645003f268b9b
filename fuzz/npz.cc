// numpy's files. The same bytes are taken as one array and as an archive; what is read is written and read back.
#include "octavo/ir/npz/npz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "octavo/fuzz/targets.h"

namespace octavo::fuzz {

namespace {

// A file of these bytes without a place in any folder.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0 || write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      Broken("a file can be made", "memfd_create");
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void ReadArray(std::string_view bytes) {
  const auto array = ir::ParseNpy(bytes, "the array");
  if (!array) return CheckSentence(array.error().message, bytes);
  const auto written = ir::NpyBytes(*array);
  if (!written) return CheckSentence(written.error().message, bytes);
  const auto again = ir::ParseNpy(*written, "the array");
  if (!again) Broken("octavo reads the array that it wrote", again.error().message);
  if (!again->SameBits(*array)) Broken("an array keeps its bits", quant::Name(array->dtype()));
}

}  // namespace

void FuzzNpz(std::string_view bytes) {
  ReadArray(bytes);
  if (!bytes.starts_with("PK")) return;
  const MemoryFile file(bytes);
  const auto arrays = ir::ReadNpz(file.path());
  if (!arrays) return CheckSentence(arrays.error().message, bytes);
  for (const auto& [name, array] : *arrays) {
    if (const auto npy = ir::NpyBytes(array); !npy) CheckSentence(npy.error().message, bytes);
  }
}

}  // namespace octavo::fuzz
