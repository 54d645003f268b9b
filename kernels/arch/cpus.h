// Which CPUs a person gives to the threads of octavo.
#ifndef OCTAVO_KERNELS_ARCH_CPUS_H_
#define OCTAVO_KERNELS_ARCH_CPUS_H_

#include <string>
#include <string_view>
#include <vector>

namespace octavo::kernels {

// "0-3,8" as taskset and numactl write it: 0, 1, 2, 3, 8. Empty: no such list.
std::vector<int> CpusOf(std::string_view text);

// Takes those away that this thread may not run on.
void KeepAllowed(std::vector<int>& cpus);

// What the variable OCTAVO_CPUS names of the CPUs that this process may run on, each once, or those of the node of memory that is asked for (numa.h), or
// what both name; empty: nobody asks, or none is left. problem: one sentence where what is asked for cannot be followed.
std::vector<int> WantedCpus(std::string* problem = nullptr);

// From here on the calling thread runs on this CPU alone. False: the system does not let it.
bool BindThread(int cpu);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_ARCH_CPUS_H_
