#include "octavo/runtime/model.h"

#include <algorithm>

#include "octavo/ir/closed.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/limits.h"
#include "octavo/ir/log.h"
#include "octavo/kernels/arch/numa.h"
#include "octavo/runtime/cache_state.h"
#include "octavo/runtime/cache_windows.h"
#include "octavo/runtime/caches.h"
#include "octavo/runtime/channels_last.h"
#include "octavo/runtime/hoist.h"
#include "octavo/runtime/host_threads.h"
#include "octavo/runtime/model_state.h"
#include "octavo/runtime/one_run.h"
#include "octavo/runtime/packed_once.h"
#include "octavo/runtime/tell.h"
#include "octavo/runtime/together.h"

namespace octavo::runtime {

namespace {

using State = Model::State;

// Kernels are chosen by what inference says of a constant, too.
Status FitsType(const State& s, const Node& n, ValueId v) {
  Needs needs;
  needs.Makes(0, s.graph.value(v).type);
  const Status fits = needs.CheckMade({&s.constants[v.index], 1});
  return fits ? fits : ir::Fail("node '{}', a constant: {}", DisplayName(n), fits.error().message);
}

// Constants, and what can be computed from constants alone (dequantized weights keep their integers for the interpreter).
Status EvaluateConstants(State& s) {
  const Graph& g = s.graph;
  s.constants.resize(g.value_capacity());
  for (ir::NodeId id : g.NodesInOrder()) {
    const Node& n = g.node(id);
    if (n.op == Op::kConstant) {
      const Tensor* t = g.ConstantOf(n.output());
      if (t == nullptr) return ir::Fail("constant '{}' has no value", n.name);
      s.constants[n.output().index].tensor = *t;
      OCTAVO_TRY_STATUS(FitsType(s, n, n.output()));
      continue;
    }
    const bool constant = !n.inputs.empty() && ir::CanEval(n.op) && n.op != Op::kIf && n.op != Op::kLoop &&
                          n.op != Op::kScan && std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
                            return !v.valid() || s.constants[v.index].tensor.defined();
                          });
    if (!constant) continue;
    std::vector<RtValue> in;
    in.reserve(n.inputs.size());
    for (ValueId v : n.inputs) in.push_back(v.valid() ? s.constants[v.index] : RtValue{});
    auto out = ir::EvalNode(g, n, in);
    if (!out) return std::unexpected(out.error());
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      if (!n.outputs[i].valid()) continue;
      s.constants[n.outputs[i].index] = std::move((*out)[i]);
      OCTAVO_TRY_STATUS(FitsType(s, n, n.outputs[i]));
    }
  }
  return {};
}

// Graphs of control flow share what the model around them packs.
Status OpenPacked(CompileOptions& options) {
  if (options.packed != nullptr) return {};
  options.packed = std::make_shared<PackedWeightsSet>();
  if (options.packed_file.empty()) return {};
  OCTAVO_TRY(options.packed->file, PackedFile::Open(options.packed_file, options.packed_by, options.arch));
  return {};
}

// The node of memory to compile for; an error where the caller, not the environment, asks for one that cannot be had. A host has its threads where it likes.
Result<int> NodeOfCompiled() {
  std::string problem;
  const int node = CompileForHost::Is() ? -1 : kernels::WantedNode(&problem);
  if (!problem.empty() && kernels::OnNumaNode::Current()) return ir::Fail("{}", problem);
  return node;
}

// Which step is the last to touch each value; graph outputs are never freed.
void FindLastUses(State& s) {
  std::vector<int32_t> last(s.graph.value_capacity(), -1);
  for (size_t i = 0; i < s.steps.size(); ++i) {
    for (uint32_t v : s.steps[i].inputs) {
      if (v != kNone) last[v] = static_cast<int32_t>(i);
    }
    for (uint32_t v : s.steps[i].outputs) {
      if (v != kNone) last[v] = std::max(last[v], static_cast<int32_t>(i));
    }
  }
  std::vector<bool> leaves(s.graph.value_capacity());
  for (const auto& o : s.graph.outputs()) last[o.value.index] = -1, leaves[o.value.index] = true;
  for (Step& step : s.steps) {
    for (uint32_t v : step.outputs) step.leaves.push_back(v != kNone && leaves[v]);
  }
  for (uint32_t v = 0; v < last.size(); ++v) {
    const bool constant = s.constants[v].tensor.defined();
    if (last[v] >= 0 && !constant) s.steps[static_cast<size_t>(last[v])].frees.push_back(v);
  }
}

}  // namespace

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Result<Model> Model::Compile(Graph graph, const CompileOptions& options) {
  return ir::Closed("compiling the model", [&]() -> Result<Model> {
    const ir::MemoryScope scope(ir::MemoryLimit(graph));
    OCTAVO_TRY(const int node, NodeOfCompiled());
    const kernels::MemoryOfNode memory(node);
    if (memory.refused())
      ir::Log(ir::LogLevel::kWarning,
              "the system does not let memory be asked of node {}; it lies where threads touch it first", node);
    return Make(std::move(graph), options);
  });
}

Result<Model> Model::Make(Graph graph, const CompileOptions& options) {
  constexpr int kMostThreads = 1024;  // beyond, TBB's own tables end the process
  if (options.threads < 0 || options.threads > kMostThreads)
    return ir::Fail("{} threads: give 0 (all of the CPU) to {}", options.threads, kMostThreads);
  auto state = std::make_unique<State>();
  State& s = *state;
  s.graph = std::move(graph), s.options = options, s.node = CompileForHost::Is() ? -1 : kernels::WantedNode();
  OCTAVO_TRY_STATUS(OpenPacked(s.options));
  OCTAVO_TRY_STATUS(ir::Inference::Run(s.graph).transform([](const auto&) {}));  // kernels are chosen by dtype
  s.threads = std::make_unique<Threads>(options.threads);
  s.options.threads = s.threads->count();
  for (ValueId v : s.graph.inputs()) s.inputs.push_back({s.graph.value(v).name, s.graph.value(v).type});
  for (const auto& o : s.graph.outputs()) s.outputs.push_back({o.name, s.graph.value(o.value).type});
  s.caches = FindCaches(s.graph), s.windows = FindWindows(s.graph, s.caches);
  OCTAVO_TRY_STATUS(EvaluateConstants(s));
  if (options.kernels && LayChannelsLast({s.graph, s.constants, s.options.arch, &s.options}, s.graph)) {
    OCTAVO_TRY_STATUS(ir::Inference::Run(s.graph).transform([](const auto&) {}));
    OCTAVO_TRY_STATUS(EvaluateConstants(s));
  }
  if (options.kernels) HoistOperandsOfHeads({s.graph, s.constants, s.options.arch, &s.options}, s.graph);
  OCTAVO_TRY(s.steps, BuildSteps({s.graph, s.constants, s.options.arch, &s.options}));
  if (s.options.packed->file && options.packed == nullptr) s.packed = s.options.packed->file->Finish();
  s.options.packed = nullptr;
  FindLastUses(s);
  TellCompiled(s, options);
  s.bytes = s.graph.info.bytes;
  for (const RtValue& v : s.constants)
    s.bytes += s.graph.info.bytes == 0 ? static_cast<int64_t>(v.tensor.byte_size()) : 0;
  return Model(std::move(state));
}

Result<std::vector<Tensor>> Model::Run(ir::TensorMap inputs, Profile* profile) const {
  int64_t elements = 0;
  for (const auto& [name, t] : inputs) elements += t.size();
  const size_t most = ir::MemoryLimit(state_->graph.info.limits, state_->bytes, elements);
  return ir::Closed("running the model", most, [&] {
    const kernels::MemoryOfNode memory(state_->node);
    return RunInside(std::move(inputs), profile);
  });
}

Result<std::vector<Tensor>> Model::Run(ir::TensorMap inputs, CacheState& state, Profile* profile) const {
  int64_t elements = state.elements();
  for (const auto& [name, t] : inputs) elements += t.size();
  const size_t most = ir::MemoryLimit(state_->graph.info.limits, state_->bytes, elements);
  return ir::Closed("running the model", most, [&] {
    const kernels::MemoryOfNode memory(state_->node);
    return state.Step(*this, state_->windows, std::move(inputs),
                      [&](ir::TensorMap all) { return RunInside(std::move(all), profile); });
  });
}

Result<std::vector<std::vector<Tensor>>> Model::RunTogether(std::vector<ir::TensorMap> inputs,
                                                            const std::vector<CacheState*>& states) const {
  if (!states.empty() && states.size() != inputs.size())
    return ir::Fail("{} states for {} runs; give one for each, or none", states.size(), inputs.size());
  int64_t elements = 0;
  for (const CacheState* state : states) elements += state->elements();
  for (const ir::TensorMap& one : inputs) {
    for (const auto& [name, t] : one) elements += t.size();
  }
  const size_t most = ir::MemoryLimit(state_->graph.info.limits, state_->bytes, elements);
  return ir::Closed("running the model", most, [&] {
    const kernels::MemoryOfNode memory(state_->node);
    const auto run = [&](std::vector<ir::TensorMap> all) { return RunSideBySide(*state_, std::move(all)); };
    return states.empty() ? run(std::move(inputs))
                          : CacheState::Step(*this, state_->windows, std::move(inputs), states, run);
  });
}

Result<std::vector<Tensor>> Model::RunInside(ir::TensorMap inputs, Profile* profile) const {
  OneRun run(*state_, profile);
  OCTAVO_TRY_STATUS(run.Begin(std::move(inputs)));
  for (size_t i = 0; i < state_->steps.size(); ++i) OCTAVO_TRY_STATUS(run.Step(i));
  return run.End();
}

const std::vector<PortInfo>& Model::inputs() const { return state_->inputs; }
const std::vector<PortInfo>& Model::outputs() const { return state_->outputs; }
const std::vector<CachePort>& Model::caches() const { return state_->caches; }
const PackedReport& Model::packed() const { return state_->packed; }
int Model::threads() const { return state_->options.threads; }
kernels::Arch Model::arch() const { return state_->options.arch; }
size_t Model::arena_bytes() const { return state_->last_arena_bytes; }
size_t Model::idle_bytes() const {
  return state_->arenas.idle_bytes() + state_->pool.idle_bytes() + state_->scratch.idle_bytes();
}
std::vector<std::string> Model::KernelOfEachStep() const {
  std::vector<std::string> names;
  for (const Step& step : state_->steps) names.push_back(step.kernel->name());
  return names;
}

}  // namespace octavo::runtime
