// The main job as one call: float ONNX graph + calibration data -> fused int8 graph + report. What the command line and
// the Python module call; it joins passes, quant and runtime, which do not know each other (api/DESIGN.md).
#ifndef OCTAVO_API_OPTIMIZE_H_
#define OCTAVO_API_OPTIMIZE_H_

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "octavo/api/compare.h"
#include "octavo/api/drawing.h"
#include "octavo/api/loss.h"
#include "octavo/ir/graph.h"
#include "octavo/passes/pipelines.h"
#include "octavo/passes/report.h"
#include "octavo/quant/calibrate.h"
#include "octavo/quant/dataset.h"
#include "octavo/quant/plan.h"
#include "octavo/quant/range.h"

namespace octavo::api {

struct OptimizeOptions {
  std::string recipe =
      "int8";  // "float", "int8", "fp8", "dynamic", "dynamic4", "weights4", "weights8", "quantized" (int8 of a graph that is quantized already means that)
  bool reduce_range = false;       // int8 weights of 7 bits: faster without VNNI; not with a pipeline of one's own
  bool quantize_kv_cache = false;  // KV caches enter and leave as codes (passes/quantize/caches.h); not with a pipeline
  std::vector<std::string>
      keep_float;  // Linears, attention cores and tables that are not quantized, by their names; * and ? as in a shell
  std::vector<std::string>
      dynamic;  // Linears that recipe int8 gives a scale and zero point a row, made at run time, instead of one calibrated for all rows
  std::optional<passes::Pipeline> pipeline;  // instead of the recipe's
  const passes::Registry* registry =
      nullptr;  // passes and rules that recipes and pipelines may name; null: octavo's own. Not owned
  std::map<std::string, passes::PassOptions, std::less<>>
      pass_options;  // with a recipe: options of its passes by name, where they are not the defaults
  bool fit =
      true;  // with data: codes of int8 and 4-bit weights make up for each other's errors on it; takes another run of it, two to four for large models
  quant::Calibrator calibrator = quant::kDefaultCalibrator;
  quant::DataSource* data = nullptr;                // for recipes that calibrate; not owned
  const quant::Calibration* calibration = nullptr;  // ranges gathered earlier, instead of data; not owned
  int held_out =
      -1;  // samples (quant::Samples), spread over data, that only losses are measured on; -1: an eighth, none of fewer than eight
  bool moments = false;                   // RunCalibration: gather what weights are fitted to, too
  int threads = 0;                        // of calibration; 0: all
  std::string calibrate_with = "octavo";  // what other_runtime is made from; program and module read it
  // Runs graphs on the data in place of octavo's runtime, which may lack an op (integrations/onnxruntime/session.h); empty: octavo's own.
  std::function<ir::Result<GraphRun>(const ir::Graph& graph, int threads)> other_runtime;
  kernels::Arch arch = kernels::BestArch();
  bool explain = true;  // gather near misses
  // With data: fill in Optimized::layers, by a run of the held-out samples for each of them. Weights are then not fitted to data.
  bool layers = false;
  // With data: fewer layers as the recipe says, until every output keeps so many decibels (loss.h) on the held-out samples. First Linears
  // become dynamic (recipe int8), then layers stay float, those that lose most before others. Fills in Optimized::layers too.
  std::optional<double> min_db;
  std::optional<double> min_cosine;  // the same, until the rows of every output keep this cosine on the mean
  std::optional<double> max_kl;      // the same, until those of logits and probabilities lose no more on the mean
  std::optional<double> bits;        // recipes dynamic4 and weights4: of a weight's codes on the mean, 4 to 8
  std::function<void(std::string_view pass, const ir::Graph& graph)> after_pass;
  // Stages for a person: "calibrate", batches done of total (-1: not known); "quantize", Linears; "compare", the held-out samples; "layers"; "types", attempts to reach min_db, min_cosine or max_kl.
  std::function<void(std::string_view stage, int64_t done, int64_t total)> progress;
  const std::atomic<bool>* stop = nullptr;
  std::function<bool()>
      interrupted;  // asked during runs too, ten times a second, on the calling thread; true: the work ends with an error
};

// One calibrated activation, for the report.
struct ActivationRange {
  std::string value;
  quant::Range seen;
  quant::Range chosen;
  quant::QParams params;
  std::vector<uint64_t> histogram = {};  // of what was seen, in parts of the same width from its low to its high end
};

struct Optimized {
  ir::Graph graph;
  std::map<std::string, int> source_ops;  // nodes of the model as it came, by op
  Drawing source;                         // the model as it came
  ir::Graph before;                       // canonical, as the quantizer saw it: for comparisons and drawings
  ir::Graph unfused;                      // int8: the Q/DQ graph that the fused one must equal bit for bit
  passes::Pipeline pipeline;
  passes::Report report;
  std::vector<passes::NearMiss> misses;
  std::vector<passes::PassTiming> timings;
  quant::QuantPlan plan;  // int8: what became of every calibrated value
  std::vector<ActivationRange> ranges;
  quant::IdRanges ids;  // of what the model was calibrated with, where that is data
  std::vector<std::string> log;
  std::vector<std::string> notes;  // what a person should know who reads nothing else
  Losses losses;  // against the model as it was, over the samples of loss_details; empty: no data, no float outputs
  LossDetails loss_details;
  std::vector<LayerDifference>
      added;  // what each layer adds to the noise that enters it, on rows of those batches; empty: not known
  std::vector<LayerLoss> layers;  // most loss first: OptimizeOptions::layers, min_db, min_cosine, max_kl
  std::string data;               // "12 batches from 'calib/'"; empty: none used
  bool random_data = false;
  double seconds = 0;
};

// Nodes by op, without constants.
std::map<std::string, int> OpCounts(const ir::Graph& graph);

// These calls let no exception out but those of the caller's own functions and data. Tensors may take 768 MB and 16 bytes for each byte of the
// model, which Limits::max_memory of the graph changes (ir/limits.h).
ir::Result<Optimized> Optimize(ir::Graph graph, const OptimizeOptions& options);

// The float graph up to the point where ranges are needed, and the values that need one.
struct CalibrationTask {
  ir::Graph graph;
  std::vector<quant::Tap> taps;
  std::string fingerprint;  // of graph and taps
};
ir::Result<CalibrationTask> PrepareCalibration(ir::Graph graph, const OptimizeOptions& options);
// resume: what was seen of this data before an interrupt; as many samples are passed over.
ir::Result<quant::Calibration> RunCalibration(const CalibrationTask& task, quant::DataSource& data,
                                              const OptimizeOptions& options,
                                              const quant::Calibration* resume = nullptr);

}  // namespace octavo::api

#endif  // OCTAVO_API_OPTIMIZE_H_
