// What a pass is, and what it is given.
#ifndef OCTAVO_PASSES_PASS_H_
#define OCTAVO_PASSES_PASS_H_

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/status.h"
#include "octavo/kernels/arch/arch.h"
#include "octavo/quant/numeric/qparams.h"

namespace octavo::passes {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Result;
using ir::SameShape;
using ir::Status;
using ir::ValueId;

namespace quantize {
class SecondMoments;
// How a value that a pass made comes of one that was calibrated: column i is channel index[i], divided by divisor[index[i]].
struct Columns {
  std::string of;  // the calibrated value
  int64_t channels = 0;
  std::vector<int64_t> index;
  std::vector<float> divisor;
};
// Codes and one scale a column of a float matrix [k,n].
struct ColumnWeights {
  ir::Tensor codes, scale;
};
// Of tables, by where their floats lie, which stay there, and the axis along which elements share a scale.
struct TableCode {
  ir::Tensor of;
  ColumnWeights made;
};
using TableCodes = std::map<std::pair<const std::byte*, int64_t>, TableCode>;
}  // namespace quantize

// The fate of something that a user may have expected to be fused or quantized.
struct Candidate {
  std::string
      kind;  // "attention", "qkv", "kv", "qk", "qv", "shared", "linear", "experts", "softmax", "cache"; "rewrite": what a pass or rule that is not octavo's own did
  std::vector<std::string> nodes;  // source ONNX node names, first the one that names it
  std::string status;              // "fused", "quantized" or "left"
  std::string rule;                // rule that decided; empty: none came near
  std::string
      reason;  // one sentence where it is not fused: what, which node, way out; fused: what the file itself lost
  std::string place = {};  // "then_branch of If 'choose'"; empty: the graph itself
};

// Deepest attempt of one rule at one root, for `explain`.
struct NearMiss {
  std::string rule;
  std::string root;    // origin name of the root node
  int matched = 0;     // nodes matched before the refusal
  std::string kind;    // "Shape", "Illegal", "NoKernel", "NotWorth"
  std::string reason;  // one sentence with the culprit
};

// Of an activation whose last axis is its channels.
struct ChannelStats {
  std::vector<std::pair<float, float>> ranges;  // smallest and largest value of each; empty: not known
  double mean_square = 0;                       // of all values
  uint64_t rows = 0;
  std::vector<std::pair<double, uint64_t>> row_powers =
      {};  // mean squares of rows and how many have them; empty: not known
};

using ParallelFor = std::function<void(int64_t n, const std::function<void(int64_t)>& task)>;

// What became of one node, and by whose word. The report reads these; the log is for people alone.
struct Decision {
  enum class Fate {
    kKept,       // stays float because the caller asked for it
    kLeft,       // stays as it is, for `reason`
    kRewritten,  // `rule` has replaced it
  };
  std::string node;  // its source name (OriginName)
  Fate fate = Fate::kLeft;
  std::string rule;     // pass or rule
  std::string reason;   // kLeft: one sentence
  std::string culprit;  // kLeft: source name of the node or value that is in the way; empty: the node itself
};

// What a pass did.
struct Changes {
  bool graph = false;
  std::vector<Decision> decisions = {};
};

// What calibration knows, gathered by whoever runs the pipeline. A null function: nothing was calibrated.
struct Evidence {
  // Parameters of an activation by value name.
  std::function<const quant::QParams*(std::string_view)> qparams;
  std::function<ChannelStats(std::string_view)> channels;
  // Fills in the second moments of these activations, by running the calibration data once more or as a calibration file has them. Those of
  // which nothing is known stay empty.
  std::function<Status(std::span<const ValueId> values, std::span<quantize::SecondMoments> into)> moments;
};

using OptionValue = std::variant<bool, int64_t, double, std::string>;
using PassOptions = std::map<std::string, OptionValue, std::less<>>;

// Handed through a pipeline. The flags say what the caller wants; the lists are what passes report.
struct PassRun {
  kernels::Arch arch = kernels::Arch::kScalar;
  Evidence evidence;
  const PassOptions* options = nullptr;  // of the pass that runs, complete and of the right types; set by the manager
  std::vector<NearMiss>* misses = nullptr;  // null: nobody listens
  // task(i) for i in [0, n), in any order, on as many threads as there are; returns when all are done.
  ParallelFor parallel = [](int64_t n, const std::function<void(int64_t)>& task) {
    for (int64_t i = 0; i < n; ++i) task(i);
  };
  // Tells of long work, `done` of `total`; false: whoever waits has had enough.
  std::function<bool(int64_t done, int64_t total)> step = [](int64_t, int64_t) { return true; };
  // Parameters of values that passes made after calibration; looked at before evidence.qparams.
  std::map<std::string, quant::QParams, std::less<>> own_params;
  std::map<std::string, quantize::Columns, std::less<>>
      columns;                          // of such values, where they are columns of calibrated ones
  std::vector<std::string> keep_float;  // names of nodes, with * and ?, that stay as they are: quantize::FindSites
  std::vector<std::string> dynamic;     // of Linears that `quantize` leaves to the pass `dynamic`
  std::map<uint64_t, quantize::ColumnWeights> fitted;  // int8 weights that were fitted to data, by a hash of the floats
  // What the next run at the same model need not make again; null: there is none.
  quantize::TableCodes* tables = nullptr;
  int weight_limit = 127;  // of the codes of int8 weights, either sign; reduce_range makes it 64
  bool careful = false;    // a pass of several parts checks each of them (guard.h): set where it went wrong without
  bool given_up = false;   // the error of this pass is the caller's own: its data's, or it has had enough
  std::vector<Decision> decisions;
  std::vector<Candidate> candidates;  // of kinds that a pass counts itself: caches
  std::vector<std::string> log;       // "pass: what it did" lines, for --verbose and the report
  std::vector<std::string> notes;     // sentences for a person who reads nothing else

  // Decides that a pass leaves a node as it is, "stays float: no range for 'x'", and logs it.
  void Leave(std::string_view pass, const Node& node, std::string_view why);
  // An option of the pass that runs, or `otherwise` where it runs outside of a pipeline.
  template <typename T>
  T Option(std::string_view name, T otherwise) const {
    if (options == nullptr) return otherwise;
    const auto it = options->find(name);
    OCTAVO_CHECK(it != options->end() && std::holds_alternative<T>(it->second),
                 "the pass has no option {} of that type", name);
    return std::get<T>(it->second);
  }
};

// What the weights and activations of a graph are.
enum class Form {
  kAny,     // takes: whatever it is; leaves: what it was
  kFloat,   // float ops, fused or not
  kQdq,     // int8 between QuantizeLinear and DequantizeLinear
  kFp8,     // the same in fp8
  kInt8,    // octavo's int8 and fp8 ops
  kBlocks,  // weights in blocks, activations float
};
std::string_view Name(Form form);  // "any", "float", "qdq", "fp8", "int8", "blocks"

// What calibration must have gathered before the pass runs.
enum class Need { kNothing, kRanges, kMoments };
std::string_view Name(Need need);  // "", "ranges", "moments"

struct OptionInfo {
  std::string name;
  OptionValue otherwise;  // the default, and with it the type
  std::string what;       // one sentence
};

struct PassInfo {
  std::string name = {};  // as pipelines write it
  std::string what = {};  // one sentence for `octavo passes`
  Form takes = Form::kAny;
  Form leaves = Form::kAny;
  Need needs = Need::kNothing;
  std::vector<OptionInfo> options = {};
  std::string version = {};  // of a pass that is not octavo's own; files that it changed record it
};
// Whether the pass chooses what is quantized: names that the caller gave (keep_float) count for it.
inline bool Quantizes(const PassInfo& p) {
  return p.takes == Form::kFloat && p.leaves != Form::kFloat && p.leaves != Form::kAny;
}

namespace pattern {
struct Rule;
}

// Thrown by a function of a foreign pass or rule, it ends the work; anything else that such a function throws undoes its pass.
class StopWork : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Changes a graph. One that goes wrong is undone and named in a note (guard.h), so it may leave the graph half changed.
class Pass {
 public:
  explicit Pass(PassInfo info) : info_(std::move(info)) {}
  virtual ~Pass() = default;
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  const PassInfo& info() const { return info_; }
  bool own() const { return info_.version.empty(); }  // octavo's
  virtual Result<Changes> Run(Graph& graph, PassRun& run) const = 0;
  // Of a pass that is a list of rules, in order.
  virtual std::span<const pattern::Rule> rules() const;

 private:
  PassInfo info_;
};

// A pass that is one function: changed or not.
class FunctionPass : public Pass {
 public:
  using Function = std::function<Result<bool>(Graph&, PassRun&)>;
  FunctionPass(PassInfo info, Function run) : Pass(std::move(info)), run_(std::move(run)) {}
  Result<Changes> Run(Graph& graph, PassRun& run) const override;

 private:
  Function run_;
};

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_PASS_H_
