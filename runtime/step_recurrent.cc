// LSTM and GRU over floats: the input's part of all gates is one product for many steps, the state's one product a step. Directions run side by side.
// Sums and functions are those of floats, where the interpreter has doubles: 2^-24 of each term.
// Left to the interpreter: other activations, a clip, peepholes, coupled gates, lengths of sequences, the batch in front, weights that are no constants.
#include <algorithm>
#include <cctype>

#include "octavo/kernels/gemm/gemm_f32.h"
#include "octavo/runtime/packed_once.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

constexpr int64_t kRowsAtOnce = 1024;  // of the input's part of the gates: 8 MB for 512 cells
constexpr int64_t kRowsPerCall = 128;  // as of other products: fixed, whatever the thread count

// What one direction multiplies with.
struct Weights {
  kernels::PackedF32 input;  // [width, gates * hidden]
  kernels::PackedF32 state;  // [hidden, gates * hidden], without the last gate of a GRU that resets first
  std::optional<kernels::PackedF32> last = {};  // that gate's
};
struct Direction {
  bool backward = false;
  std::vector<float> bias;  // of all gates
  std::vector<float>
      last_bias;  // of the state in the last gate of a GRU, which the reset gate multiplies; none: it is in `bias`
};
struct Cell {
  bool lstm = true, linear_first = false;
  int64_t width = 0, hidden = 0, gates = 4;
  std::vector<Direction> directions = {};
  int64_t rows() const { return gates * hidden; }
  int64_t state_rows() const { return lstm || linear_first ? rows() : 2 * hidden; }
};

class RecurrentKernel : public Kernel {
 public:
  RecurrentKernel(kernels::Arch arch, Cell cell, std::shared_ptr<const std::vector<Weights>> weights, const Node& node)
      : arch_(arch), cell_(std::move(cell)), weights_(std::move(weights)), outputs_(3, false) {
    const auto any = Needs::Size::Any(), batch = Needs::Size::Same(0);
    const auto directions = static_cast<int64_t>(cell_.directions.size());
    needs.Exactly(0, DType::kF32, {any, batch, cell_.width});
    for (const size_t slot : {5, 6}) {
      if (slot < node.inputs.size() && node.inputs[slot].valid())
        needs.Exactly(slot, DType::kF32, {directions, batch, cell_.hidden});
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) outputs_[i] = node.outputs[i].valid();
  }
  std::string name() const override { return cell_.lstm ? "lstm" : "gru"; }

  Status Execute(StepCall& call) const override {
    const Shape& s = call.T(0).shape();
    const int64_t steps = s[0], batch = s[1], hidden = cell_.hidden;
    const auto count = static_cast<int64_t>(cell_.directions.size());
    const int64_t at_once = std::max<int64_t>(1, kRowsAtOnce / std::max<int64_t>(batch, 1));
    Run run{.x = call.T(0).as<float>().data(), .steps = steps, .batch = batch, .at_once = std::min(at_once, steps)};
    run.y = outputs_[0] ? Floats(call, 0, {steps, count, batch, hidden}) : nullptr;
    const int64_t state = batch * hidden, gates = run.at_once * batch * cell_.rows(), sums = batch * cell_.rows();
    const int64_t all = 3 * state + gates + sums;  // of one direction
    auto* scratch = reinterpret_cast<float*>(call.Scratch(static_cast<size_t>(count * all) * sizeof(float)));
    for (int64_t d = 0; d < count; ++d) {
      float* at = scratch + d * all;
      run.of.push_back({at, at + state, at + 2 * state, at + 3 * state, at + 3 * state + gates});
      Start(call, 5, d * state, state, run.of.back().h);
      Start(call, 6, d * state, state, run.of.back().c);
    }
    for (int64_t begin = 0; begin < steps; begin += run.at_once) {
      if (call.interrupted && call.interrupted()) return ir::Fail("interrupted");
      const int64_t end = std::min(steps, begin + run.at_once);
      const int64_t blocks = ((end - begin) * batch + kRowsPerCall - 1) / kRowsPerCall;
      call.threads->For(count * blocks, [&](int64_t i) { InputPart(run, i / blocks, begin, end, i % blocks); });
      call.threads->For(count, [&](int64_t d) { Steps(run, d, begin, end); });
    }
    for (const size_t i : {1, 2}) {
      if (!outputs_[i]) continue;
      float* to = Floats(call, i, {count, batch, hidden});
      for (int64_t d = 0; d < count; ++d) {
        const Buffers& of = run.of[static_cast<size_t>(d)];
        std::copy_n(i == 1 ? of.h : of.c, state, to + d * state);
      }
    }
    return {};
  }

 private:
  struct Buffers {
    float *h, *c, *more, *gates, *sums;
  };
  struct Run {
    const float* x;
    int64_t steps, batch, at_once;
    float* y = nullptr;
    std::vector<Buffers> of = {};
  };

  static float* Floats(StepCall& call, size_t i, Shape shape) {
    return call.Allocate(i, DType::kF32, std::move(shape)).mutable_as<float>().data();
  }
  static void Start(const StepCall& call, size_t slot, int64_t from, int64_t n, float* to) {
    if (call.Has(slot)) {
      std::copy_n(call.T(slot).as<float>().data() + from, n, to);
    } else {
      std::fill_n(to, n, 0.0f);
    }
  }

  // What x gives the gates of the steps [begin, end), counted in the order of the direction: rows of one block, in the order of time.
  void InputPart(Run& run, int64_t d, int64_t begin, int64_t end, int64_t block) const {
    const Direction& direction = cell_.directions[static_cast<size_t>(d)];
    const int64_t first = direction.backward ? run.steps - end : begin, rows = (end - begin) * run.batch;
    const kernels::GemmF32Args args{.x = run.x + first * run.batch * cell_.width,
                                    .x_stride = cell_.width,
                                    .w = &(*weights_)[static_cast<size_t>(d)].input,
                                    .bias = direction.bias.data(),
                                    .y = run.of[static_cast<size_t>(d)].gates,
                                    .y_stride = cell_.rows()};
    kernels::GemmF32(args, {block * kRowsPerCall, std::min(rows, (block + 1) * kRowsPerCall)});
  }

  void Steps(Run& run, int64_t d, int64_t begin, int64_t end) const {
    const Direction& direction = cell_.directions[static_cast<size_t>(d)];
    const Weights& w = (*weights_)[static_cast<size_t>(d)];
    const Buffers& of = run.of[static_cast<size_t>(d)];
    const int64_t n = cell_.hidden, rows = cell_.rows(), state = run.batch * n;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = direction.backward ? end - 1 - i : i - begin;
      float* gates = of.gates + at * run.batch * rows;
      const bool reset_last = w.last.has_value();
      kernels::GemmF32({.x = of.h, .x_stride = n, .w = &w.state, .y = of.sums, .y_stride = rows}, {0, run.batch});
      for (int64_t b = 0; b < run.batch; ++b) {
        if (cell_.lstm) {
          Lstm(gates + b * rows, of.sums + b * rows, of.h + b * n, of.c + b * n);
        } else {
          Reset(gates + b * rows, of.sums + b * rows, of.h + b * n, of.more + b * n, direction, reset_last);
        }
      }
      if (reset_last) {
        kernels::GemmF32({.x = of.more, .x_stride = n, .w = &*w.last, .y = of.sums + 2 * n, .y_stride = rows},
                         {0, run.batch});
      }
      for (int64_t b = 0; !cell_.lstm && b < run.batch; ++b) Update(gates + b * rows, of.sums + b * rows, of.h + b * n);
      if (run.y == nullptr) continue;
      const int64_t t = direction.backward ? run.steps - 1 - i : i, count = static_cast<int64_t>(run.of.size());
      std::copy_n(of.h, state, run.y + (t * count + d) * state);
    }
  }

  // Gates i, o, f, c.
  void Lstm(const float* x, float* sums, float* h, float* c) const {
    const int64_t n = cell_.hidden;
    for (int64_t i = 0; i < 4 * n; ++i) sums[i] += x[i];
    kernels::Unary(arch_, kernels::UnaryOp::kSigmoid, sums, sums, 3 * n);
    kernels::Unary(arch_, kernels::UnaryOp::kTanh, sums + 3 * n, sums + 3 * n, n);
    for (int64_t i = 0; i < n; ++i) c[i] = sums[2 * n + i] * c[i] + sums[i] * sums[3 * n + i];
    kernels::Unary(arch_, kernels::UnaryOp::kTanh, c, h, n);
    for (int64_t i = 0; i < n; ++i) h[i] *= sums[n + i];
  }

  // Gates z, r, h: z and r, then what the last gate takes of the state, or the state that its product takes.
  void Reset(const float* x, float* sums, const float* h, float* more, const Direction& direction,
             bool reset_last) const {
    const int64_t n = cell_.hidden;
    for (int64_t i = 0; i < 2 * n; ++i) sums[i] += x[i];
    kernels::Unary(arch_, kernels::UnaryOp::kSigmoid, sums, sums, 2 * n);
    const float* bias = direction.last_bias.data();
    if (reset_last) {
      for (int64_t i = 0; i < n; ++i) more[i] = sums[n + i] * h[i];
    } else {
      for (int64_t i = 0; i < n; ++i) sums[2 * n + i] = sums[n + i] * (sums[2 * n + i] + bias[i]);
    }
  }

  void Update(const float* x, float* sums, float* h) const {
    const int64_t n = cell_.hidden;
    float* last = sums + 2 * n;
    for (int64_t i = 0; i < n; ++i) last[i] += x[2 * n + i];
    kernels::Unary(arch_, kernels::UnaryOp::kTanh, last, last, n);
    for (int64_t i = 0; i < n; ++i) h[i] = (1.0f - sums[i]) * last[i] + sums[i] * h[i];
  }

  kernels::Arch arch_;
  Cell cell_;
  std::shared_ptr<const std::vector<Weights>> weights_;
  std::vector<bool> outputs_;
};

bool HasUsualActivations(const Node& node, bool lstm, int64_t directions) {
  const ir::Attr* given = node.attrs.Find("activations");
  const auto* names = given == nullptr ? nullptr : std::get_if<std::vector<std::string>>(given);
  if (given == nullptr || (names != nullptr && names->empty())) return true;
  const std::vector<std::string> usual =
      lstm ? std::vector<std::string>{"sigmoid", "tanh", "tanh"} : std::vector<std::string>{"sigmoid", "tanh"};
  if (names == nullptr || names->size() != usual.size() * static_cast<size_t>(directions)) return false;
  for (size_t i = 0; i < names->size(); ++i) {
    const auto same = [](unsigned char a, char b) { return std::tolower(a) == b; };
    if (!std::ranges::equal((*names)[i], usual[i % usual.size()], same)) return false;
  }
  return true;
}

std::optional<std::vector<Weights>> Pack(const Cell& cell, const Tensor& w, const Tensor& r) {
  std::vector<Weights> all;
  const int64_t rows = cell.rows(), n = cell.hidden;
  for (size_t d = 0; d < cell.directions.size(); ++d) {
    const float* of_x = w.as<float>().data() + static_cast<int64_t>(d) * rows * cell.width;
    const float* of_h = r.as<float>().data() + static_cast<int64_t>(d) * rows * n;
    auto input = kernels::PackWeightsF32(of_x, cell.width, rows, true);
    auto state = kernels::PackWeightsF32(of_h, n, cell.state_rows(), true);
    if (!input || !state) return {};
    Weights weights{std::move(*input), std::move(*state)};
    if (cell.state_rows() != rows) {
      auto last = kernels::PackWeightsF32(of_h + 2 * n * n, n, n, true);
      if (!last) return {};
      weights.last = std::move(*last);
    }
    all.push_back(std::move(weights));
  }
  return all;
}

// Both biases in one, but for that of the state which a gate multiplies.
void ReadBias(const Cell& cell, const float* b, Direction& d) {
  const int64_t rows = cell.rows(), n = cell.hidden;
  d.bias.assign(static_cast<size_t>(rows), 0.0f);
  if (!cell.lstm && cell.linear_first) d.last_bias.assign(static_cast<size_t>(n), 0.0f);
  for (int64_t i = 0; b != nullptr && i < rows; ++i) {
    const bool apart = !d.last_bias.empty() && i >= 2 * n;
    d.bias[static_cast<size_t>(i)] = apart ? b[i] : b[i] + b[rows + i];
    if (apart) d.last_bias[static_cast<size_t>(i - 2 * n)] = b[rows + i];
  }
}

// The shapes of W, R and B fit each other and the attributes.
std::optional<Cell> CellOf(const Node& node, const Tensor& w, const Tensor& r, const Tensor* b) {
  const std::string direction = node.attrs.Str("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") return {};
  Cell cell{.lstm = node.op == Op::kLSTM, .linear_first = node.attrs.Int("linear_before_reset", 0) != 0};
  cell.gates = cell.lstm ? 4 : 3;
  cell.directions.resize(direction == "bidirectional" ? 2 : 1);
  const auto count = static_cast<int64_t>(cell.directions.size());
  if (w.rank() != 3 || r.rank() != 3 || w.dtype() != DType::kF32 || r.dtype() != DType::kF32) return {};
  cell.width = w.shape()[2], cell.hidden = r.shape()[2];
  constexpr int64_t kMost = int64_t{1} << 20;
  if (cell.width < 1 || cell.hidden < 1 || cell.width > kMost || cell.hidden > kMost) return {};
  const int64_t rows = cell.rows();
  if (w.shape() != Shape{count, rows, cell.width} || r.shape() != Shape{count, rows, cell.hidden}) return {};
  if (b != nullptr && (b->dtype() != DType::kF32 || b->shape() != Shape{count, 2 * rows})) return {};
  if (node.attrs.Int("hidden_size", cell.hidden) != cell.hidden) return {};
  for (int64_t d = 0; d < count; ++d) {
    Direction& of = cell.directions[static_cast<size_t>(d)];
    of.backward = d == 1 || direction == "reverse";
    ReadBias(cell, b == nullptr ? nullptr : b->as<float>().data() + d * 2 * rows, of);
  }
  return cell;
}

}  // namespace

KernelPtr MakeRecurrent(const Node& node, const CompileContext& c) {
  const auto has = [&](size_t i) { return i < node.inputs.size() && node.inputs[i].valid(); };
  const Tensor *w = c.Constant(node.input(1)), *r = c.Constant(node.input(2)),
               *b = has(3) ? c.Constant(node.input(3)) : nullptr;
  if (w == nullptr || r == nullptr || (has(3) && b == nullptr) || has(4) || has(7) || c.SumsInOrder()) return nullptr;
  const ir::Attrs& a = node.attrs;
  if (a.Has("clip") || a.Int("layout", 0) != 0 || a.Int("input_forget", 0) != 0 || !c.Is(node.input(0), DType::kF32))
    return nullptr;
  auto cell = CellOf(node, *w, *r, b);
  if (!cell || !HasUsualActivations(node, cell->lstm, static_cast<int64_t>(cell->directions.size()))) return nullptr;
  const std::string how = std::string(ir::InfoOf(node.op).name) + (cell->linear_first ? " linear_first" : "");
  auto weights = PackedOnce<std::vector<Weights>>(c, {w, r}, how, [&] { return Pack(*cell, *w, *r); });
  if (weights == nullptr) return nullptr;
  const ir::NodeId id = std::ranges::find_if(node.outputs, &ValueId::valid) == node.outputs.end()
                            ? ir::NodeId{}
                            : c.graph.value(*std::ranges::find_if(node.outputs, &ValueId::valid)).producer;
  auto kernel = std::make_unique<RecurrentKernel>(c.arch, std::move(*cell), std::move(weights), node);
  if (id.valid()) kernel->otherwise = MakeInterpreted(c.graph, id);
  return kernel;
}

}  // namespace octavo::runtime
