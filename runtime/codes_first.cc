#include "octavo/runtime/codes_first.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "octavo/kernels/quantize/quantize.h"
#include "octavo/quant/numeric/code8.h"
#include "octavo/runtime/cache_windows.h"
#include "octavo/runtime/room.h"

namespace octavo::runtime {

namespace {

constexpr size_t kMask = 13;  // of QuantizedSdpa

// An operand of floats, and the output in which its codes lie.
struct Coded {
  size_t slot = 0, output = 0;
  float scale = 1;
  int32_t zero_point = 0;
  DType dtype = DType::kS8;
};

// Floats in runs of `length` that begin `stride` apart.
struct Runs {
  const float* x = nullptr;
  int64_t length = 0, stride = 0, total = 0;
};

Runs RunsOf(const Tensor& t) {
  if (const Room* room = StridesOf(t); room != nullptr && room->outer() > 0) {
    const int64_t length = t.size() / room->outer(), row = static_cast<int64_t>(room->row_bytes() / sizeof(float));
    return {reinterpret_cast<const float*>(room->Row(0, 0)), length, room->capacity() * row, t.size()};
  }
  return {t.as<float>().data(), t.size(), t.size(), t.size()};
}

class CodesFirst : public Kernel {
 public:
  CodesFirst(kernels::Arch arch, KernelPtr attention, std::vector<Coded> operands)
      : arch_(arch), attention_(std::move(attention)), operands_(std::move(operands)) {
    takes_rooms = attention_->takes_rooms;
    for (const Coded& o : operands_) needs.Typed(o.slot, DType::kF32);
  }
  std::string name() const override {
    std::string name = attention_->name();
    return name.insert(std::min(name.find(' '), name.size()), "+quantize");
  }

  Status Execute(StepCall& call) const override {
    SkipGone(call, kMask);
    std::vector<Runs> runs;
    std::vector<std::byte*> codes;
    int64_t all = 0;
    for (const Coded& o : operands_) {
      if (IsApart(call.T(o.slot))) call.in[o.slot].tensor = Dense(call.T(o.slot));
      runs.push_back(RunsOf(call.T(o.slot)));
      codes.push_back(call.Allocate(o.output, o.dtype, call.T(o.slot).shape()).mutable_data());
      all += runs.back().total;
    }
    const int64_t parts = PartsOf(all, kElementGrain, call.threads->count());
    call.threads->For(parts, [&](int64_t task) {
      Part part = PartOf(all, parts, task, 64);
      for (size_t i = 0; i < runs.size(); ++i) {
        const Part own{std::max<int64_t>(part.begin, 0), std::min(part.end, runs[i].total)};
        if (own.begin < own.end) Quantize(operands_[i], runs[i], own, codes[i]);
        part.begin -= runs[i].total, part.end -= runs[i].total;
      }
    });
    for (const Coded& o : operands_) call.in[o.slot] = call.out[o.output];
    return attention_->Run(call);
  }

 private:
  void Quantize(const Coded& o, const Runs& runs, Part part, std::byte* codes) const {
    for (int64_t at = part.begin; at < part.end;) {
      const int64_t run = at / runs.length, from = at % runs.length, n = std::min(part.end - at, runs.length - from);
      kernels::QuantizeLinear(arch_, runs.x + run * runs.stride + from, n, o.scale, o.zero_point, o.dtype, codes + at);
      at += n;
    }
  }

  kernels::Arch arch_;
  KernelPtr attention_;
  std::vector<Coded> operands_;
};

// The step that does what this QuantizeLinear does and nothing else.
std::vector<Step>::iterator StepOfQuantize(const CompileContext& c, std::vector<Step>& steps, ValueId v) {
  const ir::NodeId id = c.graph.value(v).producer;
  if (!id.valid() || c.graph.node(id).op != Op::kQuantizeLinear || c.graph.value(v).uses.size() != 1 ||
      c.graph.IsGraphOutput(v))
    return steps.end();
  const Node& n = c.graph.node(id);
  const bool known = MakeQuantize(n, c) != nullptr;  // one scale for all, constants
  return std::ranges::find_if(steps, [&](const Step& s) {
    return known && s.node == id && s.inputs[0] == n.input(0).index && s.outputs == std::vector{v.index};
  });
}

}  // namespace

void TakeCodesOfOperands(const CompileContext& c, std::vector<Step>& steps, Step& attention) {
  std::vector<Coded> operands;
  for (size_t slot = 0; slot < 3; ++slot) {
    const ValueId v = c.graph.node(attention.node).input(slot);
    const auto step = v.valid() ? StepOfQuantize(c, steps, v) : steps.end();
    if (step == steps.end() || attention.inputs[slot] != v.index) continue;
    const Node& n = c.graph.node(step->node);
    const Tensor& zero = *c.Constant(n.input(2));
    operands.push_back({.slot = slot,
                        .output = attention.outputs.size(),
                        .scale = ScalarF32(*c.Constant(n.input(1))),
                        .zero_point = quant::IsFp8(zero.dtype()) ? 0 : ScalarInt(zero),
                        .dtype = zero.dtype()});
    attention.inputs[slot] = n.input(0).index;
    attention.outputs.push_back(v.index);
    std::ranges::copy(step->origin, std::back_inserter(attention.origin));
    steps.erase(step);
  }
  if (operands.empty()) return;
  attention.kernel = std::make_unique<CodesFirst>(c.arch, std::move(attention.kernel), std::move(operands));
  const auto values = [](const std::vector<uint32_t>& indices) {
    std::vector<ValueId> all;
    for (const uint32_t i : indices) all.push_back(i == kNone ? ValueId{} : ValueId{i});
    return all;
  };
  Expect(*attention.kernel, c, values(attention.inputs), values(attention.outputs));
}

}  // namespace octavo::runtime
