// Many threads on one Session, with shapes that change and Sessions that are replaced under way: the bits of one thread alone.
// OCTAVO_STRESS_RUNS=10000: so many runs a thread for each subject, instead of some seconds.
#ifndef OCTAVO_TESTS_RUNTIME_STRESS_H_
#define OCTAVO_TESTS_RUNTIME_STRESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"

namespace octavo::runtime::testing {

inline constexpr uint64_t kStressSeed = 20261124;

struct Subject {
  std::string name;
  ir::Graph graph;
  std::vector<ir::TensorMap> inputs;  // of different shapes
};

// A failure of the test where a run has other bits.
void Stress(const Subject& subject, double seconds);

}  // namespace octavo::runtime::testing

#endif  // OCTAVO_TESTS_RUNTIME_STRESS_H_
