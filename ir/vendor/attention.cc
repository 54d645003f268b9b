// com.microsoft Attention (x times one packed weight) and QAttention, the same with 8-bit x and weight.
// The packed product becomes three Linears, so that each of Q, K and V gets a scale of its own when it is quantized,
// and the rules see what exporters write; where the weight is no constant, one product and a Split.
#include <cstring>

#include "octavo/ir/vendor/core.h"
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

struct Slots {
  bool quantized;
  size_t mask, past;
};

// Columns [from, from + count) of a tensor whose last axis holds all three parts.
Tensor Columns(const Tensor& t, int64_t from, int64_t count) {
  Shape shape = t.shape();
  const int64_t all = shape.back();
  shape.back() = count;
  Tensor part = Tensor::Empty(t.dtype(), shape);
  const auto bytes = static_cast<size_t>(quant::BitsOf(t.dtype()) / 8);
  for (int64_t row = 0; row < t.size() / all; ++row) {
    std::memcpy(part.mutable_data() + static_cast<size_t>(row * count) * bytes,
                t.data() + static_cast<size_t>(row * all + from) * bytes, static_cast<size_t>(count) * bytes);
  }
  return part;
}

// A part of a per-column operand of `all` columns; what has one element serves all parts.
Result<ValueId> Part(Site& s, ValueId v, int64_t from, int64_t count, int64_t all) {
  if (!v.valid()) return v;
  if (const Tensor* t = s.Const(v)) {
    if (t->size() == 1) return s.AsScalar(v);
    if (t->rank() == 0 || t->shape().back() != all || t->dtype() == DType::kString || quant::BitsOf(t->dtype()) < 8) {
      return s.Refuse("a constant {}{} does not have the {} columns of qkv_hidden_sizes", quant::Name(t->dtype()),
                      ToString(t->shape()), all);
    }
    return s.Constant(Columns(*t, from, count));
  }
  if (s.Rank(v) == 0 || (s.Rank(v) == 1 && s.SizeOf(v, 0) == 1)) return s.AsScalar(v);
  return s.Make(Op::kSlice, {v, s.Ints({from}), s.Ints({from + count}), s.Ints({-1})});
}

Status Check(const Site& s, const Slots& slots) {
  const int64_t heads = s.attrs().Int("num_heads", 0);
  if (heads <= 0 || heads > kMostHeads) return s.Refuse("its attribute num_heads is {}", heads);
  if (s.attrs().Int("do_rotary", 0) != 0) {
    return s.Refuse(
        "do_rotary is set, whose angles stand nowhere in the file; export the rotary embedding as ops of its own");
  }
  if (s.attrs().Int("past_present_share_buffer", 0) != 0) {
    return s.Refuse("past_present_share_buffer is set; export with a past and a present of their own");
  }
  if (s.Has(6) && !slots.quantized)
    return s.Refuse("it has the input past_sequence_length; export without a shared buffer");
  if (s.Wants(1) && !s.Has(slots.past))
    return s.Refuse("its output present is used without a past; give it an empty past");
  return {};
}

// Widths of Q, K and V.
Result<std::vector<int64_t>> Widths(const Site& s, int64_t heads) {
  std::vector<int64_t> widths = s.attrs().Ints("qkv_hidden_sizes");
  const int64_t columns = s.SizeOf(s.In(1), 1);
  if (widths.empty() && columns > 0 && columns % 3 == 0) widths.assign(3, columns / 3);
  if (widths.size() != 3) {
    return s.Refuse(
        "the widths of Q, K and V are not known: give qkv_hidden_sizes, or a weight of a known number of columns");
  }
  for (int64_t w : widths) {
    if (w <= 0 || w > kMostColumns || w % heads != 0)
      return s.Refuse("qkv_hidden_sizes: {} columns are no multiple of {} heads", w, heads);
  }
  if (widths[0] != widths[1] || (columns >= 0 && widths[0] + widths[1] + widths[2] != columns)) {
    return s.Refuse("qkv_hidden_sizes {}, {}, {} do not fit a weight of {} columns", widths[0], widths[1], widths[2],
                    columns);
  }
  return widths;
}

// The three projections, each [B, S, width].
Result<std::vector<ValueId>> Project(Site& s, const std::vector<int64_t>& widths, bool quantized) {
  const ValueId x = quantized ? s.Dequantize(s.In(0), s.In(3), s.In(6)) : s.In(0);
  std::vector<ValueId> parts;
  if (s.Const(s.In(1)) == nullptr && !quantized) {
    ValueId all = s.Make(Op::kMatMul, {x, s.In(1)});
    if (s.Has(2)) all = s.Make(Op::kAdd, {all, s.In(2)});
    return s.MakeN(Op::kSplit, {all, s.Ints(widths)}, 3, {{"axis", int64_t{-1}}});
  }
  const int64_t columns = widths[0] + widths[1] + widths[2];
  int64_t from = 0;
  for (int64_t width : widths) {
    const auto part = [&](size_t slot) { return Part(s, s.In(slot), from, width, columns); };
    OCTAVO_TRY(ValueId w, part(1));
    if (quantized) {
      OCTAVO_TRY(const ValueId scale, part(4));
      OCTAVO_TRY(const ValueId zero, part(7));
      w = s.Dequantize(w, scale, zero);
    }
    ValueId y = s.Make(Op::kMatMul, {x, w});
    if (s.Has(2)) {
      OCTAVO_TRY(const ValueId bias, part(2));
      y = s.Make(Op::kAdd, {y, bias});
    }
    parts.push_back(y);
    from += width;
  }
  return parts;
}

// past [2, B, heads, P, D] holds keys and values.
ValueId OfPast(Site& s, ValueId past, int64_t which) {
  return past.valid() ? s.Make(Op::kGather, {past, s.Int(which)}, {{"axis", int64_t{0}}}) : ValueId{};
}

}  // namespace

Status PackedAttention(Site& s) {
  const bool quantized = s.op() == "QAttention";
  const Slots slots = quantized ? Slots{true, 5, 8} : Slots{false, 3, 4};
  OCTAVO_TRY_STATUS(Check(s, slots));
  const int64_t heads = s.attrs().Int("num_heads", 0);
  OCTAVO_TRY(const std::vector<int64_t> widths, Widths(s, heads));
  OCTAVO_TRY(const std::vector<ValueId> parts, Project(s, widths, quantized));
  Core core{.heads = heads, .kv_heads = heads, .dim = widths[0] / heads, .scale = s.attrs().Float("scale", 0.0f)};
  core.q = SplitHeads(s, parts[0], heads);
  const ValueId past = s.In(slots.past);
  core.k = Appended(s, OfPast(s, past, 0), SplitHeads(s, parts[1], heads));
  core.v = Appended(s, OfPast(s, past, 1), SplitHeads(s, parts[2], heads));
  const bool causal = s.attrs().Int("unidirectional", 0) != 0;
  if (s.Has(slots.mask) || causal) {
    const ValueId keys = s.DimScalar(core.k, 2);
    if (s.Has(slots.mask)) {
      OCTAVO_TRY(core.mask,
                 PaddingMask(s, s.In(slots.mask), core.q, keys, s.attrs().Float("mask_filter_value", -10000.0f)));
    }
    const ValueId before = past.valid() && causal ? s.DimScalar(past, 3) : ValueId{};
    if (causal) core.mask = Causal(s, core.mask, s.DimScalar(core.q, 2), keys, before);
  }
  if (!quantized) core.mask = Sum(s, s.In(5), core.mask);
  s.Return(0, Attend(s, core));
  if (s.Wants(1)) {
    s.Return(1, s.Make(Op::kConcat, {s.Unsqueeze(core.k, {0}), s.Unsqueeze(core.v, {0})}, {{"axis", int64_t{0}}}));
  }
  return {};
}

}  // namespace octavo::ir::vendor
