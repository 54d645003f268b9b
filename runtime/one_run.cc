#include "octavo/runtime/one_run.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "octavo/ir/log.h"
#include "octavo/runtime/plan.h"
#include "octavo/runtime/room.h"
#include "octavo/runtime/tell.h"

namespace octavo::runtime {

// Sizes and aliases seen in one unplanned run, where every planned tensor has a buffer of its own. A view, and the
// integers that a dequantized tensor carries along with their scale and zero point, keep their buffer alive.
class Recorder {
 public:
  explicit Recorder(const Model::State& s) : state_(s), holds_(s.graph.value_capacity()) {}

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

  const Model::State& state_;
  std::vector<std::vector<uint32_t>> holds_;     // by value: the planned values whose memory it refers to
  std::map<const ir::Buffer*, uint32_t> owner_;  // an address that is reused only lengthens a life
  std::map<uint32_t, Lifetime> lives_;
};

namespace {

thread_local const RunIntoHost::Memory* lent_to_next_run = nullptr;

constexpr size_t kMaxPlans = 64;   // distinct input shapes kept; beyond that the cache starts anew
constexpr double kAskEvery = 1e5;  // us

Status BindInputs(const Model::State& s, const ir::TensorMap& inputs, std::vector<RtValue>& values,
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

}  // namespace

RunIntoHost::RunIntoHost(Memory memory) : memory_(std::move(memory)) { lent_to_next_run = &memory_; }
RunIntoHost::~RunIntoHost() { lent_to_next_run = nullptr; }
const RunIntoHost::Memory* RunIntoHost::Take() { return std::exchange(lent_to_next_run, nullptr); }

OneRun::OneRun(Model::State& state, Profile* profile) : state_(state), profile_(profile), ask_next_(kAskEvery) {
  if (profile != nullptr && !profile->events.empty())
    offset_ = profile->events.back().start_us + profile->events.back().duration_us;
  call_.lent = RunIntoHost::Take(), call_.graph = &state.graph;
}
OneRun::~OneRun() = default;

Status OneRun::Begin(ir::TensorMap inputs) {
  Model::State& s = state_;
  values_ = s.constants;
  OCTAVO_TRY_STATUS(BindInputs(s, inputs, values_, key_));
  call_.rooms = std::ranges::any_of(inputs, [](const auto& input) { return IsInRoom(input.second); });
  {
    const std::scoped_lock lock(s.plans_mutex);
    const auto it = s.plans.find(key_);
    if (it != s.plans.end()) plan_ = it->second;
  }
  call_.interrupted = s.options.interrupted;
  call_.threads = s.threads.get(), call_.pool = &s.pool, call_.scratch = &s.scratch;
  if (plan_ != nullptr) {
    call_.plan = plan_.get();
    call_.arena = s.arenas.Take(plan_->arena_bytes);
    s.scratch.Trim();  // shapes repeat: what first runs needed is not held beside the arena
  } else {
    recorder_ = std::make_unique<Recorder>(s);
  }
  begin_ = std::chrono::steady_clock::now();
  return {};
}

Status OneRun::Step(size_t i) {
  OCTAVO_TRY_STATUS(AskToGoOn(i));
  Gather(i);
  OCTAVO_TRY_STATUS(Execute(i));
  Settle(i);
  return {};
}

Status OneRun::AskToGoOn(size_t i) {
  if (!state_.options.interrupted || MicrosecondsSince(begin_) <= ask_next_) return {};
  if (state_.options.interrupted())
    return ir::Fail("interrupted before node '{}'", DisplayName(state_.graph.node(state_.steps[i].node)));
  ask_next_ = MicrosecondsSince(begin_) + kAskEvery;
  return {};
}

void OneRun::Gather(size_t i) {
  const runtime::Step& step = state_.steps[i];
  in_.clear();
  for (uint32_t v : step.inputs) in_.push_back(v == kNone ? RtValue{} : values_[v]);
  for (uint32_t v : step.frees) values_[v] = {};  // now the step alone holds what it is the last to read
  call_.step = &step;
  call_.in = in_;
  call_.out.assign(step.outputs.size(), {});
  call_.allocated = 0, call_.interpreted = false;
  call_.scratch_id = ScratchOf(state_, i);
}

Status OneRun::Execute(size_t i) {
  const runtime::Step& step = state_.steps[i];
  const double start = profile_ != nullptr ? MicrosecondsSince(begin_) : 0;
  if (Status status = step.kernel->Run(call_); !status) {
    const Node& n = state_.graph.node(step.node);
    return ir::Fail("node '{}' ({}): {}", DisplayName(n), step.kernel->name(), status.error().message);
  }
  if (call_.interpreted && recorder_ != nullptr && ir::Logs(ir::LogLevel::kInfo)) TellFallback(state_, step);
  if (profile_ != nullptr) {
    const Node& n = state_.graph.node(step.node);
    profile_->events.push_back({DisplayName(n), call_.interpreted ? InterpreterOf(n.op) : step.kernel->name(),
                                step.origin, offset_ + start, MicrosecondsSince(begin_) - start});
  }
  return {};
}

void OneRun::Settle(size_t i) {
  const runtime::Step& step = state_.steps[i];
  for (size_t o = 0; o < step.outputs.size(); ++o) {
    const uint32_t v = step.outputs[o];
    if (v == kNone) continue;
    const bool allocated = ((call_.allocated >> std::min<size_t>(o, 63)) & 1) != 0;
    if (recorder_ != nullptr) recorder_->Output(i, v, call_.out[o], allocated);
    values_[v] = std::move(call_.out[o]);
  }
  if (recorder_ != nullptr) {
    for (uint32_t v : step.inputs) recorder_->Use(i, v);
    if (call_.scratch_of_step.defined()) recorder_->Scratch(i, call_.scratch_of_step.byte_size());
  }
  call_.scratch_of_step = {};
  in_.clear();
  for (uint32_t v : step.frees) values_[v] = {};
}

std::vector<Tensor> OneRun::End() {
  Model::State& s = state_;
  std::vector<Tensor> outputs;
  for (const auto& o : s.graph.outputs()) outputs.push_back(values_[o.value.index].tensor);
  if (plan_ == nullptr) {
    std::shared_ptr<ShapePlan> plan = recorder_->Finish();
    s.last_arena_bytes = plan->arena_bytes;
    TellPlanned(s, key_, plan->arena_bytes);
    const std::scoped_lock lock(s.plans_mutex);
    if (s.plans.size() >= kMaxPlans) {
      ir::Log(ir::LogLevel::kInfo, "{}: {} shapes of inputs are planned, the most that are kept; all are dropped",
              CalledOf(s.graph), kMaxPlans);
      s.plans.clear();
    }
    s.plans.emplace(std::move(key_), std::move(plan));
  }
  values_.clear();
  return outputs;
}

}  // namespace octavo::runtime
