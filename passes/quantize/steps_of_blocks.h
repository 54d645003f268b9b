// Blocks of 4 bits as whole steps of one scale a column.
#ifndef OCTAVO_PASSES_QUANTIZE_STEPS_OF_BLOCKS_H_
#define OCTAVO_PASSES_QUANTIZE_STEPS_OF_BLOCKS_H_

#include "octavo/passes/pass.h"

namespace octavo::passes::quantize {

Result<bool> StepsOfBlocks(Graph& graph, PassRun& run);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_STEPS_OF_BLOCKS_H_
