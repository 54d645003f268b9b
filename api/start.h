// Where each attempt of a search starts, since no layer's type changes it: the model behind the passes that run before ranges are gathered, and
// float weights as a run has packed them. For api/ alone.
#ifndef OCTAVO_API_START_H_
#define OCTAVO_API_START_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "octavo/passes/pass.h"
#include "octavo/passes/pipelines.h"
#include "octavo/passes/report.h"
#include "octavo/quant/moments.h"
#include "octavo/runtime/model.h"

namespace octavo::api {

struct Start {
  // By what it was made, beside the model.
  std::vector<std::string> passes;
  std::map<std::string, passes::PassOptions, std::less<>> options;
  bool explained = false;  // with what came near
  // What these passes have left.
  ir::Graph graph;
  // Of the graph; empty: nobody has asked. It reads every constant, a third of what one attempt of MiniLM took.
  std::string fingerprint = {};
  // What the passes behind it have made or asked the data for, which is the same in every attempt.
  std::map<std::string, quant::Moments> moments = {};  // by calibrated values, as far as there is room
  passes::quantize::TableCodes tables = {};
  passes::PassRun told;  // what they reported and handed on; none of what the caller of a pipeline gives
  std::vector<passes::NearMiss> misses = {};
  passes::Report report;
  std::vector<passes::PassTiming> timings;
  std::shared_ptr<runtime::PackedWeightsSet> packed = NoneYet();

  bool IsOf(const std::vector<std::string>& wanted, const decltype(options)& with, bool explain) const {
    return passes == wanted && options == with && (explained || !explain);
  }
  static std::shared_ptr<runtime::PackedWeightsSet> NoneYet();
};

passes::PassRun ToldBy(const passes::PassRun& run);
void TellAgain(const passes::PassRun& told, passes::PassRun& run);

// Forgets what was packed of weights that the start does not have: those of one attempt.
void KeepPackedOf(const ir::Graph& graph, runtime::PackedWeightsSet& packed);

}  // namespace octavo::api

#endif  // OCTAVO_API_START_H_
