// If, Loop, Scan. The node's last inputs are captures; they are the last inputs of the subgraphs (ops.def).
#include <chrono>
#include <cstring>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/strings.h"

namespace octavo::ir::interpret {

namespace {

Result<bool> BoolOf(const Tensor& t, std::string_view what) {
  if (t.dtype() != DType::kBool || t.size() != 1) return Fail("{} must be one bool, not {}", what, Describe(t));
  return t.as<uint8_t>()[0] != 0;
}

Result<GraphRef> SubgraphOf(const Call& call, std::string_view name) {
  GraphRef g = call.node.attrs.Subgraph(name);
  if (g == nullptr) return Fail("the subgraph '{}' is missing", name);
  return g;
}

Result<std::span<const RtValue>> CapturesOf(const Call& call, size_t own) {
  const int64_t n = call.Int("octavo_captures", 0);
  if (n < 0 || static_cast<size_t>(n) + own > call.in.size())
    return Fail("{} captures of {} inputs", n, call.in.size());
  return call.in.last(static_cast<size_t>(n));
}

Result<std::vector<RtValue>> RunBodyOf(const Call& call, const Graph& body, std::span<const RtValue> inputs) {
  return call.run_body != nullptr ? (*call.run_body)(body, inputs)
                                  : RunGraph(body, inputs, {.interrupted = call.interrupted});
}

Status If(Call& call) {
  OCTAVO_TRY(const bool yes, BoolOf(call.T(0), "the condition"));
  OCTAVO_TRY(const GraphRef g, SubgraphOf(call, yes ? "then_branch" : "else_branch"));
  OCTAVO_TRY(const auto captures, CapturesOf(call, 1));
  if (captures.size() + 1 != call.in.size()) return Fail("{} captures of {} inputs", captures.size(), call.in.size());
  OCTAVO_TRY(auto results, RunBodyOf(call, *g, captures));
  if (results.size() != call.out.size())
    return Fail("the branch has {} outputs, the op {}", results.size(), call.out.size());
  call.out = std::move(results);
  return {};
}

// Asks whether to stop, at most every 20 ms: who is asked may have to wait for a lock.
class Patience {
 public:
  explicit Patience(const Interrupted& interrupted) : interrupted_(interrupted), ask_(Clock::now() + kPause) {}
  Status Check() {
    if (!interrupted_ || Clock::now() < ask_) return {};
    ask_ = Clock::now() + kPause;
    return interrupted_() ? Status(Fail("interrupted")) : Status();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPause{20};
  const Interrupted& interrupted_;
  Clock::time_point ask_;
};

// What the body gives for the next iteration is of the type of what it was given.
Status Carry(std::vector<RtValue>& carried, std::span<RtValue> results) {
  for (size_t k = 0; k < carried.size(); ++k) {
    const Tensor &before = carried[k].tensor, &now = results[k].tensor;
    if (before.dtype() != now.dtype()) {
      return Fail("the carried value {} changes from {} to {}", k, Describe(before), Describe(now));
    }
    carried[k] = std::move(results[k]);
  }
  return {};
}

// The slices of one scan output, put side by side along `axis` at the end.
class Stack {
 public:
  Status Add(const Tensor& t) {
    if (!t.defined()) return Fail("a scan output has no value");
    if (!slices_.empty() && (t.dtype() != slices_[0].dtype() || t.shape() != slices_[0].shape())) {
      return Fail("a scan output changes from {} to {}", Describe(slices_[0]), Describe(t));
    }
    if (slices_.size() == slices_.capacity()) {  // small tensors are mostly what surrounds them
      const size_t more = std::max<size_t>(slices_.size(), 16);
      ChargeWork(more * kBytesAround);
      slices_.reserve(slices_.size() + more);
    }
    slices_.push_back(t);
    return {};
  }

  // `declared`: the type of the subgraph's output, for the case of no iteration at all.
  Result<Tensor> Join(int64_t axis, bool reverse, const Type& declared) const {
    Shape shape;
    DType dtype = declared.dtype;
    if (!slices_.empty()) {
      shape = slices_[0].shape();
      dtype = slices_[0].dtype();
    } else if (declared.shape) {
      for (const Dim& d : *declared.shape) shape.push_back(d.is_number() ? d.number() : 0);
    }
    if (dtype == DType::kUndefined) return Fail("a scan output of no iteration has no known type");
    OCTAVO_TRY(const int64_t at, Axis(axis, static_cast<int64_t>(shape.size()) + 1));
    const auto n = static_cast<int64_t>(slices_.size());
    const int64_t inner = Count(shape, static_cast<size_t>(at), shape.size());
    const int64_t outer = Count(shape, 0, static_cast<size_t>(at));
    shape.insert(shape.begin() + at, n);
    if (dtype == DType::kString) return JoinStrings(std::move(shape), outer, inner, reverse);
    const int bits = quant::BitsOf(dtype);
    if (bits < 8) return Fail("a scan output cannot be {}", quant::Name(dtype));
    OCTAVO_TRY(Tensor y, Alloc(dtype, std::move(shape)));
    const auto row = static_cast<size_t>(inner) * static_cast<size_t>(bits / 8);
    for (int64_t i = 0; i < n && row > 0; ++i) {
      const Tensor& slice = slices_[static_cast<size_t>(reverse ? n - 1 - i : i)];
      for (int64_t o = 0; o < outer; ++o) {
        std::memcpy(y.mutable_data() + static_cast<size_t>(o * n + i) * row,
                    slice.data() + static_cast<size_t>(o) * row, row);
      }
    }
    return y;
  }

 private:
  Result<Tensor> JoinStrings(Shape shape, int64_t outer, int64_t inner, bool reverse) const {
    size_t count = 0, bytes = 0;
    for (const Tensor& slice : slices_) {
      count += slice.strings().size();
      for (const std::string& word : slice.strings()) bytes += word.size();
    }
    ChargeWords(count, bytes);
    std::vector<std::string> words;
    const auto n = static_cast<int64_t>(slices_.size());
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < n; ++i) {
        const auto& from = slices_[static_cast<size_t>(reverse ? n - 1 - i : i)].strings();
        words.insert(words.end(), from.begin() + o * inner, from.begin() + (o + 1) * inner);
      }
    }
    return Tensor::Strings(std::move(shape), std::move(words));
  }

  static constexpr size_t kBytesAround = 640;  // of a tensor, its buffer and the allocator's own
  std::vector<Tensor> slices_;
};

Type OutputType(const Graph& g, size_t i) {
  const GraphOutput& o = g.outputs()[i];
  return o.declared.dtype != DType::kUndefined ? o.declared : g.value(o.value).type;
}

// Body: (iteration, condition, carried..., captures...) -> (condition, carried..., scan outputs...)
Status Loop(Call& call) {
  OCTAVO_TRY(const GraphRef body, SubgraphOf(call, "body"));
  OCTAVO_TRY(const auto captures, CapturesOf(call, 2));
  const size_t carried_count = call.in.size() - captures.size() - 2;
  if (body->inputs().size() != 2 + carried_count + captures.size() || body->outputs().size() < 1 + carried_count ||
      body->outputs().size() - 1 != call.out.size()) {
    return Fail("the body's inputs and outputs do not fit the op's");
  }
  int64_t trips = INT64_MAX;
  bool go = true;
  if (call.Has(0)) {
    OCTAVO_TRY(trips, IntOf(call.T(0), "the trip count"));
  }
  if (call.Has(1)) {
    OCTAVO_TRY(go, BoolOf(call.T(1), "the condition"));
  }
  std::vector<RtValue> carried(call.in.begin() + 2, call.in.begin() + 2 + static_cast<int64_t>(carried_count));
  std::vector<Stack> stacks(call.out.size() - carried_count);
  Patience patience(call.interrupted);
  for (int64_t i = 0; i < trips && go; ++i) {
    OCTAVO_TRY_STATUS(patience.Check());
    std::vector<RtValue> operands = {{Tensor::ScalarS64(i), nullptr},
                                     {Tensor::Of<uint8_t>(DType::kBool, {}, std::vector<uint8_t>{1}), nullptr}};
    operands.insert(operands.end(), carried.begin(), carried.end());
    operands.insert(operands.end(), captures.begin(), captures.end());
    OCTAVO_TRY(auto results, RunBodyOf(call, *body, operands));
    OCTAVO_TRY(go, BoolOf(results[0].tensor, "the body's condition"));
    OCTAVO_TRY_STATUS(Carry(carried, std::span(results).subspan(1)));
    for (size_t k = 0; k < stacks.size(); ++k) OCTAVO_TRY_STATUS(stacks[k].Add(results[1 + carried_count + k].tensor));
  }
  for (size_t k = 0; k < carried_count; ++k) call.out[k] = std::move(carried[k]);
  for (size_t k = 0; k < stacks.size(); ++k) {
    OCTAVO_TRY(Tensor y, stacks[k].Join(0, false, OutputType(*body, 1 + carried_count + k)));
    call.Return(std::move(y), carried_count + k);
  }
  return {};
}

// Element `i` along `axis`, without that axis.
Result<Tensor> SliceAt(const Tensor& x, int64_t axis, int64_t i) {
  const int bits = quant::BitsOf(x.dtype());
  if (bits < 8) return Fail("a scan input cannot be {}", quant::Name(x.dtype()));
  const auto a = static_cast<size_t>(axis);
  const int64_t n = x.shape()[a], outer = Count(x.shape(), 0, a);
  const auto row = static_cast<size_t>(Count(x.shape(), a + 1, x.shape().size())) * static_cast<size_t>(bits / 8);
  Shape shape = x.shape();
  shape.erase(shape.begin() + axis);
  Tensor y = Tensor::Empty(x.dtype(), std::move(shape));
  for (int64_t o = 0; o < outer && row > 0; ++o) {
    std::memcpy(y.mutable_data() + static_cast<size_t>(o) * row, x.data() + static_cast<size_t>(o * n + i) * row, row);
  }
  return y;
}

struct ScanPlan {
  size_t states = 0, scans = 0, outputs = 0;
  int64_t trips = 0;
  std::vector<int64_t> axes, directions, out_axes, out_directions;
};
Result<ScanPlan> PlanScan(const Call& call, const Graph& body, size_t captures) {
  ScanPlan p;
  const int64_t scans = call.Int("num_scan_inputs", 0);
  if (scans < 1 || static_cast<size_t>(scans) + captures > call.in.size())
    return Fail("num_scan_inputs {} is not possible", scans);
  p.scans = static_cast<size_t>(scans);
  p.states = call.in.size() - captures - p.scans;
  if (body.inputs().size() != call.in.size() || body.outputs().size() != call.out.size() ||
      call.out.size() < p.states) {
    return Fail("the body's inputs and outputs do not fit the op's");
  }
  p.outputs = call.out.size() - p.states;
  p.axes = call.node.attrs.Ints("scan_input_axes", std::vector<int64_t>(p.scans, 0));
  p.directions = call.node.attrs.Ints("scan_input_directions", std::vector<int64_t>(p.scans, 0));
  p.out_axes = call.node.attrs.Ints("scan_output_axes", std::vector<int64_t>(p.outputs, 0));
  p.out_directions = call.node.attrs.Ints("scan_output_directions", std::vector<int64_t>(p.outputs, 0));
  if (p.axes.size() != p.scans || p.directions.size() != p.scans || p.out_axes.size() != p.outputs ||
      p.out_directions.size() != p.outputs) {
    return Fail("axes and directions must have one element per scan input or output");
  }
  for (size_t k = 0; k < p.scans; ++k) {
    const Tensor& x = call.T(p.states + k);
    OCTAVO_TRY(p.axes[k], Axis(p.axes[k], x.rank()));
    const int64_t n = x.shape()[static_cast<size_t>(p.axes[k])];
    if (k > 0 && n != p.trips) return Fail("the scan inputs have lengths {} and {}", p.trips, n);
    p.trips = n;
  }
  return p;
}

// Body: (states..., slices..., captures...) -> (states..., slices...)
Status Scan(Call& call) {
  OCTAVO_TRY(const GraphRef body, SubgraphOf(call, "body"));
  OCTAVO_TRY(const auto captures, CapturesOf(call, 0));
  OCTAVO_TRY(const ScanPlan p, PlanScan(call, *body, captures.size()));
  std::vector<RtValue> states(call.in.begin(), call.in.begin() + static_cast<int64_t>(p.states));
  std::vector<Stack> stacks(p.outputs);
  Patience patience(call.interrupted);
  for (int64_t i = 0; i < p.trips; ++i) {
    OCTAVO_TRY_STATUS(patience.Check());
    std::vector<RtValue> operands = states;
    for (size_t k = 0; k < p.scans; ++k) {
      OCTAVO_TRY(Tensor slice, SliceAt(call.T(p.states + k), p.axes[k], p.directions[k] != 0 ? p.trips - 1 - i : i));
      operands.push_back({std::move(slice), nullptr});
    }
    operands.insert(operands.end(), captures.begin(), captures.end());
    OCTAVO_TRY(auto results, RunBodyOf(call, *body, operands));
    OCTAVO_TRY_STATUS(Carry(states, results));
    for (size_t k = 0; k < p.outputs; ++k) OCTAVO_TRY_STATUS(stacks[k].Add(results[p.states + k].tensor));
  }
  for (size_t k = 0; k < p.states; ++k) call.out[k] = std::move(states[k]);
  for (size_t k = 0; k < p.outputs; ++k) {
    OCTAVO_TRY(Tensor y, stacks[k].Join(p.out_axes[k], p.out_directions[k] != 0, OutputType(*body, p.states + k)));
    call.Return(std::move(y), p.states + k);
  }
  return {};
}

}  // namespace

void RegisterControl(Table& t) {
  t.Set(Op::kIf, If);
  t.Set(Op::kLoop, Loop);
  t.Set(Op::kScan, Scan);
}

}  // namespace octavo::ir::interpret
