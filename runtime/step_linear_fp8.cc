// QuantizedLinear and QuantizedQkv with fp8 operands: packed once at compile time, split as step_linear.cc does.
#include <algorithm>

#include "octavo/kernels/fp8/fp8.h"
#include "octavo/quant/numeric/code8.h"
#include "octavo/runtime/by_heads.h"
#include "octavo/runtime/packed_once.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

struct Branch {
  std::shared_ptr<const kernels::PackedFp8> w;
  std::vector<float> w_scale, bias, post_scale;  // empty: none
  DType y_dtype = DType::kF32;
  float y_scale = 1.0f;
  int32_t y_zero = 0;
  std::optional<ByHeads> by_heads;
};

class LinearFp8Kernel : public Kernel {
 public:
  // `x`: the type of the activation.
  LinearFp8Kernel(kernels::Arch arch, std::string name, DType x, float x_scale, kernels::Activation activation,
                  std::vector<Branch> branches, bool has_residual)
      : arch_(arch),
        name_(std::move(name)),
        x_scale_(x_scale),
        activation_(activation),
        branches_(std::move(branches)),
        has_residual_(has_residual) {
    const int64_t k = branches_[0].w->k();
    by_rows = true;
    needs.EndsIn(0, x, {k});
    for (const Branch& b : branches_) {
      if (b.by_heads) needs.Exactly(0, x, {Needs::Size::Any(), Needs::Size::Any(), k});
    }
    if (has_residual_) needs.EndsIn(9, DType::kF32, {branches_[0].w->n()});
  }

  std::string name() const override { return name_; }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    const int64_t k = branches_[0].w->k();
    kernels::Fp8Args args;
    args.x = {.data = x.data(), .dtype = x.dtype(), .stride = k, .scale = x_scale_};
    args.count = static_cast<int>(branches_.size());
    for (size_t i = 0; i < branches_.size(); ++i) {
      args.out[i].w = branches_[i].w.get();
      args.out[i].y = Output(call, i, x.shape());
    }
    if (has_residual_) args.out[0].y.residual = call.T(9).as<float>().data();
    args.out[0].y.residual_stride = branches_[0].w->n();
    const int64_t rows = LeadingRows(x.shape());
    if (rows == 0) return {};
    const int64_t blocks = kernels::Fp8Blocks(args);
    const int threads = call.threads->count();
    const kernels::Tile tile = kernels::Fp8Tile(arch_, args.bf16_pairs);
    const int64_t row_parts = PartsOf(rows, tile.share, threads);  // fewer: columns are split instead
    const int64_t column_parts = row_parts >= threads ? 1 : std::min<int64_t>(blocks, threads);
    const size_t scratch = kernels::Fp8ScratchBytes(arch_, k);
    call.threads->For(row_parts * column_parts, [&](int64_t task) {
      const Part r = PartOf(rows, row_parts, task / column_parts, tile.rows);
      const Part c = PartOf(blocks, column_parts, task % column_parts, 1);
      if (r.begin < r.end && c.begin < c.end) {
        kernels::LinearFp8(arch_, args, {r.begin, r.end}, {c.begin, c.end}, TaskScratch(scratch).data());
      }
    });
    return {};
  }

 private:
  kernels::GemmOutput Output(StepCall& call, size_t i, const Shape& x_shape) const {
    const Branch& b = branches_[i];
    kernels::GemmOutput y = {.w_scale = b.w_scale.data(),
                             .w_scale_per_column = b.w_scale.size() > 1,
                             .bias = b.bias.empty() ? nullptr : b.bias.data(),
                             .activation = activation_,
                             .post_scale = b.post_scale.empty() ? nullptr : b.post_scale.data(),
                             .dtype = b.y_dtype,
                             .scale = b.y_scale,
                             .zero_point = b.y_zero};
    y.y = call.Allocate(i, b.y_dtype, PlaceOutput(b.by_heads, x_shape, b.w->n(), &y)).mutable_data();
    return y;
  }

  kernels::Arch arch_;
  std::string name_;
  float x_scale_;
  kernels::Activation activation_;
  std::vector<Branch> branches_;
  bool has_residual_;  // input 9
};

// A constant of one value a column, or false. An absent input is no column.
bool ReadColumns(const CompileContext& c, ValueId v, int64_t n, std::vector<float>* out) {
  if (!v) return true;
  const Tensor* t = c.Constant(v);
  if (t == nullptr || t->size() != n) return false;
  *out = t->ToFloats();
  return true;
}

// Slots first .. first+4: w, w_scale, bias, y_scale, y_zp. False where something is not constant or not supported.
bool MakeBranch(const Node& node, const CompileContext& c, size_t first, Branch* out) {
  const Tensor* w = c.Constant(node.input(first));
  const Tensor* scale = c.Constant(node.input(first + 1));
  if (w == nullptr || scale == nullptr || w->rank() != 2) return false;
  const kernels::WeightSource source{.data = w->data(), .dtype = w->dtype(), .k = w->shape()[0], .n = w->shape()[1]};
  out->w = PackedOnce<kernels::PackedFp8>(
      c, {w}, "", [&] { return kernels::PackFp8(source); },
      [&](const PackedFile::Arrays& arrays) { return kernels::PackedFp8::Of(source, arrays); });
  if (out->w == nullptr) return false;
  out->w_scale = scale->ToFloats();
  if (out->w_scale.size() != 1 && static_cast<int64_t>(out->w_scale.size()) != out->w->n()) return false;
  if (!ReadColumns(c, node.input(first + 2), out->w->n(), &out->bias)) return false;
  if (!node.input(first + 3)) return true;
  const Tensor* ys = c.Constant(node.input(first + 3));
  const Tensor* yz = c.Constant(node.input(first + 4));
  if (ys == nullptr || yz == nullptr || ys->size() != 1 || yz->size() != 1 || !quant::IsCode8(yz->dtype()))
    return false;
  out->y_dtype = yz->dtype();
  out->y_scale = ScalarF32(*ys);
  out->y_zero = quant::IsFp8(yz->dtype()) ? 0 : ScalarInt(*yz);
  return true;
}

}  // namespace

KernelPtr MakeLinearFp8(const Node& node, const CompileContext& c) {
  const Tensor* xs = c.Constant(node.input(1));
  if (xs == nullptr || xs->size() != 1 || node.attrs.Int("per_token", 0) != 0) return nullptr;
  kernels::Activation activation;
  if (!kernels::ActivationFromName(node.attrs.Str("activation", "none"), &activation)) return nullptr;
  const bool qkv = node.op == Op::kQuantizedQkv;
  const size_t count = qkv ? node.outputs.size() : 1;
  if (count > kernels::kMaxFp8Outputs) return nullptr;
  std::vector<Branch> branches(count);
  for (size_t i = 0; i < count; ++i) {
    if (!MakeBranch(node, c, 3 + 5 * i, &branches[i]) || branches[i].w->k() != branches[0].w->k()) return nullptr;
    branches[i].by_heads = FindByHeads(c.graph, node, i);
    if (branches[i].by_heads && branches[i].by_heads->columns() != branches[i].w->n()) return nullptr;
  }
  if (!qkv && !ReadColumns(c, node.input(8), branches[0].w->n(), &branches[0].post_scale)) return nullptr;
  std::string name = (qkv ? "qkv_fp8 " : "linear_fp8 ") + std::string(Name(c.arch));
  return std::make_unique<LinearFp8Kernel>(c.arch, std::move(name), c.graph.value(node.input(0)).type.dtype,
                                           ScalarF32(*xs), activation, std::move(branches),
                                           !qkv && node.input(9).valid());
}

}  // namespace octavo::runtime
