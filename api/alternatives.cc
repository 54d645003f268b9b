#include "octavo/api/alternatives.h"

#include <algorithm>
#include <cctype>
#include <format>
#include <functional>

#include "octavo/ir/closed.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::api {

using ir::Graph;
using ir::Status;
using quant::Calibrator;

namespace {

std::string Figure(const Lost& lost, double value) {
  return std::format("{:.4f}", lost.is_kl ? value : lost.is_score ? 1 - 2 * value : 1 - value);
}

std::string Labelled(const Lost& lost, double value) {
  return (lost.is_kl ? "KL " : lost.is_score ? "R^2 " : "cosine ") + Figure(lost, value);
}

std::string Named(const Lost& lost, const Optimized& result) {
  if (!lost.is_kl) return Labelled(lost, lost.value);
  return std::format("{} and the same first choice in {:.1f} % of rows", Labelled(lost, lost.value),
                     100 * result.loss_details.rows.at(lost.output).Top1());
}

// Tells how many of the ways were tried; where it began, also that it ends, however that comes about.
class Tries {
 public:
  Tries(const OptimizeOptions& options, int64_t total) : options_(options), total_(total) {}
  Tries(const Tries&) = delete;
  Tries& operator=(const Tries&) = delete;
  ~Tries() {
    if (begun_) Tell(total_);
  }
  void Tell(int64_t done) {
    begun_ = true;
    if (options_.progress) options_.progress("alternatives", done, total_);
  }

 private:
  const OptimizeOptions& options_;
  int64_t total_;
  bool begun_ = false;
};

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
    // As few Linears as choose_rows finds by what calibration saw of their rows: Gemma 3 270M's 18 down_proj brought most back.
    static constexpr double kMoreRowsDb = 30;
    if (std::ranges::find(options.dynamic, "*") == options.dynamic.end() &&
        !options.pass_options.contains("choose_rows"))
      ways.push_back({std::format("a scale for each row of Linears that one leaves less than {:g} dB of their rows, "
                                  "set choose_rows.db={:g}",
                                  kMoreRowsDb, kMoreRowsDb),
                      [](OptimizeOptions& o) { o.pass_options["choose_rows"]["db"] = kMoreRowsDb; }});
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
  if (HasGoal(options) || options.pipeline || result.random_data || !result.loss_details.held_out) return false;
  if (passes::vendor::IsQuantized(model)) return false;
  // Models within the model would be optimized anew each time.
  for (const char* op : {"If", "Loop", "Scan"}) {
    if (result.source_ops.contains(op)) return false;
  }
  return std::ranges::find(kFrom, options.recipe) != std::end(kFrom);
}

std::string Told(const Lost& lost, const Optimized& result, std::vector<std::pair<double, std::string>> tried) {
  std::string said = std::format("output '{}' may lose more than a hundredth of what the model is for: ", lost.output);
  said += std::format("{} on {}. ", Named(lost, result), WhatWasSeen(result.loss_details));
  constexpr double kWorth = 0.9;  // of what is lost now
  std::ranges::stable_sort(tried, {}, &std::pair<double, std::string>::first);
  const char* goal = lost.is_kl ? "max_kl" : "min_cosine";
  std::string better;
  for (const auto& [value, what] : tried) {
    if (value < kWorth * lost.value)
      better += std::format("{}{} by {}", better.empty() ? "" : "; ", Figure(lost, value), what);
  }
  if (better.empty())
    return said +
           std::format("No other way that was tried there keeps more; {} leaves layers in floats until it is kept",
                       goal);
  return said + std::format("Measured there: {}. {} chooses among them layer by layer", better, goal);
}

// Attention in floats leaves 0.57 of the divergence of Gemma 3 270M, whose perplexity loses 0.2 % then instead of 1.25.
constexpr double kWorthTime = 0.6, kWorthNothing = 0.8;

// Something that is done where it leaves a share of what is lost without, or less.
struct Step {
  const char* what;
  const char* way_out;  // how a user leaves it at the way it was
  // false: it is so already, or the user has a say in it
  bool (*take)(OptimizeOptions&, const Optimized&);
  double worth = kWorthTime;
  bool has_ranges = true;  // those that were gathered are those it needs
};

template <Calibrator kOther>
bool Choose(OptimizeOptions& o, const Optimized&) {
  if (o.recipe != "int8" || o.calibrator != quant::kDefaultCalibrator) return false;
  o.calibrator = kOther;
  return true;
}

bool ScaleRows(OptimizeOptions& o, const Optimized&) {
  const bool all = std::ranges::find(o.dynamic, "*") != o.dynamic.end();
  if (o.recipe != "int8" || all || o.pass_options.contains("choose_rows")) return false;
  o.dynamic.emplace_back("*");
  return true;
}

bool AttendInFloats(OptimizeOptions& o, const Optimized& result) {
  const size_t before = o.keep_float.size();
  for (const passes::Candidate& c : result.report.candidates) {
    if (c.kind == "attention" && c.status == "fused" && !c.nodes.empty()) o.keep_float.push_back(c.nodes[0]);
  }
  return o.keep_float.size() > before;
}

bool HasDepthwise(const Graph& model) {
  return std::ranges::any_of(model.NodesInOrder(), [&model](ir::NodeId id) {
    return model.node(id).op == ir::Op::kConv && model.node(id).attrs.Int("group", 1) > 1;
  });
}

bool KeepSeparable(OptimizeOptions& o, const Optimized&) {
  if (o.recipe != "int8" || o.pass_options.contains("conv_linears")) return false;
  o.pass_options["conv_linears"]["separable"] = false;
  return true;
}

constexpr Step kSteps[] = {
    {"ranges are those of the calibrator entropy", "held_out=0", Choose<Calibrator::kEntropy>, kWorthNothing},
    {"ranges are those of the calibrator minmax", "held_out=0", Choose<Calibrator::kMinMax>, kWorthNothing},
    {"every Linear quantizes each row by a scale of its own, made at run time, which takes up to a fifth of its time",
     "set choose_rows.db=22", ScaleRows},
    {"attention stays in floats", "held_out=0", AttendInFloats},
    {"convolutions of kernel 1 beside depthwise ones stay in floats", "set conv_linears.separable=true", KeepSeparable,
     kWorthTime, false},
};

// A try of what evidence has already: no run of the data, and nothing told.
OptimizeOptions Tried(OptimizeOptions options) {
  options.data = nullptr, options.calibration = nullptr, options.explain = false, options.layers = false;
  options.progress = nullptr, options.after_pass = nullptr;
  return options;
}

// Takes the steps that are worth it, one after another. options and evidence become those of the result.
Status TakeSteps(const Graph& model, OptimizeOptions& options, Evidence& evidence, Optimized& result) {
  if (options.recipe != "int8" && options.recipe != "fp8") return {};
  Tries tries(options, std::ssize(kSteps));
  for (const Step& step : kSteps) {
    const Lost lost = MostLost(result);
    OptimizeOptions next = options;
    if (!lost.too_much() || !step.take(next, result) || (!step.has_ranges && !HasDepthwise(model))) continue;
    tries.Tell(&step - kSteps);
    const auto left = [&](const ir::Result<Optimized>& other) { return other ? lost.In(*other) : lost.value; };
    if (step.has_ranges && left(OptimizeOnce(model, Tried(next), evidence)) > step.worth * lost.value) continue;
    Evidence fresh;
    fresh.cut = evidence.cut;
    ir::Result<Optimized> other = OptimizeAgain(model, next, step.has_ranges ? evidence : fresh);
    if (!other && options.stop != nullptr && options.stop->load()) return ir::Fail("interrupted");
    const double value = left(other);
    if (value > step.worth * lost.value) continue;
    std::string note =
        std::format("{}: output '{}' has {} so, and {} without, on {} ({} leaves it out)", step.what, lost.output,
                    Labelled(lost, value), Named(lost, result), WhatWasSeen(result.loss_details), step.way_out);
    std::vector<std::string> told;  // of the steps before it
    for (const std::string& before : result.notes) {
      if (std::ranges::any_of(kSteps, [&](const Step& s) { return before.starts_with(s.what); }))
        told.push_back(before);
    }
    result = std::move(*other), options = std::move(next);
    if (!step.has_ranges) evidence = std::move(fresh);
    std::ranges::move(told, std::back_inserter(result.notes));
    result.notes.push_back(ir::Cleaned({std::move(note)}).message);
  }
  return {};
}

// Recipes of 4 bits: the Linears that lose most get 8, as few as lose no more than three hundredths beyond what 8 bits of all lose, or half
// of what 4 bits do.
Status TakeBits(const Graph& model, OptimizeOptions& options, Evidence& evidence, Optimized& result) {
  constexpr double kBits[] = {8, 4.5, 5, 6}, kWorthBytes = 0.5;
  const bool theirs = options.bits || std::ranges::any_of(passes::kOfBits, [&](std::string_view pass) {
                        const auto of_pass = options.pass_options.find(std::string(pass));
                        return of_pass != options.pass_options.end() && of_pass->second.contains("bits");
                      });
  const Lost lost = MostLost(result);
  if ((options.recipe != "dynamic4" && options.recipe != "weights4") || theirs || lost.value <= lost.MostOfFour())
    return {};
  Tries tries(options, std::ssize(kBits));
  double of_eight = 0;
  for (const double& bits : kBits) {
    tries.Tell(&bits - kBits);
    OptimizeOptions next = options;
    next.bits = bits;
    ir::Result<Optimized> other = OptimizeAgain(model, next, evidence);
    if (!other && options.stop != nullptr && options.stop->load()) return ir::Fail("interrupted");
    if (!other) continue;
    const double left = lost.In(*other);
    if (bits == 8) {
      of_eight = left;
      if (lost.value - of_eight <= lost.MostOfFour()) return {};
      continue;
    }
    const bool enough = left - of_eight <= lost.MostOfFour(), last = bits == std::end(kBits)[-1];
    if (!enough && !(last && left - of_eight <= kWorthBytes * (lost.value - of_eight))) continue;
    other->notes.push_back(
        ir::Cleaned({std::format("weights have {:g} bits on the mean, since those Linears that lose most by 4 have 8: "
                                 "output '{}' has {} so, {} with 4 and {} with 8, on {} (bits 4 leaves it out)",
                                 bits, lost.output, Labelled(lost, left), Named(lost, result), Labelled(lost, of_eight),
                                 WhatWasSeen(result.loss_details))})
            .message);
    result = std::move(*other), options = std::move(next);
    break;
  }
  return {};
}

}  // namespace

Status NoteAlternatives(const Graph& model, const OptimizeOptions& given, Evidence& evidence, Optimized& result) {
  if (!MayTry(model, given, result)) return {};
  OptimizeOptions options = given;
  OCTAVO_TRY_STATUS(TakeSteps(model, options, evidence, result));
  OCTAVO_TRY_STATUS(TakeBits(model, options, evidence, result));
  const Lost lost = MostLost(result);
  if (lost.output.empty() || !lost.too_much()) return {};
  const std::vector<Way> ways = WaysFrom(options, result);
  std::vector<std::pair<double, std::string>> tried;
  Tries tries(options, std::ssize(ways));
  for (size_t i = 0; i < ways.size(); ++i) {
    tries.Tell(static_cast<int64_t>(i));
    if (options.stop != nullptr && options.stop->load()) return ir::Fail("interrupted");
    OptimizeOptions other = Tried(options);
    ways[i].ask(other);
    const auto done = OptimizeOnce(model, other, evidence);
    if (!done) continue;  // options that do not go with it
    tried.emplace_back(lost.In(*done), ways[i].what);
  }
  result.notes.push_back(ir::Cleaned({Told(lost, result, std::move(tried))}).message);
  return {};
}

}  // namespace octavo::api
