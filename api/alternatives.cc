#include "octavo/api/alternatives.h"

#include <algorithm>
#include <cctype>
#include <format>
#include <functional>
#include <limits>

#include "octavo/ir/closed.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::api {

using ir::Graph;
using ir::Status;
using quant::Calibrator;

namespace {

// One figure of an output, less of which is better.
struct Lost {
  std::string output;
  bool is_kl = false;
  double value = 0;

  bool too_much() const { return value > (is_kl ? kMostKl : kMostTurn); }
};

double Of(const std::string& output, bool is_kl, const Optimized& result) {
  if (is_kl) {
    const auto rows = result.loss_details.rows.find(output);
    return rows == result.loss_details.rows.end() ? std::numeric_limits<double>::infinity() : rows->second.MeanKl();
  }
  const auto stats = result.losses.find(output);
  return stats == result.losses.end() ? std::numeric_limits<double>::infinity() : 1 - stats->second.MeanRowCosine();
}

// Of the output that lost most; where one has classes, only such count, since caches beside it are turned without harm.
Lost MostLost(const Optimized& result) {
  Lost most;
  const auto consider = [&](const std::string& output, bool is_kl) {
    const double value = Of(output, is_kl, result);
    if (most.output.empty() || value > most.value) most = {output, is_kl, value};
  };
  for (const auto& [output, rows] : result.loss_details.rows) consider(output, true);
  if (!most.output.empty()) return most;
  for (const auto& [output, stats] : result.losses) consider(output, false);
  return most;
}

std::string Figure(bool is_kl, double value) {
  return is_kl ? std::format("{:.4f}", value) : std::format("{:.4f}", 1 - value);
}

struct Way {
  std::string what;
  std::function<void(OptimizeOptions&)> ask;
};

// One glob for all attention cores and nothing else that is quantized; empty: numbers are not all that their names differ in.
std::string GlobOfAttention(const Optimized& result) {
  std::string glob;
  const auto of = [](const std::string& name) {
    std::string with;
    for (const char c : name) {
      if (std::isdigit(static_cast<unsigned char>(c)) == 0) {
        with += c;
      } else if (with.empty() || with.back() != '*') {
        with += '*';
      }
    }
    return with;
  };
  for (const passes::Candidate& c : result.report.candidates) {
    if (c.kind != "attention" || c.nodes.empty()) continue;
    const std::string one = of(c.nodes[0]);
    if (!glob.empty() && one != glob) return {};
    glob = one;
  }
  for (const passes::Candidate& c : result.report.candidates) {
    if (c.kind != "attention" && !c.nodes.empty() && of(c.nodes[0]) == glob) return {};
  }
  return glob.find_first_not_of('*') == std::string::npos ? std::string() : glob;
}

std::vector<Way> WaysFrom(const OptimizeOptions& options, const Optimized& result) {
  const std::string& from = options.recipe;
  std::vector<Way> ways;
  const auto recipe = [&](const char* name, const char* what) {
    ways.push_back({std::format("recipe {}, {}", name, what), [name](OptimizeOptions& o) {
                      o.recipe = name;
                      if (o.recipe != "weights4") o.bits.reset();  // the others have 8
                    }});
  };
  if (from == "int8") {
    for (const Calibrator other : {Calibrator::kMse, Calibrator::kEntropy, Calibrator::kMinMax}) {
      if (other == options.calibrator) continue;
      ways.push_back(
          {std::format("calibrator {}", quant::Name(other)), [other](OptimizeOptions& o) { o.calibrator = other; }});
    }
    if (const std::string glob = GlobOfAttention(result); !glob.empty())
      ways.push_back({std::format("attention in floats, keep_float '{}'", glob),
                      [glob](OptimizeOptions& o) { o.keep_float.push_back(glob); }});
  }
  if (from == "int8" || from == "fp8" || from == "dynamic4") recipe("dynamic", "a scale for each row");
  if (from == "dynamic4") recipe("weights4", "activations in floats");
  if (from != "weights8") recipe("weights8", "activations in floats");
  return ways;
}

bool MayTry(const Graph& model, const OptimizeOptions& options, const Optimized& result) {
  static constexpr std::string_view kFrom[] = {"int8", "fp8", "dynamic", "dynamic4", "weights4"};
  if (options.min_db || options.pipeline || result.random_data || !result.loss_details.held_out) return false;
  if (passes::vendor::IsQuantized(model)) return false;
  // Models within the model would be optimized anew each time.
  for (const char* op : {"If", "Loop", "Scan"}) {
    if (result.source_ops.contains(op)) return false;
  }
  return std::ranges::find(kFrom, options.recipe) != std::end(kFrom);
}

std::string Told(const Lost& lost, const Optimized& result, std::vector<std::pair<double, std::string>> tried) {
  std::string said = std::format("output '{}' may lose more than a hundredth of what the model is for: ", lost.output);
  said += lost.is_kl ? std::format("KL {} and the same first choice in {:.1f} % of rows", Figure(true, lost.value),
                                   100 * result.loss_details.rows.at(lost.output).Top1())
                     : std::format("cosine {}", Figure(false, lost.value));
  said += std::format(" on {}. ", WhatWasSeen(result.loss_details));
  constexpr double kWorth = 0.9;  // of what is lost now
  std::ranges::stable_sort(tried, {}, &std::pair<double, std::string>::first);
  std::string better;
  for (const auto& [value, what] : tried) {
    if (value < kWorth * lost.value)
      better += std::format("{}{} by {}", better.empty() ? "" : "; ", Figure(lost.is_kl, value), what);
  }
  if (better.empty())
    return said + "No other way that was tried there keeps more; min_db leaves layers in floats until it is kept";
  return said + "Measured there: " + better + ". min_db chooses among them layer by layer";
}

}  // namespace

Status NoteAlternatives(const Graph& model, const OptimizeOptions& options, Evidence& evidence, Optimized& result) {
  if (!MayTry(model, options, result)) return {};
  const Lost lost = MostLost(result);
  if (lost.output.empty() || !lost.too_much()) return {};
  const std::vector<Way> ways = WaysFrom(options, result);
  std::vector<std::pair<double, std::string>> tried;
  for (size_t i = 0; i < ways.size(); ++i) {
    if (options.progress) options.progress("alternatives", static_cast<int64_t>(i), static_cast<int64_t>(ways.size()));
    if (options.stop != nullptr && options.stop->load()) return ir::Fail("interrupted");
    OptimizeOptions other = options;
    other.data = nullptr, other.calibration = nullptr, other.explain = false, other.layers = false;
    other.progress = nullptr, other.after_pass = nullptr;
    ways[i].ask(other);
    const auto done = OptimizeOnce(model, other, evidence);
    if (!done) continue;  // options that do not go with it
    tried.emplace_back(Of(lost.output, lost.is_kl, *done), ways[i].what);
  }
  result.notes.push_back(ir::Cleaned({Told(lost, result, std::move(tried))}).message);
  return {};
}

}  // namespace octavo::api
