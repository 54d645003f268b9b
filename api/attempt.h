// One way of optimizing a model where several are tried: what the first learns of the model serves the next. For api/ alone.
#ifndef OCTAVO_API_ATTEMPT_H_
#define OCTAVO_API_ATTEMPT_H_

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "octavo/api/data_notes.h"
#include "octavo/api/optimize.h"
#include "octavo/api/start.h"
#include "octavo/runtime/model.h"

namespace octavo::api {

struct Evidence {
  std::optional<quant::Samples> cut;         // how the data falls into samples
  quant::DataSource* measured_on = nullptr;  // what losses are; null: none are told
  bool held_out = false;                     // calibration does not see that
  std::vector<Sample> samples;               // of them, and what the model as it came makes of it; empty: not seen yet
  std::string why_unseen;                    // the error where the outputs could not be compared
  quant::Calibration ranges;                 // of all that the recipe quantizes; empty: not gathered yet
  struct Plan {
    quant::QuantPlan plan;
    std::vector<ActivationRange> ranges;
  };
  std::map<std::pair<quant::Calibrator, ir::DType>, Plan> plans;  // made of these ranges
  DataSeen seen;                                                  // by which they were gathered
  std::map<uint64_t, passes::quantize::ColumnWeights> fitted;     // PassRun
  std::optional<Start> start;                                     // of the attempts of one search
};

// What losses are measured on, as much as fits, and what `graph` makes of it.
ir::Result<std::vector<Sample>> SamplesOf(const ir::Graph& graph, const OptimizeOptions& options,
                                          const Evidence& evidence);

// Optimize without `layers` and a goal. What the evidence has is used, what it lacks is gathered from the data.
ir::Result<Optimized> OptimizeOnce(ir::Graph graph, const OptimizeOptions& options, Evidence& evidence);
// Optimize, with what earlier attempts at the same model on the same data have learned. What is held out is its own.
ir::Result<Optimized> OptimizeAgain(ir::Graph graph, const OptimizeOptions& options, Evidence& evidence);

const passes::Registry& RegistryOf(const OptimizeOptions& options);
// The recipe's, or that of the options. A graph that arrives quantized keeps its scales: int8 then means to fuse what is there.
ir::Result<passes::Pipeline> PipelineOf(const OptimizeOptions& options, const ir::Graph& graph);

// The passes before and after the place where ranges are gathered.
struct Halves {
  std::vector<std::string> before, after;
  bool calibrates = false;
};
Halves Cut(const passes::Pipeline& pipeline);  // pipeline_of.cc
// Whether weights can be fitted without the data.
bool HasMoments(const OptimizeOptions& options);

// Where calibration looks in a graph that has been through the first half: calibration.cc. fingerprint: of the graph, where it is known.
CalibrationTask TaskOf(ir::Graph graph, const passes::Pipeline& pipeline, std::string fingerprint = {});
// RunCalibration without the wall of a public call.
ir::Result<quant::Calibration> Calibrated(const CalibrationTask& task, quant::DataSource& data,
                                          const OptimizeOptions& options, const quant::Calibration* resume = nullptr,
                                          DataSeen* seen = nullptr);
// The same, with the moments of what Linears read.
ir::Result<quant::Calibration> CalibratedWithMoments(const CalibrationTask& task, quant::DataSource& data,
                                                     const OptimizeOptions& options, const quant::Calibration* resume);
// What a pass that fits weights asks for: moments.cc.
struct MomentsAsked {
  const ir::Graph& at_hand;     // as it stands before that pass
  const ir::Graph& calibrated;  // as ranges were gathered, where they were; else the same
  const passes::PassRun& run;
  std::span<const ir::ValueId> values;  // of at_hand
  std::span<passes::quantize::SecondMoments> into;
  // Of attempts before this one and for those behind; null: none.
  std::map<std::string, quant::Moments>* kept = nullptr;
};
ir::Status MomentsOfData(const MomentsAsked& asked, const OptimizeOptions& options);
ir::Status MomentsOfFile(const MomentsAsked& asked, const quant::Calibration& file);
// FNV-1a over the text form without large constants: the same model and the same octavo give the same fingerprint.
std::string Fingerprint(const ir::Graph& graph);

runtime::CompileOptions CompileOptionsOf(const OptimizeOptions& options);
// What runs the graph on data: octavo's runtime, or that of the options. packed: weights that runs before this one have packed.
ir::Result<GraphRun> RunOf(ir::Graph graph, const OptimizeOptions& options,
                           std::shared_ptr<runtime::PackedWeightsSet> packed = nullptr);

}  // namespace octavo::api

#endif  // OCTAVO_API_ATTEMPT_H_
