// Inside of the runtime: one run of a model, step by step, so that several can go side by side (together.h).
#ifndef OCTAVO_RUNTIME_ONE_RUN_H_
#define OCTAVO_RUNTIME_ONE_RUN_H_

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "octavo/runtime/host_outputs.h"
#include "octavo/runtime/model_state.h"

namespace octavo::runtime {

class Recorder;

class PlannedCall : public StepCall {
 public:
  Tensor& Allocate(size_t i, DType dtype, Shape shape) override {
    allocated |= uint64_t{1} << std::min<size_t>(i, 63);
    if (lent != nullptr && step->leaves[i]) {
      if (Tensor theirs = OfHost(step->outputs[i], dtype, shape); theirs.defined())
        return out[i].tensor = std::move(theirs);
    }
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
  const RunIntoHost::Memory* lent = nullptr;  // for outputs of the graph
  const Graph* graph = nullptr;
  uint32_t scratch_id = 0;  // in the plan
  Tensor scratch_of_step;
  uint64_t allocated = 0;

 private:
  Tensor OfHost(uint32_t v, DType dtype, const Shape& shape) const {
    const auto& outputs = graph->outputs();
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].value.index == v) return (*lent)(o, dtype, shape);
    }
    return {};
  }
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

class OneRun {
 public:
  explicit OneRun(Model::State& state, Profile* profile = nullptr);
  ~OneRun();
  OneRun(const OneRun&) = delete;
  OneRun& operator=(const OneRun&) = delete;

  Status Begin(ir::TensorMap inputs);
  // Gather, Execute and Settle; asks whether to go on.
  Status Step(size_t i);
  std::vector<Tensor> End();

  // The parts of a step. In between its operands are call().in; what does not come from Execute is written into call().out.
  Status AskToGoOn(size_t i);
  void Gather(size_t i);
  Status Execute(size_t i);
  void Settle(size_t i);
  PlannedCall& call() { return call_; }

 private:
  Model::State& state_;
  Profile* profile_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double offset_ = 0, ask_next_;  // us
  std::vector<RtValue> values_, in_;
  std::vector<int64_t> key_;  // of the plan
  std::shared_ptr<ShapePlan> plan_;
  std::unique_ptr<Recorder> recorder_;  // of a run without a plan
  PlannedCall call_;
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_ONE_RUN_H_
