#include "octavo/api/lost.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace octavo::api {

namespace {

double KlOf(const quant::ErrorStats& stats, const quant::Agreement& rows) {
  return stats.mismatches() > 0 ? std::numeric_limits<double>::infinity() : rows.MeanKl();
}

double TurnOf(const quant::ErrorStats& stats) {
  if (stats.mismatches() > 0) return std::numeric_limits<double>::infinity();
  // Half of what R^2 lacks is, where errors are small, what the cosine of centred vectors lacks.
  return stats.IsOneNumberARow() ? (1 - stats.RSquared()) / 2 : 1 - stats.MeanRowCosine();
}

double PowerOf(double db) { return std::pow(10, -db / 10); }

}  // namespace

double Lost::In(const Optimized& other) const {
  const auto stats = other.losses.find(output);
  if (stats == other.losses.end()) return std::numeric_limits<double>::infinity();
  if (!is_kl) return TurnOf(stats->second);
  const auto rows = other.loss_details.rows.find(output);
  return rows == other.loss_details.rows.end() ? std::numeric_limits<double>::infinity()
                                               : KlOf(stats->second, rows->second);
}

Lost MostLost(const Optimized& result) {
  Lost most;
  const bool classes = !result.loss_details.rows.empty();
  for (const auto& [output, stats] : result.losses) {
    if (classes && !result.loss_details.rows.contains(output)) continue;
    Lost one{output, classes, 0, !classes && stats.IsOneNumberARow()};
    one.value = one.In(result);
    if (most.output.empty() || one.value > most.value) most = std::move(one);
  }
  return most;
}

bool HasGoal(const OptimizeOptions& options) { return options.min_db || options.min_cosine || options.max_kl; }

std::optional<Spent> SpentOf(const Optimized& result, const OptimizeOptions& options) {
  constexpr double kLeast = 1e-12;  // that is allowed
  std::optional<Spent> most;
  const auto consider = [&most](Spent one) {
    if (!most || one.lost > most->lost) most = std::move(one);
  };
  if (!HasGoal(options)) {
    if (const Lost lost = MostLost(result); !lost.output.empty()) consider({lost.value, lost.output});
    return most;
  }
  for (const auto& [output, stats] : result.losses) {
    if (const auto asked = options.min_db) {
      const double db = Decibels(stats);
      consider({PowerOf(db) / PowerOf(*asked), output, "min_db", *asked, db});
    }
    if (const auto asked = options.min_cosine) {
      const double turn = TurnOf(stats);
      consider({turn / std::max(1 - *asked, kLeast), output, "min_cosine", *asked, 1 - turn});
    }
    const auto rows = result.loss_details.rows.find(output);
    if (const auto asked = options.max_kl; asked && rows != result.loss_details.rows.end()) {
      const double kl = KlOf(stats, rows->second);
      consider({kl / std::max(*asked, kLeast), output, "max_kl", *asked, kl});
    }
  }
  return most;
}

}  // namespace octavo::api
