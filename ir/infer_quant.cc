// Rules of quantization ops, and of ops of com.microsoft that stay opaque nodes, as quantized and optimized exports contain them. Knowing their output types keeps what stands behind them.
#include <map>

#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

Status Quantize(Inferrer& c) {
  const DType named = DTypeOfAttr(c, "output_dtype");
  const DType dtype = c.Has(2) ? c.DtypeOf(2) : named != DType::kUndefined ? named : DType::kU8;
  c.Set(0, dtype, c.CopyOf(0));
  return {};
}

Status Dequantize(Inferrer& c) {
  const DType named = DTypeOfAttr(c, "output_dtype");
  c.Set(0, named != DType::kUndefined ? named : c.DtypeOf(1), c.CopyOf(0));
  return {};
}

Status DynamicQuantize(Inferrer& c) {
  c.Set(0, DType::kU8, c.CopyOf(0));
  c.Set(1, DType::kF32, SymShape{});
  c.Set(2, DType::kU8, SymShape{});
  return {};
}

// com.microsoft QLinearAdd and QLinearMul: a a_scale a_zp b b_scale b_zp y_scale y_zp.
Status QLinearBinary(Inferrer& c) {
  constexpr size_t kOperands[] = {0, 3};
  OCTAVO_TRY(MaybeShape out, Broadcast(c, kOperands));
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

// Output 3 is the sum that was normalized.
Status SkipNorm(Inferrer& c) {
  c.Set(3, c.DtypeOf(0), c.CopyOf(0));
  return SameAsFirst(c);
}

// x [..., K] times packed weights of N columns.
Status MatMulNBits(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  const int64_t columns = c.node().attrs.Int("N", 0);
  if (out && !out->empty()) out->back() = columns > 0 ? Dim(columns) : Dim();
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

// x [B, S, K], weight [K, Q + K + V]: [B, S, V]. QAttention takes integers and gives the type of their scale (input 3).
Status PackedAttention(Inferrer& c) {
  const SymShape* x = c.ShapeOf(0);
  const SymShape* w = c.ShapeOf(1);
  const DType dtype = c.DtypeOf(c.node().op_type == "QAttention" ? 3 : 0);
  c.Set(0, dtype, std::nullopt);
  if (x == nullptr || x->size() != 3) return {};
  const std::vector<int64_t> widths = c.node().attrs.Ints("qkv_hidden_sizes");
  Dim width;
  if (widths.size() == 3) {
    width = Dim(widths[2]);
  } else if (w != nullptr && w->size() == 2) {
    width = ExactDiv((*w)[1], Dim(3));
  }
  c.Set(0, dtype, SymShape{(*x)[0], (*x)[1], width});
  return {};
}

// q [B, S, D] with v [B, S, Dv].
Status MultiHeadAttention(Inferrer& c) {
  const SymShape* q = c.ShapeOf(0);
  const SymShape* v = c.ShapeOf(2);
  c.Set(0, c.DtypeOf(0), std::nullopt);
  if (q == nullptr || q->size() != 3) return {};
  c.Set(0, c.DtypeOf(0), SymShape{(*q)[0], (*q)[1], v != nullptr && v->size() == 3 ? v->back() : Dim()});
  return {};
}

// q [B, S, D], or Q, K and V packed into one of D = (heads + 2 * kv heads) * width where the key is absent.
Status GroupQueryAttention(Inferrer& c) {
  MaybeShape out = c.CopyOf(0);
  if (out && out->size() == 3 && !c.Has(1)) {
    const Dim heads(c.node().attrs.Int("num_heads", 0));
    const Dim kv_heads(c.node().attrs.Int("kv_num_heads", 0));
    out->back() = ExactDiv(out->back(), heads + kv_heads + kv_heads) * heads;
  }
  c.Set(0, c.DtypeOf(0), std::move(out));
  return {};
}

// ids [B, S], segments, tables of words [V, H], positions and segments -> [B, S, H], mask index [B], sum [B, S, H].
// QEmbedLayerNormalization has integer tables; the scale of the first is input 8.
Status EmbedLayerNorm(Inferrer& c) {
  const SymShape* ids = c.ShapeOf(0);
  const SymShape* words = c.ShapeOf(2);
  MaybeShape out;
  MaybeShape mask;
  if (ids != nullptr && ids->size() == 2) {
    out = SymShape{(*ids)[0], (*ids)[1], words != nullptr && words->size() == 2 ? (*words)[1] : Dim()};
    mask = SymShape{(*ids)[0]};
  }
  const DType dtype = c.DtypeOf(c.node().op_type == "QEmbedLayerNormalization" ? 8 : 2);
  c.Set(0, dtype, out);
  c.Set(1, DType::kS32, std::move(mask));
  c.Set(2, dtype, std::move(out));
  return {};
}

// Two operands at inputs 0 and 1, float output, nothing transposed.
Status FloatProduct(Inferrer& c) {
  const SymShape* a = c.ShapeOf(0);
  const SymShape* b = c.ShapeOf(1);
  c.Set(0, DType::kF32, std::nullopt);
  if (a == nullptr || b == nullptr || a->empty() || b->size() != 2) return {};
  SymShape out = *a;
  out.back() = b->back();
  c.Set(0, DType::kF32, std::move(out));
  return {};
}

}  // namespace

Rule QuantRule(Op op) {
  switch (op) {
    case Op::kQuantizeLinear:
      return Quantize;
    case Op::kDequantizeLinear:
      return Dequantize;
    case Op::kDynamicQuantizeLinear:
      return DynamicQuantize;
    default:
      return nullptr;
  }
}

Rule OpaqueRule(const Node& node) {
  static const auto* const table = new std::map<std::string, Rule, std::less<>>{
      {"Attention", PackedAttention},
      {"BiasGelu", SameAsFirst},
      {"DequantizeLinear", Dequantize},
      {"DynamicQuantizeMatMul", FloatProduct},
      {"EmbedLayerNormalization", EmbedLayerNorm},
      {"FastGelu", SameAsFirst},
      {"Gelu", SameAsFirst},
      {"GroupQueryAttention", GroupQueryAttention},
      {"MatMulIntegerToFloat", FloatProduct},
      {"MatMulNBits", MatMulNBits},
      {"MultiHeadAttention", MultiHeadAttention},
      {"QAttention", PackedAttention},
      {"QEmbedLayerNormalization", EmbedLayerNorm},
      {"QLinearAdd", QLinearBinary},
      {"QLinearMul", QLinearBinary},
      {"QLinearSigmoid", SameAsFirst},
      {"QLinearSoftmax", SameAsFirst},
      {"QuantizeLinear", Quantize},
      {"QuickGelu", SameAsFirst},
      {"RotaryEmbedding", SameAsFirst},
      {"SkipLayerNormalization", SkipNorm},
      {"SkipSimplifiedLayerNormalization", SkipNorm},
  };
  if (node.domain != "com.microsoft") return nullptr;
  const auto it = table->find(node.op_type);
  return it == table->end() ? nullptr : it->second;
}

}  // namespace octavo::ir
