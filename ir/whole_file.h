// Files that are read whole, and written whole or not at all.
#ifndef OCTAVO_IR_WHOLE_FILE_H_
#define OCTAVO_IR_WHOLE_FILE_H_

#include <filesystem>
#include <string>
#include <string_view>

#include "octavo/ir/status.h"

namespace octavo::ir {

// Where a write to `wish` goes. A link keeps pointing where it does: the file behind it is meant. A pipe or a device such as /dev/null is
// written through, never replaced.
struct WriteTarget {
  std::filesystem::path path;
  bool through = false;
};
WriteTarget TargetOf(const std::filesystem::path& wish);

Result<std::string> ReadWholeFile(const std::filesystem::path& path);
// Into a temporary file beside the target, which is then renamed: an interrupted or failed write leaves the old file.
Status WriteWholeFile(const std::filesystem::path& wish, std::string_view bytes);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_WHOLE_FILE_H_
