// How much of the CPUs a container grants. The system tells a program all CPUs of the machine; threads beyond the quota only wait, all
// of them, for the next period.
#ifndef OCTAVO_KERNELS_ARCH_QUOTA_H_
#define OCTAVO_KERNELS_ARCH_QUOTA_H_

#include <string>
#include <string_view>

#include "octavo/quant/numeric/cgroups.h"

namespace octavo::kernels {

using quant::ReadText;

// The CPUs that the control groups of this process grant, the smallest from its own group up to the root: cpu.max (version 2),
// cpu.cfs_quota_us and cpu.cfs_period_us (version 1). 0: no quota. A pure function of what `read` gives.
double CpuQuota(const ReadText& read);

// Threads that can run at once: CPUs that the scheduler may give this thread, at most the quota, rounded up. At least 1.
int UsableCpus();
// The same for known CPUs and quota.
int UsableCpus(int cpus, double quota);

// Threads where a caller asks for no number: what the variable OCTAVO_NUM_THREADS says, else UsableCpus. problem: one sentence where it says nothing
// that can be had.
struct ThreadCount {
  int count = 1;
  std::string from;  // what they are as many as, for people
};
ThreadCount DefaultThreads(std::string* problem = nullptr);
// What a text of that variable says; 0: nothing that can be had.
int ThreadsOf(std::string_view text);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_ARCH_QUOTA_H_
