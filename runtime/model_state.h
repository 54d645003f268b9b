// Inside of the runtime: what a compiled model consists of.
#ifndef OCTAVO_RUNTIME_MODEL_STATE_H_
#define OCTAVO_RUNTIME_MODEL_STATE_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "octavo/runtime/arenas.h"
#include "octavo/runtime/build.h"
#include "octavo/runtime/cache_state.h"
#include "octavo/runtime/model.h"
#include "octavo/runtime/pool.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

// What a first run with given input shapes taught: which step outputs lie where. Keyed by value index.
struct ShapePlan {
  std::map<uint32_t, std::pair<size_t, size_t>> place;  // value, or ScratchOf a step -> offset, bytes
  size_t arena_bytes = 0;
};

struct Model::State {
  Graph graph;
  CompileOptions options;
  int node = -1;  // of memory, where threads and memory of runs are; -1: any
  std::unique_ptr<Threads> threads;
  Arenas arenas;                   // of runs with a plan
  Pool pool;                       // of outputs
  Pool scratch;                    // of what lies in no arena yet, in runs that only a plan comes out of
  std::vector<RtValue> constants;  // by value index
  std::vector<Step> steps;
  std::vector<PortInfo> inputs, outputs;
  std::vector<CachePort> caches;
  std::vector<CacheWindow> windows;  // of each
  PackedReport packed;
  std::mutex plans_mutex;
  int64_t bytes = 0;  // of the model's file, or of its constants: what a run may take depends on them
  std::map<std::vector<int64_t>, std::shared_ptr<ShapePlan>> plans;  // by concatenated input shapes
  std::atomic<size_t> last_arena_bytes = 0;
};

// What stands for the scratch memory of a step in a plan, where values have their index.
inline uint32_t ScratchOf(const Model::State& s, size_t step) {
  return static_cast<uint32_t>(s.graph.value_capacity() + step);
}

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_MODEL_STATE_H_
