#include "octavo/runtime/together.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "octavo/runtime/one_run.h"
#include "octavo/runtime/room.h"

namespace octavo::runtime {

namespace {

// A step over the rows of several runs.
class StackedCall final : public StepCall {
 public:
  explicit StackedCall(const Pool& pool) : pool_(pool) {}
  Tensor& Allocate(size_t i, DType dtype, Shape shape) override {
    return out[i].tensor = pool_.Take(dtype, std::move(shape));
  }
  std::byte* Scratch(size_t bytes) override {
    scratch_ = pool_.Take(DType::kU8, {static_cast<int64_t>(bytes)});
    return scratch_.mutable_data();
  }

 private:
  const Pool& pool_;
  Tensor scratch_;
};

// Whether the runs' operands `j` lie side by side in a stacked step.
bool IsStacked(const Model::State& s, const Step& step, size_t j) {
  const uint32_t v = step.inputs[j];
  return v != kNone && !s.constants[v].tensor.defined() && !std::ranges::contains(step.kernel->apart, j);
}

// The shapes of a run's operands where they can be stacked along their first dim: all begin with the same number, and no integers come along.
std::optional<std::vector<int64_t>> StackKey(const Model::State& s, const Step& step, std::span<const RtValue> in) {
  std::vector<int64_t> key;
  const Tensor* first = nullptr;
  for (size_t j = 0; j < in.size(); ++j) {
    if (!IsStacked(s, step, j)) continue;
    const Tensor& t = in[j].tensor;
    if (!t.defined() || IsInRoom(t) || in[j].quant != nullptr || t.rank() < 2 || t.size() == 0 ||
        t.dtype() == DType::kString || quant::BitsOf(t.dtype()) < 8)
      return {};
    if (first == nullptr) first = &t;
    if (t.rank() != first->rank() || t.shape()[0] != first->shape()[0]) return {};
    key.push_back(static_cast<int64_t>(t.dtype()));
    key.insert(key.end(), t.shape().begin(), t.shape().end());
  }
  return first == nullptr ? std::nullopt : std::optional(key);
}

using Runs = std::vector<OneRun*>;

// Their operands `j`, one behind the other: where a stacked step made them, they lie so.
Tensor Stack(const Runs& runs, size_t j, const Pool& pool) {
  const Tensor& first = runs[0]->call().in[j].tensor;
  const size_t bytes = first.byte_size();
  Shape shape = first.shape();
  shape[0] *= static_cast<int64_t>(runs.size());
  bool beside = true;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Tensor& t = runs[i]->call().in[j].tensor;
    beside = beside && t.buffer() == first.buffer() && t.data() == first.data() + i * bytes;
  }
  if (beside) {
    const auto offset = static_cast<size_t>(first.data() - first.buffer()->data());
    return Tensor::View(first.dtype(), std::move(shape), first.buffer(), offset);
  }
  Tensor all = pool.Take(first.dtype(), std::move(shape));
  for (size_t i = 0; i < runs.size(); ++i)
    std::memcpy(all.mutable_data() + i * bytes, runs[i]->call().in[j].tensor.data(), bytes);
  return all;
}

// Part `i` of `count` of what a stacked step made; what leaves the graph has memory of its own.
Tensor PartOfStack(const Tensor& all, size_t i, size_t count, bool leaves, const Pool& pool) {
  Shape shape = all.shape();
  shape[0] /= static_cast<int64_t>(count);
  const size_t bytes = all.byte_size() / count;
  if (!leaves) {
    const auto offset = static_cast<size_t>(all.data() - all.buffer()->data());
    return Tensor::View(all.dtype(), std::move(shape), all.buffer(), offset + i * bytes);
  }
  Tensor own = pool.Take(all.dtype(), std::move(shape));
  if (bytes > 0) std::memcpy(own.mutable_data(), all.data() + i * bytes, bytes);
  return own;
}

// False: the kernel does not take them at once (a batch that is a number of the model, say), and nothing has changed.
bool RunStacked(Model::State& s, const Step& step, const Runs& runs) {
  StackedCall call(s.scratch);
  std::vector<RtValue> in;
  for (size_t j = 0; j < step.inputs.size(); ++j) {
    in.push_back(IsStacked(s, step, j) ? RtValue{Stack(runs, j, s.scratch), nullptr} : runs[0]->call().in[j]);
  }
  call.in = in;
  call.out.resize(step.outputs.size());
  call.threads = s.threads.get(), call.interrupted = s.options.interrupted;
  if (!step.kernel->apart.empty()) {
    for (OneRun* run : runs) call.apart.push_back(&run->call());
  }
  if (!step.kernel->Fits(call) || !step.kernel->Run(call)) return false;
  const auto count = static_cast<int64_t>(runs.size());
  for (const RtValue& out : call.out) {
    const Tensor& t = out.tensor;
    if (t.defined() && (out.quant != nullptr || t.rank() == 0 || t.shape()[0] % count != 0)) return false;
  }
  for (size_t o = 0; o < call.out.size(); ++o) {
    if (!call.out[o].tensor.defined()) continue;
    for (size_t i = 0; i < runs.size(); ++i)
      runs[i]->call().out[o].tensor = PartOfStack(call.out[o].tensor, i, runs.size(), step.leaves[o], s.pool);
  }
  const auto made = [&](OneRun* run) { return step.kernel->Made(run->call()).has_value(); };
  return call.apart.empty() || std::ranges::all_of(runs, made);
}

Status RunStep(Model::State& s, size_t i, const Runs& runs) {
  const Step& step = s.steps[i];
  std::map<std::vector<int64_t>, Runs> alike;
  Runs alone;
  for (OneRun* run : runs) {
    run->Gather(i);
    const auto key = step.kernel->by_rows ? StackKey(s, step, run->call().in) : std::nullopt;
    (key ? alike[*key] : alone).push_back(run);
  }
  for (auto& [key, some] : alike) {
    if (some.size() == 1 || !RunStacked(s, step, some)) alone.insert(alone.end(), some.begin(), some.end());
  }
  for (OneRun* run : alone) OCTAVO_TRY_STATUS(run->Execute(i));
  for (OneRun* run : runs) run->Settle(i);
  return {};
}

}  // namespace

Result<std::vector<std::vector<Tensor>>> RunSideBySide(Model::State& s, std::vector<ir::TensorMap> inputs) {
  std::vector<std::unique_ptr<OneRun>> all;
  Runs runs;
  for (ir::TensorMap& one : inputs) {
    all.push_back(std::make_unique<OneRun>(s));
    runs.push_back(all.back().get());
    OCTAVO_TRY_STATUS(runs.back()->Begin(std::move(one)));
  }
  for (size_t i = 0; i < s.steps.size() && !runs.empty(); ++i) {
    OCTAVO_TRY_STATUS(runs[0]->AskToGoOn(i));
    OCTAVO_TRY_STATUS(RunStep(s, i, runs));
  }
  std::vector<std::vector<Tensor>> outputs;
  for (OneRun* run : runs) outputs.push_back(run->End());
  return outputs;
}

}  // namespace octavo::runtime
