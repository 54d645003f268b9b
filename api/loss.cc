#include "octavo/api/loss.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <format>
#include <limits>

#include "octavo/quant/calibrate.h"
#include "octavo/quant/rows.h"

namespace octavo::api {

namespace {

// The axis of positions behind the batch: 1 of [b, s, n], 2 of [b, h, s, d], 0 of [b * s, n]; -1: none.
int PositionAxis(const ir::Shape& shape, const ir::Shape& mask) {
  if (shape.size() == 2 && shape[0] == mask[0] * mask[1]) return 0;
  if (shape.size() < 3 || shape[0] != mask[0]) return -1;
  if (shape[1] == mask[1]) return 1;
  return shape.size() == 4 && shape[2] == mask[1] ? 2 : -1;
}

}  // namespace

void LeaveOutPadding(const ir::TensorMap& inputs, ir::TensorMap& outputs) {
  const std::string name = quant::OnlyMask(inputs);
  if (name.empty()) return;
  const ir::Tensor& mask = inputs.at(name);
  const auto positions = static_cast<size_t>(mask.shape()[1]);
  for (auto& [output, t] : outputs) {
    const int axis = PositionAxis(t.shape(), mask.shape());
    if (axis < 0 || t.size() == 0) continue;
    const size_t heads = axis == 2 ? static_cast<size_t>(t.shape()[1]) : 1;
    std::vector<size_t> real;
    for (size_t row = 0; row < static_cast<size_t>(mask.size()) * heads; ++row) {
      const size_t sample = row / positions / heads;
      if (mask.GetInt(static_cast<int64_t>(sample * positions + row % positions)) != 0) real.push_back(row);
    }
    ir::Shape shape(t.shape().begin() + axis, t.shape().end());
    shape[0] = static_cast<int64_t>(real.size());
    ir::Tensor left = ir::Tensor::Empty(t.dtype(), std::move(shape));
    const size_t bytes = t.byte_size() / (static_cast<size_t>(mask.size()) * heads);
    for (size_t i = 0; i < real.size(); ++i) {
      std::memcpy(left.mutable_data() + i * bytes, t.data() + real[i] * bytes, bytes);
    }
    t = std::move(left);
  }
}

namespace {

template <typename Outputs>
ir::Result<ir::TensorMap> Named(const GraphRun& run, const Outputs& outputs,
                                const std::vector<passes::quantize::CodedCache>& caches, ir::TensorMap inputs) {
  passes::quantize::EncodeCaches(caches, inputs);
  OCTAVO_TRY(std::vector<ir::Tensor> tensors, run(inputs));
  ir::TensorMap named;
  for (size_t i = 0; i < tensors.size(); ++i) named[outputs[i].name] = std::move(tensors[i]);
  passes::quantize::DecodeCaches(caches, named);
  return named;
}

}  // namespace

ir::Result<ir::TensorMap> NamedOutputs(const GraphRun& run, const ir::Graph& graph,
                                       const std::vector<passes::quantize::CodedCache>& caches, ir::TensorMap inputs) {
  return Named(run, graph.outputs(), caches, std::move(inputs));
}
ir::Result<ir::TensorMap> NamedOutputs(const runtime::Model& model,
                                       const std::vector<passes::quantize::CodedCache>& caches, ir::TensorMap inputs) {
  return Named([&model](const ir::TensorMap& in) { return model.Run(in); }, model.outputs(), caches, std::move(inputs));
}

namespace {

// One sample, of which `got` was given, into losses and rows.
ir::Status AddLosses(const ir::TensorMap& inputs, ir::TensorMap want, ir::TensorMap got, Losses& losses,
                     std::map<std::string, quant::Agreement>& rows) {
  LeaveOutPadding(inputs, want);
  LeaveOutPadding(inputs, got);
  OCTAVO_TRY_STATUS(quant::AddErrors(want, got, losses));
  for (const auto& [name, output] : want) {
    const auto known = rows.find(name);
    const quant::RowKind kind = known != rows.end() ? known->second.kind() : quant::KindOf(name, output);
    if (kind != quant::RowKind::kVector) rows[name].Add(kind, output, got.at(name));
  }
  return {};
}

}  // namespace

Sample FirstRows(const Sample& sample, int64_t rows) {
  if (rows >= sample.rows || !quant::ConsistOfRows(sample.outputs, sample.rows)) return sample;
  return {quant::RowsOf(sample.inputs, sample.rows, 0, rows), quant::RowsOf(sample.outputs, sample.rows, 0, rows),
          rows};
}

ir::Result<Losses> LossesOf(const GraphRun& run, const ir::Graph& graph, const std::vector<Sample>& truth,
                            LossDetails* details) {
  Losses all;
  details->samples = 0, details->each.clear(), details->rows.clear();
  for (const Sample& sample : truth) {
    OCTAVO_TRY(ir::TensorMap got, NamedOutputs(run, graph, passes::quantize::CodedCaches(graph), sample.inputs));
    ir::TensorMap want = sample.outputs;
    std::erase_if(want, [](const auto& output) { return !quant::IsFloat(output.second.dtype()); });
    std::erase_if(got, [&want](const auto& output) { return !want.contains(output.first); });
    // Row by row, so that sums are the same however rows came in batches; shapes that differ are an error of the whole.
    const bool are_rows = std::ranges::all_of(
        got, [&want](const auto& output) { return output.second.shape() == want.at(output.first).shape(); });
    const int64_t number = are_rows && quant::ConsistOfRows(want, sample.rows) ? sample.rows : 1;
    for (int64_t row = 0; row < number; ++row) {
      const auto of_row = [&](const ir::TensorMap& t) { return number == 1 ? t : quant::RowsOf(t, number, row, 1); };
      Losses one;
      OCTAVO_TRY_STATUS(AddLosses(of_row(sample.inputs), of_row(want), of_row(got), one, details->rows));
      for (const auto& [name, stats] : one) all[name].Merge(stats);
      details->each.push_back(std::move(one));
    }
    details->samples += number;
  }
  return all;
}

std::string WhatWasSeen(const LossDetails& details) {
  return std::format("{} sample{}{}", details.samples, details.samples == 1 ? "" : "s",
                     details.held_out ? " held out of calibration" : ", which calibration saw");
}

std::pair<double, double> Spread(const LossDetails& details, const std::string& output) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Losses& sample : details.each) {
    const auto it = sample.find(output);
    if (it == sample.end()) continue;
    low = std::min(low, Decibels(it->second)), high = std::max(high, Decibels(it->second));
  }
  return {low, std::max(low, high)};
}

std::string HowSure(const LossDetails& details, const Losses::value_type& loss) {
  const auto& [name, s] = loss;
  std::string text = s.SqnrError() > 0 ? std::format("+- {:.1g}; ", s.SqnrError()) : "";
  if (const auto [low, high] = Spread(details, name); details.samples > 1 && std::isfinite(low))
    text += std::format("sample by sample {:.1f} to {:.1f}; ", low, high);
  // The cosine of one number is 1.
  text += s.IsOneNumberARow() ? std::format("R^2 {:.5f}", s.RSquared())
                              : std::format("cosine {:.5f} +- {:.1g}", s.MeanRowCosine(), s.RowCosineError());
  if (const auto it = details.rows.find(name); it != details.rows.end())
    text += std::format("; the same first choice in {:.1f} % of rows, KL {:.2g} +- {:.1g}", 100 * it->second.Top1(),
                        it->second.MeanKl(), it->second.KlError());
  return text;
}

int64_t HeldOutOf(int64_t size, int asked) {
  if (size < 2) return 0;
  return asked < 0 ? size / 8 : std::min<int64_t>(asked, size - 1);
}

double Decibels(const quant::ErrorStats& stats) {
  return stats.mismatches() > 0 ? -std::numeric_limits<double>::infinity() : stats.SqnrDb();
}

const Losses::value_type* Worst(const Losses& losses) {
  const auto it = std::ranges::min_element(losses, {}, [](const auto& loss) { return Decibels(loss.second); });
  return it == losses.end() ? nullptr : &*it;
}

}  // namespace octavo::api
