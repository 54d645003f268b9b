#include "octavo/quant/ids.h"

#include "octavo/ir/json.h"
#include "octavo/quant/calibrate.h"

namespace octavo::quant {

using ir::Json;
using ir::Tensor;

IdsSeen LookAtIds(const ir::TensorMap& inputs, const std::string& name, const IdRange& range) {
  IdsSeen seen;
  const auto input = inputs.find(name);
  if (input == inputs.end() || !IsInteger(input->second.dtype())) return seen;
  const Tensor& ids = input->second;
  const std::string mask_name = OnlyMask(inputs);
  const Tensor* mask = mask_name.empty() ? nullptr : &inputs.at(mask_name);
  if (mask != nullptr && mask->shape() != ids.shape()) mask = nullptr;
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (mask != nullptr && mask->GetInt(i) == 0) continue;
    const int64_t id = ids.GetInt(i);
    ++seen.count;
    seen.below += id < range.lo ? 1 : 0;
    seen.above += id > range.hi ? 1 : 0;
    seen.reach.Add({id, id});
  }
  return seen;
}

std::string ToText(const IdRanges& ranges) {
  Json json = Json::object();
  for (const auto& [input, range] : ranges) json[input] = range.empty() ? Json::array() : Json{range.lo, range.hi};
  return ir::Dump(json);
}

std::optional<IdRanges> IdRangesOf(std::string_view text) {
  const auto json = ir::ParseJson(text, "the ranges of ids");
  if (!json || !json->is_object()) return std::nullopt;
  IdRanges ranges;
  for (const auto& [input, range] : json->items()) {
    if (!range.is_array() || (!range.empty() && range.size() != 2)) return std::nullopt;
    ranges[input];  // empty: all of the data was padding
    if (range.empty()) continue;
    const auto lo = ir::As<int64_t>(range[0]), hi = ir::As<int64_t>(range[1]);
    if (!lo || !hi || *lo > *hi) return std::nullopt;
    ranges[input] = {*lo, *hi};
  }
  return ranges;
}

}  // namespace octavo::quant
