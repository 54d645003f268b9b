// A norm in front of a sum and its norm as one step.
#ifndef OCTAVO_RUNTIME_STEP_NORM_H_
#define OCTAVO_RUNTIME_STEP_NORM_H_

#include "octavo/runtime/compile.h"

namespace octavo::runtime {

// The RMSNormalization `id` and the SkipLayerNorm or NormQuant that alone reads it. No kernel: others do.
Made MakeNormGroup(ir::NodeId id, const CompileContext& c);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_STEP_NORM_H_
