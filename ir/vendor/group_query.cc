// com.microsoft GroupQueryAttention: causal attention of the newest rows over a cache, key/value heads shared by query
// heads. Each batch entry has its own number of keys, seqlens_k + 1; the S new rows stand at the end of them. Without a
// past, or when the whole of it is new (total_sequence_length = S), they stand at the beginning. The present holds
// max(P, total) rows per entry: old rows, new rows, then zeros. So it is a gather out of [past; new], which holds for
// ragged batches and for pasts longer than what is in them; a Concat would not.
#include <limits>

#include "octavo/ir/vendor/core.h"
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

struct Cache {
  ValueId before = {};     // [B, 1]: old rows of each entry; invalid: none anywhere
  ValueId positions = {};  // [B, S] or [S]: where the new rows stand
  ValueId queries = {};    // scalar S
  ValueId keys = {};       // scalar T: rows of the present
  ValueId total = {};      // scalar
};

Status Check(const Site& s, int64_t heads, int64_t kv_heads) {
  if (heads <= 0 || kv_heads <= 0 || heads > kMostHeads || heads % kv_heads != 0) {
    return s.Refuse("num_heads {} and kv_num_heads {} do not fit each other", heads, kv_heads);
  }
  if (s.Has(1) != s.Has(2)) return s.Refuse("it has only one of key and value");
  if (s.Has(3) != s.Has(4)) return s.Refuse("it has only one of past_key and past_value");
  if (s.Has(12) || s.Has(13) || s.attrs().Str("k_quant_type", "NONE") != "NONE" ||
      s.attrs().Str("v_quant_type", "NONE") != "NONE") {
    return s.Refuse("its cache is quantized (k_scale, k_quant_type); export with a float cache");
  }
  if (s.Has(14) || s.Has(15))
    return s.Refuse("it normalizes Q and K itself (q_norm_weight); export the norms as ops of their own");
  if (s.attrs().Int("sliding_window_cache", 0) != 0) {
    return s.Refuse("sliding_window_cache is set; export with a cache of the whole length");
  }
  if (s.Wants(3)) return s.Refuse("its output output_qk is used; export without it (qk_output 0)");
  const bool rotary = s.attrs().Int("do_rotary", 0) != 0;
  if (rotary && (!s.Has(7) || !s.Has(8))) return s.Refuse("do_rotary is set without cos_cache and sin_cache");
  if (rotary && s.SizeOf(s.In(7), 1) > kMostColumns) return s.Refuse("its cos_cache has too many columns");
  if (rotary && s.Has(9) && s.Rank(s.In(9)) != 2) return s.Refuse("its position_ids are not [batch, rows]");
  return {};
}

Cache Plan(Site& s, ValueId q, ValueId k) {
  Cache c;
  c.queries = s.DimScalar(q, 2);
  const ValueId rows = s.Count(c.queries);
  if (!s.Has(3)) {
    c.keys = c.total = s.DimScalar(k, 2);
    c.positions = rows;
    return c;
  }
  c.total = s.Reshape(s.Cast(s.In(6), DType::kS64), {});
  c.keys = s.Make(Op::kMax, {c.total, s.DimScalar(s.In(3), 2)});
  const ValueId lengths = s.Make(Op::kAdd, {s.Reshape(s.Cast(s.In(5), DType::kS64), {-1}), s.Int(1)});
  const ValueId old = s.Make(Op::kSub, {lengths, c.queries});
  const ValueId all_new = s.Make(Op::kEqual, {c.total, c.queries});
  c.before = s.Unsqueeze(s.Make(Op::kWhere, {all_new, s.Int(0), old}), {1});
  c.positions = s.Make(Op::kAdd, {c.before, rows});
  return c;
}

// Row j of the present: past row j where that is an old one, then the new rows, then zeros.
ValueId Present(Site& s, ValueId past, ValueId now, const Cache& c) {
  if (!past.valid()) return now;
  const ValueId at = s.Count(c.keys);
  const ValueId is_old = s.Make(Op::kLess, {at, c.before});
  const ValueId behind = s.Make(Op::kSub, {at, c.before});  // j - old rows: which new row
  const ValueId last = s.Make(Op::kSub, {c.queries, s.Int(1)});
  const ValueId fresh = s.Make(Op::kAdd, {s.Make(Op::kMin, {behind, last}), s.DimScalar(past, 2)});
  const ValueId row = s.Make(Op::kWhere, {is_old, at, fresh});  // [B, T]
  const ValueId both = Appended(s, past, now);
  const ValueId heads = s.Make(Op::kShape, {both}, {{"end", int64_t{2}}, {"start", int64_t{0}}});
  const ValueId target = s.Make(Op::kConcat, {heads, s.Reshape(c.keys, {1}), s.Dim(both, 3)}, {{"axis", int64_t{0}}});
  const ValueId index = s.Make(Op::kExpand, {s.Unsqueeze(row, {1, 3}), target});
  const ValueId rows = s.Make(Op::kGatherElements, {both, index}, {{"axis", int64_t{2}}});
  const ValueId filled = s.Unsqueeze(s.Make(Op::kLess, {behind, c.queries}), {1, 3});
  return s.Make(Op::kWhere, {filled, rows, s.Float(0.0f)});
}

// Key j takes part up to the query's own position, and not before the local window. Without causality the last of the new rows stands
// for all of them.
ValueId Mask(Site& s, const Cache& c, int64_t window) {
  const bool ragged = c.before.valid();
  const ValueId at = s.Count(c.keys);
  ValueId own;
  if (s.attrs().Int("causal", 1) != 0) {
    own = s.Unsqueeze(c.positions, {ragged ? 2 : 1});
  } else {
    const ValueId last = s.Make(Op::kSub, {c.queries, s.Int(1)});
    own = ragged ? s.Unsqueeze(s.Make(Op::kAdd, {c.before, last}), {2}) : s.Unsqueeze(last, {0, 1});
  }
  ValueId seen = s.Make(Op::kLessOrEqual, {at, own});
  if (window > 0) {
    const ValueId first = s.Make(Op::kSub, {own, s.Int(window)});
    seen = s.Make(Op::kAnd, {seen, s.Make(Op::kGreater, {at, first})});
  }
  if (ragged) seen = s.Unsqueeze(seen, {1});
  return s.Make(Op::kWhere, {seen, s.Float(0.0f), s.Float(-std::numeric_limits<float>::infinity())});
}

ValueId Rotated(Site& s, ValueId x, ValueId positions, int64_t dim) {
  const int64_t columns = s.SizeOf(s.In(7), 1);
  const bool part = columns > 0 && columns * 2 != dim;
  return s.Make(Op::kRotaryEmbedding, {x, s.In(7), s.In(8), positions},
                {{"interleaved", s.attrs().Int("rotary_interleaved", 0)},
                 {"rotary_embedding_dim", part ? columns * 2 : int64_t{0}}});
}

void Rotate(Site& s, Core& core, const Cache& c) {
  ValueId positions = s.In(9);
  if (!positions.valid()) {
    const ValueId both = s.Make(Op::kConcat, {s.Dim(core.q, 0), s.Reshape(c.queries, {1})}, {{"axis", int64_t{0}}});
    positions = s.Make(Op::kExpand, {c.positions, both});
  }
  core.q = Rotated(s, core.q, positions, core.dim);
  core.k = Rotated(s, core.k, positions, core.dim);
}

void Operands(Site& s, Core& core) {
  if (s.Has(1)) {
    core.q = SplitHeads(s, s.In(0), core.heads);
    core.k = SplitHeads(s, s.In(1), core.kv_heads);
    core.v = SplitHeads(s, s.In(2), core.kv_heads);
    core.dim = HeadSize(s, s.In(0), core.heads);
  } else {
    const ValueId all = SplitHeads(s, s.In(0), core.heads + 2 * core.kv_heads);
    const auto parts =
        s.MakeN(Op::kSplit, {all, s.Ints({core.heads, core.kv_heads, core.kv_heads})}, 3, {{"axis", int64_t{1}}});
    core.q = parts[0];
    core.k = parts[1];
    core.v = parts[2];
    core.dim = HeadSize(s, s.In(0), core.heads + 2 * core.kv_heads);
  }
  if (core.dim < 0 && s.Has(3)) core.dim = s.SizeOf(s.In(3), 3);
}

}  // namespace

Status GroupQueryAttention(Site& s) {
  const int64_t heads = s.attrs().Int("num_heads", 0), kv_heads = s.attrs().Int("kv_num_heads", 0);
  OCTAVO_TRY_STATUS(Check(s, heads, kv_heads));
  Core core{.heads = heads,
            .kv_heads = kv_heads,
            .scale = s.attrs().Float("scale", 0.0f),
            .softcap = s.attrs().Float("softcap", 0.0f)};
  Operands(s, core);
  const Cache cache = Plan(s, core.q, core.k);
  if (s.attrs().Int("do_rotary", 0) != 0) Rotate(s, core, cache);
  core.k = Present(s, s.In(3), core.k, cache);
  core.v = Present(s, s.In(4), core.v, cache);
  if (s.Wants(1)) s.Return(1, core.k);
  if (s.Wants(2)) s.Return(2, core.v);
  core.mask = Mask(s, cache, s.attrs().Int("local_window_size", -1));
  if (s.Has(10)) {  // the bias has `total` columns, the present may have more
    const ValueId end = s.Reshape(cache.total, {1});
    const auto cut = [&](ValueId x, int64_t axis) { return s.Make(Op::kSlice, {x, s.Ints({0}), end, s.Ints({axis})}); };
    core.k = cut(core.k, 2);
    core.v = cut(core.v, 2);
    core.mask = Sum(s, s.In(10), cut(core.mask, cache.before.valid() ? 3 : 1));
  }
  if (s.Has(11)) {
    core.sink = s.Reshape(s.In(11), {1, heads, 1, 1});
  } else if (s.attrs().Int("smooth_softmax", 0) == 1) {
    core.sink = s.Float(0.0f);
  }
  s.Return(0, Attend(s, core));
  return {};
}

}  // namespace octavo::ir::vendor
