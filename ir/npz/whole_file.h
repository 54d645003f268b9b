// Files that are read whole, and written whole or not at all.
#ifndef OCTAVO_IR_NPZ_WHOLE_FILE_H_
#define OCTAVO_IR_NPZ_WHOLE_FILE_H_

#include <filesystem>
#include <string>
#include <string_view>

#include "octavo/ir/status.h"

namespace octavo::ir {

Result<std::string> ReadWholeFile(const std::filesystem::path& path);
// Into a temporary file beside the target, which is then renamed: an interrupted or failed write leaves the old file. A pipe or a
// device is written through, a link followed.
Status WriteWholeFile(const std::filesystem::path& target, std::string_view bytes);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_NPZ_WHOLE_FILE_H_
