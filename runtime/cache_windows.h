// Caches whose attention sees a window of the last keys: what lies before it need not be kept (DropRows, room.h).
#ifndef OCTAVO_RUNTIME_CACHE_WINDOWS_H_
#define OCTAVO_RUNTIME_CACHE_WINDOWS_H_

#include <cstdint>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/runtime/cache_state.h"

namespace octavo::runtime {

class StepCall;

inline constexpr int64_t kMayBeCut =
    64;  // rows more than a window, so that a state can be cut behind a guess that was wrong

// Of each cache; where others read its rows, too, all stay.
std::vector<CacheWindow> FindWindows(const ir::Graph& graph, const std::vector<CachePort>& caches);

// Attention goes on without keys that are gone, and its masks, which follow each other from `masks` on, without their columns: no query sees them.
void SkipGone(StepCall& call, size_t masks);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_CACHE_WINDOWS_H_
