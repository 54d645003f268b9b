// Rules of attention ops: ONNX Attention (opset 23 and later) and octavo's own.
#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

// Sizes of one operand, [B, S, heads*width] or [B, heads, S, width].
struct Operand {
  Dim batch, heads, length, width;
};

Result<Operand> ReadOperand(const Inferrer& c, size_t input, int64_t heads) {
  const SymShape* s = c.ShapeOf(input);
  if (s == nullptr) return Operand{Dim(), heads > 0 ? Dim(heads) : Dim(), Dim(), Dim()};
  if (s->size() == 4) return Operand{(*s)[0], (*s)[1], (*s)[2], (*s)[3]};
  if (s->size() != 3) return c.Refuse("input {} has the shape {}; rank 3 or 4 is needed", input, ToString(*s));
  const Dim count = heads > 0 ? Dim(heads) : Dim();
  const Dim width = ExactDiv((*s)[2], count);
  if ((*s)[2].is_number() && count.is_number() && !width.known()) {
    return c.Refuse("input {}: {} columns are no multiple of {} heads", input, (*s)[2].number(), heads);
  }
  return Operand{(*s)[0], count, (*s)[1], width};
}

struct Core {
  Operand q, k, v;
};

Result<Core> ReadCore(const Inferrer& c, int64_t heads, int64_t kv_heads) {
  OCTAVO_TRY(Operand q, ReadOperand(c, 0, heads));
  OCTAVO_TRY(Operand k, ReadOperand(c, 1, kv_heads));
  OCTAVO_TRY(Operand v, ReadOperand(c, 2, kv_heads));
  if (!Meet(q.batch, k.batch) || !Meet(q.batch, v.batch)) return c.Refuse("q, k and v have different batch sizes");
  if (!Meet(k.length, v.length)) return c.Refuse("k and v have different lengths");
  if (!Meet(q.width, k.width)) return c.Refuse("q and k have different head sizes");
  return Core{std::move(q), std::move(k), std::move(v)};
}

SymShape OutputShape(const Core& core, bool rank4) {
  const Operand& q = core.q;
  if (rank4) return {q.batch, q.heads, q.length, core.v.width};
  return {q.batch, q.length, q.heads * core.v.width};
}

Status Attention(Inferrer& c) {
  const Attrs& attrs = c.node().attrs;
  for (const char* window : {"left_window_size", "right_window_size"}) {  // opset 25
    if (attrs.Int(window, -1) != -1) {
      return c.Refuse("its {} is {}; octavo knows no window of this op, so export with opset 24", window,
                      attrs.Int(window, -1));
    }
  }
  const int64_t heads = attrs.Int("q_num_heads", 0);
  OCTAVO_TRY(const Core core, ReadCore(c, heads, attrs.Int("kv_num_heads", 0)));
  const SymShape* q = c.ShapeOf(0);
  const SymShape* past = c.ShapeOf(4);
  Dim total = core.k.length;
  if (c.Has(4)) total = past != nullptr && past->size() == 4 ? (*past)[2] + core.k.length : Dim();
  if (q != nullptr) {
    c.Set(0, c.DtypeOf(0), OutputShape(core, q->size() == 4));
  } else {
    c.Set(0, c.DtypeOf(0), std::nullopt);
  }
  c.Set(1, c.DtypeOf(1), SymShape{core.q.batch, core.k.heads, total, core.k.width});
  c.Set(2, c.DtypeOf(2), SymShape{core.q.batch, core.v.heads, total, core.v.width});
  c.Set(3, c.DtypeOf(0), SymShape{core.q.batch, core.q.heads, core.q.length, total});
  return {};
}

Result<SymShape> SdpaShape(const Inferrer& c) {
  const Attrs& attrs = c.node().attrs;
  const int64_t heads = attrs.Int("num_heads", 0), kv_heads = attrs.Int("kv_num_heads", heads);
  OCTAVO_TRY(const Core core, ReadCore(c, heads, kv_heads));
  for (const auto& [dim, count] :
       {std::pair{&core.q.heads, heads}, {&core.k.heads, kv_heads}, {&core.v.heads, kv_heads}}) {
    if (dim->is_number() && dim->number() != count) return c.Refuse("it has {} heads, not {}", dim->number(), count);
  }
  SymShape out = OutputShape(core, attrs.Int("out_rank", 4) == 4);
  out[0] = BroadcastDim(BroadcastDim(out[0], core.k.batch), core.v.batch);  // batches under other names, as MatMul has them
  return out;
}

Status Sdpa(Inferrer& c) {
  OCTAVO_TRY(SymShape out, SdpaShape(c));
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

// What a fused int8 op writes: float without a scale, else the zero point's type, u8 where there is none.
DType QuantizedOutput(const Inferrer& c, size_t scale, size_t zero_point) {
  if (!c.Has(scale)) return DType::kF32;
  return c.Has(zero_point) ? c.DtypeOf(zero_point) : DType::kU8;
}

// The result of the norm in a body: RMSNormalization's has the type of its scale.
DType NormedType(const Inferrer& c, size_t gamma) {
  return c.node().attrs.Int("rms", 0) != 0 ? c.DtypeOf(gamma) : c.DtypeOf(0);
}

Status QuantizedSdpa(Inferrer& c) {
  OCTAVO_TRY(SymShape out, SdpaShape(c));
  c.Set(0, QuantizedOutput(c, 11, 12), std::move(out));
  return {};
}

// Output `output` = x [..., K] times the weight [K, N] at input `weight`.
Status Project(Inferrer& c, size_t output, size_t weight, DType dtype) {
  MaybeShape out = c.CopyOf(0);
  const SymShape* w = c.ShapeOf(weight);
  if (w != nullptr && w->size() != 2) return c.Refuse("the weight {} is no matrix", ToString(*w));
  if (out && out->empty()) return c.Refuse("x is a scalar");
  if (out && w != nullptr && !Meet(out->back(), (*w)[0])) {
    return c.Refuse("x has {} columns, but the weight is {}", out->back().ToString(), ToString(*w));
  }
  if (out) out->back() = w != nullptr ? (*w)[1] : Dim();
  c.Set(output, dtype, std::move(out));
  return {};
}

Status Lookup(Inferrer& c) {
  const SymShape* table = c.ShapeOf(1);
  if (table != nullptr && !(table->size() == 1 && ProvablyEqual((*table)[0], Dim(256))))
    return c.Refuse("the table has shape {}, expected 256 codes", ToString(*table));
  c.Set(0, c.DtypeOf(1), c.CopyOf(0));
  return {};
}

// past [B, H, P, D], now [B, H, S, D], before [B], rows.
Status CacheAppend(Inferrer& c) {
  MaybeShape out = c.CopyOf(0), now = c.CopyOf(1);
  for (const MaybeShape& shape : {out, now}) {
    if (shape && shape->size() != 4) return c.Refuse("{} is not [batch, heads, rows, columns]", ToString(*shape));
  }
  for (const size_t axis : {0, 1, 3}) {
    if (out && now && !Meet((*out)[axis], (*now)[axis])) {
      return c.Refuse("the new rows {} do not fit the past {}", ToString(*now), ToString(*c.ShapeOf(0)));
    }
  }
  if (!out) out = std::move(now);
  const SymContents* rows = c.Contents(3);
  if (out) (*out)[2] = rows != nullptr && rows->size() == 1 ? rows->front() : Dim();
  ForgetNegative(out);
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

// One scale and zero point a row.
Status QuantizeTokens(Inferrer& c) {
  MaybeShape scale = c.CopyOf(0);
  if (scale && scale->empty()) return c.Refuse("x is a scalar");
  if (scale) scale->back() = Dim(1);
  c.Set(0, DType::kU8, c.CopyOf(0));
  c.Set(1, DType::kF32, scale);
  c.Set(2, DType::kU8, std::move(scale));
  return {};
}

// x [..., K] times blocks of w [K, N], or of [N, K] where transposed.
Status LinearBlocked(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  const SymShape* w = c.ShapeOf(1);
  if (w != nullptr && w->size() != 2) return c.Refuse("the weight {} is no matrix", ToString(*w));
  if (out && out->empty()) return c.Refuse("x is a scalar");
  const size_t k = c.node().attrs.Int("transposed", 0) != 0 ? 1 : 0;
  if (out && w != nullptr && !Meet(out->back(), (*w)[k])) {
    return c.Refuse("x has {} columns, but the weight is {}", out->back().ToString(), ToString(*w));
  }
  if (out) out->back() = w != nullptr ? (*w)[1 - k] : Dim();
  c.Set(0, DType::kF32, std::move(out));
  return {};
}

Status QuantizedLinear(Inferrer& c) { return Project(c, 0, 3, QuantizedOutput(c, 6, 7)); }

// x x_scale x_zp, then per branch: w w_scale bias y_scale y_zp.
Status QuantizedQkv(Inferrer& c) {
  for (size_t i = 0; i < c.node().outputs.size(); ++i) {
    const size_t base = 3 + 5 * i;
    OCTAVO_TRY_STATUS(Project(c, i, base, QuantizedOutput(c, base + 3, base + 4)));
  }
  return {};
}

Status SkipLayerNorm(Inferrer& c) {
  constexpr size_t kSum[] = {0, 1};
  OCTAVO_TRY(MaybeShape out, Broadcast(c, kSum));
  c.Set(0, NormedType(c, 2), out);
  c.Set(1, c.DtypeOf(0), std::move(out));
  return {};
}

Status NormQuant(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  if (c.Has(1)) {
    constexpr size_t kSum[] = {0, 1};
    OCTAVO_TRY(out, Broadcast(c, kSum));
  }
  c.Set(0, NormedType(c, 2), out);
  c.Set(2, c.DtypeOf(0), out);
  if (out && !out->empty() && c.Has(8)) {
    const MaybeShape columns = c.CopyOf(8);
    out->back() = columns && columns->size() == 1 ? columns->front() : Dim::Unknown();
  }
  c.Set(1, c.Has(5) ? c.DtypeOf(5) : DType::kU8, std::move(out));
  return {};
}

}  // namespace

Rule AttentionRule(Op op) {
  switch (op) {
    case Op::kAttention:
      return Attention;
    case Op::kCacheAppend:
      return CacheAppend;
    case Op::kLinearBlocked:
      return LinearBlocked;
    case Op::kQuantizedLinear:
      return QuantizedLinear;
    case Op::kLookup:
      return Lookup;
    case Op::kNormQuant:
      return NormQuant;
    case Op::kQuantizeTokens:
      return QuantizeTokens;
    case Op::kQuantizedQkv:
      return QuantizedQkv;
    case Op::kSdpa:
      return Sdpa;
    case Op::kQuantizedSdpa:
      return QuantizedSdpa;
    case Op::kSkipLayerNorm:
      return SkipLayerNorm;
    default:
      return nullptr;
  }
}

}  // namespace octavo::ir
