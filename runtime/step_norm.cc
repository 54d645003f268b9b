// LayerNormalization, RMSNormalization, SkipLayerNorm, NormQuant over the last axis, and Softmax over the last axis.
#include <algorithm>

#include "octavo/kernels/norm/norm.h"
#include "octavo/kernels/softmax/softmax.h"
#include "octavo/quant/numeric/code8.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

constexpr int64_t kRowGrain = 16;  // rows of a few hundred floats: about 5 us, what a task must be worth (kernels.md 7)

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

class NormKernel : public Kernel {
 public:
  NormKernel(kernels::Arch arch, Roles roles, kernels::NormArgs fixed, std::string name, std::vector<bool> wanted)
      : arch_(arch), roles_(roles), fixed_(fixed), name_(std::move(name)), wanted_(std::move(wanted)) {}
  std::string name() const override { return name_; }

  Status Run(StepCall& call) const override {
    const Tensor& x = call.T(0);
    const int64_t n = x.rank() == 0 ? 0 : x.shape().back();
    const int64_t rows = LeadingRows(x.shape());
    kernels::NormArgs a = fixed_;
    a.n = n;
    a.x = x.as<float>().data();
    a.x_stride = n;
    if (roles_.skip >= 0 && call.Has(Slot(roles_.skip))) {
      const Tensor& skip = call.T(Slot(roles_.skip));
      if (skip.shape() != x.shape()) {
        return ir::Fail("x {} and skip {} have different shapes", ir::ToString(x.shape()), ir::ToString(skip.shape()));
      }
      a.skip = skip.as<float>().data();
      a.skip_stride = n;
    }
    OCTAVO_TRY(a.gamma, Vector(call, roles_.gamma, n));
    OCTAVO_TRY(a.beta, Vector(call, roles_.beta, n));
    OCTAVO_TRY(a.q_gamma, Vector(call, roles_.q_gamma, n));
    OCTAVO_TRY(a.q_beta, Vector(call, roles_.q_beta, n));
    if (Wanted(roles_.y)) a.y = call.Allocate(Slot(roles_.y), DType::kF32, x.shape()).mutable_as<float>().data();
    if (Wanted(roles_.sum)) a.sum = call.Allocate(Slot(roles_.sum), DType::kF32, x.shape()).mutable_as<float>().data();
    if (Wanted(roles_.q)) {
      ir::Shape shape = x.shape();
      if (!shape.empty()) shape.back() += a.q_more;
      a.q = call.Allocate(Slot(roles_.q), a.q_type, std::move(shape)).mutable_data();
    }
    if (std::any_of(a.q_again, a.q_again + a.q_more, [n](int64_t i) { return i >= n; }))
      return ir::Fail("q_index names a column beyond the {} of x", n);
    a.y_stride = a.sum_stride = n;
    a.q_stride = n + a.q_more;
    if (n == 0 || rows == 0) return {};
    const int64_t parts = PartsOf(rows, kRowGrain, call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(rows, parts, i, 1);
      const TaskScratch scratch(kernels::NormScratchFloats(a) * sizeof(float));
      kernels::NormRows(arch_, a, p.begin, p.end, reinterpret_cast<float*>(scratch.data()));
    });
    return {};
  }

 private:
  static size_t Slot(int i) { return static_cast<size_t>(i); }
  bool Wanted(int slot) const { return slot >= 0 && wanted_[Slot(slot)]; }
  static Result<const float*> Vector(StepCall& call, int slot, int64_t n) {
    if (slot < 0 || !call.Has(Slot(slot))) return nullptr;
    const Tensor& t = call.T(Slot(slot));
    if (t.size() != n) return ir::Fail("gamma or beta has {} values for rows of {}", t.size(), n);
    return t.as<float>().data();
  }

  kernels::Arch arch_;
  Roles roles_;
  kernels::NormArgs fixed_;  // q_again points into a constant of the graph
  std::string name_;
  std::vector<bool> wanted_;
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
    if (i < n ? columns[i] != static_cast<int64_t>(i) : columns[i] < 0) return false;
  }
  args.q_again = columns.data() + n;
  args.q_more = static_cast<int64_t>(columns.size() - n);
  return true;
}

class SoftmaxKernel : public Kernel {
 public:
  explicit SoftmaxKernel(kernels::Arch arch) : arch_(arch) {}
  std::string name() const override { return "softmax " + std::string(Name(arch_)); }
  Status Run(StepCall& call) const override {
    const Tensor& x = call.T(0);
    if (x.rank() == 0) return ir::Fail("a scalar has no last axis");
    const int64_t n = x.shape().back();
    const int64_t rows = LeadingRows(x.shape());
    float* y = call.Allocate(0, DType::kF32, x.shape()).mutable_as<float>().data();
    if (n == 0 || rows == 0) return {};
    const float* from = x.as<float>().data();
    const int64_t parts = PartsOf(rows, kRowGrain, call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(rows, parts, i, 1);
      kernels::SoftmaxRows(arch_, from + p.begin * n, n, y + p.begin * n, n, p.end - p.begin, n);
    });
    return {};
  }

 private:
  kernels::Arch arch_;
};

}  // namespace

KernelPtr MakeNorm(const Node& node, const CompileContext& c) {
  for (ValueId v : node.inputs) {
    const bool parameter = node.op == Op::kNormQuant && (v == node.input(5) || v == node.input(8));
    if (!parameter && !IsF32(c, v)) return nullptr;
  }
  if (node.op == Op::kSoftmax) {
    return IsLastAxis(node, c, -1) ? std::make_unique<SoftmaxKernel>(c.arch) : nullptr;
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
  return std::make_unique<NormKernel>(c.arch, roles, fixed, name + std::string(Name(c.arch)), std::move(wanted));
}

}  // namespace octavo::runtime
