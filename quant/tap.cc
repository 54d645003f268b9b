// Which elements of a value are padding, told from symbolic shapes.
#include <algorithm>

#include "octavo/quant/calibrate.h"

namespace octavo::quant {

bool IsMask(std::string_view name, DType dtype, size_t rank) {
  if (rank != 2 || !(IsInteger(dtype) || dtype == DType::kBool)) return false;
  return name == "mask" || name.find("attention_mask") != std::string_view::npos ||
         name.find("input_mask") != std::string_view::npos;
}

namespace {

// The tap if `shape` runs along `batch` and perhaps along `seq`; the mask's name is set where it does both.
Tap Along(const ir::SymShape& shape, const ir::Dim& batch, const ir::Dim& seq, const std::string& mask) {
  Tap tap;
  tap.batch_axis = -1;
  if (!shape.empty() && ProvablyEqual(shape[0], batch * seq)) {
    tap.batch_axis = 0;
    tap.flat = true;
    tap.mask = mask;
    return tap;
  }
  for (size_t i = 0; i < shape.size() && tap.batch_axis < 0; ++i) {
    // A multiple of the batch only in front, where [B*H, S, D] has it.
    if (ProvablyEqual(shape[i], batch) || (i == 0 && ExactDiv(shape[i], batch).is_number())) {
      tap.batch_axis = static_cast<int>(i);
    }
  }
  if (tap.batch_axis < 0) return tap;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (static_cast<int>(i) != tap.batch_axis && ProvablyEqual(shape[i], seq))
      tap.seq_axes.push_back(static_cast<int>(i));
  }
  if (!tap.seq_axes.empty()) tap.mask = mask;
  return tap;
}

}  // namespace

Tap MakeTap(const ir::Graph& graph, ir::ValueId value) {
  const ir::Value& v = graph.value(value);
  Tap best{.value = v.name, .by_sizes = true};
  if (!v.type.shape) return best;
  bool found = false;
  for (const ir::ValueId id : graph.inputs()) {
    const ir::Value& input = graph.value(id);
    const auto& dims = input.type.shape;
    // A mask whose sizes are numbers says nothing that tells a head count from a length.
    if (!dims || !IsMask(input.name, input.type.dtype, dims->size()) || !(*dims)[0].known() || !(*dims)[1].known() ||
        (*dims)[1].is_number()) {
      continue;
    }
    Tap tap = Along(*v.type.shape, (*dims)[0], (*dims)[1], input.name);
    tap.value = v.name;
    if (found && (best.mask.empty() <= tap.mask.empty())) continue;  // the first that fits
    best = std::move(tap);
    found = true;
  }
  return best;
}

}  // namespace octavo::quant
