// Nodes of memory by the files that Linux shows, as texts, and the policy of a thread.
#include "octavo/kernels/arch/numa.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

#include "octavo/kernels/arch/cpus.h"
#include "octavo/kernels/arch/quota.h"

namespace octavo::kernels {
namespace {

constexpr const char* kVariable = "OCTAVO_NUMA_NODE";

// A machine of these nodes, whose second has this thread's first CPU alone.
class Machine {
 public:
  Machine() {
    while (!IsMine(mine_)) ++mine_;
    files_["/sys/devices/system/node/online"] = "0-2\n";
    files_["/sys/devices/system/node/node0/cpulist"] = "900-901\n";  // beyond any that is allowed
    files_["/sys/devices/system/node/node1/cpulist"] = std::to_string(mine_) + ",902\n";
    files_["/sys/devices/system/node/node2/cpulist"] = "\n";  // memory alone
  }
  int mine() const { return mine_; }
  std::map<std::string, std::string>& files() { return files_; }
  quant::ReadText read() const {
    return [this](const std::string& path) {
      const auto found = files_.find(path);
      return found == files_.end() ? std::string() : found->second;
    };
  }

 private:
  static bool IsMine(int cpu) {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && CPU_ISSET(static_cast<size_t>(cpu), &allowed);
  }
  int mine_ = 0;
  std::map<std::string, std::string> files_;
};

TEST(Numa, CpusOfANodeAreThoseThatTheProcessMayUse) {
  Machine machine;
  std::string problem;
  EXPECT_EQ(CpusOfNode(1, &problem, machine.read()), std::vector<int>{machine.mine()});
  EXPECT_EQ(problem, "");
  for (const int node : {0, 2}) {
    EXPECT_TRUE(CpusOfNode(node, &problem, machine.read()).empty());
    EXPECT_EQ(problem, "node of memory " + std::to_string(node) + " has no CPU that this process may run on");
  }
  EXPECT_TRUE(CpusOfNode(3, &problem, machine.read()).empty());
  EXPECT_EQ(problem, "there is no node of memory 3; this machine has 0-2");
  machine.files().clear();
  EXPECT_TRUE(CpusOfNode(0, &problem, machine.read()).empty());
  EXPECT_EQ(problem, "this system does not tell its nodes of memory");
}

TEST(Numa, ACallerComesBeforeTheVariable) {
  const Machine machine;
  std::string problem;
  EXPECT_EQ(WantedNode(&problem, machine.read()), -1);
  setenv(kVariable, "1", 1);
  EXPECT_EQ(WantedNode(&problem, machine.read()), 1);
  EXPECT_EQ(problem, "");
  setenv(kVariable, "one", 1);
  EXPECT_EQ(WantedNode(&problem, machine.read()), -1);
  EXPECT_EQ(problem,
            "OCTAVO_NUMA_NODE: a node of memory is a number such as 0, not 'one'; threads and memory are on any");
  setenv(kVariable, "7", 1);
  EXPECT_EQ(WantedNode(&problem, machine.read()), -1);
  EXPECT_EQ(problem,
            "OCTAVO_NUMA_NODE: there is no node of memory 7; this machine has 0-2; threads and memory are on any");
  {
    const OnNumaNode here(1);
    EXPECT_EQ(WantedNode(&(problem = ""), machine.read()), 1);
    EXPECT_EQ(problem, "");
    const OnNumaNode there(9);
    EXPECT_EQ(WantedNode(&problem, machine.read()), -1);
    EXPECT_EQ(problem, "there is no node of memory 9; this machine has 0-2");
  }
  EXPECT_EQ(OnNumaNode::Current(), std::nullopt);
  unsetenv(kVariable);
}

// On the machine at hand, whose node 0 has CPUs unless the container hides it.
TEST(Numa, ThreadsAreAsManyAsTheNodeHas) {
  std::string problem;
  const std::vector<int> cpus = CpusOfNode(0, &problem);
  if (cpus.empty()) GTEST_SKIP() << problem;
  const OnNumaNode here(0);
  EXPECT_EQ(WantedCpus(), cpus);
  setenv("OCTAVO_CPUS", std::to_string(cpus[0]).c_str(), 1);
  EXPECT_EQ(WantedCpus(), std::vector<int>{cpus[0]});
  unsetenv("OCTAVO_CPUS");
  EXPECT_EQ(DefaultThreads().count, UsableCpus(static_cast<int>(cpus.size()), CpuQuota(quant::TextOf)));
}

int Policy() {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 ? mode : -1;
}

TEST(Numa, ThePolicyOfTheThreadComesBack) {
  const int before = Policy();
  {
    const MemoryOfNode none(-1);
    EXPECT_FALSE(none.refused());
    EXPECT_EQ(Policy(), before);
  }
  {
    const MemoryOfNode memory(0);
    EXPECT_EQ(Policy(), memory.refused() ? before : MPOL_PREFERRED);
  }
  EXPECT_EQ(Policy(), before);
  {
    const MemoryOfNode nowhere(1000);  // no machine has so many
    EXPECT_TRUE(nowhere.refused());
  }
  EXPECT_EQ(Policy(), before);
}

}  // namespace
}  // namespace octavo::kernels
