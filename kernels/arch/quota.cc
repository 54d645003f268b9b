#include "octavo/kernels/arch/quota.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <format>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "octavo/kernels/arch/cpus.h"
#include "octavo/kernels/arch/numa.h"

namespace octavo::kernels {
namespace {

// Quota by period, both in microseconds. 0: none.
double Ratio(std::string_view quota, std::string_view period) {
  const int64_t q = quant::PositiveOf(quota), p = quant::PositiveOf(period);
  return q > 0 && p > 0 ? static_cast<double>(q) / static_cast<double>(p) : 0;
}

// "50000 100000" or "max 100000".
double OfVersion2(const ReadText& read, const std::string& group) {
  const std::string text = read(group + "/cpu.max");
  const size_t space = text.find(' ');
  return space == std::string::npos ? 0 : Ratio(text.substr(0, space), text.substr(space + 1));
}

double OfVersion1(const ReadText& read, const std::string& group) {
  return Ratio(read(group + "/cpu.cfs_quota_us"), read(group + "/cpu.cfs_period_us"));
}

int SchedulableCpus() {
  for (int most = 1024; most <= 1 << 20; most *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(most));
    if (set == nullptr) return 0;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return static_cast<int>(std::thread::hardware_concurrency());  // the system does not say
}

// Threads for so many CPUs, at most the quota, and where the number comes from.
ThreadCount CountOf(int cpus, std::string of) {
  const double quota = CpuQuota(quant::TextOf);
  const int count = UsableCpus(cpus, quota);
  if (count < std::max(cpus, 1)) of = std::format("the container's quota of {:g} CPUs", quota);
  return {count, std::move(of)};
}

}  // namespace

double CpuQuota(const ReadText& read) {
  double smallest = 0;
  for (const auto& [folder, version] : quant::ControlGroupsOf("cpu", read)) {
    const double quota = version == 2 ? OfVersion2(read, folder) : OfVersion1(read, folder);
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
  }
  return smallest;
}

int UsableCpus(int cpus, double quota) {
  cpus = std::max(cpus, 1);
  if (!(quota > 0) || quota >= cpus) return cpus;
  return std::max(1, static_cast<int>(std::ceil(quota)));
}

int UsableCpus() { return UsableCpus(SchedulableCpus(), CpuQuota(quant::TextOf)); }

int ThreadsOf(std::string_view text) {
  constexpr int kMost = 1024;
  int threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  return error == std::errc() && end == text.data() + text.size() && threads <= kMost ? std::max(threads, 0) : 0;
}

ThreadCount DefaultThreads(std::string* problem) {
  const auto cpus = static_cast<int>(WantedCpus(problem).size());
  const char* wanted = std::getenv("OCTAVO_NUM_THREADS");
  if (wanted == nullptr && cpus > 0)
    return CountOf(cpus, WantedNode() < 0 ? "OCTAVO_CPUS" : std::format("CPUs of node of memory {}", WantedNode()));
  if (wanted != nullptr && ThreadsOf(wanted) > 0) return {ThreadsOf(wanted), "OCTAVO_NUM_THREADS"};
  ThreadCount usable = CountOf(SchedulableCpus(), "the CPUs of this process");
  if (wanted != nullptr && problem != nullptr)
    *problem = "OCTAVO_NUM_THREADS is a number from 1 to 1024, not '" + std::string(wanted) +
               "'; all of the CPU is used, " + std::to_string(usable.count);
  return usable;
}

}  // namespace octavo::kernels
