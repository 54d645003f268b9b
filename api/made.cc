#include "octavo/api/made.h"

#include <algorithm>
#include <cmath>
#include <format>

#include "octavo/api/loss.h"

namespace octavo::api {

namespace {

// "logits 31.9 dB, probs exact; 4 samples held out of calibration"
std::string LossText(const Optimized& r) {
  if (r.losses.empty()) return {};
  std::string text;
  for (const auto& [output, stats] : r.losses) {
    if (!text.empty()) text += ", ";
    const double db = stats.SqnrDb();
    text += std::isfinite(db) ? std::format("{} {:.1f} dB", output, db) : output + (db > 0 ? " exact" : " lost");
  }
  return text + "; " + WhatWasSeen(r.loss_details);
}

}  // namespace

void RecordMade(const OptimizeOptions& options, const Provenance& from, Optimized& result, bool whole) {
  auto& metadata = result.graph.info.metadata;
  const auto tell = [&metadata](const char* key, std::string value) {
    metadata.erase(key);  // of an optimization before this one
    if (!value.empty()) metadata[key] = std::move(value);
  };
  if (constexpr std::string_view kName = "octavo "; from.version.starts_with(kName))
    tell("octavo.version", from.version.substr(kName.size()));
  const bool calibrated = !result.ranges.empty();
  tell("octavo.calibrator", calibrated ? std::string(quant::Name(options.calibrator)) : std::string());
  const bool fitted = std::ranges::find(result.pipeline.passes, "fit_weights") != result.pipeline.passes.end();
  tell("octavo.fit", !calibrated ? "" : fitted ? "yes" : "no");
  quant::IdRanges ids = result.ids;
  std::erase_if(ids, [](const auto& input) { return input.second.empty(); });
  tell(kIdsKey, ids.empty() ? "" : ToText(ids));
  tell("octavo.data", whole ? result.data : std::string());
  tell("octavo.loss", whole ? LossText(result) : std::string());
  std::string hashes;
  for (const auto& [what, hash] : from.sha256)  // "data: batches/": the place is this machine's
    hashes += std::format("{}{} {}", hashes.empty() ? "" : "\n", hash, what.substr(0, what.find(": ")));
  tell("octavo.sha256", whole ? hashes : std::string());
}

}  // namespace octavo::api
