#include "octavo/ir/vendor/core.h"

#include <cmath>
#include <limits>

namespace octavo::ir::vendor {

namespace {

ValueId Scale(Site& s, const Core& core) {
  if (core.scale != 0) return s.Float(core.scale);
  if (core.dim > 0) return s.Float(1.0f / std::sqrt(static_cast<float>(core.dim)));
  const ValueId dim = s.Make(Op::kCast, {s.Dim(core.q, 3)}, {{"to", static_cast<int64_t>(DType::kF32)}});
  return s.Make(Op::kDiv, {s.Float(1.0f), s.Make(Op::kSqrt, {dim})});
}

// Each key/value head serves heads / kv_heads query heads: [B, G, T, D] -> [B, H, T, D].
ValueId Repeated(Site& s, ValueId x, const Core& core) {
  if (core.heads == core.kv_heads) return x;
  const ValueId five = s.Unsqueeze(x, {2});
  const ValueId wide = s.Make(Op::kExpand, {five, s.Ints({1, 1, core.heads / core.kv_heads, 1, 1})});
  const ValueId rest = s.Make(Op::kShape, {x}, {{"end", int64_t{4}}, {"start", int64_t{2}}});
  const ValueId target = s.Make(Op::kConcat, {s.Dim(x, 0), s.Ints({core.heads}), rest}, {{"axis", int64_t{0}}});
  return s.Make(Op::kReshape, {wide, target});
}

// Softmax over the keys and the sink; the sink's probability is dropped.
ValueId SoftmaxWithSink(Site& s, const Core& core, ValueId scores) {
  const ValueId target = s.Make(Op::kConcat, {s.Dim(core.q, 0), s.Ints({core.heads}), s.Dim(core.q, 2), s.Ints({1})},
                                {{"axis", int64_t{0}}});
  const ValueId column = s.Make(Op::kExpand, {core.sink, target});
  const ValueId wide = s.Make(Op::kConcat, {scores, column}, {{"axis", int64_t{3}}});
  const ValueId p = s.Make(Op::kSoftmax, {wide}, {{"axis", int64_t{-1}}});
  return s.Make(Op::kSlice, {p, s.Ints({0}), s.Ints({-1}), s.Ints({3})});
}

}  // namespace

ValueId SplitHeads(Site& s, ValueId x, int64_t heads) {
  return s.Transpose(s.Reshape(x, {0, 0, heads, -1}), {0, 2, 1, 3});
}

int64_t HeadSize(const Site& s, ValueId x, int64_t heads) {
  if (s.Rank(x) == 4) return s.SizeOf(x, 3);
  const int64_t width = s.SizeOf(x, -1);
  return width > 0 && heads > 0 && width % heads == 0 ? width / heads : -1;
}

ValueId Appended(Site& s, ValueId past, ValueId now) {
  return past.valid() ? s.Make(Op::kConcat, {past, now}, {{"axis", int64_t{2}}}) : now;
}

ValueId Sum(Site& s, ValueId a, ValueId b) {
  if (!a.valid() || !b.valid()) return a.valid() ? a : b;
  return s.Make(Op::kAdd, {a, b});
}

ValueId Attend(Site& s, const Core& core, Trace* trace) {
  Trace local;
  Trace& t = trace != nullptr ? *trace : local;
  const ValueId k = s.Transpose(Repeated(s, core.k, core), {0, 1, 3, 2});
  const ValueId v = Repeated(s, core.v, core);
  ValueId scores = s.Make(Op::kMatMul, {core.q, k});
  scores = t.scaled = s.Make(Op::kMul, {scores, Scale(s, core)});
  const auto mask = [&] {
    if (core.mask.valid()) scores = s.Make(Op::kAdd, {scores, core.mask});
    t.masked = scores;
  };
  if (core.mask_first) mask();
  if (core.softcap > 0) {
    const ValueId cap = s.Float(core.softcap);
    scores = s.Make(Op::kMul, {s.Make(Op::kTanh, {s.Make(Op::kDiv, {scores, cap})}), cap});
  }
  t.capped = scores;
  if (!core.mask_first) mask();
  t.probabilities =
      core.sink.valid() ? SoftmaxWithSink(s, core, scores) : s.Make(Op::kSoftmax, {scores}, {{"axis", int64_t{-1}}});
  t.heads = s.Make(Op::kMatMul, {t.probabilities, v});
  return s.Reshape(s.Transpose(t.heads, {0, 2, 1, 3}), {0, 0, -1});
}

Result<ValueId> PaddingMask(Site& s, ValueId mask, ValueId q, ValueId keys, float filter) {
  const int64_t rank = s.Rank(mask);
  if (rank < 1 || rank > 3) {
    return s.Refuse(
        "its mask has {}; octavo takes masks of rank 1 (lengths), 2 and 3; export the mask as [batch, keys]",
        rank < 0 ? "a rank that the file does not tell" : std::format("rank {}", rank));
  }
  ValueId counts;
  if (rank == 1 && s.SameSize(mask, s.In(0), 0)) {
    counts = s.Make(Op::kLess, {s.Count(keys), s.Unsqueeze(s.Cast(mask, DType::kS64), {1})});
  } else if (rank == 1) {
    const ValueId lengths = s.Cast(mask, DType::kS64);
    const ValueId batch = s.Dim(q, 0);
    // [B]; [2 B], the second B elements are where the keys begin; [3 B + 2] of a MultiHeadAttention, behind the lengths where rows begin in a batch that is
    // packed elsewhere. Of another size the Gather fails: its index is that size.
    const ValueId size = s.Dim(mask, 0), twice = s.Make(Op::kAdd, {batch, batch});
    const ValueId begins = s.Make(Op::kEqual, {size, twice});
    const ValueId packed =
        s.Make(Op::kEqual, {size, s.Make(Op::kAdd, {s.Make(Op::kAdd, {twice, batch}), s.Ints({2})})});
    const ValueId known = s.Make(Op::kOr, {s.Make(Op::kOr, {s.Make(Op::kEqual, {size, batch}), begins}), packed});
    const ValueId rows = s.Make(Op::kWhere, {known, s.Count(s.DimScalar(q, 0)), size});
    const ValueId zeros = s.Make(Op::kConstantOfShape, {batch}, {{"value", Tensor::S64({1}, {0})}});
    const ValueId longer = s.Make(Op::kConcat, {lengths, zeros}, {{"axis", int64_t{0}}});
    const ValueId end = s.Unsqueeze(s.Make(Op::kGather, {lengths, rows}, {{"axis", int64_t{0}}}), {1});
    const ValueId second = s.Make(Op::kSlice, {longer, batch, twice, s.Ints({0})});
    const ValueId begin = s.Unsqueeze(s.Make(Op::kWhere, {begins, second, s.Int(0)}), {1});
    const ValueId at = s.Count(keys);
    counts = s.Make(Op::kAnd, {s.Make(Op::kLess, {at, end}), s.Make(Op::kGreaterOrEqual, {at, begin})});
  } else {
    counts = s.Make(Op::kGreater, {s.Make(Op::kCast, {mask}, {{"to", static_cast<int64_t>(DType::kS32)}}),
                                   s.Constant(Tensor::Zeros(DType::kS32, {}))});
  }
  counts = s.Unsqueeze(counts, rank == 3 ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 2});
  return s.Make(Op::kWhere, {counts, s.Float(0.0f), s.Float(filter)});
}

ValueId Causal(Site& s, ValueId mask, ValueId queries, ValueId keys, ValueId past) {
  ValueId last = s.Count(queries);
  if (past.valid()) last = s.Make(Op::kAdd, {last, past});
  const ValueId seen = s.Make(Op::kLessOrEqual, {s.Count(keys), s.Unsqueeze(last, {1})});
  const ValueId before = mask.valid() ? mask : s.Float(0.0f);
  return s.Make(Op::kWhere, {seen, before, s.Float(std::numeric_limits<float>::lowest())});
}

}  // namespace octavo::ir::vendor
