// What a pass is, and what it is given.
#ifndef OCTAVO_PASSES_PASS_H_
#define OCTAVO_PASSES_PASS_H_

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
// Codes and one scale a column of a float matrix [k,n].
struct ColumnWeights {
  ir::Tensor codes, scale;
};
}  // namespace quantize

// The fate of something that a user may have expected to be fused or quantized.
struct Candidate {
  std::string kind;                // "attention", "qkv", "kv", "shared", "linear", "cache"
  std::vector<std::string> nodes;  // source ONNX node names, first the one that names it
  std::string status;              // "fused", "quantized" or "left"
  std::string rule;                // rule that decided; empty: none came near
  std::string
      reason;  // one sentence where it is not fused: what, which node, way out; fused: what the file itself lost
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
};

using ParallelFor = std::function<void(int64_t n, const std::function<void(int64_t)>& task)>;

// Handed through a pipeline. The flags say what the caller wants; the lists are what passes report.
struct PassContext {
  kernels::Arch arch = kernels::Arch::kScalar;
  std::vector<NearMiss>* misses = nullptr;  // null: nobody listens
  // Parameters of an activation by value name, from calibration; null where there are none.
  std::function<const quant::QParams*(std::string_view)> qparams;
  // What calibration saw of the channels of an activation; a null function where nothing was calibrated.
  std::function<ChannelStats(std::string_view)> channels;
  // Fills in the second moments of these activations, by running the calibration data once more; null where there is none.
  std::function<Status(std::span<const ValueId> values, std::span<quantize::SecondMoments> into)> moments;
  // task(i) for i in [0, n), in any order, on as many threads as there are; returns when all are done.
  ParallelFor parallel = [](int64_t n, const std::function<void(int64_t)>& task) {
    for (int64_t i = 0; i < n; ++i) task(i);
  };
  // Tells of long work, `done` of `total`; false: whoever waits has had enough.
  std::function<bool(int64_t done, int64_t total)> step = [](int64_t, int64_t) { return true; };
  // Parameters of values that passes made after calibration; looked at before `qparams`.
  std::map<std::string, quant::QParams, std::less<>> own_params;
  std::vector<std::string> keep_float;  // names of nodes, with * and ?, that stay as they are: quantize::FindSites
  std::vector<std::string> dynamic;     // of Linears that `quantize` leaves to the pass `dynamic`
  std::map<uint64_t, quantize::ColumnWeights> fitted;  // int8 weights that were fitted to data, by a hash of the floats
  int weight_limit = 127;             // of the codes of int8 weights, either sign; reduce_range makes it 64
  bool careful = false;   // a pass of several parts checks each of them (guard.h): set where it went wrong without
  bool given_up = false;  // the error of this pass is the caller's own: its data's, or it has had enough
  std::map<std::string, std::string, std::less<>> left;  // why a node was left as it is, by its source name
  std::vector<Candidate> candidates;  // of kinds that a pass counts itself: caches
  std::vector<std::string> log;       // "pass: what it did" lines, for --verbose and the report
  std::vector<std::string> notes;     // sentences for a person who reads nothing else

  // Logs that a pass leaves a node as it is, "stays float: no range for 'x'", and keeps it for the report.
  void Leave(std::string_view pass, const Node& node, std::string_view why);
};

// Changed or not; an error is prefixed by the manager with "after pass X".
using PassFn = Result<bool> (*)(Graph&, PassContext&);

struct Pass {
  std::string_view name;
  PassFn run;
  std::string_view what;  // one sentence for --help and the docs
};

// Every pass octavo has, in no particular order; null if there is none of that name.
const std::vector<Pass>& AllPasses();
const Pass* FindPass(std::string_view name);

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_PASS_H_
