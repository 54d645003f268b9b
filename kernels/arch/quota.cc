#include "octavo/kernels/arch/quota.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "octavo/kernels/arch/cpus.h"

namespace octavo::kernels {
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

// A whole number above 0; "max" and -1, which mean no quota, are none.
std::optional<double> Positive(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number > 0 ? std::optional<double>(static_cast<double>(number)) : std::nullopt;
}

// Quota by period, both in microseconds.
std::optional<double> Ratio(std::string_view quota, std::string_view period) {
  const std::optional<double> q = Positive(quota), p = Positive(period);
  return q && p ? std::optional<double>(*q / *p) : std::nullopt;
}

// "50000 100000" or "max 100000".
std::optional<double> OfVersion2(const ReadText& read, const std::string& group) {
  const std::string text = read(group + "/cpu.max");
  const std::vector<std::string_view> words = Split(text, ' ');
  return words.size() == 2 ? Ratio(words[0], words[1]) : std::nullopt;
}

std::optional<double> OfVersion1(const ReadText& read, const std::string& group) {
  return Ratio(read(group + "/cpu.cfs_quota_us"), read(group + "/cpu.cfs_period_us"));
}

// The smallest from `path` up to the root. A container may see its own group as the root, and the path that it has outside: then the
// folders on the way do not exist, and the root has the answer.
template <typename Read>
double SmallestOnTheWay(const std::string& mount, std::string_view path, double known, Read&& read) {
  std::string group(path == "/" ? "" : path);
  while (true) {
    if (const std::optional<double> quota = read(mount + group)) known = known == 0 ? *quota : std::min(known, *quota);
    if (group.empty()) return known;
    group.resize(std::min(group.rfind('/'), group.size()));
    if (group.find('/') == std::string::npos) group.clear();
  }
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return file ? text.str() : std::string();
}

// 0: the system does not say.
int CpusOfThread() {
  for (int most = 1024; most <= 1 << 20; most *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(most));
    if (set == nullptr) return 0;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return 0;
}

}  // namespace

double CpuQuota(const ReadText& read) {
  const std::string groups = read("/proc/self/cgroup");
  double smallest = 0;
  for (const std::string_view line : Split(groups, '\n')) {  // "0::/a/b" or "4:cpu,cpuacct:/a/b"
    const size_t first = line.find(':'), second = line.find(':', first == line.npos ? first : first + 1);
    if (second == line.npos) continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    const std::string_view path = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
        smallest = SmallestOnTheWay(mount, path, smallest, [&](const std::string& g) { return OfVersion2(read, g); });
      }
      continue;
    }
    const std::vector<std::string_view> names = Split(controllers, ',');
    if (std::ranges::find(names, "cpu") == names.end()) continue;
    for (const std::string& mount : {"/sys/fs/cgroup/" + controllers, std::string("/sys/fs/cgroup/cpu")}) {
      smallest = SmallestOnTheWay(mount, path, smallest, [&](const std::string& g) { return OfVersion1(read, g); });
    }
  }
  return smallest;
}

int UsableCpus(int cpus, double quota) {
  cpus = std::max(cpus, 1);
  if (!(quota > 0) || quota >= cpus) return cpus;
  return std::max(1, static_cast<int>(std::ceil(quota)));
}

int UsableCpus() {
  const int cpus = CpusOfThread();
  return UsableCpus(cpus > 0 ? cpus : static_cast<int>(std::thread::hardware_concurrency()), CpuQuota(TextOf));
}

int ThreadsOf(std::string_view text) {
  constexpr int kMost = 1024;
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  return error == std::errc() && end == text.data() + text.size() && threads <= kMost ? std::max(threads, 0) : 0;
}

int DefaultThreads(std::string* problem) {
  const auto cpus = static_cast<int>(WantedCpus(problem).size());
  const char* wanted = std::getenv("OCTAVO_NUM_THREADS");
  if (wanted == nullptr) return cpus > 0 ? UsableCpus(cpus, CpuQuota(TextOf)) : UsableCpus();
  if (const int threads = ThreadsOf(wanted); threads > 0) return threads;
  const int usable = UsableCpus();
  if (problem != nullptr)
    *problem = "OCTAVO_NUM_THREADS is a number from 1 to 1024, not '" + std::string(wanted) +
               "'; all of the CPU is used, " + std::to_string(usable);
  return usable;
}

}  // namespace octavo::kernels
