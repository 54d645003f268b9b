#include "octavo/passes/fusions/projections.h"

#include <cstring>
#include <format>

namespace octavo::passes::fusions {

using ir::Tensor;

namespace {

bool IsWeightType(ir::DType t) { return t == ir::DType::kF32 || t == ir::DType::kF16 || t == ir::DType::kBF16; }

Tensor ConcatColumns(const std::vector<Projection>& parts, const Tensor* Projection::* which, ir::Shape shape) {
  const ir::DType dtype = parts[0].w->dtype();
  const size_t bytes = static_cast<size_t>(quant::BitsOf(dtype)) / 8;
  const int64_t rows = shape.size() == 2 ? shape[0] : 1;
  Tensor all = Tensor::Zeros(dtype, std::move(shape));
  auto* to = all.mutable_data();
  for (int64_t r = 0; r < rows; ++r) {
    for (const Projection& p : parts) {
      const size_t n = static_cast<size_t>(p.columns()) * bytes;
      if (const Tensor* t = p.*which) std::memcpy(to, t->data() + static_cast<size_t>(r) * n, n);
      to += n;
    }
  }
  return all;
}

int64_t ColumnsOf(const std::vector<Projection>& parts) {
  int64_t columns = 0;
  for (const Projection& p : parts) columns += p.columns();
  return columns;
}

}  // namespace

std::optional<Projection> ProjectionAt(const Graph& g, NodeId id) {
  const Node& n = g.node(id);
  const Tensor* w = n.op == Op::kMatMul ? g.ConstantOf(n.inputs[1]) : nullptr;
  if (w == nullptr || w->rank() != 2 || !IsWeightType(w->dtype())) return {};
  Projection p{id, n.output(), w, nullptr};
  if (!g.HasOneUse(p.result)) return p;
  const Node& user = g.node(g.value(p.result).uses[0].node);
  const Tensor* bias = user.op == Op::kAdd ? g.ConstantOf(user.inputs[1]) : nullptr;
  if (bias == nullptr || bias->rank() != 1 || bias->size() != p.columns()) return p;
  if (bias->dtype() != w->dtype()) return {};
  p.result = user.output();
  p.bias = bias;
  return p;
}

Tensor WeightsOf(const std::vector<Projection>& parts) {
  return ConcatColumns(parts, &Projection::w, {parts[0].w->shape()[0], ColumnsOf(parts)});
}
Tensor BiasesOf(const std::vector<Projection>& parts) {
  return ConcatColumns(parts, &Projection::bias, {ColumnsOf(parts)});
}

ValueId Columns(Rewriter& b, ValueId v, int64_t first, int64_t count) {
  const Tensor* all = v.valid() ? b.graph().ConstantOf(v) : nullptr;
  if (all == nullptr || all->size() == 1) return v;
  const int64_t columns = all->shape().back(), rows = all->size() / columns;
  const size_t element = quant::BytesOf(all->dtype(), 1);
  ir::Shape shape = all->shape();
  shape.back() = count;
  Tensor part = Tensor::Empty(all->dtype(), shape);
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(part.mutable_data() + static_cast<size_t>(r * count) * element,
                all->data() + static_cast<size_t>(r * columns + first) * element, static_cast<size_t>(count) * element);
  }
  return b.Constant(std::move(part));
}

std::string WhyNotOneProduct(const Graph& g, const ProjectionGroup& group, std::vector<Projection>* parts) {
  const size_t count = group.linears.size();
  if (count > 8) return std::format("is one of {} projections of one attention, and at most 8 are merged", count);
  const ValueId x = g.node(group.linears[0]).inputs[0];
  for (NodeId id : group.linears) {
    const auto p = ProjectionAt(g, id);
    const std::string other = OriginName(g.node(id));
    if (!p) return std::format("is not merged: the weight or bias of '{}' is no constant of floats", other);
    parts->push_back(*p);
    if (p->w->dtype() != (*parts)[0].w->dtype() || g.node(id).inputs[0] != x)
      return std::format("is not merged: '{}' reads another form of the activation", other);
  }
  return g.value(x).type.shape ? "" : "is not merged: the rank of what it reads is not known";
}

}  // namespace octavo::passes::fusions
