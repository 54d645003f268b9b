// What a model may cost before any of it has run. A file of 200 bytes can declare a tensor of 64 GB or nodes without number; beyond these
// limits it is refused in one sentence.
#ifndef OCTAVO_IR_LIMITS_H_
#define OCTAVO_IR_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace octavo::ir {

class Graph;

struct Limits {
  // Bytes of all tensors that one call (reading, optimizing, compiling, one run) makes and holds at the same time. 0: 768 MB and, for each
  // byte of the file and of the external data that it names, four and a sixteenth of the number of elements of the run's inputs: no
  // transformer comes near that (GPT-2 as int8: 7.8 MB for each token, which has 0.2 MB of logits). Never more than nine tenths of what
  // the process may use.
  int64_t max_memory = 0;
  // Nodes that a model may have once its functions are inlined, graphs within If, Loop and Scan included. 0: kDefaultNodes, and one for
  // every 16 bytes of the file, so that only nodes that no bytes stand for are limited.
  int64_t max_nodes = 0;

  bool operator==(const Limits&) const = default;
};
inline constexpr int64_t kDefaultMemory = 768'000'000;
inline constexpr int64_t kDefaultNodes = 200'000;

// The limits as numbers. `bytes`: of the file and its external data; `elements`: of all inputs of a run, 0 where nothing is run.
size_t MemoryLimit(const Limits& limits, int64_t bytes, int64_t elements = 0);
// The same for a model that was read or built: a graph that comes from no file has the bytes of its constants.
size_t MemoryLimit(const Graph& graph, int64_t elements = 0);
int64_t NodeLimit(const Limits& limits, int64_t bytes);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_LIMITS_H_
