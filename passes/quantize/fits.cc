#include "octavo/passes/quantize/fits.h"

#include <algorithm>
#include <format>
#include <map>

namespace octavo::passes::quantize {

void GroupByActivation(std::vector<FitSite>& sites) {
  std::map<ValueId, size_t> seen;
  for (const FitSite& s : sites) seen.try_emplace(s.x, seen.size());
  std::ranges::stable_sort(sites, {}, [&](const FitSite& s) { return seen.at(s.x); });
}

namespace {

// Time grows with the cube of the depth and memory with its square: 18,360 rows took 50 s of CPU time for a Linear of four columns (Zen 3), and each of their
// matrices is 1.3 GB.
constexpr int64_t kMostDepth = 16'384;

}  // namespace

Fits::Fits(const Graph& g, PassRun& run, const std::vector<FitSite>& sites, int limit)
    : g_(g), run_(run), limit_(limit) {
  constexpr int64_t kDeepest = 2048;
  const auto depth = [&g](const FitSite& s) { return g.ConstantOf(s.w)->shape()[0]; };
  int64_t weights = 0;
  for (const FitSite& s : sites) {
    if (depth(s) > kMostDepth) {
      if (!too_deep_) too_deep_ = s;
      continue;
    }
    if (depth(s) <= kDeepest && (!probe_ || depth(s) > depth(*probe_))) probe_ = s;
    weights += g.ConstantOf(s.w)->size();
    if (values_.empty() || values_.back() != s.x)
      values_.push_back(s.x), depths_.push_back(g.ConstantOf(s.w)->shape()[0]);
  }
  at_once_ = std::max(int64_t{1} << 28, weights / 2);
}

Result<const Compensation*> Fits::Of(ValueId x) {
  if (std::ranges::find(values_, x) == values_.end()) return nullptr;
  if (run_.evidence.moments && x != at_) {
    at_ = x;
    if (next_ == group_.size()) OCTAVO_TRY_STATUS(Gather());
    if (probe_ && x == probe_->x)
      lost_ = LostByFitting(*g_.ConstantOf(probe_->w), limit_, group_[next_].TakeHalves(), run_.parallel);
    fit_ = Factor(std::move(group_[next_++]), run_.parallel);
    if (!fit_) silent_.push_back(x);
  }
  return fit_ ? &*fit_ : nullptr;
}

void Fits::Tell() const {
  if (lost_ && *lost_ > 0) {
    run_.notes.push_back(std::format(
        "there is too little calibration data to fit weights to: those of '{}', fitted to one half of it, are {:.0f} % "
        "farther from the model on the other half than unfitted ones; give more batches, or leave the fit out "
        "(fit=False)",
        OriginName(g_.node(probe_->id)), 100 * *lost_));
  }
  if (too_deep_ && run_.evidence.moments) {
    run_.notes.push_back(
        std::format("'{}' and all that add up more than {} products keep the codes nearest to their "
                    "weights: to fit them to data takes too long",
                    OriginName(g_.node(too_deep_->id)), kMostDepth));
  }
  if (silent_.empty()) return;
  run_.notes.push_back(
      std::format("the calibration data is zero in {} of {} activations that enter products, '{}' first: their "
                  "weights have the codes nearest to them",
                  silent_.size(), values_.size(), g_.value(silent_[0]).name));
}

Status Fits::Gather() {
  const size_t first = done_;
  group_.clear();
  for (int64_t floats = 0; done_ < values_.size(); ++done_) {
    floats += depths_[done_] * depths_[done_];
    if (floats > at_once_ && done_ > first) break;
    group_.emplace_back(depths_[done_], run_.parallel);
    if (probe_ && probe_->x == values_[done_]) group_.back().Halve();
  }
  next_ = 0;
  Status gathered = run_.evidence.moments({values_.data() + first, group_.size()}, group_);
  run_.given_up = !gathered;
  return gathered;
}

}  // namespace octavo::passes::quantize
