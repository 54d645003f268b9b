// Lets the shipped machine code of kernels run on a CPU that lacks their instructions: such an instruction raises
// SIGILL, and the handler executes it (machine.h). Test code only; one tile file for each thread.
#ifndef OCTAVO_TESTS_KERNELS_TRAP_TRAP_H_
#define OCTAVO_TESTS_KERNELS_TRAP_TRAP_H_

#include <cstdint>
#include <string>

#include "machine.h"

namespace octavo::trap {

// Once is enough; again does nothing.
void Install();

// Instructions executed since the start, in all threads.
struct Counts {
  uint64_t tile = 0;
  uint64_t vector = 0;
};
Counts Executed();

// The first refusal since the last call (the instruction was skipped); empty: none.
std::string TakeProblem();

// Of all threads from now on; the manual's at the start.
void SetPairOrder(PairOrder order);

// Tiles of this thread are in their initial state: a kernel must leave them so (TILERELEASE).
bool TilesReleased();

}  // namespace octavo::trap

#endif  // OCTAVO_TESTS_KERNELS_TRAP_TRAP_H_
