// ScatterND of rows into a cache of fixed length that enters and leaves the graph, as torch's exporter writes index_put and slice_scatter: with the axis of the
// rows turned to the front and back by Transposes, or without. One step, which writes where the cache lies if this run alone has it.
#ifndef OCTAVO_RUNTIME_WRITE_ROWS_H_
#define OCTAVO_RUNTIME_WRITE_ROWS_H_

#include <vector>

#include "octavo/runtime/chain.h"

namespace octavo::runtime {

// Chains whose inputs are the cache, indices and updates (those of them that are no constants).
std::vector<Chain> FindWrittenRows(const CompileContext& c);

KernelPtr MakeWrittenRows(const Chain& chain, const CompileContext& c);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_WRITE_ROWS_H_
