// LayerNormalization, RMSNormalization, SkipLayerNorm, NormQuant over the last axis. An RMSNormalization that
// a SkipLayerNorm or NormQuant alone reads (Gemma has one behind each product) runs in its step, row by row.
#include "octavo/runtime/step_norm.h"

#include <algorithm>
#include <optional>

#include "octavo/ir/infer.h"
#include "octavo/kernels/norm/norm.h"
#include "octavo/quant/numeric/code8.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

constexpr int64_t kRowGrain = 16;  // rows of a few hundred floats: about 5 us, what a task must be worth

bool IsLastAxis(const Node& node, const CompileContext& c, int64_t fallback) {
  const int64_t axis = node.attrs.Int("axis", fallback);
  const auto& shape = c.graph.value(node.inputs[0]).type.shape;
  return axis == -1 || (shape && axis == static_cast<int64_t>(shape->size()) - 1);
}

bool IsF32(const CompileContext& c, ValueId v) { return !v.valid() || c.graph.value(v).type.dtype == DType::kF32; }

// Which input slots and output slots play which part; -1: none.
struct Roles {
  int skip = -1, gamma = 1, beta = 2, q_gamma = -1, q_beta = -1;
  int y = 0, sum = -1, q = -1;
};

size_t Slot(int i) { return static_cast<size_t>(i); }

// A vector with a value for each column of x. One value for all of them is the interpreter's.
bool IsOneRow(const CompileContext& c, ValueId v, ValueId x) {
  const auto& shape = c.graph.value(v).type.shape;
  const auto& rows = c.graph.value(x).type.shape;
  if (!shape || shape->empty()) return false;
  const ir::Dim& n = shape->back();
  const bool ones =
      std::all_of(shape->begin(), shape->end() - 1, [](const ir::Dim& d) { return d.is_number() && d.number() == 1; });
  return ones && ((n.is_number() && n.number() > 1) || (rows && !rows->empty() && ProvablyEqual(n, rows->back())));
}

// False: one of them is repeated for the other, which is the interpreter's.
bool MayBeAlike(const CompileContext& c, ValueId v, ValueId w) {
  const auto &a = c.graph.value(v).type.shape, &b = c.graph.value(w).type.shape;
  if (!a || !b) return true;
  const auto may = [](const ir::Dim& x, const ir::Dim& y) {
    return !x.is_number() || !y.is_number() || x.number() == y.number();
  };
  return std::ranges::equal(*a, *b, may);
}

// An RMSNormalization in front of an operand.
struct NormBefore {
  int operand = -1, gamma = -1;  // slots
  float epsilon = 0;
};

class NormKernel : public Kernel {
 public:
  NormKernel(kernels::Arch arch, Roles roles, kernels::NormArgs fixed, std::string name, std::vector<bool> wanted)
      : arch_(arch), roles_(roles), fixed_(fixed), name_(std::move(name)), wanted_(std::move(wanted)) {}
  std::string name() const override { return name_; }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    const int64_t n = x.rank() == 0 ? 0 : x.shape().back();
    const int64_t rows = LeadingRows(x.shape());
    kernels::NormArgs a = fixed_;
    a.n = n;
    a.x = x.as<float>().data();
    a.x_stride = n;
    if (roles_.skip >= 0 && call.Has(Slot(roles_.skip))) {
      const Tensor& skip = call.T(Slot(roles_.skip));
      a.skip = skip.as<float>().data();
      a.skip_stride = n;
    }
    a.gamma = Vector(call, roles_.gamma), a.beta = Vector(call, roles_.beta);
    a.q_gamma = Vector(call, roles_.q_gamma), a.q_beta = Vector(call, roles_.q_beta);
    if (Wanted(roles_.y)) a.y = call.Allocate(Slot(roles_.y), DType::kF32, x.shape()).mutable_as<float>().data();
    if (Wanted(roles_.sum)) a.sum = call.Allocate(Slot(roles_.sum), DType::kF32, x.shape()).mutable_as<float>().data();
    if (Wanted(roles_.q)) {
      ir::Shape shape = x.shape();
      if (!shape.empty()) shape.back() += a.q_more;
      a.q = call.Allocate(Slot(roles_.q), a.q_type, std::move(shape)).mutable_data();
    }
    a.y_stride = a.sum_stride = n;
    a.q_stride = n + a.q_more;
    if (n == 0 || rows == 0) return {};
    const int64_t parts = PartsOf(rows, kRowGrain, call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(rows, parts, i, 1);
      if (before_) return RunBoth(call, a, p);
      const TaskScratch scratch(kernels::NormScratchFloats(a) * sizeof(float));
      kernels::NormRows(arch_, a, p.begin, p.end, reinterpret_cast<float*>(scratch.data()));
    });
    return {};
  }

  void TakeBefore(const NormBefore& before) {
    before_ = before;
    needs.Count(Slot(before.gamma), DType::kF32, Needs::Size::Same(0));
    name_ = "rms_norm+" + name_;
  }

 private:
  // Each row of the operand goes through its norm first.
  void RunBoth(StepCall& call, const kernels::NormArgs& a, Part part) const {
    const TaskScratch scratch((static_cast<size_t>(a.n) + kernels::NormScratchFloats(a)) * sizeof(float));
    auto *normed = reinterpret_cast<float*>(scratch.data()), *rest = normed + a.n;
    const bool is_skip = before_->operand == roles_.skip;
    for (int64_t r = part.begin; r < part.end; ++r) {
      const kernels::NormArgs first = {.n = a.n,
                                       .x = (is_skip ? a.skip : a.x) + r * a.n,
                                       .gamma = Vector(call, before_->gamma),
                                       .epsilon = before_->epsilon,
                                       .rms = true,
                                       .y = normed};
      kernels::NormRows(arch_, first, 0, 1, rest);
      kernels::NormArgs row = a;
      row.x = is_skip ? a.x + r * a.n : normed;
      if (a.skip != nullptr) row.skip = is_skip ? normed : a.skip + r * a.n;
      if (a.sum != nullptr) row.sum = a.sum + r * a.n;
      if (a.y != nullptr) row.y = a.y + r * a.n;
      if (a.q != nullptr) row.q = static_cast<std::byte*>(a.q) + r * a.q_stride;  // codes of a byte
      kernels::NormRows(arch_, row, 0, 1, rest);
    }
  }

  bool Wanted(int slot) const { return slot >= 0 && wanted_[Slot(slot)]; }
  static const float* Vector(StepCall& call, int slot) {
    return slot < 0 || !call.Has(Slot(slot)) ? nullptr : call.T(Slot(slot)).as<float>().data();
  }

  kernels::Arch arch_;
  Roles roles_;
  kernels::NormArgs fixed_;  // q_again points into a constant of the graph
  std::string name_;
  std::vector<bool> wanted_;
  std::optional<NormBefore> before_;
};

// q_index of a NormQuant whose rows have n channels: all in order, then those that stand there again. False: another order.
bool TakeIndex(const CompileContext& c, const Node& node, kernels::NormArgs& args) {
  if (!node.input(8).valid()) return true;
  const Tensor* index = c.Constant(node.input(8));
  const Tensor* gamma = c.Constant(node.input(2));
  if (index == nullptr || gamma == nullptr || index->dtype() != DType::kS64 || index->size() < gamma->size())
    return false;
  const auto columns = index->as<int64_t>();
  const auto n = static_cast<size_t>(gamma->size());
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto column = static_cast<size_t>(columns[i]);
    if (i < n ? column != i : column >= n) return false;
  }
  args.q_again = columns.data() + n;
  args.q_more = static_cast<int64_t>(columns.size() - n);
  return true;
}

}  // namespace

KernelPtr MakeNorm(const Node& node, const CompileContext& c) {
  for (ValueId v : node.inputs) {
    const bool parameter = node.op == Op::kNormQuant && (v == node.input(5) || v == node.input(8));
    if (!parameter && !IsF32(c, v)) return nullptr;
  }
  Roles roles;
  kernels::NormArgs fixed;
  fixed.epsilon = node.attrs.Float("epsilon", 1e-5f);
  std::vector<bool> wanted;
  wanted.reserve(node.outputs.size());
  for (ValueId v : node.outputs) wanted.push_back(v.valid());
  std::string name = "layer_norm ";
  switch (node.op) {
    case Op::kLayerNormalization:
      if (!IsLastAxis(node, c, -1) || (wanted.size() > 1)) return nullptr;
      break;
    case Op::kRMSNormalization:
      if (!IsLastAxis(node, c, -1)) return nullptr;
      fixed.rms = true;
      roles.beta = -1;
      name = "rms_norm ";
      break;
    case Op::kSkipLayerNorm:
      roles = {.skip = 1, .gamma = 2, .beta = 3, .y = 0, .sum = 1};
      if (wanted.size() < 2) roles.sum = -1;
      fixed.rms = node.attrs.Int("rms", 0) != 0;
      name = "skip_layer_norm ";
      break;
    case Op::kNormQuant: {
      roles = {.skip = 1, .gamma = 2, .beta = 3, .q_gamma = 6, .q_beta = 7, .y = 0, .sum = 2, .q = 1};
      if (wanted.size() < 3) roles.sum = -1;
      fixed.rms = node.attrs.Int("rms", 0) != 0;
      const Tensor* scale = c.Constant(node.input(4));
      const Tensor* zero = c.Constant(node.input(5));
      if (scale == nullptr || zero == nullptr || scale->size() != 1 || zero->size() != 1) return nullptr;
      if (!quant::IsCode8(zero->dtype())) return nullptr;
      if (!TakeIndex(c, node, fixed)) return nullptr;
      fixed.q_type = zero->dtype();
      fixed.q_scale = ScalarF32(*scale);
      fixed.q_zero_point = quant::IsFp8(zero->dtype()) ? 0 : ScalarInt(*zero);
      name = "norm_quant ";
      break;
    }
    default:
      return nullptr;
  }
  const ValueId skip = roles.skip >= 0 ? node.input(Slot(roles.skip)) : ValueId();
  if (skip.valid() && !MayBeAlike(c, node.input(0), skip)) return nullptr;
  Needs needs;
  const auto row = Needs::Size::Same(0);
  needs.EndsIn(0, DType::kF32, {row});
  if (skip.valid()) needs.EndsIn(Slot(roles.skip), DType::kF32, {row});
  for (const int slot : {roles.gamma, roles.beta, roles.q_gamma, roles.q_beta}) {
    if (slot < 0 || !node.input(Slot(slot)).valid()) continue;
    if (!IsOneRow(c, node.input(Slot(slot)), node.input(0))) return nullptr;
    needs.Count(Slot(slot), DType::kF32, row);
  }
  auto kernel = std::make_unique<NormKernel>(c.arch, roles, fixed, name + std::string(Name(c.arch)), std::move(wanted));
  kernel->needs = std::move(needs);
  kernel->by_rows = true;
  return kernel;
}

Made MakeNormGroup(ir::NodeId id, const CompileContext& c) {
  const Graph& g = c.graph;
  const Node& norm = g.node(id);
  const ValueId y = norm.output();
  if (!IsLastAxis(norm, c, -1) || !IsF32(c, norm.input(0)) || !IsF32(c, norm.input(1)) || g.IsGraphOutput(y) ||
      g.value(y).uses.size() != 1 || !IsOneRow(c, norm.input(1), norm.input(0)))
    return {};
  const ir::Use use = g.value(y).uses[0];
  const Node& reader = g.node(use.node);
  const bool sums = reader.op == Op::kSkipLayerNorm || reader.op == Op::kNormQuant;
  if (!sums || use.slot > 1 || !ir::SameShape(g, norm.input(0), y)) return {};
  Made made{.kernel = MakeNorm(reader, c), .nodes = {id, use.node}, .inputs = reader.inputs, .outputs = reader.outputs};
  for (const ValueId v : reader.inputs) {
    if (v.valid() && v != y && c.Constant(v) == nullptr && !IsThereBefore(g, v, id)) return {};
  }
  if (made.kernel == nullptr) return {};
  made.inputs.resize(9);  // all that the op may have
  made.inputs[use.slot] = norm.input(0);
  made.inputs.push_back(norm.input(1));
  static_cast<NormKernel&>(*made.kernel)
      .TakeBefore({.operand = static_cast<int>(use.slot),
                   .gamma = static_cast<int>(made.inputs.size() - 1),
                   .epsilon = norm.attrs.Float("epsilon", 1e-5f)});
  return made;
}

}  // namespace octavo::runtime
