// balance_keys: channels of queries and keys behind a rotary embedding or a norm meet half way, so that one scale for all of them suits both.
// Before: Sdpa(q, k, v)                           q, k [b,heads,s,d]
// After:  Sdpa(q * s, k * (1/s), v)               s [d], the root of k's largest value over q's in each channel
// Each product of a score stays what it was, so the float meaning changes by rounding alone. A few channels of keys are ten times the others in decoders,
// where queries are small, and one scale for all leaves the others few codes: scores of Gemma 3 270M keep 34 dB in place of 24 (docs/lab/quantization.md).
// Left: keys that something else reads, as a cache is; where less than half of the expected noise of scores goes.
#include <algorithm>
#include <cmath>

#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::Tensor;

namespace {

using Ranges = std::vector<std::pair<float, float>>;

double Largest(const std::pair<float, float>& range) { return std::max<double>(-range.first, range.second); }

// Of all channels at once, multiplied.
std::pair<double, double> Whole(const Ranges& ranges, const std::vector<double>& by) {
  double lo = 0, hi = 0;
  for (size_t c = 0; c < ranges.size(); ++c)
    lo = std::min(lo, by[c] * ranges[c].first), hi = std::max(hi, by[c] * ranges[c].second);
  return {lo, hi};
}

double Squares(const Ranges& ranges, const std::vector<double>& by) {
  double sum = 0;
  for (size_t c = 0; c < ranges.size(); ++c) sum += std::pow(by[c] * Largest(ranges[c]), 2);
  return sum;
}

// The noise of a score, up to a factor: steps of q meet k, and the other way round.
double Noise(double q_step, double k_step, double q_squares, double k_squares) {
  return q_step * q_step * k_squares + k_step * k_step * q_squares;
}

ValueId Scaled(Rewriter& b, ValueId x, const std::vector<double>& by) {
  Tensor factors = Tensor::Empty(ir::DType::kF32, {static_cast<int64_t>(by.size())});
  for (size_t c = 0; c < by.size(); ++c) factors.mutable_as<float>()[c] = static_cast<float>(by[c]);
  const ValueId y = b.Create(Op::kMul, {x, b.Constant(std::move(factors))});
  Graph& g = b.graph();
  g.SetType(y, g.value(x).type);
  return y;
}

bool BalanceOne(Rewriter& b, NodeId id, PassRun& run) {
  constexpr double kWorthIt = 0.5;
  Graph& g = b.graph();
  const Node& n = g.node(id);
  const ValueId operands[2] = {n.input(0), n.input(1)};
  if (n.attrs.Int("q_rank", 4) != 4 || n.attrs.Int("k_rank", 4) != 4 || operands[0] == operands[1]) return false;
  if (!g.HasOneUse(operands[0]) || !g.HasOneUse(operands[1])) return false;
  Ranges ranges[2];
  double step[2];
  for (int i = 0; i < 2; ++i) {
    const std::string& name = g.value(operands[i]).name;
    const quant::QParams* params = run.evidence.qparams(name);
    if (params == nullptr || params->dtype != ir::DType::kU8) return false;
    ranges[i] = run.evidence.channels(name).ranges, step[i] = params->scale;
  }
  if (ranges[0].empty() || ranges[0].size() != ranges[1].size()) return false;
  const std::vector<double> as_it_is(ranges[0].size(), 1.0);
  std::vector<double> by[2] = {as_it_is, as_it_is};
  // A channel that is nothing to one side takes nothing from the other; a thousandth of the largest is taken for nothing.
  double least[2];
  for (int i = 0; i < 2; ++i) least[i] = 1e-3 * Largest(*std::ranges::max_element(ranges[i], {}, Largest));
  if (!(least[0] > 0 && least[1] > 0) || !std::isfinite(least[0] + least[1])) return false;
  for (size_t c = 0; c < as_it_is.size(); ++c) {
    const double s = std::sqrt(std::max(Largest(ranges[1][c]), least[1]) / std::max(Largest(ranges[0][c]), least[0]));
    by[0][c] = s, by[1][c] = 1 / s;
  }
  std::pair<double, double> whole[2];
  double new_step[2];
  for (int i = 0; i < 2; ++i)
    whole[i] = Whole(ranges[i], by[i]), new_step[i] = (whole[i].second - whole[i].first) / 255;
  const double now = Noise(step[0], step[1], Squares(ranges[0], as_it_is), Squares(ranges[1], as_it_is));
  const double then = Noise(new_step[0], new_step[1], Squares(ranges[0], by[0]), Squares(ranges[1], by[1]));
  if (!(then < kWorthIt * now)) return false;
  b.At(id, {id});
  for (size_t i = 0; i < 2; ++i) {
    const ValueId scaled = Scaled(b, operands[i], by[i]);
    run.own_params[g.value(scaled).name] =
        quant::AffineParams(static_cast<float>(whole[i].first), static_cast<float>(whole[i].second), ir::DType::kU8);
    b.SetInput(id, i, scaled);
  }
  return true;
}

}  // namespace

Result<bool> BalanceKeys(Graph& graph, PassRun& run) {
  if (!run.evidence.channels || !run.evidence.qparams) return false;
  Rewriter b(graph, "balance_keys");
  for (NodeId id : FindSites(graph, run.keep_float).attentions) {
    if (BalanceOne(b, id, run)) run.log.push_back("balance_keys: " + OriginName(graph.node(id)));
  }
  return b.changed();
}

}  // namespace octavo::passes::quantize
