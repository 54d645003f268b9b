// What optimization took, on batches that it did not see: the outputs of the model as it was are the truth.
#ifndef OCTAVO_API_LOSS_H_
#define OCTAVO_API_LOSS_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/passes/quantize/caches.h"
#include "octavo/quant/agreement.h"
#include "octavo/quant/dataset.h"
#include "octavo/quant/error.h"
#include "octavo/runtime/model.h"

namespace octavo::api {

// Inputs, and what the model as it was makes of them, by name.
struct Sample {
  ir::TensorMap inputs, outputs;
  int64_t rows = 0;  // of both, each a sample itself; 0: the batch is one
};
// With the first rows alone, as many or fewer.
Sample FirstRows(const Sample& sample, int64_t rows);

// By float output; those of integers, as ArgMax gives them, are left out.
using Losses = std::map<std::string, quant::ErrorStats>;

// What the losses were measured on, and how far they spread.
struct LossDetails {
  int64_t samples = 0;
  bool held_out = false;                         // of samples that neither calibration nor fitting saw
  std::vector<Losses> each;                      // by sample
  std::map<std::string, quant::Agreement> rows;  // outputs whose rows are logits or probabilities
};
// "3 samples held out of calibration", "1 sample, which calibration saw".
std::string WhatWasSeen(const LossDetails& details);
// Lowest and highest decibels of an output, sample by sample; both infinite where nothing differs.
std::pair<double, double> Spread(const LossDetails& details, const std::string& output);
// What stands behind an output's decibels, errors as standard errors over rows: "+- 0.1; sample by sample 30.9 to 32.0; cosine 0.99961 +- 2e-05; the same first
// choice in 98.2 % of rows, KL 0.0031 +- 0.0002".
std::string HowSure(const LossDetails& details, const Losses::value_type& loss);

// How many samples of `size` are held out: as asked, at most all but one; -1 asks for an eighth, so none of fewer than eight: calibration needs them more.
int64_t HeldOutOf(int64_t size, int asked);

// Takes the rows of padding out of outputs [b, s, ...], [b, h, s, d] and [b * s, n], [rows left, ...] then: where the batch's mask
// [b, s] (quant::OnlyMask) is 0. Nobody reads them, calibration leaves them out too, and so they may be all error: MiniLM in int8 keeps 22 dB of real tokens
// and 1 dB of padding.
void LeaveOutPadding(const ir::TensorMap& inputs, ir::TensorMap& outputs);

// Runs the graph that it was made of; the outputs in the graph's order.
using GraphRun = std::function<ir::Result<std::vector<ir::Tensor>>(const ir::TensorMap& inputs)>;

// Outputs by name. Caches that are codes take floats and give floats here, so that models with and without them compare.
ir::Result<ir::TensorMap> NamedOutputs(const GraphRun& run, const ir::Graph& graph,
                                       const std::vector<passes::quantize::CodedCache>& caches, ir::TensorMap inputs);
ir::Result<ir::TensorMap> NamedOutputs(const runtime::Model& model,
                                       const std::vector<passes::quantize::CodedCache>& caches, ir::TensorMap inputs);

// `run` runs the graph. The samples' own graph gives no loss. details: gets samples, each and rows.
ir::Result<Losses> LossesOf(const GraphRun& run, const ir::Graph& graph, const std::vector<Sample>& truth,
                            LossDetails* details);

// What the model loses where one Linear, attention core or table alone is quantized.
struct LayerLoss {
  std::string node = {};          // its name in the source
  std::string kind = {};          // "linear", "attention" or "table"
  std::string activation = {};    // what a Linear reads, the same for those of one group of projections
  std::string output = {};        // the one that loses most
  quant::ErrorStats stats = {};   // of that output
  std::optional<double> kl = {};  // mean divergence of its rows, where these are logits or probabilities
  double lost = 0;                // what layers are ordered by (Spent in lost.h)
  double share = 0;               // of what all layers lose, which is about what the model does
  std::string type = {};          // what it got: as the recipe quantizes ("quantized"), "dynamic" or "float"
};

// -infinity where an element is not finite and should be, or the other way round.
double Decibels(const quant::ErrorStats& stats);

// The output that is farthest from its truth; null: there is none.
const Losses::value_type* Worst(const Losses& losses);

}  // namespace octavo::api

#endif  // OCTAVO_API_LOSS_H_
