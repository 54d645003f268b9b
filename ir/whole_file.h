// Files that are read whole, and written whole or not at all.
#ifndef OCTAVO_IR_WHOLE_FILE_H_
#define OCTAVO_IR_WHOLE_FILE_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "octavo/ir/status.h"

namespace octavo::ir {

// A new file that takes the place of the target when it is complete. A link keeps pointing where it does: the file behind it is meant. A
// pipe or a device such as /dev/null is written through, never replaced. Until Commit the file has no name, where the file system can do
// that, so that a process that is killed leaves nothing; a limit of file sizes and a reader that went away are errors, not signals.
class NewFile {
 public:
  static Result<NewFile> Create(const std::filesystem::path& wish);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  const std::filesystem::path& path() const { return path_; }  // behind the link
  bool through() const { return through_; }
  Status Write(std::string_view bytes);  // behind what was written before
  Status WriteAt(size_t offset, std::string_view bytes);
  Status Commit();

 private:
  NewFile() = default;
  std::unexpected<Error> Problem(int error) const;
  Status OpenNamed();

  std::filesystem::path path_, temporary_;  // temporary_ is empty: the file has no name
  bool through_ = false;
  int fd_ = -1;
};

struct ReadLimits {
  // A longer file is refused before it is read.
  size_t most = SIZE_MAX;
  // Of a file that begins otherwise only the first bytes are read, so that its parser can say what is wrong.
  std::string_view begins = {};
};
// A pipe is waited for, but not without end where nobody writes to it.
Result<std::string> ReadWholeFile(const std::filesystem::path& path, const ReadLimits& limits = {});
Status WriteWholeFile(const std::filesystem::path& wish, std::string_view bytes);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_WHOLE_FILE_H_
