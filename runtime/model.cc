#include "octavo/runtime/model.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>

#include "octavo/ir/closed.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/limits.h"
#include "octavo/runtime/arenas.h"
#include "octavo/runtime/build.h"
#include "octavo/runtime/cache_state.h"
#include "octavo/runtime/caches.h"
#include "octavo/runtime/compile.h"
#include "octavo/runtime/packed_once.h"
#include "octavo/runtime/plan.h"
#include "octavo/runtime/pool.h"
#include "octavo/runtime/room.h"

namespace octavo::runtime {

namespace {

// What a first run with given input shapes taught: which step outputs lie where. Keyed by value index.
struct ShapePlan {
  std::map<uint32_t, std::pair<size_t, size_t>> place;  // value, or ScratchOf a step -> offset, bytes
  size_t arena_bytes = 0;
};

}  // namespace

struct Model::State {
  Graph graph;
  CompileOptions options;
  std::unique_ptr<Threads> threads;
  Arenas arenas;                   // of runs with a plan
  Pool pool;                       // of outputs
  Pool scratch;                    // of what lies in no arena yet, in runs that only a plan comes out of
  std::vector<RtValue> constants;  // by value index
  std::vector<Step> steps;
  std::vector<PortInfo> inputs, outputs;
  std::vector<CachePort> caches;
  std::mutex plans_mutex;
  int64_t bytes = 0;  // of the model's file, or of its constants: what a run may take depends on them
  std::map<std::vector<int64_t>, std::shared_ptr<ShapePlan>> plans;  // by concatenated input shapes
  std::atomic<size_t> last_arena_bytes = 0;
};

namespace {

using State = Model::State;

constexpr size_t kMaxPlans = 64;  // distinct input shapes kept; beyond that the cache starts anew

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

// What stands for the scratch memory of a step in a plan, where values have their index.
uint32_t ScratchOf(const State& s, size_t step) { return static_cast<uint32_t>(s.graph.value_capacity() + step); }

// Sizes and aliases seen in one unplanned run, where every planned tensor has a buffer of its own. A view, and the
// integers that a dequantized tensor carries along with their scale and zero point, keep their buffer alive.
class Recorder {
 public:
  explicit Recorder(const State& s) : state_(s), holds_(s.graph.value_capacity()) {}

  // `allocated`: the step asked for this output's memory itself (StepCall::Allocate), so it can be planned.
  void Output(size_t step, uint32_t v, const RtValue& value, bool allocated) {
    if (allocated) {
      owner_[value.tensor.buffer().get()] = v;
      lives_[v] = {value.tensor.byte_size(), static_cast<int32_t>(step), static_cast<int32_t>(step)};
    }
    holds_[v].clear();
    Hold(v, value.tensor);
    if (value.quant == nullptr) return;
    for (const Tensor* t : {&value.quant->q, &value.quant->scale, &value.quant->zero_point}) Hold(v, *t);
  }
  void Scratch(size_t step, size_t bytes) {
    const auto at = static_cast<int32_t>(step);
    lives_[ScratchOf(state_, step)] = {bytes, at, at};
  }
  void Use(size_t step, uint32_t v) {
    if (v == kNone) return;
    for (uint32_t root : holds_[v]) lives_[root].last = std::max(lives_[root].last, static_cast<int32_t>(step));
  }

  std::shared_ptr<ShapePlan> Finish() {
    for (const auto& o : state_.graph.outputs()) {  // what leaves the run must own its memory
      for (uint32_t root : holds_[o.value.index]) lives_.erase(root);
    }
    auto plan = std::make_shared<ShapePlan>();
    std::vector<Lifetime> lifetimes;
    std::vector<uint32_t> ids;
    for (const auto& [v, l] : lives_) {
      lifetimes.push_back(l);
      ids.push_back(v);
    }
    const MemoryPlan memory = PlanMemory(lifetimes);
    for (size_t i = 0; i < ids.size(); ++i) plan->place[ids[i]] = {memory.offsets[i], lifetimes[i].bytes};
    plan->arena_bytes = memory.arena_bytes;
    return plan;
  }

 private:
  void Hold(uint32_t v, const Tensor& t) {
    const auto it = owner_.find(t.buffer().get());
    if (it != owner_.end()) holds_[v].push_back(it->second);
  }

  const State& state_;
  std::vector<std::vector<uint32_t>> holds_;     // by value: the planned values whose memory it refers to
  std::map<const ir::Buffer*, uint32_t> owner_;  // an address that is reused only lengthens a life
  std::map<uint32_t, Lifetime> lives_;
};

class PlannedCall : public StepCall {
 public:
  Tensor& Allocate(size_t i, DType dtype, Shape shape) override {
    allocated |= uint64_t{1} << std::min<size_t>(i, 63);
    const bool leaves = step->leaves[i] || arena != nullptr;  // what a plan leaves out is seen from outside by a view
    return out[i].tensor = Place(step->outputs[i], dtype, std::move(shape), leaves ? *pool : *scratch);
  }
  std::byte* Scratch(size_t bytes) override {
    OCTAVO_CHECK(!scratch_of_step.defined(), "a step asks once");
    scratch_of_step = Place(scratch_id, DType::kU8, {static_cast<int64_t>(bytes)}, *scratch);
    return scratch_of_step.mutable_data();
  }

  const Step* step = nullptr;
  const ShapePlan* plan = nullptr;
  const Pool *pool = nullptr, *scratch = nullptr;
  std::shared_ptr<ir::Buffer> arena;
  uint32_t scratch_id = 0;  // in the plan
  Tensor scratch_of_step;
  uint64_t allocated = 0;

 private:
  Tensor Place(uint32_t id, DType dtype, Shape shape, const Pool& otherwise) const {
    if (arena != nullptr) {
      const auto it = plan->place.find(id);
      const size_t bytes = quant::BytesOf(dtype, static_cast<size_t>(ir::ElementCount(shape)));
      if (it != plan->place.end() && bytes <= it->second.second)
        return Tensor::View(dtype, std::move(shape), arena, it->second.first);
    }
    return otherwise.Take(dtype, std::move(shape));
  }
};

Status BindInputs(const State& s, const ir::TensorMap& inputs, std::vector<RtValue>& values,
                  std::vector<int64_t>& key) {
  std::map<std::string, int64_t> symbols;
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    const PortInfo& port = s.inputs[i];
    const auto it = inputs.find(port.name);
    if (it == inputs.end()) return ir::Fail("input '{}' ({}) is missing", port.name, ToString(port.type));
    const Tensor& t = it->second;
    if (t.dtype() != port.type.dtype && port.type.dtype != DType::kUndefined) {
      return ir::Fail("input '{}' has dtype {}, the model expects {}", port.name, quant::Name(t.dtype()),
                      quant::Name(port.type.dtype));
    }
    if (port.type.shape) {
      const ir::SymShape& want = *port.type.shape;
      bool fits = want.size() == t.shape().size();
      for (size_t d = 0; fits && d < want.size(); ++d) {
        const int64_t have = t.shape()[d];
        if (want[d].is_number()) {
          fits = want[d].number() == have;
        } else if (const std::string name = want[d].symbol(); !name.empty()) {
          const auto [at, fresh] = symbols.try_emplace(name, have);
          if (!fresh && at->second != have) {
            return ir::Fail("input '{}' has {} = {}, another input has {}", port.name, name, have, at->second);
          }
        }
      }
      if (!fits) {
        return ir::Fail("input '{}' has shape {}, the model expects {}", port.name, ir::ToString(t.shape()),
                        ToString(port.type));
      }
    }
    values[s.graph.inputs()[i].index].tensor = t;
    key.push_back(t.rank());
    key.insert(key.end(), t.shape().begin(), t.shape().end());
  }
  for (const auto& [name, unused] : inputs) {
    const bool known = std::any_of(s.inputs.begin(), s.inputs.end(), [&](const PortInfo& p) { return p.name == name; });
    if (!known) return ir::Fail("the model has no input '{}'", name);
  }
  return {};
}

double MicrosecondsSince(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t).count();
}

Status RunSteps(const State& s, std::vector<RtValue>& values, PlannedCall& call, Recorder* recorder, Profile* profile) {
  const auto begin = std::chrono::steady_clock::now();
  const double offset = profile == nullptr || profile->events.empty()
                            ? 0
                            : profile->events.back().start_us + profile->events.back().duration_us;
  constexpr double kAskEvery = 1e5;  // us
  double ask_next = kAskEvery;
  std::vector<RtValue> in;
  for (size_t i = 0; i < s.steps.size(); ++i) {
    const Step& step = s.steps[i];
    if (s.options.interrupted && MicrosecondsSince(begin) > ask_next) {
      if (s.options.interrupted())
        return ir::Fail("interrupted before node '{}'", DisplayName(s.graph.node(step.node)));
      ask_next = MicrosecondsSince(begin) + kAskEvery;
    }
    in.clear();
    for (uint32_t v : step.inputs) in.push_back(v == kNone ? RtValue{} : values[v]);
    for (uint32_t v : step.frees) values[v] = {};  // now the step alone holds what it is the last to read
    call.step = &step;
    call.in = in;
    call.out.assign(step.outputs.size(), {});
    call.allocated = 0, call.interpreted = false;
    call.scratch_id = ScratchOf(s, i);
    const double start = profile != nullptr ? MicrosecondsSince(begin) : 0;
    if (Status status = step.kernel->Run(call); !status) {
      const Node& n = s.graph.node(step.node);
      return ir::Fail("node '{}' ({}): {}", DisplayName(n), step.kernel->name(), status.error().message);
    }
    if (profile != nullptr) {
      const Node& n = s.graph.node(step.node);
      profile->events.push_back({DisplayName(n), call.interpreted ? InterpreterOf(n.op) : step.kernel->name(),
                                 step.origin, offset + start, MicrosecondsSince(begin) - start});
    }
    for (size_t o = 0; o < step.outputs.size(); ++o) {
      const uint32_t v = step.outputs[o];
      if (v == kNone) continue;
      const bool allocated = ((call.allocated >> std::min<size_t>(o, 63)) & 1) != 0;
      if (recorder != nullptr) recorder->Output(i, v, call.out[o], allocated);
      values[v] = std::move(call.out[o]);
    }
    if (recorder != nullptr) {
      for (uint32_t v : step.inputs) recorder->Use(i, v);
      if (call.scratch_of_step.defined()) recorder->Scratch(i, call.scratch_of_step.byte_size());
    }
    call.scratch_of_step = {};
    in.clear();
    for (uint32_t v : step.frees) values[v] = {};
  }
  return {};
}

}  // namespace

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Result<Model> Model::Compile(Graph graph, const CompileOptions& options) {
  return ir::Closed("compiling the model", [&] {
    const ir::MemoryScope scope(ir::MemoryLimit(graph));
    return Make(std::move(graph), options);
  });
}

Result<Model> Model::Make(Graph graph, const CompileOptions& options) {
  constexpr int kMostThreads = 1024;  // beyond, TBB's own tables end the process
  if (options.threads < 0 || options.threads > kMostThreads)
    return ir::Fail("{} threads: give 0 (all of the CPU) to {}", options.threads, kMostThreads);
  auto state = std::make_unique<State>();
  State& s = *state;
  s.graph = std::move(graph), s.options = options;
  if (s.options.packed == nullptr) s.options.packed = std::make_shared<PackedWeightsSet>();
  OCTAVO_TRY_STATUS(ir::Inference::Run(s.graph).transform([](const auto&) {}));  // kernels are chosen by dtype
  s.threads = std::make_unique<Threads>(options.threads);
  s.options.threads = s.threads->count();
  for (ValueId v : s.graph.inputs()) s.inputs.push_back({s.graph.value(v).name, s.graph.value(v).type});
  for (const auto& o : s.graph.outputs()) s.outputs.push_back({o.name, s.graph.value(o.value).type});
  s.caches = FindCaches(s.graph);
  OCTAVO_TRY_STATUS(EvaluateConstants(s));
  OCTAVO_TRY(s.steps, BuildSteps({s.graph, s.constants, s.options.arch, &s.options}));
  s.options.packed = nullptr;
  FindLastUses(s);
  s.bytes = s.graph.info.bytes;
  for (const RtValue& v : s.constants)
    s.bytes += s.graph.info.bytes == 0 ? static_cast<int64_t>(v.tensor.byte_size()) : 0;
  return Model(std::move(state));
}

Result<std::vector<Tensor>> Model::Run(ir::TensorMap inputs, Profile* profile) const {
  int64_t elements = 0;
  for (const auto& [name, t] : inputs) elements += t.size();
  const size_t most = ir::MemoryLimit(state_->graph.info.limits, state_->bytes, elements);
  return ir::Closed("running the model", most, [&] { return RunInside(std::move(inputs), profile); });
}

Result<std::vector<Tensor>> Model::Run(ir::TensorMap inputs, CacheState& state, Profile* profile) const {
  int64_t elements = state.elements();
  for (const auto& [name, t] : inputs) elements += t.size();
  const size_t most = ir::MemoryLimit(state_->graph.info.limits, state_->bytes, elements);
  return ir::Closed("running the model", most, [&] {
    return state.Step(*this, std::move(inputs), [&](ir::TensorMap all) { return RunInside(std::move(all), profile); });
  });
}

Result<std::vector<Tensor>> Model::RunInside(ir::TensorMap inputs, Profile* profile) const {
  State& s = *state_;
  std::vector<RtValue> values = s.constants;
  std::vector<int64_t> key;
  OCTAVO_TRY_STATUS(BindInputs(s, inputs, values, key));
  const bool rooms = std::ranges::any_of(inputs, [](const auto& input) { return IsInRoom(input.second); });
  inputs.clear();
  std::shared_ptr<ShapePlan> plan;
  {
    const std::scoped_lock lock(s.plans_mutex);
    const auto it = s.plans.find(key);
    if (it != s.plans.end()) plan = it->second;
  }
  PlannedCall call;
  call.interrupted = s.options.interrupted, call.rooms = rooms;
  call.threads = s.threads.get(), call.pool = &s.pool, call.scratch = &s.scratch;
  if (plan != nullptr) {
    call.plan = plan.get();
    call.arena = s.arenas.Take(plan->arena_bytes);
    s.scratch.Trim();  // shapes repeat: what first runs needed is not held beside the arena
  }
  Recorder recorder(s);
  OCTAVO_TRY_STATUS(RunSteps(s, values, call, plan == nullptr ? &recorder : nullptr, profile));
  std::vector<Tensor> outputs;
  for (const auto& o : s.graph.outputs()) outputs.push_back(values[o.value.index].tensor);
  if (plan == nullptr) {
    plan = recorder.Finish();
    s.last_arena_bytes = plan->arena_bytes;
    const std::scoped_lock lock(s.plans_mutex);
    if (s.plans.size() >= kMaxPlans) s.plans.clear();
    s.plans.emplace(std::move(key), std::move(plan));
  }
  return outputs;
}

const std::vector<PortInfo>& Model::inputs() const { return state_->inputs; }
const std::vector<PortInfo>& Model::outputs() const { return state_->outputs; }
const std::vector<CachePort>& Model::caches() const { return state_->caches; }
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
