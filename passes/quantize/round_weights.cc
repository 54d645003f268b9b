#include "octavo/passes/quantize/round_weights.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <set>

#include "octavo/ir/mapped.h"
#include "octavo/passes/attention.h"
#include "octavo/passes/quantize/mixed_bits.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/rounding.h"

namespace octavo::passes::quantize {

using ir::Tensor;

// Ranges must not overflow, and a scale must not vanish.
std::string WhyInFloat(const Tensor& w) {
  if (w.shape()[0] < 16) return std::format("its k is {}, less than a block of 16", w.shape()[0]);
  for (float v : w.as<float>()) {
    if (!(std::fabs(v) <= 1e37f)) return "its weight has values that are not finite or beyond 1e37";
  }
  return {};
}

namespace {

// What weights are fitted to is gathered for those alone that can be quantized.
std::vector<FitSite> LinearsOf(const Graph& g, PassRun& run) {
  std::vector<FitSite> linears;
  for (NodeId id : FindSites(g, run.keep_float).linears) {
    const Node& n = g.node(id);
    if (const std::string why = run.evidence.moments ? WhyInFloat(*g.ConstantOf(n.inputs[1])) : ""; !why.empty()) {
      run.Leave("weights", n, "stays float: " + why);
      continue;
    }
    linears.push_back({id, n.inputs[0], n.inputs[1]});
  }
  GroupByActivation(linears);
  return linears;
}

Status Step(PassRun& run, size_t done, size_t all) {
  if (run.step(static_cast<int64_t>(done), static_cast<int64_t>(all))) return {};
  return run.given_up = true, ir::Fail("interrupted");
}

// The weights that 4 bits were measured on.
struct Measured {
  std::vector<FourBits> four;
  std::vector<FitSite> sites;
};

Status Widen(const Graph& g, PassRun& run, const Measured& all, double bits, Codes& codes) {
  const std::vector<size_t> chosen = WorthEightBits(all.four, bits);
  double spent = 0, weights = 0;
  for (const FourBits& w : all.four) weights += static_cast<double>(w.weights);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const FitSite& site = all.sites[chosen[i]];
    OCTAVO_TRY_STATUS(Step(run, i, all.sites.size()));
    const Tensor& w = *g.ConstantOf(site.w);
    OCTAVO_TRY_STATUS(codes.Widen(site.w, w));
    ir::ForgetPages(w);
    spent += static_cast<double>(w.size());
    run.log.push_back(std::format("weights: {} gets 8 bits: 4 would lose {:.2g} of the power of its products",
                                  OriginName(g.node(site.id)), all.four[chosen[i]].lost));
  }
  run.notes.push_back(std::format("{} of {} weights have 8 bits, the others 4: {:.2f} on the mean, scales not counted",
                                  chosen.size(), all.four.size(), 4 + 4 * spent / std::max(weights, 1.0)));
  return {};
}

}  // namespace

Result<Rounded> RoundWeights(const Graph& graph, PassRun& run, HowToRound how, Codes& codes) {
  Rounded rounded{LinearsOf(graph, run), {}};
  Measured measured;
  std::set<ValueId> done;
  Fits fits(graph, run, rounded.linears, 7);
  for (size_t i = 0; i < rounded.linears.size(); ++i) {
    const FitSite& site = rounded.linears[i];
    OCTAVO_TRY_STATUS(Step(run, i, rounded.linears.size()));
    const Compensation* fit = nullptr;
    if (how.fits) {
      OCTAVO_TRY(fit, fits.Of(site.x));
    }
    if (!done.insert(site.w).second) continue;
    const Tensor& w = *graph.ConstantOf(site.w);
    if (std::string why = WhyInFloat(w); !why.empty()) {
      rounded.left[site.w] = std::move(why);
      continue;
    }
    OCTAVO_TRY(const double error, codes.Round(site.w, w, fit));
    if (how.bits > 4) {
      const double power = PowerOfProducts(w, fit);
      measured.four.push_back({site.x, w.size(), power > 0 ? error / power : 0});
      measured.sites.push_back(site);
    }
    ir::ForgetPages(w);
  }
  fits.Tell();
  if (how.bits > 4) OCTAVO_TRY_STATUS(Widen(graph, run, measured, how.bits, codes));
  return rounded;
}

Result<double> BitsOf(PassRun& run) {
  const double bits = run.Option<double>("bits", 4);
  if (!(bits >= 4 && bits <= 8))
    return run.given_up = true, ir::Fail("weights have {:g} bits on the mean: use 4 to 8", bits);
  return bits;
}

}  // namespace octavo::passes::quantize
