#include "octavo/passes/canonical/util.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace octavo::passes::canonical {

const SymShape* ShapeOf(const Graph& g, ValueId v) {
  if (!v.valid()) return nullptr;
  const Type& t = g.value(v).type;
  return t.shape ? &*t.shape : nullptr;
}
int64_t RankOf(const Graph& g, ValueId v) {
  const SymShape* s = ShapeOf(g, v);
  return s == nullptr ? -1 : static_cast<int64_t>(s->size());
}

bool IsPlainInteger(DType d) {
  switch (d) {
    case DType::kS8:
    case DType::kU8:
    case DType::kS16:
    case DType::kU16:
    case DType::kS32:
    case DType::kU32:
    case DType::kS64:
    case DType::kU64:
      return true;
    default:
      return false;
  }
}
bool IsPlainFloat(DType d) { return d == DType::kF32 || d == DType::kF64 || d == DType::kF16 || d == DType::kBF16; }
bool IsNumber(const Dim& d, int64_t n) { return d.is_number() && d.number() == n; }

std::optional<Ints> ConstInts(const Graph& g, ValueId v) {
  const Tensor* t = g.ConstantOf(v);
  if (t == nullptr || !(IsPlainInteger(t->dtype()) || t->dtype() == DType::kBool)) return {};
  return t->ToInts();
}
std::optional<double> ConstScalar(const Graph& g, ValueId v) {
  const Tensor* t = g.ConstantOf(v);
  if (t == nullptr || t->size() != 1 || !(IsPlainInteger(t->dtype()) || IsPlainFloat(t->dtype()))) return {};
  return t->GetDouble(0);
}
std::optional<double> ConstScalarBeside(const Graph& g, ValueId v, ValueId x) {
  const Tensor* t = g.ConstantOf(v);
  return t != nullptr && (t->rank() == 0 || t->rank() <= RankOf(g, x)) ? ConstScalar(g, v) : std::nullopt;
}
bool IsConstantLike(const Graph& g, ValueId v) {
  if (g.ConstantOf(v) != nullptr) return true;
  const Node* p = g.Producer(v);
  return p != nullptr && p->op == Op::kDequantizeLinear && g.ConstantOf(p->input(0)) != nullptr;
}

bool IsReshapeLike(Op op) {
  return op == Op::kReshape || op == Op::kSqueeze || op == Op::kUnsqueeze || op == Op::kFlatten;
}

NodeId ProductBehind(const Graph& g, ValueId v) {
  constexpr int kMostViews = 24;
  for (int i = 0; i < kMostViews && g.HasOneUse(v); ++i) {
    const ir::Use& use = g.value(v).uses.front();
    const Node& n = g.node(use.node);
    if (n.op == Op::kMatMul) return use.slot == 0 ? use.node : NodeId{};
    if (!IsReshapeLike(n.op)) return {};
    v = n.output();
  }
  return {};
}

bool IsElementwise(Op op) {
  // ops.def lists the unary ones first, Abs to ThresholdedRelu, then the broadcasting ones, Add to CastLike.
  if (op >= Op::kAbs && op <= Op::kXor) return op != Op::kPRelu;
  switch (op) {
    case Op::kClip:  // its bounds are scalars
    case Op::kMax:
    case Op::kMin:
    case Op::kMean:
    case Op::kSum:
    case Op::kWhere:
      return true;
    default:
      return false;
  }
}

bool HasUses(const Graph& g, ValueId v) { return v.valid() && (!g.value(v).uses.empty() || g.IsGraphOutput(v)); }

Ints PermOf(const Node& node, int64_t rank) {
  Ints perm = node.attrs.Ints("perm");
  if (perm.empty()) {
    for (int64_t i = rank; i-- > 0;) perm.push_back(i);
  }
  for (int64_t& p : perm) p += p < 0 ? rank : 0;
  return perm;
}
Ints LastTwoSwapped(int64_t rank) {
  Ints perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), int64_t{0});
  std::swap(perm.end()[-1], perm.end()[-2]);
  return perm;
}

bool IsDequantized(const Graph& g, ValueId v) {
  constexpr int kMostViews = 24;
  for (int i = 0; i < kMostViews && v.valid(); ++i) {
    const Node* n = g.Producer(v);
    if (n == nullptr || n->op == Op::kDequantizeLinear) return n != nullptr;
    if (!IsReshapeLike(n->op) && n->op != Op::kTranspose) return false;
    v = n->input(0);
  }
  return false;
}

bool IsIdentityPerm(const Ints& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

std::optional<Ints> AxesOf(const Graph& g, const Node& node) {
  const SymShape* in = ShapeOf(g, node.input(0));
  if (in == nullptr) return {};
  Ints axes;
  if (node.input(1).valid()) {
    const auto read = ConstInts(g, node.input(1));
    if (!read) return {};
    axes = *read;
  } else {  // a Squeeze without axes removes every dim that is 1 at run time
    for (size_t i = 0; i < in->size(); ++i) {
      if (!(*in)[i].is_number()) return {};
      if ((*in)[i].number() == 1) axes.push_back(static_cast<int64_t>(i));
    }
  }
  const int64_t rank = static_cast<int64_t>(in->size() + (node.op == Op::kUnsqueeze ? axes.size() : 0));
  for (int64_t& a : axes) {
    a += a < 0 ? rank : 0;
    if (a < 0 || a >= rank) return {};
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) return {};
  return axes;
}

bool ReducesAlong(const Graph& g, const Node& n, Op op, int64_t axis, int64_t rank) {
  const auto axes = n.op == op ? ConstInts(g, n.input(1)) : std::nullopt;
  return axes && axes->size() == 1 && n.attrs.Int("keepdims", 1) != 0 && ((*axes)[0] + rank) % rank == axis;
}

SymShape Permuted(const SymShape& shape, const Ints& perm) {
  SymShape out;
  for (int64_t p : perm) out.push_back(shape[static_cast<size_t>(p)]);
  return out;
}

SymShape BroadcastShapes(const std::vector<const SymShape*>& shapes) {
  size_t rank = 0;
  for (const SymShape* s : shapes) rank = std::max(rank, s->size());
  SymShape out(rank, Dim(1));
  for (const SymShape* s : shapes) {
    const size_t shift = rank - s->size();
    for (size_t i = 0; i < s->size(); ++i) out[shift + i] = ir::BroadcastDim(out[shift + i], (*s)[i]);
  }
  return out;
}

std::optional<Ints> ReshapeTarget(const SymShape& in, const SymShape& out) {
  Ints target(out.size());
  bool leading = true, inferred = false, zero = false;
  for (size_t j = 0; j < out.size(); ++j) {
    const bool same = j < in.size() && ProvablyEqual(in[j], out[j]);
    leading = leading && same && j + 1 < in.size() && j + 1 < out.size();
    zero = zero || IsNumber(out[j], 0);
    if (same && (leading || !out[j].is_number() || out[j].number() == 0)) {
      target[j] = 0;
    } else if (out[j].is_number()) {
      if (out[j].number() == 0) return {};
      target[j] = out[j].number();
    } else {
      if (inferred) return {};
      inferred = true;
      target[j] = -1;
    }
  }
  if (inferred && zero) return {};
  return target;
}

std::optional<std::vector<Ints>> GroupDims(const SymShape& fine, const SymShape& coarse) {
  std::vector<Ints> groups(coarse.size());
  size_t i = 0;
  for (size_t j = 0; j < coarse.size(); ++j) {
    if (i >= fine.size()) return {};
    Dim product = fine[i];
    groups[j].push_back(static_cast<int64_t>(i++));
    while (!ProvablyEqual(product, coarse[j])) {
      if (i >= fine.size()) return {};
      product = product * fine[i];
      groups[j].push_back(static_cast<int64_t>(i++));
    }
  }
  for (; i < fine.size(); ++i) {
    if (!IsNumber(fine[i], 1) || groups.empty()) return {};
    groups.back().push_back(static_cast<int64_t>(i));
  }
  return groups;
}

ValueId Make(Rewriter& rw, Op op, std::vector<ValueId> inputs, Attrs attrs, Type type) {
  const ValueId v = rw.Create(op, std::move(inputs), std::move(attrs));
  rw.graph().SetType(v, std::move(type));
  return v;
}
ValueId MakeInts(Rewriter& rw, Ints values) {
  const int64_t n = static_cast<int64_t>(values.size());
  return rw.Constant(Tensor::S64({n}, std::move(values)));
}
ValueId MakeTranspose(Rewriter& rw, ValueId x, Ints perm) {
  Type type = TypeOf(rw.graph(), x);
  if (type.shape) type.shape = Permuted(*type.shape, perm);
  return Make(rw, Op::kTranspose, {x}, Attrs{{"perm", std::move(perm)}}, std::move(type));
}

namespace {

// A dim of a Reshape target: `number` (0 copies, -1 is inferred), or where `read` >= 0 that dim of the input at run
// time.
struct TargetDim {
  int64_t number = 0;
  int64_t read = -1;
  bool also = false;  // read from the other value
};

std::optional<std::vector<TargetDim>> TargetDims(const SymShape& in, const SymShape& out, const SymShape& also) {
  std::vector<TargetDim> dims(out.size());
  bool inferred = false, zero = false;
  for (size_t j = 0; j < out.size(); ++j) {
    zero = zero || IsNumber(out[j], 0);
    if (j < in.size() && ProvablyEqual(in[j], out[j]) && !out[j].is_number()) continue;  // a copy
    if (out[j].is_number()) {
      dims[j].number = out[j].number();
      continue;
    }
    for (const SymShape* from : {&in, &also}) {
      for (size_t i = 0; i < from->size() && dims[j].read < 0; ++i) {
        if (ProvablyEqual((*from)[i], out[j])) dims[j] = {0, static_cast<int64_t>(i), from == &also};
      }
    }
    if (dims[j].read >= 0) continue;
    if (inferred) return {};
    inferred = true;
    dims[j].number = -1;
  }
  if (zero) return {};
  return dims;
}

}  // namespace

bool CanReshape(const SymShape& in, const SymShape& out, const SymShape& also) {
  return ReshapeTarget(in, out).has_value() || TargetDims(in, out, also).has_value();
}

ValueId MakeReshape(Rewriter& rw, ValueId x, const SymShape& out, ValueId also) {
  const Graph& g = rw.graph();
  const SymShape* in = ShapeOf(g, x);
  if (in == nullptr) return {};
  const DType dtype = DTypeOf(g, x);
  const auto target = ReshapeTarget(*in, out);
  if (target && !(also.valid() && std::ranges::contains(*target, -1))) {
    const ValueId shape = MakeInts(rw, *target);
    return Make(rw, Op::kReshape, {x, shape}, {}, Type{dtype, out});
  }
  const SymShape* other = ShapeOf(g, also);
  const auto dims = TargetDims(*in, out, other != nullptr ? *other : SymShape{});
  if (!dims) return {};
  std::vector<ValueId> parts;
  for (const TargetDim& d : *dims) {
    parts.push_back(d.read < 0 ? MakeInts(rw, {d.number})
                               : Make(rw, Op::kShape, {d.also ? also : x},
                                      Attrs{{"start", d.read}, {"end", d.read + 1}}, Type{DType::kS64, SymShape{1}}));
  }
  const ValueId shape = Make(rw, Op::kConcat, std::move(parts), Attrs{{"axis", int64_t{0}}},
                             Type{DType::kS64, SymShape{static_cast<int64_t>(out.size())}});
  return Make(rw, Op::kReshape, {x, shape}, {}, Type{dtype, out});
}

void ReplaceNode(Rewriter& rw, NodeId node, ValueId to) {
  rw.Replace(rw.graph().node(node).output(), to);
  rw.EraseDead(node);
}

}  // namespace octavo::passes::canonical
