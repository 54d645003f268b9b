// com.microsoft MultiHeadAttention: Q, K and V are projected already, apart or packed as [B, S, heads, 3, D] (Q with K
// and V) or [B, S, heads, 2, D] (K with V); K and V of rank 4 are a cache of the encoder's states, complete as they
// are. DecoderMaskedMultiHeadAttention is the same for one row, with its inputs in another order.
#include "octavo/ir/vendor/core.h"
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

// Which input is what.
struct Slots {
  size_t bias, mask, add, past_key, past_value, past_length, indirection;
};
constexpr Slots kMultiHead = {3, 4, 5, 6, 7, 8, 9}, kDecoder = {10, 3, 4, 5, 6, 7, 9};

Status Check(const Site& s, const Slots& slots, int64_t heads, bool shared) {
  if (heads <= 0 || heads > kMostHeads) return s.Refuse("its attribute num_heads is {}", heads);
  if (shared && (!s.Has(slots.past_key) || !s.Has(slots.past_length)))
    return s.Refuse("past_present_share_buffer is set without a past or its past_sequence_length");
  if ((!shared && s.Has(slots.past_length)) || s.Has(slots.indirection)) {
    return s.Refuse("it has the input {}, of a shared buffer; export with a past and a present of their own",
                    s.Has(slots.indirection) ? "cache_indirection" : "past_sequence_length");
  }
  if (s.Has(slots.past_key) != s.Has(slots.past_value)) return s.Refuse("it has only one of past_key and past_value");
  if (s.Wants(3)) return s.Refuse("its output qk (the scores) is used; export without it");
  const int64_t rank = s.Rank(s.In(0));
  const bool packed = rank == 5;
  if (!packed && rank != 3) {
    return s.Refuse("its query has {}; octavo takes [batch, rows, columns] or, packed, rank 5",
                    rank < 0 ? "a rank that the file does not tell" : std::format("rank {}", rank));
  }
  if (packed && (s.Has(1) || s.Has(2) || s.Has(slots.bias)))
    return s.Refuse("its query is packed, yet it has a key, value or bias");
  if (packed) return {};
  const int64_t key = s.Rank(s.In(1));
  if (!s.Has(1) || (key != 3 && key != 4 && key != 5)) {
    return s.Refuse("its key is {}", s.Has(1) ? "of a rank that octavo does not take (3, 4 or 5)" : "left out");
  }
  if (key == 5 ? s.Has(2) : s.Rank(s.In(2)) != key) return s.Refuse("its key and value do not have the same layout");
  if (key == 5 && s.Has(slots.bias)) return s.Refuse("it has a bias beside a packed key");
  return {};
}

// Part `which` of [B, S, heads, n, D] as [B, heads, S, D].
ValueId Unpack(Site& s, ValueId x, int64_t which) {
  return s.Transpose(s.Make(Op::kGather, {x, s.Int(which)}, {{"axis", int64_t{3}}}), {0, 2, 1, 3});
}

// The bias holds Q's, K's and V's columns one after the other.
Result<std::vector<ValueId>> Biases(Site& s, ValueId bias) {
  const int64_t q = s.SizeOf(s.In(0), 2);
  const int64_t all = s.SizeOf(bias, 0);
  const int64_t width = q > 0 ? q : all > 0 && all % 3 == 0 && s.SizeOf(s.In(2), 2) < 0 ? all / 3 : -1;
  const Tensor* constant = s.Const(bias);
  const bool split = width > 0 && width <= kMostColumns && (all < 0 || all > 2 * width);
  if (!split || (constant != nullptr && constant->rank() != 1)) {
    return s.Refuse("the columns of its query are not known or do not fit its bias, which cannot be split");
  }
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t from = i * width, to = i == 2 && constant != nullptr ? constant->size() : (i + 1) * width;
    if (constant != nullptr && constant->dtype() == DType::kF32) {
      const auto values = constant->as<float>().subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
      parts.push_back(s.Constant(Tensor::Of<float>(DType::kF32, {to - from}, values)));
    } else {
      const int64_t end = i == 2 ? INT64_MAX : to;
      parts.push_back(s.Make(Op::kSlice, {bias, s.Ints({from}), s.Ints({end}), s.Ints({0})}));
    }
  }
  return parts;
}

void Operands(Site& s, Core& core, const std::vector<ValueId>& bias) {
  const auto projected = [&](size_t i) {
    const ValueId x = bias.empty() || !bias[i].valid() ? s.In(i) : s.Make(Op::kAdd, {s.In(i), bias[i]});
    return SplitHeads(s, x, core.heads);
  };
  if (s.Rank(s.In(0)) == 5) {
    core.q = Unpack(s, s.In(0), 0);
    core.k = Unpack(s, s.In(0), 1);
    core.v = Unpack(s, s.In(0), 2);
    return;
  }
  core.q = projected(0);
  const int64_t key = s.Rank(s.In(1));
  if (key == 5) {
    core.k = Unpack(s, s.In(1), 0);
    core.v = Unpack(s, s.In(1), 1);
  } else if (key == 4) {
    core.k = s.In(1);
    core.v = s.In(2);
  } else {
    core.k = projected(1);
    core.v = projected(2);
  }
}

// The buffer with `now` behind its first `length` rows; `now` becomes all rows that count then.
ValueId IntoBuffer(Site& s, ValueId buffer, ValueId length, ValueId& now) {
  const ValueId rows = s.Reshape(s.Cast(length, DType::kS64), {1});
  const ValueId all = s.Make(Op::kTensorScatter, {buffer, now, s.Make(Op::kExpand, {rows, s.Dim(buffer, 0)})});
  const ValueId end = s.Make(Op::kAdd, {rows, s.Dim(now, 2)});
  now = s.Make(Op::kSlice, {all, s.Ints({0}), end, s.Ints({2})});
  return all;
}

Status Lower(Site& s, const Slots& slots, bool causal, bool shared) {
  const int64_t heads = s.attrs().Int("num_heads", 0);
  OCTAVO_TRY_STATUS(Check(s, slots, heads, shared));
  std::vector<ValueId> bias;
  if (s.Has(slots.bias)) {
    OCTAVO_TRY(bias, Biases(s, s.In(slots.bias)));
  }
  Core core{.heads = heads, .kv_heads = heads, .scale = s.attrs().Float("scale", 0.0f)};
  core.dim = s.Rank(s.In(0)) == 5 ? s.SizeOf(s.In(0), 4) : HeadSize(s, s.In(0), heads);
  Operands(s, core, bias);
  ValueId keys_out, values_out;
  if (shared) {
    keys_out = IntoBuffer(s, s.In(slots.past_key), s.In(slots.past_length), core.k);
    values_out = IntoBuffer(s, s.In(slots.past_value), s.In(slots.past_length), core.v);
  } else {
    keys_out = core.k = Appended(s, s.In(slots.past_key), core.k);
    values_out = core.v = Appended(s, s.In(slots.past_value), core.v);
  }
  if (s.Has(slots.mask) || causal) {
    const ValueId keys = s.DimScalar(core.k, 2);
    if (s.Has(slots.mask)) {
      OCTAVO_TRY(core.mask,
                 PaddingMask(s, s.In(slots.mask), core.q, keys, s.attrs().Float("mask_filter_value", -10000.0f)));
    }
    const ValueId before = s.Has(slots.past_key) && causal ? s.DimScalar(s.In(slots.past_key), 2) : ValueId{};
    if (causal) core.mask = Causal(s, core.mask, s.DimScalar(core.q, 2), keys, before);
  }
  core.mask = Sum(s, s.In(slots.add), core.mask);
  s.Return(0, Attend(s, core));
  if (s.Wants(1)) s.Return(1, keys_out);
  if (s.Wants(2)) s.Return(2, values_out);
  return {};
}

}  // namespace

Status MultiHeadAttention(Site& s) { return Lower(s, kMultiHead, s.attrs().Int("unidirectional", 0) != 0, false); }

Status DecoderMaskedMultiHeadAttention(Site& s) {
  if (s.Has(8)) return s.Refuse("it has the input beam_width; export without beams");
  return Lower(s, kDecoder, false, s.attrs().Int("past_present_share_buffer", 0) != 0 && s.Has(5));
}

}  // namespace octavo::ir::vendor
