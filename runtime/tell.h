// Inside of the runtime: what the log says of a model (ir/log.h).
#ifndef OCTAVO_RUNTIME_TELL_H_
#define OCTAVO_RUNTIME_TELL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/runtime/model_state.h"

namespace octavo::runtime {

// 'main_graph', or a model without a name.
std::string CalledOf(const Graph& graph);

// Path, threads, steps of each kind, and the nodes that no kernel serves. asked: what the caller gave, where s.options has what came of it.
void TellCompiled(const Model::State& s, const CompileOptions& asked);
// key: ranks and sizes of the inputs, one behind the other.
void TellPlanned(const Model::State& s, const std::vector<int64_t>& key, size_t arena_bytes);
// A step's kernel did not take the operands that a run has.
void TellFallback(const Model::State& s, const Step& step);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_TELL_H_
