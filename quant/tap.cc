// Which elements of a value are padding, told from symbolic shapes.
#include <algorithm>
#include <optional>
#include <vector>

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

// Batches of the inputs that the mask may belong to. torch's dynamo gives each input a batch of its own name, unless something made it compare them; what
// is as long as the mask then tells whose it is. Empty: nothing tells.
std::vector<ir::Dim> BatchesOf(const ir::Graph& graph, ir::ValueId mask) {
  const ir::Dim &batch = (*graph.value(mask).type.shape)[0], &seq = (*graph.value(mask).type.shape)[1];
  std::vector<ir::Dim> as_long;
  for (const ir::ValueId id : graph.inputs()) {
    const auto& dims = graph.value(id).type.shape;
    if (id == mask || !dims) continue;
    if (std::ranges::any_of(*dims, [&](const ir::Dim& d) { return ProvablyEqual(d, batch); })) return {batch};
    if (dims->size() >= 2 && ProvablyEqual((*dims)[1], seq)) as_long.push_back((*dims)[0]);
  }
  return as_long;
}

// Of a model without masks, whose batch is that of the first input by name (calibrate.cc). None: shapes do not tell.
std::optional<Tap> WithoutMask(const ir::Graph& graph, const ir::SymShape& shape) {
  const ir::Value* first = nullptr;
  for (const ir::ValueId id : graph.inputs()) {
    const ir::Value& input = graph.value(id);
    if (!input.type.shape || IsMask(input.name, input.type.dtype, input.type.shape->size())) return {};
    if (!input.type.shape->empty() && (first == nullptr || input.name < first->name)) first = &input;
  }
  const ir::Dim batch = first != nullptr ? (*first->type.shape)[0] : ir::Dim();
  if (!batch.known() || batch.is_number()) return {};
  Tap tap = Along(shape, batch, ir::Dim(), "");
  return tap.batch_axis < 0 ? std::nullopt : std::optional(std::move(tap));
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
    if (tap.batch_axis < 0) {
      const std::vector<ir::Dim> batches = BatchesOf(graph, id);
      if (batches.empty()) continue;
      for (const ir::Dim& batch : batches) {
        if (tap.batch_axis < 0) tap = Along(*v.type.shape, batch, (*dims)[1], input.name);
      }
    }
    tap.value = v.name;
    if (found && (best.mask.empty() <= tap.mask.empty())) continue;  // the first that fits
    best = std::move(tap);
    found = true;
  }
  if (!found) {
    if (auto tap = WithoutMask(graph, *v.type.shape)) best = std::move(*tap), best.value = v.name;
  }
  return best;
}

}  // namespace octavo::quant
