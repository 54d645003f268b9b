// Nodes of memory (NUMA): a CPU reads its own node's memory faster than another's.
#ifndef OCTAVO_KERNELS_ARCH_NUMA_H_
#define OCTAVO_KERNELS_ARCH_NUMA_H_

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "octavo/quant/numeric/cgroups.h"

namespace octavo::kernels {

// While it lives, what this thread compiles has its threads and memory on a node: instead of the variable OCTAVO_NUMA_NODE.
class OnNumaNode {
 public:
  explicit OnNumaNode(int node);
  ~OnNumaNode();
  OnNumaNode(const OnNumaNode&) = delete;
  OnNumaNode& operator=(const OnNumaNode&) = delete;
  // Of this thread; nothing: nobody asks for one by this class.
  static std::optional<int> Current();

 private:
  std::optional<int> before_;
};

// The CPUs of a node that this process may run on, by the files of Linux. problem: one sentence where there are none.
std::vector<int> CpusOfNode(int node, std::string* problem = nullptr, const quant::ReadText& read = quant::TextOf);

// The node that is asked for, if it can be had; -1: none. problem: one sentence where it cannot.
int WantedNode(std::string* problem = nullptr, const quant::ReadText& read = quant::TextOf);

// While it lives, memory that this thread is the first to touch is of that node where it has room, then of others; -1: as before. The thread's
// own policy comes back.
class MemoryOfNode {
 public:
  explicit MemoryOfNode(int node);
  ~MemoryOfNode();
  MemoryOfNode(const MemoryOfNode&) = delete;
  MemoryOfNode& operator=(const MemoryOfNode&) = delete;
  bool refused() const { return refused_; }  // by the system

 private:
  using Mask = std::array<unsigned long, 16>;
  bool changed_ = false, refused_ = false;
  int mode_ = 0;
  Mask mask_ = {};
};

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_ARCH_NUMA_H_
