#include "octavo/integrations/onnxruntime/ep_provider.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <format>
#include <numeric>

#include "octavo/api/open.h"
#include "octavo/api/optimize.h"
#include "octavo/integrations/onnxruntime/ep_claim.h"
#include "octavo/integrations/onnxruntime/ep_context.h"
#include "octavo/integrations/onnxruntime/ep_log.h"
#include "octavo/integrations/onnxruntime/ep_profile.h"
#include "octavo/ir/log.h"
#include "octavo/ir/names.h"
#include "octavo/ir/near.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/runtime/host_outputs.h"
#include "octavo/runtime/host_threads.h"

namespace octavo::integrations::onnxruntime {

namespace {

using ir::Result;
using ir::Status;

const abi::Tail& Tail() { return abi::TailOf(Api()); }

// The parts of a graph that are worth a border: a border costs copies, and shapes alone are as fast elsewhere.
bool IsWork(ir::Op op) {
  const ir::OpInfo& info = ir::InfoOf(op);
  using enum ir::Op;
  return info.domain == "octavo" || op == kMatMul || op == kGemm || op == kConv || op == kMatMulInteger ||
         op == kQLinearMatMul || op == kConvInteger || op == kQLinearConv || op == kEinsum || op == kAttention ||
         op == kIf || op == kLoop || op == kScan;
}

// The run that this thread is in, whose session lends its threads; null on those.
thread_local OrtKernelContext* run_of_thread = nullptr;

class InRun {
 public:
  explicit InRun(OrtKernelContext* context) : before_(std::exchange(run_of_thread, context)) {}
  InRun(const InRun&) = delete;
  InRun& operator=(const InRun&) = delete;
  ~InRun() { run_of_thread = before_; }

 private:
  OrtKernelContext* before_;
};

void OnThreadsOfSession(int64_t n, const std::function<void(int64_t)>& task) {
  if (run_of_thread != nullptr) return ForOnSession(run_of_thread, n, task);
  for (int64_t i = 0; i < n; ++i) task(i);
}

// A compiled part, as ONNX Runtime runs it.
class Compiled : public abi::ComputeInfo {
 public:
  Compiled(std::unique_ptr<runtime::Model> model, std::vector<std::string> inputs, std::vector<size_t> outputs,
           const OrtLogger* logger)
      : model_(std::move(model)), inputs_(std::move(inputs)), outputs_(std::move(outputs)), logger_(logger) {
    CreateState = [](abi::ComputeInfo* self, abi::ComputeContext*, void** state) -> OrtStatus* {
      *state = self;
      return nullptr;
    };
    Compute = [](abi::ComputeInfo* self, void*, OrtKernelContext* context) {
      return Guarded([&] { return static_cast<Compiled*>(self)->Run(context); });
    };
    ReleaseState = [](abi::ComputeInfo*, void*) {};
  }

 private:
  Status Run(OrtKernelContext* context) const {
    const InRun here(context);
    const LogOfThread log(logger_);
    ir::TensorMap inputs;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].empty()) continue;  // a constant that ONNX Runtime still passes
      const OrtValue* value = nullptr;
      OCTAVO_TRY_STATUS(StatusOf(Api().KernelContext_GetInput(context, i, &value)));
      OCTAVO_TRY(inputs[inputs_[i]], Borrow(value));
    }
    const ir::TensorMap read = inputs;  // the same memory
    const runtime::RunIntoHost into([&](size_t output, ir::DType dtype, const ir::Shape& shape) {
      return RoomFor(context, output, dtype, shape, read);
    });
    Profiler* const profiler = Profiler::OfThread();
    runtime::Profile steps;
    const auto start = std::chrono::steady_clock::now();
    OCTAVO_TRY(const std::vector<ir::Tensor> results,
               model_->Run(std::move(inputs), profiler == nullptr ? nullptr : &steps));
    if (profiler != nullptr) profiler->Add(start, std::move(steps));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const ir::Tensor& made = results[outputs_[i]];
      OCTAVO_TRY(ir::Tensor room, OutputOf(context, i, made.dtype(), made.shape()));
      if (made.byte_size() > 0 && room.data() != made.data())
        std::memcpy(room.mutable_data(), made.data(), made.byte_size());
    }
    return {};
  }

  // ONNX Runtime's memory for an output of the model, where a step may write before all inputs are read: a caller may bind one array to both.
  ir::Tensor RoomFor(OrtKernelContext* context, size_t output, ir::DType dtype, const ir::Shape& shape,
                     const ir::TensorMap& read) const {
    constexpr uintptr_t kAlignment = 64;
    const auto it = std::ranges::find(outputs_, output);
    if (it == outputs_.end()) return {};
    const auto room = OutputOf(context, static_cast<size_t>(it - outputs_.begin()), dtype, shape);
    if (!room || reinterpret_cast<uintptr_t>(room->data()) % kAlignment != 0) return {};
    const bool shared = std::ranges::any_of(read, [&](const auto& input) {
      const ir::Tensor& t = input.second;
      return t.defined() && t.data() < room->data() + room->byte_size() && room->data() < t.data() + t.byte_size();
    });
    return shared ? ir::Tensor() : *room;
  }

  std::unique_ptr<runtime::Model> model_;
  std::vector<std::string> inputs_;  // of the fused node
  std::vector<size_t> outputs_;      // its outputs, as places among the model's
  const OrtLogger* logger_;          // of the session
};

// What a part computes, told by names: ONNX Runtime asks about the same nodes more than once.
Result<std::string> KeyOf(const std::vector<const abi::Node*>& nodes, const Part& part) {
  std::string key;
  const auto add = [&key](const std::vector<const abi::ValueInfo*>& values) -> Status {
    for (const abi::ValueInfo* v : values) {
      OCTAVO_TRY(const std::string name, NameOf(v));
      key += name + '\n';
    }
    key += '\n';
    return {};
  };
  for (const size_t i : part.nodes) {
    OCTAVO_TRY(const auto inputs, InputsOf(nodes[i]));
    OCTAVO_TRY(const auto outputs, OutputsOf(nodes[i]));
    OCTAVO_TRY(const std::string type, TypeOf(nodes[i]));
    key += type + '\n';
    OCTAVO_TRY_STATUS(add(inputs));
    OCTAVO_TRY_STATUS(add(outputs));
  }
  OCTAVO_TRY_STATUS(add(part.outputs));
  return key;
}

// What octavo has no meaning for, by the numbers of the nodes; `work`: those that are worth a border.
void Sort(const ir::Graph& graph, std::set<size_t>& refused, std::set<size_t>& work) {
  for (const ir::NodeId id : graph.NodesInOrder()) {
    const ir::Node& n = graph.node(id);
    if (n.op == ir::Op::kConstant) continue;
    const size_t number = NumberOf(ir::OriginName(n));
    if (n.op == ir::Op::kOpaque) refused.insert(number);
    if (IsWork(n.op)) work.insert(number);
    for (const auto& [name, attr] : n.attrs.entries()) {
      std::set<size_t> inner, none;
      if (const auto* body = std::get_if<ir::GraphRef>(&attr)) Sort(**body, inner, none);
      if (!inner.empty()) refused.insert(number);
    }
  }
}

// Which nodes each node reads.
Result<std::vector<std::vector<size_t>>> EdgesOf(const std::vector<const abi::Node*>& nodes) {
  std::map<std::string, size_t> maker;
  std::vector<std::vector<size_t>> edges(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    OCTAVO_TRY(auto used, InputsOf(nodes[i]));
    OCTAVO_TRY(const auto outer, ImplicitInputsOf(nodes[i]));
    used.insert(used.end(), outer.begin(), outer.end());
    for (const abi::ValueInfo* v : used) {
      OCTAVO_TRY(const std::string name, NameOf(v));
      if (const auto it = maker.find(name); it != maker.end()) edges[i].push_back(it->second);
    }
    OCTAVO_TRY(const auto outputs, OutputsOf(nodes[i]));
    for (const abi::ValueInfo* v : outputs) {
      OCTAVO_TRY(std::string name, NameOf(v));
      if (!name.empty()) maker[std::move(name)] = i;
    }
  }
  return edges;
}

// Of a node's model, in which its compiled part may lie beside it; "": nobody knows.
std::filesystem::path FolderOf(const std::filesystem::path& model, const std::filesystem::path& context) {
  const std::filesystem::path& file = model.empty() ? context : model;
  if (file.empty()) return {};
  return file.has_parent_path() ? file.parent_path() : ".";
}

// "Inverse, Trilu", each once.
Result<std::string> TypesOf(const std::vector<const abi::Node*>& nodes, const std::set<size_t>& which) {
  std::set<std::string> types;
  for (const size_t i : which) {
    OCTAVO_TRY(std::string type, TypeOf(nodes[i]));
    types.insert(std::move(type));
  }
  std::string text;
  for (const std::string& type : types) text += (text.empty() ? "" : ", ") + type;
  return text;
}

Result<ir::Graph> Read(const abi::Graph* graph, const Part& part) {
  OCTAVO_TRY(const std::string bytes, ModelOf(graph, part));
  return ir::onnx::ReadBytes(bytes);
}

// Before the session is made: where a part cannot be compiled, ONNX Runtime logs why and runs it itself.
Status CheckRecipe(const std::string& recipe) {
  OCTAVO_TRY(const passes::Pipeline pipeline, passes::PipelineOfRecipe(recipe));
  for (const std::string& name : pipeline.passes) {
    const passes::Pass* pass = passes::Registry::Own().Find(name);
    if (pass != nullptr && pass->info().needs == passes::Need::kRanges)
      return ir::Fail(
          "recipe {} needs calibration data, which a session has not: open the file that octavo.optimize made of the "
          "model, or take a recipe without, as dynamic",
          ir::Quoted(recipe));
  }
  return {};
}

// ONNX Runtime puts what a user gives for a provider under its name in small letters.
constexpr std::string_view kPrefix = "ep.octavoexecutionprovider.";

// All that the session was given by name.
Result<std::map<std::string, std::string>> EntriesOf(const OrtSessionOptions* options) {
  abi::KeyValuePairs* pairs = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Tail().GetSessionOptionsConfigEntries(options, &pairs)));
  std::map<std::string, std::string> entries;
  if (pairs == nullptr) return entries;
  const char* const* names = nullptr;
  const char* const* values = nullptr;
  size_t count = 0;
  Tail().GetKeyValuePairs(pairs, &names, &values, &count);
  for (size_t i = 0; i < count; ++i) entries.emplace(names[i], values[i]);
  Tail().ReleaseKeyValuePairs(pairs);
  return entries;
}

}  // namespace

Result<ProviderOptions> OptionsOf(const OrtSessionOptions* options) {
  OCTAVO_TRY(const auto entries, EntriesOf(options));
  const auto setting = [&](const std::string& name) {
    const auto it = entries.find(name);
    return it == entries.end() ? std::string() : it->second;
  };
  for (const auto& [name, value] : entries) {
    if (!name.starts_with(kPrefix)) continue;
    OCTAVO_TRY_STATUS(ir::KnownWord("the execution provider", name.substr(kPrefix.size()), {"recipe", "threads"}));
  }
  const auto entry = [&](const char* key) { return setting(std::string(kPrefix) + key); };
  ProviderOptions chosen;
  chosen.context = setting("ep.context_enable") == "1";
  chosen.context_inside = setting("ep.context_embed_mode") == "1";
  chosen.context_file = setting("ep.context_file_path");
  chosen.recipe = entry("recipe");
  if (!chosen.recipe.empty()) OCTAVO_TRY_STATUS(CheckRecipe(chosen.recipe));
  if (const std::string threads = entry("threads"); !threads.empty()) {
    int count = -1;
    const auto [end, error] = std::from_chars(threads.data(), threads.data() + threads.size(), count);
    if (error != std::errc() || end != threads.data() + threads.size() || count < 0 || count > 1024)
      return ir::Fail("option threads is a number from 0 (all) to 1024, not {}", ir::Quoted(threads));
    chosen.threads = count;
  }
  return chosen;
}

Provider::Provider(ProviderOptions options) : options_(std::move(options)) {
  GetName = [](const abi::Ep*) { return abi::kProviderName; };
  GetCapability = [](abi::Ep* self, const abi::Graph* graph, abi::SupportInfo* info) {
    auto* const provider = static_cast<Provider*>(self);
    const LogOfThread log(provider->options_.logger);
    return Guarded([&] { return provider->Claim(graph, info); });
  };
  abi::Ep::Compile = [](abi::Ep* self, const abi::Graph** graphs, const abi::Node** fused, size_t count,
                        abi::ComputeInfo** infos, abi::Node** contexts) {
    auto* const provider = static_cast<Provider*>(self);
    const LogOfThread log(provider->options_.logger);
    return Guarded([&]() -> Status {
      for (size_t i = 0; i < count; ++i) {
        OCTAVO_TRY_STATUS(
            provider->Compile(graphs[i], fused[i], &infos[i], contexts == nullptr ? nullptr : &contexts[i]));
      }
      return {};
    });
  };
  if (options_.profiles) {
    version = abi::kWithProfiler;
    CreateProfiler = [](abi::Ep*, abi::Profiler** profiler) {
      return Guarded([&]() -> Status {
        *profiler = new Profiler;
        return {};
      });
    };
  }
  ReleaseNodeComputeInfos = [](abi::Ep*, abi::ComputeInfo** infos, size_t count) {
    for (size_t i = 0; i < count; ++i) delete static_cast<Compiled*>(infos[i]);
  };
}

Result<Provider::Made> Provider::ModelFor(const abi::Graph* graph, const Part& part) const {
  OCTAVO_TRY(ir::Graph read, Read(graph, part));
  if (options_.recipe.empty()) {
    read = api::FuseToRun(std::move(read)).graph;
  } else {
    api::OptimizeOptions options;
    options.recipe = options_.recipe;
    options.threads = options_.threads.value_or(0);
    options.explain = false;
    OCTAVO_TRY(api::Optimized optimized, api::Optimize(std::move(read), options));
    read = std::move(optimized.graph);
  }
  Made made;
  if (options_.context) {
    OCTAVO_TRY(made.context, ir::onnx::WriteBytes(read));
  }
  OCTAVO_TRY(made.model, ModelOfGraph(std::move(read)));
  return made;
}

Result<std::unique_ptr<runtime::Model>> Provider::ModelOfGraph(ir::Graph graph) const {
  std::optional<runtime::CompileForHost> for_session;
  if (!options_.threads) for_session.emplace(OnThreadsOfSession);
  OCTAVO_TRY(runtime::Model model,
             runtime::Model::Compile(std::move(graph), {.threads = options_.threads.value_or(0)}));
  return std::make_unique<runtime::Model>(std::move(model));
}

// Where the session's model lies.
Status Provider::Place(const abi::Graph* graph) {
  const char* path = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Tail().Graph_GetModelPath(graph, &path)));
  model_file_ = path == nullptr ? "" : path;
  return {};
}

// The model beside which compiled parts are written; "": they are written into it, or nobody says where it will lie.
std::filesystem::path Provider::Beside() const {
  if (options_.context_inside) return {};
  if (!options_.context_file.empty() || model_file_.empty()) return options_.context_file;
  return model_file_.parent_path() / (model_file_.stem().string() + "_ctx.onnx");
}

// Each node of what octavo has compiled before is a part of its own. The others' numbers are not in the result.
Result<std::set<size_t>> Provider::ClaimContexts(const std::vector<const abi::Node*>& nodes, abi::SupportInfo* info) {
  std::set<size_t> ours;
  for (size_t i = 0; i < nodes.size(); ++i) {
    OCTAVO_TRY(const bool is, IsContext(nodes[i]));
    if (!is) continue;
    ours.insert(i);
    const abi::FusionOptions options;
    OCTAVO_TRY_STATUS(StatusOf(Tail().GetEpApi()->AddNodesToFuse(info, &nodes[i], 1, &options)));
  }
  return ours;
}

// Bodies of If, Loop and Scan go with the node that has them.
Status Provider::Claim(const abi::Graph* graph, abi::SupportInfo* info) {
  const abi::Node* parent = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Tail().Graph_GetParentNode(graph, &parent)));
  if (parent != nullptr) return {};
  OCTAVO_TRY_STATUS(Place(graph));
  OCTAVO_TRY(const auto nodes, NodesOf(graph));
  OCTAVO_TRY(const std::set<size_t> compiled, ClaimContexts(nodes, info));
  if (!compiled.empty()) {  // what such a model leaves to others was theirs before
    ir::Log(ir::LogLevel::kInfo, "{} compiled parts", compiled.size());
    return {};
  }
  std::vector<size_t> all(nodes.size());
  std::iota(all.begin(), all.end(), size_t{0});
  OCTAVO_TRY(const Part everything, PartOf(graph, all));
  const auto read = Read(graph, everything);
  if (!read) {  // what octavo cannot read, ONNX Runtime keeps
    ir::Log(ir::LogLevel::kInfo, "takes nothing of {} nodes: {}", nodes.size(), read.error().message);
    return {};
  }
  std::set<size_t> refused, work;
  Sort(*read, refused, work);
  for (size_t i = 0; options_.no_bodies && i < nodes.size(); ++i) {
    OCTAVO_TRY(const auto outer, ImplicitInputsOf(nodes[i]));
    if (!outer.empty()) refused.insert(i);
  }
  return ClaimParts(graph, nodes, refused, work, info);
}

Status Provider::ClaimParts(const abi::Graph* graph, const std::vector<const abi::Node*>& nodes,
                            const std::set<size_t>& refused, const std::set<size_t>& work, abi::SupportInfo* info) {
  OCTAVO_TRY(const auto edges, EdgesOf(nodes));
  size_t taken = 0, parts = 0;
  for (const std::vector<size_t>& group : Groups(edges, refused)) {
    const bool worth = std::ranges::any_of(group, [&](size_t i) { return work.contains(i); });
    if (!worth && group.size() < nodes.size()) continue;
    OCTAVO_TRY(const Part part, PartOf(graph, group));
    OCTAVO_TRY(const std::string key, KeyOf(nodes, part));
    if (!claimed_.contains(key)) {
      auto model = ModelFor(graph, part);
      if (!model && !options_.recipe.empty()) return std::unexpected(model.error());  // the user asked for it
      if (!model) {
        ir::Log(ir::LogLevel::kInfo, "a part of {} nodes is left to ONNX Runtime: {}", group.size(),
                model.error().message);
        continue;
      }
      claimed_[key] = std::move(*model);
    }
    std::vector<const abi::Node*> chosen;
    for (const size_t i : group) chosen.push_back(nodes[i]);
    const abi::FusionOptions options{.drop_constant_initializers = true};  // they are in the model
    OCTAVO_TRY_STATUS(StatusOf(Tail().GetEpApi()->AddNodesToFuse(info, chosen.data(), chosen.size(), &options)));
    taken += group.size(), ++parts;
  }
  OCTAVO_TRY(const std::string unknown, TypesOf(nodes, refused));
  ir::Log(ir::LogLevel::kInfo, "takes {} of {} nodes in {} parts{}{}", taken, nodes.size(), parts,
          unknown.empty() ? "" : "; it has no meaning for ", unknown);
  return {};
}

Result<Provider::Made> Provider::MadeOf(const abi::Graph* graph) {
  OCTAVO_TRY(const auto nodes, NodesOf(graph));
  if (nodes.size() == 1) {
    OCTAVO_TRY(auto context, ContextOf(nodes[0], FolderOf(model_file_, options_.context_file)));
    if (context) {
      OCTAVO_TRY(ir::Graph read, ir::onnx::ReadBytes(*context));
      OCTAVO_TRY(auto model, ModelOfGraph(std::move(read)));
      return Made{std::move(model), std::move(*context)};
    }
  }
  std::vector<size_t> all(nodes.size());
  std::iota(all.begin(), all.end(), size_t{0});
  Part part{.nodes = std::move(all)};
  OCTAVO_TRY(part.outputs, OutputsOf(graph));
  OCTAVO_TRY(const std::string key, KeyOf(nodes, part));
  if (auto known = claimed_.extract(key)) return std::move(known.mapped());
  OCTAVO_TRY(part, PartOf(graph, std::move(part.nodes)));  // ONNX Runtime orders nodes or outputs in its own way
  return ModelFor(graph, part);
}

Status Provider::Compile(const abi::Graph* graph, const abi::Node* fused, abi::ComputeInfo** info,
                         abi::Node** context) {
  OCTAVO_TRY(Made made, MadeOf(graph));
  if (options_.context && context != nullptr) {
    OCTAVO_TRY(*context, ContextNode(fused, made.context, Beside()));
  }
  std::unique_ptr<runtime::Model> model = std::move(made.model);
  OCTAVO_TRY(const auto fused_inputs, InputsOf(fused));
  OCTAVO_TRY(const auto fused_outputs, OutputsOf(fused));
  std::vector<std::string> inputs;
  for (const abi::ValueInfo* v : fused_inputs) {
    OCTAVO_TRY(std::string name, NameOf(v));
    const bool known = std::ranges::contains(model->inputs(), name, &runtime::PortInfo::name);
    inputs.push_back(known ? std::move(name) : std::string());
  }
  std::vector<size_t> outputs;
  for (const abi::ValueInfo* v : fused_outputs) {
    OCTAVO_TRY(const std::string name, NameOf(v));
    const auto it = std::ranges::find(model->outputs(), name, &runtime::PortInfo::name);
    if (it == model->outputs().end()) return ir::Fail("the nodes that were taken have no output {}", ir::Quoted(name));
    outputs.push_back(static_cast<size_t>(it - model->outputs().begin()));
  }
  *info =
      std::make_unique<Compiled>(std::move(model), std::move(inputs), std::move(outputs), options_.logger).release();
  return {};
}

}  // namespace octavo::integrations::onnxruntime
