#include "octavo/api/clipped.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <optional>

#include "octavo/api/compare_layers.h"
#include "octavo/api/made.h"
#include "octavo/ir/functions.h"
#include "octavo/quant/calibrate.h"

namespace octavo::api {

using ir::DType;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Tensor;

namespace {

// A QuantizeLinear of a file that is not fused.
std::optional<Codes> CodesOfQuantize(const Graph& g, const Node& n) {
  if (n.op != ir::Op::kQuantizeLinear || n.inputs.size() < 3 || !n.input(2).valid()) return {};
  const Tensor *scale = g.ConstantOf(n.input(1)), *zero = g.ConstantOf(n.input(2));
  if (scale == nullptr || zero == nullptr || scale->size() != 1 || zero->size() != 1) return {};
  const bool is_signed = zero->dtype() == DType::kS8;
  if (!is_signed && zero->dtype() != DType::kU8) return {};
  const double s = scale->GetDouble(0), z = zero->GetDouble(0);
  return Codes{s, z, ((is_signed ? -128 : 0) - z) * s, ((is_signed ? 127 : 255) - z) * s};
}

}  // namespace

ClipCounter::ClipCounter(Graph& graph) {
  const auto told = graph.info.metadata.find(kIdsKey);
  const bool tells = told != graph.info.metadata.end();
  const auto ranges = tells ? quant::IdRangesOf(told->second) : std::nullopt;
  if (tells && !ranges)
    note_ = std::format(
        "metadata '{}' of the file cannot be read, so ids that calibration did not reach are not counted: make the "
        "file "
        "anew by optimize, or take the entry out",
        kIdsKey);
  for (const ir::ValueId input : graph.inputs()) {
    const std::string& name = graph.value(input).name;
    if (ranges && ranges->contains(name)) ids_.push_back({.input = name, .range = ranges->at(name)});
  }
  for (const NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      if (!n.outputs[i].valid()) continue;
      const ir::Value& value = graph.value(n.outputs[i]);
      const bool is_u8 = value.type.dtype == DType::kU8;
      if (!is_u8 && value.type.dtype != DType::kS8) continue;
      const auto codes = ir::HasBody(n.op) ? CodesOf(graph, n, i) : CodesOfQuantize(graph, n);
      if (!codes) continue;
      const auto code = [is_u8](int u8, int s8) { return static_cast<uint8_t>(is_u8 ? u8 : s8); };
      taps_.push_back({{.value = value.name, .node = OriginName(n), .lo = codes->lo, .hi = codes->hi},
                       code(0, -128),
                       code(255, 127),
                       codes->zero > (is_u8 ? 0 : -128)});
      graph.AddOutput(std::format("codes {}", taps_.size()), n.outputs[i]);
    }
  }
}

void ClipCounter::Count(std::span<const Tensor> codes) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < taps_.size() && i < codes.size(); ++i) {
    if (!codes[i].defined()) continue;
    Tap& tap = taps_[i];
    const std::span bytes(reinterpret_cast<const uint8_t*>(codes[i].data()), codes[i].byte_size());
    if (tap.counts_low) tap.counts.low += std::ranges::count(bytes, tap.low);
    tap.counts.high += std::ranges::count(bytes, tap.high);
    tap.counts.count += static_cast<int64_t>(bytes.size());
  }
}

ir::TensorMap ClipCounter::IdsOf(const ir::TensorMap& inputs) const {
  ir::TensorMap kept;
  if (ids_.empty()) return kept;
  for (const StrangeIds& ids : ids_) {
    if (const auto it = inputs.find(ids.input); it != inputs.end()) kept.insert(*it);
  }
  if (const auto mask = inputs.find(quant::OnlyMask(inputs)); mask != inputs.end()) kept.insert(*mask);
  return kept;
}

void ClipCounter::CountIds(const ir::TensorMap& inputs) {
  const std::lock_guard lock(mutex_);
  for (StrangeIds& ids : ids_) {
    const quant::IdsSeen seen = quant::LookAtIds(inputs, ids.input, ids.range);
    ids.below += seen.below, ids.above += seen.above, ids.count += seen.count;
  }
}

std::vector<StrangeIds> ClipCounter::Ids() const {
  const std::lock_guard lock(mutex_);
  return ids_;
}

std::vector<Clipped> ClipCounter::Counts() const {
  const std::lock_guard lock(mutex_);
  std::vector<Clipped> counts;
  for (const Tap& tap : taps_) counts.push_back(tap.counts);
  return counts;
}

}  // namespace octavo::api
