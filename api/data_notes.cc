#include "octavo/api/data_notes.h"

#include <algorithm>
#include <format>

#include "octavo/ir/infer.h"

namespace octavo::api {

using ir::Graph;
using ir::Tensor;
using ir::ValueId;

namespace {

// Rows of the float table that the input's ids choose from; 0: it is no ids.
int64_t RowsOfTable(const Graph& graph, ValueId input) {
  int64_t rows = 0;
  for (const ir::Use& use : graph.value(input).uses) {
    const ir::Node& n = graph.node(use.node);
    if (n.op == ir::Op::kCast || n.op == ir::Op::kIdentity || n.op == ir::Op::kReshape) {
      if (use.slot == 0) rows = std::max(rows, RowsOfTable(graph, n.output()));
    } else if (n.op == ir::Op::kGather && use.slot == 1) {
      const Tensor* table = graph.ConstantOf(n.input(0));
      if (table != nullptr && table->rank() == 2 && quant::IsFloat(table->dtype()))
        rows = std::max(rows, table->shape()[0]);
    }
  }
  return rows;
}

bool IsWhole(const Tensor& t) { return t.dtype() == ir::DType::kS64 || t.dtype() == ir::DType::kS32; }

// Into the sizes that the input's symbols behind the first dim were given.
void AddSizes(const ir::Value& input, const Tensor& t, DataSeen::Sizes& sizes) {
  for (size_t axis = 1; input.type.shape && axis < input.type.shape->size() && axis < t.shape().size(); ++axis) {
    const std::string symbol = (*input.type.shape)[axis].symbol();
    if (symbol.empty()) continue;
    const int64_t size = t.shape()[axis];
    const auto [it, fresh] = sizes.try_emplace(symbol, size, size);
    it->second = {std::min(it->second.first, size), std::max(it->second.second, size)};
  }
}

bool IsBatch(const Graph& graph, const std::string& symbol) {
  return std::ranges::any_of(graph.inputs(), [&](ValueId v) {
    const auto& shape = graph.value(v).type.shape;
    return shape && !shape->empty() && shape->front().symbol() == symbol;
  });
}

// Whether the shapes of all nodes fit each other when the symbol is `size`: a table of as many positions as an image has patches takes one alone.
bool Takes(Graph graph, const std::string& symbol, int64_t size) {
  for (const ir::NodeId id : graph.NodesInOrder()) {
    if (graph.node(id).op == ir::Op::kConstant) continue;
    for (const ValueId v : graph.node(id).outputs) {
      if (v.valid()) graph.SetType(v, {graph.value(v).type.dtype, std::nullopt});
    }
  }
  for (const ValueId v : graph.inputs()) {
    ir::Type type = graph.value(v).type;
    for (size_t i = 0; type.shape && i < type.shape->size(); ++i) {
      if ((*type.shape)[i].symbol() == symbol) (*type.shape)[i] = ir::Dim(size);
    }
    graph.SetType(v, std::move(type));
  }
  return ir::Inference::Run(graph).has_value();
}

std::string Others(size_t count) { return count == 1 ? "" : std::format(" and {} more", count - 1); }

}  // namespace

void DataSeen::Add(const Graph& graph, const ir::TensorMap& inputs) {
  ++batches;
  for (const ValueId v : graph.inputs()) {
    const ir::Value& input = graph.value(v);
    const auto given = inputs.find(input.name);
    if (given == inputs.end()) continue;
    const Tensor& t = given->second;
    if (!IsWhole(t)) {
      AddSizes(input, t, others);
      continue;
    }
    if (quant::IsMask(input.name, t.dtype(), static_cast<size_t>(t.rank()))) {
      for (int64_t i = 0; i < t.size() && !padded; ++i) padded = t.GetInt(i) == 0;
      continue;
    }
    const int64_t rows = RowsOfTable(graph, v);
    constexpr int64_t kVocabulary = 1000;  // smaller tables are of positions, kinds of tokens and the like
    if (rows < kVocabulary || !input.type.shape) {
      AddSizes(input, t, others);
      continue;
    }
    int64_t& most = largest[input.name];
    for (int64_t i = 0; i < t.size(); ++i) most = std::max(most, t.GetInt(i));
    ids += t.size();
    AddSizes(input, t, lengths);
  }
}

std::vector<std::string> NotesOfData(const Graph& graph, const DataSeen& seen, const quant::Calibration& ranges) {
  std::vector<std::string> notes;
  if (ranges.random_data) return notes;
  constexpr int64_t kFewRows = 16, kManyIds = 500;
  for (const ValueId v : graph.inputs()) {
    const auto most = seen.largest.find(graph.value(v).name);
    if (most == seen.largest.end() || seen.ids < kManyIds) continue;
    const int64_t rows = RowsOfTable(graph, v);
    if (most->second >= rows / kFewRows) continue;
    notes.push_back(std::format(
        "the ids of input '{}' go up to {} of the {} rows of their table: did this model's tokenizer make them?",
        most->first, most->second, rows));
  }
  for (const auto& [symbol, length] : seen.lengths) {
    if (seen.batches < 4 || length.first != length.second || seen.padded) continue;
    notes.push_back(
        std::format("all {} batches have {} = {} and no padding: the ranges are not those of shorter or longer texts, "
                    "unless all are as long",
                    seen.batches, symbol, length.first));
  }
  for (const auto& [symbol, size] : seen.others) {
    const auto [least, most] = size;
    if (seen.batches < 4 || least != most || seen.padded || seen.lengths.contains(symbol) || IsBatch(graph, symbol))
      continue;
    if (!Takes(graph, symbol, most == 0 ? 1 : 2 * most)) continue;
    notes.push_back(
        std::format("all {} batches have {} = {}: the ranges are not those of other sizes, unless all inputs are such",
                    seen.batches, symbol, most));
  }
  std::vector<std::string> constant, dead;
  size_t channels = 0, of = 0;
  constexpr uint64_t kRows = 64;
  for (const auto& [value, observer] : ranges.values) {
    if (observer.count() > kRows && observer.min() == observer.max() && observer.min() != 0) {
      constant.push_back(value);
    } else if (const size_t width = observer.channels().size(); width > 0 && observer.count() / width >= kRows) {
      const auto still =
          static_cast<size_t>(std::ranges::count_if(observer.channels(), [](const auto& c) { return c.lo == c.hi; }));
      if (still < width / 16 + 2 || still == width) continue;
      if (dead.empty()) channels = still, of = width;
      dead.push_back(value);
    }
  }
  if (!constant.empty()) {
    notes.push_back(std::format(
        "'{}'{} of {} calibrated activations have one value in all of the data: is it what the model will get?",
        constant[0], Others(constant.size()), ranges.values.size()));
  }
  if (!dead.empty()) {
    notes.push_back(
        std::format("{} of {} channels of '{}'{} never change in the data: what they will hold beside it is cut off, "
                    "unless the data is more varied",
                    channels, of, dead[0],
                    dead.size() == 1 ? "" : std::format(" (and such of {} more activations)", dead.size() - 1)));
  }
  return notes;
}

}  // namespace octavo::api
