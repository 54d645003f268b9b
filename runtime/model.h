// A compiled model: immutable after Compile, Run is thread-safe (all state is per call), bits do not depend on the number of
// threads or, for int8, on the ISA.
#ifndef OCTAVO_RUNTIME_MODEL_H_
#define OCTAVO_RUNTIME_MODEL_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"
#include "octavo/kernels/arch/arch.h"
#include "octavo/runtime/profile.h"

namespace octavo::runtime {

struct PackedWeightsSet;  // packed_once.h

struct CompileOptions {
  kernels::Arch arch = kernels::BestArch();
  int threads = 0;      // <= 0: as many as the machine has
  bool kernels = true;  // false: every node by the reference interpreter
  // What calibration sees depends neither on the CPU nor on how its data was cut into batches: with the plain forms, products of two activations are sums in
  // the order of k and convolutions the interpreter's, not oneDNN's. Linears need no word: a row of theirs has the same bits in any company (gemm_f32.h).
  bool rows_alone = false;
  // Asked by long runs between steps, ten times a second, on the thread that called Run; true: the run ends with an error.
  std::function<bool()> interrupted = {};
  // Packed weights are kept in this file from one process to the next and mapped from it (packed_file.h), if `packed_by`, the version that made it, and
  // `arch` are the same; where they cannot be written, the model runs all the same. Empty: nowhere.
  std::string packed_file = {};
  std::string packed_by = {};
  std::shared_ptr<PackedWeightsSet> packed = {};  // of the model around; what packed_once.h keeps while it is compiled
};

struct PortInfo {
  std::string name;
  ir::Type type;
};

// What came of CompileOptions::packed_file: how many packed weights were taken from it, and made. A note says why what was made is not kept.
struct PackedReport {
  int64_t taken = 0, made = 0;
  std::string note = {};
};

// An input that is a KV cache, and the output that is the same cache with the rows of this run. Told by the graph: Concat, CacheAppend,
// TensorScatter and the scatters lead from one to the other; where a graph inside of a node does it, by the names (past..., present...).
struct CachePort {
  size_t input = 0, output = 0;  // of Model::inputs() and outputs()
  int64_t axis = -1;             // along which it grows; -1: rows are written into a cache whose length stays
  bool in_room = false;          // rows are appended where the cache lies, and read there
};

class CacheState;  // cache_state.h

class Model {
 public:
  // The graph should have been through the passes; any legal graph runs. Errors name the node and the reason. Neither this nor Run
  // throws; tensors of a call take no more memory than the graph's limits allow (ir/limits.h), and after an error a model runs on.
  static ir::Result<Model> Compile(ir::Graph graph, const CompileOptions& options = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  // `inputs` must name every input with its dtype and a shape that fits; returns the outputs in the graph's order. `profile`,
  // if given, is appended to. An input that is moved in, so that this run alone holds it, may be overwritten by an op that
  // updates its operand (TensorScatter and CacheAppend, KV caches): then the output is that memory, and nothing is copied.
  ir::Result<std::vector<ir::Tensor>> Run(ir::TensorMap inputs, Profile* profile = nullptr) const;

  // The same where `state` keeps the caches from run to run: they are left out of the inputs, and undefined among the outputs.
  ir::Result<std::vector<ir::Tensor>> Run(ir::TensorMap inputs, CacheState& state, Profile* profile = nullptr) const;

  // The same for several at once, each with a state of its own: a product reads its weights once for all of them. The bits of each are those that
  // it has alone, whoever its neighbours are. Returns the outputs of each; an error ends all, and leaves each state as one run does.
  ir::Result<std::vector<std::vector<ir::Tensor>>> RunTogether(std::vector<ir::TensorMap> inputs,
                                                               const std::vector<CacheState*>& states = {}) const;

  // The same for a step of another model's run, to whose memory the tensors count: what it keeps of each run, as a Loop does, is bounded. Throws.
  ir::Result<std::vector<ir::Tensor>> RunInside(ir::TensorMap inputs, Profile* profile = nullptr) const;

  const std::vector<PortInfo>& inputs() const;
  const std::vector<PortInfo>& outputs() const;
  const std::vector<CachePort>& caches() const;
  const PackedReport& packed() const;
  int threads() const;
  kernels::Arch arch() const;
  // "kernel name" per step in order, for reports: which kernel each node got, or "interpreter OP".
  std::vector<std::string> KernelOfEachStep() const;
  // Bytes of the arena planned for the last new shape; 0 before the first run.
  size_t arena_bytes() const;
  // Bytes that are kept between runs for the next one, besides constants and packed weights.
  size_t idle_bytes() const;

  struct State;

 private:
  explicit Model(std::unique_ptr<State> state);
  static ir::Result<Model> Make(ir::Graph graph, const CompileOptions& options);
  std::unique_ptr<State> state_;
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_MODEL_H_
