#include "octavo/quant/numeric/cgroups.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace octavo::quant {

namespace {

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void AddUpwards(const std::string& mount, std::string_view path, int version, std::vector<ControlGroup>& groups) {
  std::string group(path == "/" ? "" : path);
  while (true) {
    groups.push_back({mount + group, version});
    if (group.empty()) return;
    group.resize(std::min(group.rfind('/'), group.size()));
    if (group.find('/') == std::string::npos) group.clear();
  }
}

}  // namespace

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return file ? text.str() : std::string();
}

std::vector<ControlGroup> ControlGroupsOf(std::string_view controller, const ReadText& read) {
  const std::string own = read("/proc/self/cgroup");
  std::vector<ControlGroup> groups;
  for (const std::string_view line : Split(own, '\n')) {  // "0::/a/b" or "4:cpu,cpuacct:/a/b"
    const size_t first = line.find(':'), second = line.find(':', first == line.npos ? first : first + 1);
    if (second == line.npos) continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    const std::string_view path = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) AddUpwards(mount, path, 2, groups);
      continue;
    }
    const std::vector<std::string_view> names = Split(controllers, ',');
    if (std::ranges::find(names, controller) == names.end()) continue;
    for (const std::string& mount : {controllers, std::string(controller)})
      AddUpwards("/sys/fs/cgroup/" + mount, path, 1, groups);
  }
  return groups;
}

int64_t PositiveOf(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number > 0 ? number : 0;
}

int64_t MemoryQuota(const ReadText& read) {
  int64_t least = 0;
  for (const auto& [folder, version] : ControlGroupsOf("memory", read)) {
    const int64_t quota = PositiveOf(read(folder + (version == 2 ? "/memory.max" : "/memory.limit_in_bytes")));
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  }
  return least;
}

}  // namespace octavo::quant
