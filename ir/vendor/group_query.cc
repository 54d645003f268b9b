// com.microsoft GroupQueryAttention: attention of the newest rows over a cache, key/value heads shared by query
// heads. Each batch entry has its own number of keys, seqlens_k + 1; the S new rows stand at the end of them. Without a
// past, or when the whole of it is new (total_sequence_length = S), they stand at the beginning. The present holds
// max(P, total) rows per entry: old rows, new rows, then zeros. That is a CacheAppend; a Concat would hold neither for
// ragged batches nor for pasts longer than what is in them.
//
// With sliding_window_cache the cache has C rows, whatever the length: of T rows seen it holds the newest L(T), from row 0
// on (ONNX Runtime's contract). What is held and the new rows are attended to; of all these the newest L(T) stay.
#include <array>
#include <limits>

#include "octavo/ir/vendor/core.h"
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

struct Cache {
  ValueId before = {};     // [B]: old rows of each entry; invalid: none anywhere
  ValueId positions = {};  // [B, S] or [S]: where the new rows stand
  ValueId queries = {};    // scalar S
  ValueId keys = {};       // scalar T: rows that are attended to
  ValueId total = {};      // scalar
  // Windowed caches only.
  ValueId capacity = {};  // scalar: rows of the present
  ValueId first = {};     // [B]: the position of the first row
  ValueId dropped = {};   // [B]: rows from the first on that do not stay, negative
};

int64_t CodeBits(const Site& s) { return s.attrs().Int("kv_cache_bit_width", 8); }

// Caches of s8, or of u8 with two codes of 4 bits in a byte; with one scale, or one a head and column.
Status CheckCodes(const Site& s, size_t past, size_t scale, const char* kind) {
  const std::string type = s.attrs().Str(kind, "NONE");
  if (type == "NONE" && !s.Has(scale)) return {};
  const DType codes = CodeBits(s) == 4 ? DType::kU8 : DType::kS8;
  const bool known = (type == "PER_TENSOR" || type == "PER_CHANNEL") && s.Has(scale) && s.Has(past) &&
                     s.DTypeOf(s.In(past)) == codes && (CodeBits(s) == 4 || CodeBits(s) == 8);
  if (known) return {};
  return s.Refuse(
      "its cache is quantized ({} {}), but not int8 or packed int4 with a scale; export with one of these, or a float "
      "cache",
      kind, type);
}

Status Check(const Site& s, int64_t heads, int64_t kv_heads) {
  if (heads <= 0 || kv_heads <= 0 || heads > kMostHeads || heads % kv_heads != 0) {
    return s.Refuse("num_heads {} and kv_num_heads {} do not fit each other", heads, kv_heads);
  }
  if (s.Has(1) != s.Has(2)) return s.Refuse("it has only one of key and value");
  if (s.Has(3) != s.Has(4)) return s.Refuse("it has only one of past_key and past_value");
  if (s.Has(14) != s.Has(15)) return s.Refuse("it has only one of q_norm_weight and k_norm_weight");
  OCTAVO_TRY_STATUS(CheckCodes(s, 3, 12, "k_quant_type"));
  OCTAVO_TRY_STATUS(CheckCodes(s, 4, 13, "v_quant_type"));
  const bool causal = s.attrs().Int("causal", 1) != 0;
  if (s.attrs().Int("local_window_size", -1) == 0)
    return s.Refuse("local_window_size is 0, so that no key would count; without a window it is -1");
  if (!causal && s.attrs().Int("local_window_size", -1) > 0)
    return s.Refuse("local_window_size is set although causal is 0");
  if (s.attrs().Int("sliding_window_cache", 0) != 0) {
    if (!s.Has(3) || s.attrs().Int("local_window_size", -1) <= 0 || !causal)
      return s.Refuse("sliding_window_cache is set without past_key, causal or local_window_size");
    if (s.Has(10))
      return s.Refuse("it has sliding_window_cache and attention_bias; export with a cache of the whole length");
  }
  if (s.Wants(3)) return s.Refuse("its output output_qk is used; export without it (qk_output 0)");
  const bool rotary = s.attrs().Int("do_rotary", 0) != 0;
  if (rotary && (!s.Has(7) || !s.Has(8))) return s.Refuse("do_rotary is set without cos_cache and sin_cache");
  if (rotary && s.SizeOf(s.In(7), 1) > kMostColumns) return s.Refuse("its cos_cache has too many columns");
  if (rotary && s.Has(9) && s.Rank(s.In(9)) != 2) return s.Refuse("its position_ids are not [batch, rows]");
  return {};
}

// [B]: rows of each entry, the new ones included.
ValueId Lengths(Site& s) { return s.Make(Op::kAdd, {s.Reshape(s.Cast(s.In(5), DType::kS64), {-1}), s.Int(1)}); }

// L(T): T as long as that fits, then G = C - W + 1 rows go at once. A window beyond the cache is a division by zero.
ValueId Held(Site& s, ValueId seen, ValueId capacity) {
  const ValueId one = s.Int(1), window = s.Int(s.attrs().Int("local_window_size", 1));
  const ValueId slack = s.Make(Op::kAdd, {s.Make(Op::kSub, {capacity, window}), one});
  const ValueId group = s.Make(Op::kMax, {slack, s.Int(0)});
  const ValueId beyond = s.Make(Op::kMax, {s.Make(Op::kSub, {seen, capacity}), s.Int(0)});
  const ValueId groups = s.Make(Op::kDiv, {s.Make(Op::kAdd, {beyond, s.Make(Op::kSub, {group, one})}), group});
  return s.Make(Op::kSub, {seen, s.Make(Op::kMul, {group, groups})});
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
  const ValueId lengths = Lengths(s), all_new = s.Make(Op::kEqual, {c.total, c.queries});
  const ValueId old = s.Make(Op::kWhere, {all_new, s.Int(0), s.Make(Op::kSub, {lengths, c.queries})});
  c.positions = s.Make(Op::kAdd, {s.Unsqueeze(old, {1}), rows});
  const ValueId capacity = s.DimScalar(s.In(3), 2);
  if (s.attrs().Int("sliding_window_cache", 0) == 0) {
    c.before = old;
    c.keys = s.Make(Op::kMax, {c.total, capacity});
    return c;
  }
  c.capacity = capacity;
  c.before = Held(s, old, capacity);
  c.first = s.Make(Op::kSub, {old, c.before});
  c.keys = s.Make(Op::kAdd, {s.Make(Op::kReduceMax, {c.before, s.Ints({0})}, {{"keepdims", int64_t{0}}}), c.queries});
  const ValueId stay = s.Make(Op::kSub, {lengths, Held(s, lengths, capacity)});  // the position of the first that stays
  c.dropped = s.Make(Op::kSub, {c.first, stay});
  return c;
}

ValueId Byte(Site& s, uint8_t n) { return s.Constant(Tensor::Of<uint8_t>(DType::kU8, {}, std::array{n})); }

// Two codes of 4 bits in a byte, that of the even column in the low half; 8 is zero.
ValueId Packed(Site& s, ValueId codes) {
  const auto pairs =
      s.MakeN(Op::kSplit, {s.Reshape(codes, {0, 0, 0, -1, 2})}, 2, {{"axis", int64_t{4}}, {"num_outputs", int64_t{2}}});
  const ValueId high = s.Make(Op::kBitShift, {pairs[1], Byte(s, 4)}, {{"direction", "LEFT"}});
  return s.Reshape(s.Make(Op::kBitwiseOr, {pairs[0], high}), {0, 0, 0, -1});
}
ValueId Unpacked(Site& s, ValueId bytes) {
  bytes = s.Unsqueeze(bytes, {4});
  const ValueId low = s.Make(Op::kBitwiseAnd, {bytes, Byte(s, 15)});
  const ValueId high = s.Make(Op::kBitShift, {bytes, Byte(s, 4)}, {{"direction", "RIGHT"}});
  return s.Reshape(s.Make(Op::kConcat, {low, high}, {{"axis", int64_t{4}}}), {0, 0, 0, -1});
}

// What is attended to, as floats. scale: where the cache has codes, [1] or [1, heads, 1, columns]. `present`: the output of
// the node, of the cache's type.
ValueId Append(Site& s, ValueId past, ValueId now, ValueId scale, const Cache& c, size_t present, int64_t columns) {
  if (!past.valid()) {
    if (s.Wants(present)) s.Return(present, now);
    return now;
  }
  const bool packed = scale.valid() && CodeBits(s) == 4;
  const bool one_scale = s.attrs().Str(present == 1 ? "k_quant_type" : "v_quant_type", "NONE") == "PER_TENSOR";
  const ValueId zero = !scale.valid() ? ValueId{} : packed ? Byte(s, 8) : s.Constant(Tensor::Zeros(DType::kS8, {}));
  if (one_scale) {
    now = s.Quantize(now, scale, zero);
  } else if (scale.valid()) {
    now = s.Quantize(s.Make(Op::kDiv, {now, scale}), s.Float(1.0f), zero);
  }
  if (packed) now = Packed(s, s.Make(Op::kMin, {now, Byte(s, 15)}));
  const ValueId all = s.Make(Op::kCacheAppend, {past, now, c.before, c.keys});
  if (s.Wants(present))
    s.Return(present, c.dropped.valid() ? s.Make(Op::kCacheAppend, {past, all, c.dropped, c.capacity}) : all);
  if (!scale.valid()) return all;
  if (one_scale && !packed) return s.Dequantize(all, scale, zero);
  // Of one scale one for each column: a product keeps the view that unpacks apart from those that repeat heads (sdpa_repeat).
  if (one_scale && columns > 0) scale = s.Make(Op::kExpand, {scale, s.Ints({1, 1, 1, columns})});
  return s.Make(Op::kMul, {s.Dequantize(packed ? Unpacked(s, all) : all, s.Float(1.0f), zero), scale});
}

// Key j takes part up to the query's own position, and not before the local window; without causal, as far as its entry
// has keys.
ValueId Mask(Site& s, const Cache& c) {
  const int64_t window = s.attrs().Int("local_window_size", -1);
  const bool ragged = c.before.valid();
  ValueId at = s.Count(c.keys), seen;
  if (s.attrs().Int("causal", 1) == 0) {
    seen = s.Make(Op::kLess, {at, s.Unsqueeze(Lengths(s), {1, 2, 3})});
  } else {
    const ValueId own = s.Unsqueeze(c.positions, {ragged ? 2 : 1});
    if (c.first.valid()) at = s.Make(Op::kAdd, {at, s.Unsqueeze(c.first, {1, 2})});
    seen = s.Make(Op::kLessOrEqual, {at, own});
    if (window > 0) {
      const ValueId first = s.Make(Op::kSub, {own, s.Int(window)});
      seen = s.Make(Op::kAnd, {seen, s.Make(Op::kGreater, {at, first})});
    }
    const bool sink = s.Has(11) || s.attrs().Int("smooth_softmax", 0) == 1;  // whose rule reads masks of rank 4
    if (ragged || sink) seen = s.Unsqueeze(seen, ragged ? std::vector<int64_t>{1} : std::vector<int64_t>{0, 1});
  }
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
  if (const int64_t of_past = s.Has(3) ? s.SizeOf(s.In(3), 3) : -1; core.dim < 0 && of_past > 0)
    core.dim = CodeBits(s) == 4 ? 2 * of_past : of_past;
  if (!s.Has(14)) return;
  const float epsilon = s.attrs().Float("qk_norm_epsilon", 1e-6f);
  const auto normed = [&](ValueId x, size_t weight, const char* own) {
    return s.Make(Op::kRMSNormalization, {x, s.In(weight)},
                  {{"axis", int64_t{-1}}, {"epsilon", s.attrs().Float(own, epsilon)}});
  };
  core.q = normed(core.q, 14, "q_norm_epsilon");
  core.k = normed(core.k, 15, "k_norm_epsilon");
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
  core.k = Append(s, s.In(3), core.k, s.In(12), cache, 1, core.dim);
  core.v = Append(s, s.In(4), core.v, s.In(13), cache, 2, core.dim);
  core.mask = Mask(s, cache);
  if (s.Has(10)) {  // the bias has `total` columns, the present may have more
    const ValueId end = s.Reshape(cache.total, {1});
    const auto cut = [&](ValueId x, int64_t axis) { return s.Make(Op::kSlice, {x, s.Ints({0}), end, s.Ints({axis})}); };
    core.k = cut(core.k, 2);
    core.v = cut(core.v, 2);
    core.mask = Sum(s, s.In(10), cut(core.mask, -1));
  }
  if (s.Has(11)) {
    core.sink = s.Reshape(s.In(11), {1, heads, 1, 1});
  } else if (s.attrs().Int("smooth_softmax", 0) == 1) {
    core.sink = s.Constant(Tensor::Zeros(DType::kF32, {1, heads, 1, 1}));
  }
  s.Return(0, Attend(s, core));
  return {};
}

}  // namespace octavo::ir::vendor
