#include "octavo/kernels/arch/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <format>
#include <utility>

#include "octavo/kernels/arch/cpus.h"

namespace octavo::kernels {

namespace {

thread_local std::optional<int> node_of_thread;

constexpr std::string_view kNodes = "/sys/devices/system/node";
constexpr int kMost = 1024;  // nodes, as many as the kernel may be built for

// A file's one line.
std::string LineOf(const std::string& path, const quant::ReadText& read) {
  std::string text = read(path);
  return text.substr(0, text.find('\n'));
}

std::string WhyNot(int node, const quant::ReadText& read) {
  const std::string there = LineOf(std::format("{}/online", kNodes), read);
  if (there.empty()) return "this system does not tell its nodes of memory";
  if (!std::ranges::contains(CpusOf(there), node))
    return std::format("there is no node of memory {}; this machine has {}", node, there);
  return std::format("node of memory {} has no CPU that this process may run on", node);
}

// -1: no number.
int NodeOf(const char* text) {
  const std::vector<int> one = CpusOf(text);
  return one.size() == 1 ? one[0] : -1;
}

}  // namespace

OnNumaNode::OnNumaNode(int node) : before_(std::exchange(node_of_thread, node)) {}
OnNumaNode::~OnNumaNode() { node_of_thread = before_; }
std::optional<int> OnNumaNode::Current() { return node_of_thread; }

std::vector<int> CpusOfNode(int node, std::string* problem, const quant::ReadText& read) {
  std::vector<int> cpus = CpusOf(LineOf(std::format("{}/node{}/cpulist", kNodes, node), read));
  KeepAllowed(cpus);
  if (cpus.empty() && problem != nullptr) *problem = WhyNot(node, read);
  return cpus;
}

int WantedNode(std::string* problem, const quant::ReadText& read) {
  const char* text = std::getenv("OCTAVO_NUMA_NODE");
  if (!node_of_thread && (text == nullptr || *text == '\0')) return -1;
  const int node = node_of_thread ? *node_of_thread : NodeOf(text);
  std::string why;
  if (!node_of_thread && node < 0) why = std::format("a node of memory is a number such as 0, not '{}'", text);
  if (why.empty() && !CpusOfNode(node, &why, read).empty()) return node;
  if (problem != nullptr)
    *problem = node_of_thread ? why : std::format("OCTAVO_NUMA_NODE: {}; threads and memory are on any", why);
  return -1;
}

// Preferred and not bound: where a node is full, a slower run is better than none.
MemoryOfNode::MemoryOfNode(int node) {
  if (node < 0 || node >= kMost) return;
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  static_assert(kMost == 16 * kBits);
  Mask wanted = {};
  wanted[static_cast<size_t>(node) / kBits] = 1UL << (static_cast<size_t>(node) % kBits);
  // The kernel reads one bit less than it is told.
  changed_ = syscall(SYS_get_mempolicy, &mode_, mask_.data(), kMost + 1, nullptr, 0) == 0 &&
             syscall(SYS_set_mempolicy, MPOL_PREFERRED, wanted.data(), kMost + 1) == 0;
  refused_ = !changed_;
}
MemoryOfNode::~MemoryOfNode() {
  if (changed_) syscall(SYS_set_mempolicy, mode_, mode_ == MPOL_DEFAULT ? nullptr : mask_.data(), kMost + 1);
}

}  // namespace octavo::kernels
