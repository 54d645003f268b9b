#include "octavo/passes/fusions/onnx_attention.h"

#include <format>
#include <limits>

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::DType;
using ir::Op;

namespace {

// Rank 3 needs the attribute, rank 4 says it itself; 0 heads: not known.
Heads HeadsOf(const Graph& g, ValueId v, int64_t attribute) {
  const auto& shape = g.value(v).type.shape;
  if (!shape || (shape->size() != 3 && shape->size() != 4)) return {};
  const auto rank = static_cast<int64_t>(shape->size());
  const ir::Dim& last = shape->back();
  if (!last.is_number()) return {};
  if (rank == 4) return (*shape)[1].is_number() ? Heads{4, (*shape)[1].number(), last.number()} : Heads{};
  if (attribute <= 0 || last.number() % attribute != 0) return {};
  return {3, attribute, last.number() / attribute};
}

bool IsUsed(const Graph& g, ValueId v) { return v.valid() && (!g.value(v).uses.empty() || g.IsGraphOutput(v)); }

Verdict CheckMask(const Graph& g, const Node& n) {
  if (!n.input(3)) return Ok();
  const ir::Type& mask = g.value(n.input(3)).type;
  if ((mask.dtype != DType::kBool && mask.dtype != DType::kF32) || !mask.shape || mask.shape->size() > 4 ||
      mask.shape->empty()) {
    return Illegal(std::format("its mask has type {}", ToString(mask)));
  }
  // A mask that ends before the keys hides the rest of them; Sdpa's mask is as long as they are.
  const ir::SymShape& k = *g.value(n.input(1)).type.shape;
  ir::Dim keys = k[k.size() - 2];
  if (n.input(4)) {
    const auto& past = g.value(n.input(4)).type.shape;
    keys = past && past->size() == 4 ? keys + (*past)[2] : ir::Dim();
  }
  const ir::Dim& last = mask.shape->back();
  // Two symbols are mostly one size under two names.
  if (!ProvablyEqual(last, keys) && !ProvablyEqual(last, ir::Dim(1)) && (last.is_number() || keys.is_number()))
    return Illegal(std::format("its mask covers {} of {} keys", last.ToString(), keys.ToString()));
  return Ok();
}

// Length of q or k as a scalar: the second last dim of rank 4, the second of rank 3.
ValueId Length(Rewriter& b, ValueId v, int64_t rank) {
  const int64_t axis = rank - 2;
  const ValueId shape = b.Create(Op::kShape, {v}, {{"start", axis}, {"end", axis + 1}});
  return b.Create(Op::kSqueeze, {shape, b.Constant(ir::Tensor::S64({1}, {0}))});
}

// 0 where key <= query, -inf elsewhere: [Sq, Sk]. Queries come after what is cached.
ValueId Triangle(Rewriter& b, ValueId q, int64_t q_rank, ValueId k, int64_t k_rank, ValueId past) {
  const auto scalar = [&](int64_t i) { return b.Constant(ir::Tensor::S64({}, {i})); };
  ValueId rows = b.Create(Op::kRange, {scalar(0), Length(b, q, q_rank), scalar(1)});
  if (past.valid()) rows = b.Create(Op::kAdd, {rows, Length(b, past, 4)});
  const ValueId cols = b.Create(Op::kRange, {scalar(0), Length(b, k, k_rank), scalar(1)});
  const ValueId column = b.Create(Op::kUnsqueeze, {rows, b.Constant(ir::Tensor::S64({1}, {1}))});
  const ValueId allowed = b.Create(Op::kGreaterOrEqual, {column, cols});
  const ValueId minus = b.Constant(ir::Tensor::ScalarF32(-std::numeric_limits<float>::infinity()));
  return b.Create(Op::kWhere, {allowed, b.Constant(ir::Tensor::ScalarF32(0.0f)), minus});
}

}  // namespace

Operands Describe(const Graph& g, const Node& n) {
  const int64_t kv = n.attrs.Int("kv_num_heads", 0);
  return {HeadsOf(g, n.input(0), n.attrs.Int("q_num_heads", 0)), HeadsOf(g, n.input(1), kv),
          HeadsOf(g, n.input(2), kv)};
}

Verdict CheckAttention(const Graph& g, const Node& n) {
  const Operands o = Describe(g, n);
  if (IsUsed(g, n.output(3))) return Illegal("its output 3, the scores, is used");
  if (n.input(4).valid() != n.input(5).valid()) return Illegal("it has a past of only one of K and V");
  if (n.input(6)) {
    const ir::Type& valid = g.value(n.input(6)).type;
    if (!valid.shape || valid.shape->size() != 1)
      return Illegal(std::format("its nonpad_kv_seqlen is {}, not one number for each batch", ToString(valid)));
  }
  if (n.input(6) && n.input(4))
    return Illegal("it has a past and nonpad_kv_seqlen, which ONNX does not allow together");
  if (!(n.attrs.Float("softcap", 0.0f) >= 0.0f)) return Illegal("its softcap is negative or NaN");
  if (n.attrs.Float("scale", 1.0f) < 0.0f)
    return Illegal("its scale is negative, and it multiplies by the square root of it");
  if (o.q.heads == 0 || o.k.heads == 0 || o.v.heads == 0 || o.k.heads != o.v.heads || o.q.heads % o.k.heads != 0 ||
      o.q.dim == 0 || o.q.dim != o.k.dim || o.v.dim == 0) {
    return Shape("the numbers of heads and the head sizes are not known, are 0 or do not fit each other");
  }
  return CheckMask(g, n);
}

ValueId WithPast(Rewriter& b, ValueId now, Heads* heads, ValueId past, ValueId present) {
  if (!past.valid() && !IsUsed(b.graph(), present)) return now;
  if (heads->rank == 3) {
    const ValueId target = b.Constant(ir::Tensor::S64({4}, {0, 0, heads->heads, heads->dim}));
    now =
        b.Create(Op::kTranspose, {b.Create(Op::kReshape, {now, target})}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    heads->rank = 4;
  }
  const ValueId all = past.valid() ? b.Create(Op::kConcat, {past, now}, {{"axis", int64_t{2}}}) : now;
  if (IsUsed(b.graph(), present)) b.Replace(present, all);
  return all;
}

ValueId AdditiveMask(Rewriter& b, const Node& n, const Operands& o, ValueId k) {
  ValueId mask = n.input(3);
  if (mask.valid() && b.graph().value(mask).type.dtype == DType::kBool) {
    const ValueId zero = b.Constant(ir::Tensor::ScalarF32(0.0f));
    const ValueId minus = b.Constant(ir::Tensor::ScalarF32(-std::numeric_limits<float>::infinity()));
    mask = b.Create(Op::kWhere, {mask, zero, minus});
  }
  if (n.attrs.Int("is_causal", 0) == 0 || n.input(6)) return mask;
  const ValueId triangle = Triangle(b, n.input(0), o.q.rank, k, o.k.rank, n.input(4));
  return mask.valid() ? b.Create(Op::kAdd, {mask, triangle}) : triangle;
}

ValueId ValidKeys(Rewriter& b, const Node& n, const Operands& o, ValueId k) {
  const auto scalar = [&](int64_t i) { return b.Constant(ir::Tensor::S64({}, {i})); };
  const auto axes = [&](const std::vector<int64_t>& a) {
    return b.Constant(ir::Tensor::S64({static_cast<int64_t>(a.size())}, a));
  };
  const ValueId keys = b.Create(Op::kRange, {scalar(0), Length(b, k, o.k.rank), scalar(1)});
  ValueId end = b.Create(Op::kUnsqueeze, {n.input(6), axes({1, 2, 3})});
  if (n.attrs.Int("is_causal", 0) != 0) {
    const ValueId queries = Length(b, n.input(0), o.q.rank);
    const ValueId row =
        b.Create(Op::kUnsqueeze,
                 {b.Create(Op::kRange, {scalar(1), b.Create(Op::kAdd, {queries, scalar(1)}), scalar(1)}), axes({1})});
    end = b.Create(Op::kMax, {end, scalar(0)});  // so that the difference does not leave the integers
    end = b.Create(Op::kAdd, {b.Create(Op::kSub, {end, queries}), row});
  }
  return b.Create(Op::kLess, {keys, end});
}

}  // namespace octavo::passes::fusions
