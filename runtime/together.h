// Several runs of a model side by side. Where all stand before the same product, it reads its weights once for all of their rows
// (Kernel::by_rows); all else, caches and attention first of all, is done for each alone. So a run's bits do not depend on its neighbours.
#ifndef OCTAVO_RUNTIME_TOGETHER_H_
#define OCTAVO_RUNTIME_TOGETHER_H_

#include <vector>

#include "octavo/runtime/model_state.h"

namespace octavo::runtime {

// The outputs of each. What a run meets ends all of them.
Result<std::vector<std::vector<Tensor>>> RunSideBySide(Model::State& s, std::vector<ir::TensorMap> inputs);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_TOGETHER_H_
