#ifndef OCTAVO_PASSES_OWN_H_
#define OCTAVO_PASSES_OWN_H_

#include <memory>
#include <vector>

#include "octavo/passes/pass.h"

namespace octavo::passes {

// Octavo's own passes, the list that every Registry begins with.
const std::vector<std::shared_ptr<const Pass>>& OwnPasses();

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_OWN_H_
