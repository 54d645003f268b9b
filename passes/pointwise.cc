#include "octavo/passes/pointwise.h"

#include <algorithm>

#include "octavo/passes/canonical/util.h"

namespace octavo::passes {

namespace {

bool All(const std::vector<int64_t>& values, int64_t wanted) {
  return std::ranges::all_of(values, [&](int64_t v) { return v == wanted; });
}

}  // namespace

bool IsPointwise(const ir::Graph& g, const ir::Node& n) {
  using canonical::ShapeOf;
  if (n.op != ir::Op::kConv || n.attrs.Int("group", 1) != 1) return false;
  const ir::Tensor *w = g.ConstantOf(n.input(1)), *bias = g.ConstantOf(n.input(2));
  const ir::SymShape *x = ShapeOf(g, n.input(0)), *y = ShapeOf(g, n.output());
  if (w == nullptr || x == nullptr || y == nullptr || !canonical::IsPlainFloat(w->dtype())) return false;
  if (w->rank() < 3 || x->size() != w->shape().size() || y->size() != x->size()) return false;
  if (n.input(2).valid()) {
    const bool wide = w->dtype() == ir::DType::kF32 || w->dtype() == ir::DType::kF64;
    if (!wide || bias == nullptr || bias->shape() != ir::Shape{w->shape()[0]} || bias->dtype() != w->dtype())
      return false;
  }
  const bool kernel = std::all_of(w->shape().begin() + 2, w->shape().end(), [](int64_t d) { return d == 1; });
  return kernel && All(n.attrs.Ints("strides"), 1) && All(n.attrs.Ints("pads"), 0) &&
         canonical::IsNumber((*x)[1], w->shape()[1]);
}

ir::Tensor PointwiseMatrix(const ir::Tensor& w) {
  const int64_t n = w.shape()[0], c = w.shape()[1];
  const size_t bytes = static_cast<size_t>(quant::BitsOf(w.dtype())) / 8;
  ir::Tensor m = ir::Tensor::Empty(w.dtype(), {c, n});
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < c; ++j)
      std::copy_n(w.data() + static_cast<size_t>(i * c + j) * bytes, bytes,
                  m.mutable_data() + static_cast<size_t>(j * n + i) * bytes);
  }
  return m;
}

}  // namespace octavo::passes
