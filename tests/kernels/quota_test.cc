// Quotas by the files that a kernel of Linux shows, as texts.
#include "octavo/kernels/arch/quota.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "octavo/kernels/arch/cpus.h"

namespace octavo::kernels {
namespace {

double Quota(const std::map<std::string, std::string>& files) {
  return CpuQuota([&](const std::string& path) {
    const auto found = files.find(path);
    return found == files.end() ? std::string() : found->second;
  });
}

TEST(CpuQuota, OfVersion2IsTheSmallestOnTheWayUp) {
  const std::string own = "/proc/self/cgroup", at = "/sys/fs/cgroup";
  EXPECT_EQ(Quota({{own, "0::/\n"}, {at + "/cpu.max", "150000 100000\n"}}), 1.5);
  EXPECT_EQ(Quota({{own, "0::/a/b\n"}, {at + "/a/b/cpu.max", "max 100000\n"}, {at + "/a/cpu.max", "50000 100000\n"}}),
            0.5);
  EXPECT_EQ(
      Quota({{own, "0::/a/b\n"}, {at + "/a/b/cpu.max", "300000 100000\n"}, {at + "/a/cpu.max", "800000 100000\n"}}), 3);
  EXPECT_EQ(Quota({{own, "0::/a/b\n"}, {at + "/a/b/cpu.max", "800000 100000\n"}, {at + "/cpu.max", "200000 100000\n"}}),
            2);
  // Of the group outside: inside of the container no such folder exists.
  EXPECT_EQ(Quota({{own, "0::/docker/0123\n"}, {at + "/cpu.max", "400000 100000\n"}}), 4);
  EXPECT_EQ(Quota({{own, "0::/../..\n"}, {at + "/cpu.max", "400000 100000\n"}}), 4);
}

TEST(CpuQuota, OfVersion1AndOfBoth) {
  const std::string own = "/proc/self/cgroup", at = "/sys/fs/cgroup/cpu,cpuacct";
  const std::string groups = "5:memory:/m\n4:cpu,cpuacct:/a/b\n1:name=systemd:/s\n";
  EXPECT_EQ(
      Quota({{own, groups}, {at + "/a/b/cpu.cfs_quota_us", "250000\n"}, {at + "/a/b/cpu.cfs_period_us", "100000\n"}}),
      2.5);
  EXPECT_EQ(Quota({{own, groups}, {at + "/a/b/cpu.cfs_quota_us", "-1\n"}, {at + "/a/b/cpu.cfs_period_us", "100000\n"}}),
            0);
  EXPECT_EQ(Quota({{own, groups}, {at + "/cpu.cfs_quota_us", "50000\n"}, {at + "/cpu.cfs_period_us", "50000\n"}}), 1);
  EXPECT_EQ(Quota({{own, "4:cpuacct,cpu:/x\n"},
                   {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "700000\n"},
                   {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}),
            7);
  EXPECT_EQ(Quota({{own, "0::/u\n" + groups},
                   {"/sys/fs/cgroup/unified/u/cpu.max", "200000 100000\n"},
                   {at + "/a/cpu.cfs_quota_us", "300000\n"},
                   {at + "/a/cpu.cfs_period_us", "100000\n"}}),
            2);
  EXPECT_EQ(Quota({{own, "4:cpuset:/a\n"}, {"/sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "100000\n"}}), 0);
}

// The same mechanism for memory, with folders of its own.
TEST(MemoryQuota, IsTheLeastOnTheWayUp) {
  const auto quota = [](const std::map<std::string, std::string>& files) {
    return quant::MemoryQuota([&](const std::string& path) {
      const auto found = files.find(path);
      return found == files.end() ? std::string() : found->second;
    });
  };
  const std::string own = "/proc/self/cgroup", at = "/sys/fs/cgroup";
  EXPECT_EQ(quota({}), 0);
  EXPECT_EQ(quota({{own, "0::/\n"}, {at + "/memory.max", "max\n"}}), 0);
  EXPECT_EQ(quota({{own, "0::/\n"}, {at + "/memory.max", "1073741824\n"}}), int64_t{1} << 30);
  const std::string nested = "0::/user.slice/user-0.slice/job.scope\n";
  EXPECT_EQ(quota({{own, nested}, {at + "/user.slice/user-0.slice/job.scope/memory.max", "2000000\n"}}), 2000000);
  EXPECT_EQ(quota({{own, nested},
                   {at + "/user.slice/user-0.slice/job.scope/memory.max", "max\n"},
                   {at + "/user.slice/user-0.slice/memory.max", "5000000\n"},
                   {at + "/user.slice/memory.max", "3000000\n"}}),
            3000000);
  EXPECT_EQ(quota({{own, nested}, {at + "/user.slice/cpu.max", "50000 100000\n"}}), 0);
  // Of version 1, which has a large number for no limit; cpu's groups are others.
  const std::string groups = "9:cpu,cpuacct:/c\n5:memory:/a/b\n";
  EXPECT_EQ(quota({{own, groups}, {at + "/memory/a/memory.limit_in_bytes", "4000000\n"}}), 4000000);
  EXPECT_EQ(quota({{own, groups},
                   {at + "/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"},
                   {at + "/memory/memory.limit_in_bytes", "7000000\n"},
                   {at + "/memory/c/memory.limit_in_bytes", "1000000\n"}}),
            7000000);
  EXPECT_EQ(quota({{own, "0::/u\n" + groups},
                   {at + "/unified/u/memory.max", "2000000\n"},
                   {at + "/memory/a/memory.limit_in_bytes", "6000000\n"}}),
            2000000);
}

TEST(CpuQuota, WhatIsNoQuotaIsNone) {
  const std::string own = "/proc/self/cgroup", max = "/sys/fs/cgroup/cpu.max";
  EXPECT_EQ(Quota({}), 0);
  for (const char* groups :
       {"", "\n", ":", "0", "0:", "0::", "::", "0::relative\n", "no colon at all", "0::/a/b/\n\n"}) {
    EXPECT_EQ(Quota({{own, groups}}), 0) << groups;
  }
  for (const char* text : {"", "max", "max 100000", "0 100000", "-1 100000", "100000", "100000 0", "1e5 100000", "a b",
                           "1 2 3", "99999999999999999999 100000", " 100000", "100000 "}) {
    EXPECT_EQ(Quota({{own, "0::/\n"}, {max, text}}), 0) << text;
  }
}

TEST(ThreadsOf, TakesWholeNumbersThatCanBeHad) {
  EXPECT_EQ(ThreadsOf("1"), 1);
  EXPECT_EQ(ThreadsOf("1024"), 1024);
  for (const char* wrong : {"", "0", "-1", "1025", "2 ", "two", "2.5", "99999999999999999999"})
    EXPECT_EQ(ThreadsOf(wrong), 0) << wrong;
}

TEST(CpusOf, ReadsListsAndNothingElse) {
  EXPECT_EQ(CpusOf("0"), std::vector<int>{0});
  EXPECT_EQ(CpusOf("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(CpusOf("8,2-3,3,2"), (std::vector<int>{8, 2, 3}));
  for (const char* wrong : {"", ",", "0,", ",0", "3-1", "-1", "1-", "0-1-2", "0 1", " 0", "a", "0-9999999", "1024",
                            "99999999999", "0x1", "1.5"})
    EXPECT_TRUE(CpusOf(wrong).empty()) << wrong;
}

TEST(WantedCpus, AreThoseThatTheProcessMayUse) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int mine = 0;
  while (!CPU_ISSET(static_cast<size_t>(mine), &allowed)) ++mine;
  const auto with = [](const std::string& text, std::string* problem) {
    setenv("OCTAVO_CPUS", text.c_str(), 1);
    const std::vector<int> cpus = WantedCpus(problem);
    unsetenv("OCTAVO_CPUS");
    return cpus;
  };
  std::string problem;
  EXPECT_EQ(with(std::to_string(mine) + ",1023", &problem), std::vector<int>{mine});
  EXPECT_EQ(problem, "");
  EXPECT_TRUE(with("1023", &problem).empty());
  EXPECT_NE(problem.find("OCTAVO_CPUS names no CPU that this process may run on: 1023"), std::string::npos) << problem;
  EXPECT_TRUE(with("all", &problem).empty());
  EXPECT_NE(problem.find("OCTAVO_CPUS is a list such as 0-3,8, not 'all'"), std::string::npos) << problem;
  EXPECT_TRUE(with("", &(problem = "")).empty());
  EXPECT_EQ(problem, "");
}

TEST(UsableCpus, AreAtLeastOneAndAtMostTheQuotaRoundedUp) {
  EXPECT_EQ(UsableCpus(8, 0), 8);
  EXPECT_EQ(UsableCpus(8, 16), 8);
  EXPECT_EQ(UsableCpus(8, 2), 2);
  EXPECT_EQ(UsableCpus(8, 2.5), 3);
  EXPECT_EQ(UsableCpus(8, 0.1), 1);
  EXPECT_EQ(UsableCpus(0, 0), 1);
  EXPECT_GE(UsableCpus(), 1);
}

}  // namespace
}  // namespace octavo::kernels
