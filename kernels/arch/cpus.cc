#include "octavo/kernels/arch/cpus.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "octavo/kernels/arch/numa.h"

namespace octavo::kernels {

namespace {

constexpr int kMost = CPU_SETSIZE;

// A number at the start of `text`, which is taken off; -1: there is none.
int TakeNumber(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number >= kMost) return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

}  // namespace

std::vector<int> CpusOf(std::string_view text) {
  std::vector<int> cpus;
  while (true) {
    const int first = TakeNumber(text);
    int last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = TakeNumber(text);
    }
    if (first < 0 || last < first) return {};
    for (int cpu = first; cpu <= last; ++cpu) {
      if (std::ranges::find(cpus, cpu) == cpus.end()) cpus.push_back(cpu);
    }
    if (text.empty()) return cpus;
    if (!text.starts_with(',')) return {};
    text.remove_prefix(1);
  }
}

void KeepAllowed(std::vector<int>& cpus) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
    std::erase_if(cpus, [&](int cpu) { return !CPU_ISSET(static_cast<size_t>(cpu), &allowed); });
}

std::vector<int> WantedCpus(std::string* problem) {
  const int node = WantedNode(problem);
  const std::vector<int> of_node = node < 0 ? std::vector<int>() : CpusOfNode(node);
  const char* text = std::getenv("OCTAVO_CPUS");
  if (text == nullptr || *text == '\0') return of_node;
  std::vector<int> cpus = CpusOf(text);
  const bool is_list = !cpus.empty();
  KeepAllowed(cpus);
  if (node >= 0) std::erase_if(cpus, [&](int cpu) { return !std::ranges::contains(of_node, cpu); });
  if (cpus.empty() && problem != nullptr) {
    *problem = "OCTAVO_CPUS " +
               (is_list ? "names no CPU " + (node < 0 ? "" : "of node of memory " + std::to_string(node) + " ") +
                              "that this process may run on: " + std::string(text)
                        : "is a list such as 0-3,8, not '" + std::string(text) + "'") +
               "; threads are bound to none";
  }
  return cpus;
}

bool BindThread(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(cpu), &one);
  return sched_setaffinity(0, sizeof(one), &one) == 0;
}

}  // namespace octavo::kernels
