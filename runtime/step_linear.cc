// QuantizedLinear and QuantizedQkv: weights are packed once at compile time; a run splits rows, and columns where rows are few. Element-wise
// nodes behind QuantizedLinears of one activation (tail.h) run on each piece of them.
#include "octavo/runtime/step_linear.h"

#include <algorithm>
#include <format>
#include <iterator>
#include <utility>

#include "octavo/ir/beside.h"
#include "octavo/kernels/qkv/qkv.h"
#include "octavo/quant/numeric/code8.h"
#include "octavo/runtime/by_heads.h"
#include "octavo/runtime/heads_tail.h"
#include "octavo/runtime/packed_once.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

static_assert(ir::kMostBeside == kernels::kMaxBranches);
constexpr size_t kStep = 10;  // slot of a QuantizedLinear's steps; their zeros stand behind them

struct Branch {
  std::shared_ptr<const kernels::PackedWeights> w;
  std::vector<float> w_scale;
  std::vector<float> bias;
  bool has_bias = false;
  std::vector<float> post_scale;  // empty: none
  kernels::Activation activation = kernels::Activation::kNone;
  DType y_dtype = DType::kF32;
  float y_scale = 1.0f;
  int32_t y_zero = 0;
  std::optional<ByHeads> by_heads;
};

// Of a tail: what a branch makes, or the operand of the step in a slot that is not 0.
struct TailOperand {
  size_t branch = 0, slot = 0;
};

class LinearKernel : public Kernel {
 public:
  LinearKernel(kernels::Arch arch, std::string name) : arch_(arch), name_(std::move(name)) {}

  std::string name() const override { return name_; }

  Status Execute(StepCall& call) const override {
    MakeDenseBut(call, pasts_);
    if (codes_ != 0) QuantizeRows(arch_, call, codes_);
    const auto of_x = [&](size_t i) -> const Tensor& { return codes_ != 0 ? call.out[codes_ + i].tensor : call.T(i); };
    const Tensor& x = of_x(0);
    const int64_t k = branches_[0].w->k();
    kernels::QkvArgs args;
    // Parameters of a dynamically quantized activation come with it.
    const int32_t zero = at_run_time_ ? ScalarInt(call.T(2)) : x_zero_;
    const float scale = at_run_time_ ? ScalarF32(call.T(1)) : x_scale_;
    args.x = {.data = x.data(),
              .dtype = x.dtype(),
              .stride = k,
              .zero_point = zero,
              .scale = scale,
              .row_scale = per_token_ ? of_x(1).as<float>().data() : nullptr,
              .row_zero_point = per_token_ ? of_x(2).as<uint8_t>().data() : nullptr};
    args.count = static_cast<int>(branches_.size());
    for (size_t i = 0; i < branches_.size(); ++i) args.branch[i] = Output(call, i, x.shape());
    if (has_residual_) args.branch[0].residual = call.T(9).as<float>().data();
    args.branch[0].residual_stride = branches_[0].w->n();
    const int64_t rows = LeadingRows(x.shape());
    if (!lanes_.empty()) return RunBehind(call, args, rows);
    if (rows == 0) return {};
    const int64_t blocks = kernels::QkvBlocks(args);
    const int threads = call.threads->count();
    const auto [row_parts, column_parts] = kernels::SharesOf(arch_, rows, blocks, threads);
    const int64_t unit = kernels::GemmTile(arch_).rows;
    const size_t scratch = kernels::GemmScratchBytes(arch_, x.dtype(), k, stepped());
    call.threads->For(row_parts * column_parts, [&](int64_t task) {
      const Part r = PartOf(rows, row_parts, task / column_parts, unit);
      const Part c = PartOf(blocks, column_parts, task % column_parts, 1);
      if (r.begin < r.end && c.begin < c.end) {
        kernels::Qkv(arch_, args, {r.begin, r.end}, {c.begin, c.end}, TaskScratch(scratch).data());
      }
    });
    return {};
  }

  bool stepped() const {
    return std::ranges::any_of(branches_, [](const Branch& b) { return b.w->stepped(); });
  }

  // `x`: the type of the activation.
  void Need(DType x) {
    by_rows = !at_run_time_;
    needs.EndsIn(0, x, {branches_[0].w->k()});
    for (const Branch& b : branches_) {
      if (b.by_heads) needs.Exactly(0, x, {Needs::Size::Any(), Needs::Size::Any(), b.w->k()});
    }
    if (at_run_time_) needs.Count(1, DType::kF32, 1), needs.Count(2, DType::kUndefined, 1);
    if (per_token_ && codes_ == 0) needs.EndsIn(1, DType::kF32, {1}), needs.EndsIn(2, DType::kU8, {1});
    if (has_residual_) needs.EndsIn(9, DType::kF32, {branches_[0].w->n()});
    for (const auto& heads : heads_) {
      if (heads) heads->Need(needs, x, branches_[0].w->k());
    }
    for (const TailOperand& o : operands_) {
      if (o.slot != 0) needs.EndsIn(o.slot, DType::kUndefined, {branches_[0].w->n()});
    }
  }
  void EndIn(const Chain& chain, std::vector<TailOperand> operands, const CompileContext& c) {
    tail_ = MakeTail(chain, c);
    operands_ = std::move(operands);
    heads_.resize(branches_.size());
    lanes_ = {{kernels::ColumnBlocks(branches_[0].w->n()), static_cast<int64_t>(branches_.size())}};
    name_ = std::format("linear_int8+{} {}", tail_->name(), Name(arch_));
  }
  // An entry for each branch.
  void EndInHeads(std::vector<std::optional<HeadsTail>> heads, std::vector<size_t> slots, std::string_view kind) {
    heads_ = std::move(heads), slots_ = std::move(slots);
    std::string behind;
    for (size_t i = 0; i < branches_.size(); ++i) {
      lanes_.push_back({kernels::ColumnBlocks(branches_[i].w->n()), 1, heads_[i] ? heads_[i]->unit() : 1});
      if (!heads_[i]) continue;
      branches_[i].by_heads.reset();
      std::ranges::move(heads_[i]->Pasts(), std::back_inserter(pasts_));
      std::ranges::move(heads_[i]->Apart(), std::back_inserter(apart));
      if (heads_[i]->name().size() > behind.size()) behind = heads_[i]->name();
    }
    takes_rooms = true;
    name_ = std::format("{}{} {}", kind, behind, Name(arch_));
  }

  // The activation is floats, whose rows become codes in this output and their parameters in the two behind it.
  void BeginInRows(size_t codes) {
    codes_ = codes, name_ = "quantize_tokens+" + name_;
    needs = {};
    Need(DType::kF32);
  }

  std::vector<Branch> branches_;
  float x_scale_ = 1.0f;
  int32_t x_zero_ = 0;
  bool at_run_time_ = false;
  bool per_token_ = false;     // inputs 1 and 2 have one scale and zero point a row
  bool has_residual_ = false;  // input 9

 private:
  kernels::GemmOutput Output(StepCall& call, size_t i, const Shape& x_shape) const {
    const Branch& b = branches_[i];
    kernels::GemmOutput y = {.w = b.w.get(),
                             .w_scale = b.w_scale.data(),
                             .w_scale_per_column = b.w_scale.size() > 1,
                             .bias = b.has_bias ? b.bias.data() : nullptr,
                             .activation = b.activation,
                             .post_scale = b.post_scale.empty() ? nullptr : b.post_scale.data(),
                             .dtype = b.y_dtype,
                             .scale = b.y_scale,
                             .zero_point = b.y_zero};
    if (tail_ != nullptr || (!heads_.empty() && heads_[i])) return y.stride = b.w->n(), y;
    y.y = call.Allocate(slots_.empty() ? i : slots_[i], b.y_dtype, PlaceOutput(b.by_heads, x_shape, b.w->n(), &y))
              .mutable_data();
    return y;
  }

  // What branches make for others behind them lies in memory of the step.
  Status RunBehind(StepCall& call, kernels::QkvArgs& args, int64_t rows) const {
    std::vector<std::vector<HeadsTail::Place>> places(branches_.size());
    for (size_t i = 0; i < branches_.size(); ++i) {
      if (!heads_[i]) continue;
      OCTAVO_TRY(places[i], heads_[i]->Open(call));
    }
    Shape shape = call.T(0).shape();
    const int64_t n = shape.back() = branches_[0].w->n();
    std::byte* out = tail_ != nullptr ? call.Allocate(0, tail_->output(), std::move(shape)).mutable_data() : nullptr;
    if (rows == 0) return {};
    // The first branch's floats go where the tail's lie, and become them there: every tile is read before it is written.
    const bool in_place = tail_ != nullptr && tail_->output() == DType::kF32 && branches_[0].y_dtype == DType::kF32;
    std::vector<size_t> begin(branches_.size() + 1);
    for (size_t i = 0; i < branches_.size(); ++i) {
      const bool own = (tail_ != nullptr || heads_[i]) && !(in_place && i == 0);
      const int64_t bytes = own ? rows * branches_[i].w->n() * static_cast<int64_t>(sizeof(float)) : 0;
      begin[i + 1] = begin[i] + (static_cast<size_t>(bytes) + 63) / 64 * 64;  // of any type
    }
    std::byte* scratch = call.Scratch(begin.back());
    const auto made = [&](size_t i) { return in_place && i == 0 ? out : scratch + begin[i]; };
    for (size_t i = 0; i < branches_.size(); ++i) {
      if (tail_ != nullptr || heads_[i]) args.branch[i].y = made(i);
    }
    std::vector<const std::byte*> in;
    in.reserve(operands_.size());
    for (const TailOperand& o : operands_) in.push_back(o.slot == 0 ? made(o.branch) : call.T(o.slot).data());
    ForParts(call, args, rows, [&](size_t i, kernels::Range some, kernels::Range piece) {
      if (tail_ != nullptr) return tail_->RunPiece(in, n, some, ColumnsOf(piece, n), out);
      if (!heads_[i]) return;
      heads_[i]->Store(call, places[i], static_cast<const float*>(args.branch[i].y), some,
                       ColumnsOf(piece, branches_[i].w->n()));
    });
    return {};
  }

  // Products, and behind(lane, rows, column blocks) for each piece of them.
  template <class Behind>
  void ForParts(StepCall& call, const kernels::QkvArgs& args, int64_t rows, const Behind& behind) const {
    int64_t blocks = 0;
    for (const Lane& lane : lanes_) blocks += lane.blocks * lane.beside;
    const auto [row_parts, column_parts] = kernels::SharesOf(arch_, rows, blocks, call.threads->count());
    const int64_t unit = kernels::GemmTile(arch_).rows;
    call.threads->For(row_parts * column_parts, [&](int64_t task) {
      const Part r = PartOf(rows, row_parts, task / column_parts, unit);
      const Part c = PartOf(blocks, column_parts, task % column_parts, 1);
      const TaskScratch own(kernels::GemmScratchBytes(arch_, args.x.dtype, branches_[0].w->k(), stepped()));
      ForLanes(lanes_, c.begin, c.end, [&](size_t lane, kernels::Range share) {
        ForPieces({r.begin, r.end}, share, lanes_[lane].unit, [&](kernels::Range some, kernels::Range piece) {
          for (int64_t i = 0; i < lanes_[lane].beside; ++i)
            kernels::Gemm(arch_, {.x = args.x, .y = args.branch[lane + static_cast<size_t>(i)]}, some, piece,
                          own.data());
          behind(lane, some, piece);
        });
      });
    });
  }

  kernels::Arch arch_;
  std::string name_;
  std::unique_ptr<Tail> tail_;  // null: an output for each branch
  std::vector<TailOperand> operands_;
  std::vector<std::optional<HeadsTail>> heads_;  // by branch; empty: nothing stands behind any
  std::vector<Lane> lanes_;
  std::vector<size_t> pasts_;  // operands whose rooms are read
  size_t codes_ = 0;           // 0: they come from another step
  std::vector<size_t> slots_;  // of the branches' outputs; empty: in their order
};

// Slots first .. first+4: w, w_scale, bias, y_scale, y_zp. False where something is not constant or not supported.
bool MakeBranch(const Node& node, const CompileContext& c, size_t first, Branch* out) {
  const Tensor* w = c.Constant(node.input(first));
  const Tensor* scale = c.Constant(node.input(first + 1));
  if (w == nullptr || scale == nullptr || w->rank() != 2) return false;
  const std::optional<StepsOfWeight> steps = StepsOf(node, c, *w);
  if (!steps) return false;
  const kernels::WeightSource source = steps->Of(*w);
  out->w = PackedOnce<kernels::PackedWeights>(
      c, {w, steps->step, steps->zero}, "", [&] { return kernels::PackWeights(source); },
      [&](const PackedFile::Arrays& arrays) { return kernels::PackedWeights::Of(source, arrays); });
  if (out->w == nullptr) return false;
  out->w_scale = scale->ToFloats();
  if (out->w_scale.size() != 1 && static_cast<int64_t>(out->w_scale.size()) != out->w->n()) return false;
  if (node.input(first + 2)) {
    const Tensor* bias = c.Constant(node.input(first + 2));
    if (bias == nullptr || bias->size() != out->w->n()) return false;
    out->bias = bias->ToFloats();
    out->has_bias = true;
  }
  if (node.input(first + 3)) {
    const Tensor* ys = c.Constant(node.input(first + 3));
    const Tensor* yz = c.Constant(node.input(first + 4));
    if (ys == nullptr || yz == nullptr || ys->size() != 1 || yz->size() != 1 || !quant::IsCode8(yz->dtype()))
      return false;
    out->y_dtype = yz->dtype();
    out->y_scale = ScalarF32(*ys);
    out->y_zero = quant::IsFp8(yz->dtype()) ? 0 : ScalarInt(*yz);
  }
  return true;
}

// Branch `i` of a node.
bool AddBranch(const Node& node, const CompileContext& c, size_t i, LinearKernel& kernel) {
  Branch b;
  if (!MakeBranch(node, c, 3 + 5 * i, &b)) return false;
  if (!kernel.branches_.empty() && kernel.branches_[0].w->k() != b.w->k()) return false;
  if (!kernels::ActivationFromName(node.attrs.Str("activation", "none"), &b.activation)) return false;
  b.by_heads = FindByHeads(c.graph, node, i);
  if (b.by_heads && b.by_heads->columns() != b.w->n()) return false;
  if (node.op == Op::kQuantizedLinear && node.input(8)) {
    const Tensor* post = c.Constant(node.input(8));
    if (post == nullptr || post->size() != b.w->n()) return false;
    b.post_scale = post->ToFloats();
  }
  kernel.branches_.push_back(std::move(b));
  return true;
}

// Without branches; null: no kernel serves such an activation.
std::unique_ptr<LinearKernel> KernelFor(const Node& node, const CompileContext& c) {
  if (node.op == Op::kQuantizedLinear && (node.inputs.size() > kStep + 2 || !c.Is(node.input(9), DType::kF32)))
    return nullptr;
  if (!quant::IsInt8(c.graph.value(node.inputs[0]).type.dtype) || !c.Is(node.input(1), DType::kF32)) return nullptr;
  const Tensor* xs = c.Constant(node.input(1));
  const Tensor* xz = c.Constant(node.input(2));
  const auto is_scalar = [&](ValueId v) {
    const auto& shape = c.graph.value(v).type.shape;
    return shape && shape->empty();
  };
  const bool at_run_time = xs == nullptr && xz == nullptr && is_scalar(node.input(1)) && is_scalar(node.input(2)) &&
                           quant::IsInt8(c.graph.value(node.input(2)).type.dtype);
  const bool per_token = node.attrs.Int("per_token", 0) != 0;
  if (per_token &&
      (xs != nullptr || xz != nullptr || !c.Is(node.input(0), DType::kU8) || !c.Is(node.input(2), DType::kU8)))
    return nullptr;
  if (!per_token && !at_run_time &&
      (xs == nullptr || xz == nullptr || xs->size() != 1 || xz->size() != 1 || !quant::IsInt8(xz->dtype()))) {
    return nullptr;
  }
  const std::string kind = node.op == Op::kQuantizedQkv ? "qkv_int8 " : "linear_int8 ";
  auto kernel = std::make_unique<LinearKernel>(c.arch, kind + std::string(Name(c.arch)));
  kernel->at_run_time_ = at_run_time;
  kernel->per_token_ = per_token;
  kernel->has_residual_ = node.op == Op::kQuantizedLinear && node.input(9).valid();
  if (!per_token && !at_run_time) {
    kernel->x_scale_ = ScalarF32(*xs);
    kernel->x_zero_ = ScalarInt(*xz);
  }
  return kernel;
}

// These nodes and the heads behind their branches; none: a node alone that has none.
Made WithHeads(const std::vector<ir::NodeId>& ids, const CompileContext& c, const ChainsByNode& chains) {
  const Node& first = c.graph.node(ids[0]);
  const bool qkv = first.op == Op::kQuantizedQkv;
  Made made{.nodes = ids, .inputs = first.inputs};
  made.inputs.resize(std::max<size_t>(first.inputs.size(), 10));
  std::unique_ptr<LinearKernel> kernel = KernelFor(first, c);
  if (kernel == nullptr) return {};
  std::vector<std::optional<HeadsTail>> heads;
  std::vector<size_t> slots;
  for (const ir::NodeId id : ids) {
    const Node& node = c.graph.node(id);
    for (size_t i = 0; i < (qkv ? node.outputs.size() : 1); ++i) {
      if (heads.size() == ir::kMostBeside || !AddBranch(node, c, i, *kernel)) return {};
      slots.push_back(made.outputs.size());
      std::vector<HeadsPart> parts = FindHeadsParts(c, ids[0], node.outputs[i], chains);
      std::optional<HeadsTail>& behind = heads.emplace_back();
      parts.empty() ? made.outputs.push_back(node.outputs[i]) : void(behind.emplace(std::move(parts), c, made));
    }
  }
  const bool any = std::ranges::any_of(heads, [](const auto& h) { return h.has_value(); });
  if (!any && ids.size() == 1) return {};
  if (any) kernel->EndInHeads(std::move(heads), std::move(slots), qkv ? "qkv_int8" : "linear_int8");
  kernel->Need(c.graph.value(first.input(0)).type.dtype);
  made.kernel = std::move(kernel);
  return made;
}

// The node, which is the first, and those beside it that no chain needs; else it alone, if heads are behind it.
Made WithHeadsBeside(ir::NodeId id, const CompileContext& c, std::span<const Chain> tails, const ChainsByNode& chains) {
  std::vector<ir::NodeId> ids = ir::ProductsBeside(c.graph, id);
  std::erase_if(ids, [&](ir::NodeId other) {
    const ValueId y = c.graph.node(other).output();
    return chains.contains(other) ||
           std::ranges::any_of(tails, [&](const Chain& t) { return std::ranges::contains(t.inputs, y); });
  });
  Made made;
  if (ids.size() > 1 && ids[0] == id) made = WithHeads(ids, c, chains);
  return made.kernel != nullptr ? std::move(made) : WithHeads({id}, c, chains);
}

}  // namespace

kernels::WeightSource StepsOfWeight::Of(const Tensor& w) const {
  return {.data = w.data(),
          .dtype = w.dtype(),
          .k = w.shape()[0],
          .n = w.shape()[1],
          .step = step != nullptr ? step->data() : nullptr,
          .step_zero = zero != nullptr ? zero->data() : nullptr};
}

std::optional<StepsOfWeight> StepsOf(const Node& linear, const CompileContext& c, const Tensor& w) {
  if (linear.op != Op::kQuantizedLinear || !linear.input(kStep)) {
    return quant::IsInt8(w.dtype()) ? std::optional(StepsOfWeight()) : std::nullopt;
  }
  const Shape wanted{(w.shape()[0] + kernels::kStepRows - 1) / kernels::kStepRows, w.shape()[1]};
  const auto fits = [&](const Tensor* t) { return t != nullptr && t->dtype() == DType::kU4 && t->shape() == wanted; };
  const StepsOfWeight steps{c.Constant(linear.input(kStep)), c.Constant(linear.input(kStep + 1))};
  const bool zeros = linear.input(kStep + 1).valid() ? fits(steps.zero) : steps.zero == nullptr;
  return w.dtype() == DType::kU4 && fits(steps.step) && zeros ? std::optional(steps) : std::nullopt;
}

Made MakeLinearGroup(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains) {
  const Graph& g = c.graph;
  const Node& node = g.node(id);
  if (!quant::IsInt8(g.value(node.input(0)).type.dtype)) return {};
  if (node.op == Op::kQuantizedQkv) return WithHeads({id}, c, chains);
  if (node.input(9).valid()) return {};
  const std::vector<Chain> tails = FindTails(c, ir::ProductsBeside(g, id), chains);
  const auto reads = [](const Chain& chain, ValueId v) { return std::ranges::contains(chain.inputs, v); };
  const auto tail = std::ranges::find_if(tails, [&](const Chain& t) { return reads(t, node.output()); });
  if (tail == tails.end()) return WithHeadsBeside(id, c, tails, chains);
  Made made{.inputs = node.inputs, .outputs = {g.node(tail->nodes.back()).output()}};
  made.inputs.resize(10);
  for (const ir::NodeId other : ir::ProductsBeside(g, id)) {
    if (reads(*tail, g.node(other).output())) made.nodes.push_back(other);
  }
  std::unique_ptr<LinearKernel> kernel = KernelFor(node, c);
  if (kernel == nullptr || made.nodes[0] != id || made.nodes.size() > kernels::kMaxBranches) return {};
  std::vector<TailOperand> operands;
  for (const ValueId v : tail->inputs) {
    const auto at = std::ranges::find_if(made.nodes, [&](ir::NodeId other) { return g.node(other).output() == v; });
    const bool made_here = at != made.nodes.end();
    operands.push_back({static_cast<size_t>(at - made.nodes.begin()), made_here ? 0 : made.inputs.size()});
    if (!made_here) made.inputs.push_back(v);
  }
  for (const ir::NodeId other : made.nodes) {
    if (!AddBranch(g.node(other), c, 0, *kernel)) return {};
  }
  kernel->EndIn(*tail, std::move(operands), c);
  kernel->Need(g.value(node.input(0)).type.dtype);
  made.nodes.insert(made.nodes.end(), tail->nodes.begin(), tail->nodes.end());
  made.kernel = std::move(kernel);
  return made;
}

void TakeRowsToCode(ir::NodeId id, const CompileContext& c, Made& made) {
  const Graph& g = c.graph;
  auto* kernel = dynamic_cast<LinearKernel*>(made.kernel.get());
  const ir::NodeId maker = g.value(g.node(id).input(0)).producer;
  if (kernel == nullptr || !kernel->per_token_ || !maker.valid() || g.node(maker).op != Op::kQuantizeTokens) return;
  const Node& rows = g.node(maker);
  for (size_t i = 0; i < 3; ++i) {
    const ValueId v = i < rows.outputs.size() ? rows.outputs[i] : ValueId{};
    if (!v.valid() || v != g.node(id).input(i) || g.IsGraphOutput(v)) return;
    const auto reads = [&](const ir::Use& use) { return use.slot == i && std::ranges::contains(made.nodes, use.node); };
    if (!std::ranges::all_of(g.value(v).uses, reads)) return;
  }
  if (g.value(rows.input(0)).type.dtype != DType::kF32 || c.Constant(rows.output(0)) != nullptr) return;
  kernel->BeginInRows(made.outputs.size());
  made.outputs.insert(made.outputs.end(), rows.outputs.begin(), rows.outputs.end());
  made.inputs[0] = rows.input(0), made.inputs[1] = made.inputs[2] = {};
  made.nodes.push_back(maker);
}

KernelPtr MakeLinear(const Node& node, const CompileContext& c) {
  if (quant::IsFp8(c.graph.value(node.inputs[0]).type.dtype)) {
    const bool known = node.op == Op::kQuantizedQkv || (node.inputs.size() <= 10 && c.Is(node.input(9), DType::kF32));
    return known ? MakeLinearFp8(node, c) : nullptr;
  }
  std::unique_ptr<LinearKernel> kernel = KernelFor(node, c);
  const size_t branches = node.op == Op::kQuantizedQkv ? node.outputs.size() : 1;
  if (kernel == nullptr || branches > kernels::kMaxBranches) return nullptr;
  for (size_t i = 0; i < branches; ++i) {
    if (!AddBranch(node, c, i, *kernel)) return nullptr;
  }
  kernel->Need(c.graph.value(node.input(0)).type.dtype);
  return kernel;
}

}  // namespace octavo::runtime
