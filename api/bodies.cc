#include "octavo/api/bodies.h"

#include <algorithm>
#include <format>
#include <map>
#include <utility>

#include "octavo/api/attempt.h"
#include "octavo/api/options.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/names.h"
#include "octavo/passes/bodies.h"
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/sources.h"
#include "octavo/passes/vendor/vendor.h"
#include "octavo/runtime/model.h"

namespace octavo::api {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::Result;
using ir::Status;

namespace {

// The graph up to an If: its condition and what it captures, as outputs.
Result<GraphRun> UpTo(const Graph& graph, NodeId node, const OptimizeOptions& options) {
  Graph cut = graph;
  const Node& n = cut.node(node);
  const std::vector<ir::ValueId> wanted = n.inputs;
  for (size_t i = 0; i < cut.outputs().size(); ++i) {
    cut.SetOutput(i, wanted[0]);
    cut.DeclareOutput(i, {});
  }
  for (size_t i = 0; i < wanted.size(); ++i) cut.AddOutput(cut.UniqueName("octavo_given"), wanted[i]);
  passes::PassRun run;
  OCTAVO_TRY_STATUS(passes::canonical::Dce(cut, run).transform([](bool) {}));
  return RunOf(std::move(cut), options);
}

// What one branch of an If gets when the data runs through the model: the batches that take it.
class BranchData : public quant::DataSource {
 public:
  BranchData(quant::DataSource& data, const GraphRun& up_to, std::vector<std::string> names, bool taken,
             std::string place)
      : data_(data), up_to_(up_to), names_(std::move(names)), taken_(taken), place_(std::move(place)) {}

  // Looks at all batches once.
  Status Count() {
    data_.Rewind();
    for (;;) {
      OCTAVO_TRY(auto batch, data_.Next());
      if (!batch) break;
      OCTAVO_TRY(const auto given, Given(*batch));
      takes_.push_back(Takes(given));
    }
    Rewind();
    return {};
  }

  Result<std::optional<quant::Batch>> Next() override {
    for (;;) {
      OCTAVO_TRY(auto batch, data_.Next());
      if (!batch) return std::nullopt;
      if (at_ >= takes_.size() || !takes_[at_++]) continue;
      OCTAVO_TRY(auto given, Given(*batch));
      quant::Batch mine{batch->name, {}};
      for (size_t i = 0; i < names_.size(); ++i) mine.inputs[names_[i]] = std::move(given[i + 1]);
      return mine;
    }
  }
  void Rewind() override { data_.Rewind(), at_ = 0; }
  int64_t size() const override { return std::ranges::count(takes_, true); }
  std::string Describe() const override { return std::format("{} of {}, in the {}", size(), data_.Describe(), place_); }
  bool random() const override { return data_.random(); }

 private:
  // The condition, then the captures.
  Result<std::vector<ir::Tensor>> Given(const quant::Batch& batch) const {
    OCTAVO_TRY(std::vector<ir::Tensor> outputs, up_to_(batch.inputs));
    outputs.erase(outputs.begin(), outputs.end() - static_cast<std::ptrdiff_t>(names_.size() + 1));
    return outputs;
  }
  bool Takes(const std::vector<ir::Tensor>& given) const {
    return given[0].size() == 1 && (given[0].GetInt(0) != 0) == taken_;
  }

  quant::DataSource& data_;
  const GraphRun& up_to_;
  std::vector<std::string> names_;
  bool taken_;
  std::string place_;
  std::vector<bool> takes_;
  size_t at_ = 0;
};

std::vector<std::string> NamesIn(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<std::string> fit;
  std::ranges::copy_if(names, std::back_inserter(fit), [&](const std::string& name) {
    return passes::AnyNode(graph, [&](const Node& n) { return passes::quantize::IsNamed({name}, n); });
  });
  return fit;
}

// What the branch or body is optimized with: as the whole, but for what only the whole has.
OptimizeOptions OptionsWithin(const OptimizeOptions& options, const Graph& body) {
  OptimizeOptions own = options;
  own.data = nullptr, own.calibration = nullptr;
  own.layers = false, own.min_db = own.min_cosine = own.max_kl = std::nullopt;
  own.held_out = 0;               // the whole has its own
  own.quantize_kv_cache = false;  // inputs and outputs of a branch are those of the graph around it
  own.after_pass = nullptr;
  own.keep_float = NamesIn(body, options.keep_float), own.dynamic = NamesIn(body, options.dynamic);
  return own;
}

bool NeedsData(const OptimizeOptions& options, const Graph& body) {
  const auto pipeline = PipelineOf(options, body);
  return pipeline && Cut(*pipeline).calibrates;
}

// One graph of the node, replaced by its optimized form.
Result<OptimizedBody> OptimizeBody(Graph& graph, const passes::Body& body, const OptimizeOptions& options,
                                   const GraphRun* up_to, const OptimizeFn& optimize) {
  Graph model = passes::AsModel(graph, body);
  OptimizeOptions own = OptionsWithin(options, model);
  std::vector<std::string> names;
  for (const ir::ValueId v : model.inputs()) names.push_back(model.value(v).name);
  std::optional<BranchData> data;
  if (up_to != nullptr) {
    data.emplace(*options.data, *up_to, std::move(names), body.attr == "then_branch", body.place);
    OCTAVO_TRY_STATUS(data->Count());
    if (data->size() > 0) own.data = &*data;
  }
  std::vector<std::string> notes;
  const bool given = options.data != nullptr || options.calibration != nullptr;
  if (own.data == nullptr && given && NeedsData(own, model)) {
    const char* why = options.data == nullptr ? "a .calib file holds no ranges of it"
                      : up_to == nullptr      ? "data is followed into branches of If alone"
                                              : "no batch of the data takes it";
    own.recipe = own.pipeline ? "float" : "dynamic", own.pipeline.reset();
    notes.push_back(std::format("{}: {}, so it is optimized by recipe '{}'", body.place, why, own.recipe));
    if (own.recipe == "float") own = WithoutAdded(std::move(own));
  }
  auto result = optimize(std::move(model), own);
  if (!result) return ir::Fail("in the {}: {}", body.place, result.error().message);
  passes::PutBack(graph, body, std::move(result->graph));
  OptimizedBody done{body.place, std::move(*result)};
  if (done.result.report.linear.found + done.result.report.attention.found == 0) notes.clear();  // nothing to quantize
  done.result.graph = done.result.before = done.result.unfused = Graph();
  for (const std::string& note : done.result.notes) notes.push_back(std::format("in the {}: {}", body.place, note));
  done.result.notes = std::move(notes);
  return done;
}

// So that an If that is decided becomes its branch, and what is computed of constants is one.
Status Fold(Graph& graph, const OptimizeOptions& options) {
  passes::TellSourcesApart(graph);
  OCTAVO_TRY(const passes::Pipeline pipeline, PipelineOf(options, graph));
  const auto has = [&pipeline](const char* name) {
    return std::ranges::find(pipeline.passes, name) != pipeline.passes.end();
  };
  if (!has("canonical") && !has("fold")) return {};
  passes::PassRun run;
  run.arch = options.arch;
  return passes::RunPasses({"fold"}, graph, run,
                           {.registry = &RegistryOf(options), .after = {}, .pipeline = &pipeline});
}

void NoteTheChoice(const Graph& graph, const Node& n, std::vector<std::string>& notes) {
  if (n.op != Op::kIf || graph.value(n.input(0)).producer.valid()) return;
  const std::string& input = graph.value(n.input(0)).name;
  notes.push_back(
      std::format("If {} keeps both branches in the file and chooses by the input {}: one alone is kept by assume "
                  "{}=true (or false)",
                  ir::Quoted(OriginName(n)), ir::Quoted(input), input));
}

}  // namespace

Result<std::vector<OptimizedBody>> OptimizeBodies(Graph& graph, const OptimizeOptions& options,
                                                  const OptimizeFn& optimize) {
  std::vector<OptimizedBody> all;
  if (passes::BodiesOf(graph).empty()) return all;
  OCTAVO_TRY_STATUS(Fold(graph, options));
  std::vector<passes::Body> bodies = passes::BodiesOf(graph);
  std::map<NodeId, NodeId> sunk;
  for (passes::Body& body : bodies) {
    const auto [it, fresh] = sunk.try_emplace(body.node);
    if (fresh) it->second = passes::SinkConstants(graph, body.node);
    body.node = it->second;
  }
  OCTAVO_TRY_STATUS(ir::Inference::Run(graph).transform([](const auto&) {}));
  NodeId at;
  std::optional<GraphRun> up_to;
  for (const passes::Body& body : bodies) {
    const bool first = std::exchange(at, body.node) != body.node;
    if (first && options.data != nullptr && graph.node(body.node).op == Op::kIf) {
      OCTAVO_TRY(up_to, UpTo(graph, body.node, options));
    } else if (first) {
      up_to.reset();
    }
    OCTAVO_TRY(OptimizedBody done, OptimizeBody(graph, body, options, up_to ? &*up_to : nullptr, optimize));
    if (first) NoteTheChoice(graph, graph.node(body.node), done.result.notes);
    all.push_back(std::move(done));
  }
  return all;
}

OptimizeOptions WithoutNamesWithin(const Graph& graph, OptimizeOptions options) {
  const auto is_here = [&graph](const std::string& name) {
    return std::ranges::any_of(graph.NodesInOrder(),
                               [&](NodeId id) { return passes::quantize::IsNamed({name}, graph.node(id)); });
  };
  for (auto* names : {&options.keep_float, &options.dynamic}) {
    const std::vector<std::string> somewhere = NamesIn(graph, *names);
    std::erase_if(*names, [&](const std::string& name) {
      return !is_here(name) && std::ranges::find(somewhere, name) != somewhere.end();
    });
  }
  return options;
}

void Join(std::vector<OptimizedBody> bodies, Optimized& result) {
  for (OptimizedBody& body : bodies) {
    Optimized& own = body.result;
    for (const auto part : {&passes::Report::attention, &passes::Report::qkv, &passes::Report::linear}) {
      (result.report.*part).found += (own.report.*part).found;
      (result.report.*part).done += (own.report.*part).done;
    }
    for (passes::Candidate& c : own.report.candidates) {
      c.place = c.place.empty() ? body.place : c.place + ", " + body.place;
      result.report.candidates.push_back(std::move(c));
    }
    for (passes::FloatWeights& w : own.report.in_float) {
      const auto it = std::ranges::find(result.report.in_float, w.op, &passes::FloatWeights::op);
      if (it == result.report.in_float.end()) {
        result.report.in_float.push_back(std::move(w));
      } else {
        it->weights += w.weights, it->bytes += w.bytes;
      }
    }
    std::ranges::move(own.misses, std::back_inserter(result.misses));
    std::ranges::move(own.ranges, std::back_inserter(result.ranges));
    std::ranges::move(own.log, std::back_inserter(result.log));
    std::ranges::move(own.notes, std::back_inserter(result.notes));
  }
}

}  // namespace octavo::api
