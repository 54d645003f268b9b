// choose_rows: which Linears quantize each row of their activation by a scale of its own, made at run time, instead of one calibrated for all rows.
// The steps of one scale are as wide as the widest row needs them. Their rounding is measured against the power of each row: the mean over rows of
// noise in signal, in decibels. Where it falls below `db`, the Linear is left to `dynamic`: products of gates, some outputs of GELU
// (docs/lab/quantization.md has figures). Such a Linear takes 4 to 20 % more time.
// Changes run.dynamic alone: `quantize` and `smooth` leave these Linears.
#include <algorithm>
#include <cmath>
#include <format>

#include "octavo/passes/quantize/quantize.h"

namespace octavo::passes::quantize {

namespace {

// What rows keep of themselves, in decibels, when all are rounded to steps of `scale`.
double Kept(const ChannelStats& stats, double scale) {
  double lost = 0, rows = 0;
  for (const auto& [power, n] : stats.row_powers) {
    lost += static_cast<double>(n) * std::min(scale * scale / 12 / power, 1.0);
    rows += static_cast<double>(n);
  }
  return -10 * std::log10(lost / rows);
}

}  // namespace

Result<bool> ChooseRows(Graph& graph, PassRun& run) {
  const auto least = run.Option<double>("db", kRowDb);
  if (!run.evidence.channels || !run.evidence.qparams) return false;
  int chosen = 0;
  double worst = least;
  for (NodeId id : FindSites(graph, run.keep_float).linears) {
    const Node& n = graph.node(id);
    const std::string& x = graph.value(n.input(0)).name;
    const quant::QParams* params = run.evidence.qparams(x);
    if (params == nullptr || quant::IsFp8(params->dtype) || IsNamed(run.dynamic, n)) continue;
    const ChannelStats stats = run.evidence.channels(x);
    const double kept = stats.row_powers.empty() ? least : Kept(stats, params->scale);
    if (kept >= least) continue;
    run.dynamic.push_back(OriginName(n));
    run.log.push_back(std::format("choose_rows: {} gets a scale a row: one for all leaves {:.1f} dB of its rows",
                                  OriginName(n), kept));
    ++chosen, worst = std::min(worst, kept);
  }
  if (chosen > 0) {
    run.notes.push_back(std::format(
        "{} each row by a scale of its own, made at run time: one scale for all would leave down to {:.0f} dB "
        "of {} rows (set choose_rows.db={:g} says from where on; 0 is never)",
        chosen == 1 ? "1 Linear quantizes" : std::format("{} Linears quantize", chosen), worst,
        chosen == 1 ? "its" : "their", least));
  }
  return false;
}

}  // namespace octavo::passes::quantize
