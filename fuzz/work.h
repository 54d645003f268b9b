// What a run declares to cost, before it is made: a mutant may have a batch of 65,536 rows, and is no hang for that.
#ifndef OCTAVO_FUZZ_WORK_H_
#define OCTAVO_FUZZ_WORK_H_

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"

namespace octavo::fuzz {

// In multiply-adds of the interpreter, of which it makes some 10^9 a second; ten for each element that a node reads or writes. `typed`: with
// its inference run; the symbols of its dims are what the shapes of `inputs` say. Dims that nothing tells, and the graphs of If, Loop and
// Scan, count as one.
double DeclaredWork(const ir::Graph& typed, const ir::TensorMap& inputs);

// A case runs a graph some 25 times. With this much a time it needs some 12 s; only a case that declares less may be called a hang.
constexpr double kMostWork = 5e8;

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_WORK_H_
