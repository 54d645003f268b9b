// QuantPlan: what becomes of every value that could be quantized. Made from a calibration, changed by searches and by
// people, read by the pass that inserts Q/DQ. Its text form is one line a value, sorted by name: made for diff.
//
//   octavo plan 1
//   "/layer.0/q" u8 scale 0.023437500 zero_point 128 range -3 2.9765625
//   "/layer.0/mask" float "an additive mask is not a measurement"
#ifndef OCTAVO_QUANT_PLAN_H_
#define OCTAVO_QUANT_PLAN_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/ir/status.h"
#include "octavo/quant/numeric/qparams.h"
#include "octavo/quant/range.h"

namespace octavo::quant {

class Calibration;

struct PlanEntry {
  std::optional<QParams> params;  // none: the value stays float
  std::string reason;             // why it stays float, or what is special about its params
  std::optional<Range> range;     // what the params were made from
  bool operator==(const PlanEntry&) const = default;
};

class QuantPlan {
 public:
  const std::map<std::string, PlanEntry>& entries() const { return entries_; }
  // Null if the plan does not speak of the value.
  const PlanEntry* Find(std::string_view value) const;
  // The params; null where the value stays float or is not in the plan.
  const QParams* ParamsOf(std::string_view value) const;

  void Quantize(std::string value, QParams params, std::optional<Range> range = {}, std::string reason = {});
  void KeepFloat(std::string value, std::string reason);

  // Floats in the shortest decimal form that reads back to the same bits.
  std::string ToText() const;
  // Errors name the line.
  static ir::Result<QuantPlan> Parse(std::string_view text);

  bool operator==(const QuantPlan&) const = default;

 private:
  std::map<std::string, PlanEntry> entries_;
};

// Every value of the calibration with the params that `options` give; values without data stay float, with the reason.
ir::Result<QuantPlan> MakePlan(const Calibration& calibration, const RangeOptions& options);

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_PLAN_H_
