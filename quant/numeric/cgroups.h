// Control groups of this process, whose limits hold for all groups within: a container's, a systemd slice's, a batch job's.
#ifndef OCTAVO_QUANT_NUMERIC_CGROUPS_H_
#define OCTAVO_QUANT_NUMERIC_CGROUPS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::quant {

// The text of a file, empty where there is none.
using ReadText = std::function<std::string(const std::string& path)>;
std::string TextOf(const std::string& path);

struct ControlGroup {
  std::string folder;
  int version;  // 1 or 2
};
// Those that `controller` ("cpu", "memory") may have a limit in, from the process's own up to the root. A container may see its own group as the
// root, and the path that it has outside: then the folders on the way do not exist, and the root has the answer.
std::vector<ControlGroup> ControlGroupsOf(std::string_view controller, const ReadText& read);

// A whole number above 0 and nothing else but the end of a line; 0: the text is none, as "max" and -1, which mean no limit.
int64_t PositiveOf(std::string_view text);

// Bytes of memory that these groups grant, the least: memory.max (version 2), memory.limit_in_bytes (version 1). 0: no limit.
int64_t MemoryQuota(const ReadText& read);

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_NUMERIC_CGROUPS_H_
