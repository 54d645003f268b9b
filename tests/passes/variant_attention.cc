#include "octavo/tests/passes/variant_attention.h"

#include <cmath>
#include <limits>

namespace octavo::passes {

using ir::DType;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;

namespace {

struct Sizes {
  int64_t batch, queries, keys, heads, kv_heads, dim, v_dim;
};

Sizes SomeSizes(VariantBuilder& b) {
  const auto size = [&](int64_t most) { return b.Chance(20) ? 1 : b.Pick(2, most); };
  Sizes s{size(3), size(6), 0, size(4), 0, b.Of<int64_t>({4, 8}), 0};
  s.keys = b.Chance(70) ? s.queries : size(6);
  s.kv_heads = b.Chance(70) ? s.heads : 1;
  s.v_dim = b.Chance(80) ? s.dim : b.Of<int64_t>({1, 4, 6});
  return s;
}

// [batch, heads, length, dim] by a head split, or as it is.
ValueId Operand(VariantBuilder& b, ValueId x, int64_t length, int64_t heads, int64_t dim, int64_t batch) {
  if (b.Chance(25)) return b.Given(b.Random({batch, heads, length, dim}), 10);
  const int64_t k = b.Shape(x).back();
  ValueId y = b.Node(Op::kMatMul, {x, b.Constant(b.Random({k, heads * dim}, 0.4f))});
  if (b.Chance(60))
    y = b.Either(Op::kAdd, y, b.Constant(b.Random(b.Of<Shape>({{heads * dim}, {1}, {}, {1, 1, heads * dim}}))));
  const std::vector<int64_t> four = b.Of<std::vector<int64_t>>(
      {{0, 0, heads, dim}, {batch, length, heads, dim}, {batch, -1, heads, dim}, {0, -1, heads, dim}});
  return b.Node(Op::kTranspose, {b.Node(Op::kReshape, {y, b.Ints(four)})},
                {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
}

ValueId Turned(VariantBuilder& b, ValueId k) {
  std::vector<int64_t> perm{0, 1, 3, 2};
  if (b.Rank(k) == 3) perm = {0, 2, 1};
  return b.Node(Op::kTranspose, {k}, {{"perm", perm}});
}

Shape MaskShape(VariantBuilder& b, const Sizes& s) {
  const int64_t q = s.queries, k = s.keys;
  return b.Of<Shape>({{s.batch, 1, 1, k},
                      {1, 1, q, k},
                      {q, k},
                      {s.batch, 1, q, k},
                      {s.batch, s.heads, q, k},
                      {1, s.heads, q, k},
                      {k},
                      {},
                      {1},
                      {1, q, k},
                      {s.batch, 1, q, 1},
                      {2, 1, q, k},
                      {1, 1, 3, k},
                      {1, 1, 1, 1, k},
                      {1, 4, 1, k}});
}

// Wider than the scores: its dims are then told, since rules take two symbols for one size.
bool Widens(const Shape& mask, const Sizes& s) {
  const int64_t scores[] = {s.batch, s.heads, s.queries, s.keys};
  for (size_t i = 0; i < mask.size() && i < 4; ++i) {
    if (mask[mask.size() - 1 - i] != 1 && scores[3 - i] == 1) return true;
  }
  return mask.size() > 4;
}

Tensor BoolMask(VariantBuilder& b, const Shape& shape) {
  Tensor t = Tensor::Zeros(DType::kBool, shape);
  const bool all = b.Chance(20);
  for (uint8_t& x : t.mutable_as<uint8_t>()) x = all || b.Chance(80);
  return t;
}

ValueId Additive(VariantBuilder& b, const Sizes& s) {
  const Shape shape = MaskShape(b, s);
  const int constant = Widens(shape, s) ? 100 : 30;
  if (b.Chance(50)) return b.Given(b.Random(shape), constant);
  // -10000 in all of a row would leave of the scores what rounding at 10000 leaves.
  const double low = b.type == DType::kF16 || b.Chance(50) ? -std::numeric_limits<double>::infinity()
                                                           : static_cast<double>(std::numeric_limits<float>::lowest());
  return b.Node(Op::kWhere, {b.Given(BoolMask(b, shape), constant), b.Number(0), b.Number(low)});
}

ValueId Scored(VariantBuilder& b, ValueId s, const Sizes& sizes) {
  const int64_t steps = b.Pick(0, 3);
  for (int64_t i = 0; i < steps; ++i) {
    switch (b.Pick(0, 5)) {
      case 0:
        s = b.Either(Op::kMul, s, b.Number(0.35));
        break;
      case 1:
        s = b.Node(Op::kDiv, {s, b.Number(2.8)});
        break;
      case 2:
        s = b.Either(Op::kMul, b.Node(Op::kTanh, {b.Node(Op::kDiv, {s, b.Number(5)})}), b.Number(b.Chance(80) ? 5 : 4));
        break;
      case 3:
        s = b.Chance(80) ? b.Either(Op::kAdd, s, Additive(b, sizes)) : b.Node(Op::kSub, {s, Additive(b, sizes)});
        break;
      default: {
        const Shape shape = MaskShape(b, sizes);
        const ValueId keep = b.Given(BoolMask(b, shape), Widens(shape, sizes) ? 100 : 30);
        // Of a score beside -60000 f16 keeps nothing, f32 all.
        const ValueId low = b.Number(b.type == DType::kF16 ? -5.0 : b.Of({-1e4, -5.0, 3.0, -60000.0}));
        s = b.Chance(50) ? b.Node(Op::kWhere, {keep, s, low}) : b.Node(Op::kWhere, {keep, low, s});
        break;
      }
    }
  }
  return s;
}

Variant Decomposed(VariantBuilder& b) {
  const Sizes s = SomeSizes(b);
  b.type = b.Chance(80) ? DType::kF32 : b.Of({DType::kF16, DType::kF64});
  const ValueId x = b.Input(b.Random({s.batch, s.queries, 16}));
  const ValueId other = s.keys == s.queries && b.Chance(80) ? x : b.Input(b.Random({s.batch, s.keys, 16}));
  ValueId q = Operand(b, x, s.queries, s.heads, s.dim, s.batch),
          k = Operand(b, other, s.keys, s.kv_heads, s.dim, s.batch),
          v = Operand(b, other, s.keys, s.kv_heads, s.v_dim, s.batch);
  if (b.Chance(15)) q = b.Either(Op::kMul, q, b.Number(0.5));
  if (b.Chance(15)) k = b.Either(Op::kMul, k, b.Number(0.5));
  if (s.kv_heads == 1 && s.heads > 1 && b.Chance(40)) {
    const std::vector<int64_t> wide{s.batch, s.heads, s.keys, s.dim}, v_wide{s.batch, s.heads, s.keys, s.v_dim};
    k = b.Node(Op::kExpand, {k, b.Ints(wide)});
    v = b.Node(Op::kExpand, {v, b.Ints(v_wide)});
  } else if (b.Chance(15) && s.heads == s.kv_heads) {  // batch and heads in one
    q = b.Node(Op::kReshape, {q, b.Ints({-1, s.queries, s.dim})});
    k = b.Node(Op::kReshape, {k, b.Ints({-1, s.keys, s.dim})});
    v = b.Node(Op::kReshape, {v, b.Ints({-1, s.keys, s.v_dim})});
  }
  const ValueId scores = Scored(b, b.Node(Op::kMatMul, {q, Turned(b, k)}), s);
  const int64_t rank = b.Rank(scores);
  ValueId p = b.Node(Op::kSoftmax, {scores}, {{"axis", b.Axis(b.Chance(95) ? rank - 1 : b.Pick(0, rank - 1), rank)}});
  if (b.Chance(15)) p = b.Node(Op::kWhere, {b.Node(Op::kIsNaN, {p}), b.Number(b.Chance(80) ? 0 : 1), p});
  if (b.Chance(10)) p = b.Node(Op::kMul, {p, b.Given(b.Random({s.batch, 1, 1, s.keys}), 20)});
  if (b.Chance(10)) b.Output(p);
  ValueId o = b.Node(Op::kMatMul, {p, v});
  if (b.Rank(o) == 4 && b.Chance(70)) {
    const Shape os = b.Shape(o);
    o = b.Node(Op::kTranspose, {o}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    o = b.Node(
        Op::kReshape,
        {o, b.Ints(b.Of<std::vector<int64_t>>({{0, 0, -1}, {os[0], os[2], os[1] * os[3]}, {-1, os[1] * os[3]}}))});
  }
  b.Output(o);
  return b.Finish("attention");
}

Variant ByOp(VariantBuilder& b) {
  Sizes s = SomeSizes(b);
  const int64_t groups = b.Chance(50) ? s.heads : 1;
  const bool three = b.Chance(50);
  const auto operand = [&](int64_t length, int64_t heads, int64_t dim) {
    return b.Input(b.Random(three ? Shape{s.batch, length, heads * dim} : Shape{s.batch, heads, length, dim}));
  };
  std::vector<ValueId> in{operand(s.queries, s.heads, s.dim), operand(s.keys, groups, s.dim),
                          operand(s.keys, groups, s.v_dim)};
  ir::Attrs attrs;
  if (three || b.Chance(20)) attrs.Set("q_num_heads", s.heads), attrs.Set("kv_num_heads", groups);
  const int64_t past = b.Chance(30) ? b.Pick(0, 3) : -1;
  s.keys += std::max<int64_t>(past, 0);
  if (b.Chance(50)) {
    const Shape shape = b.Of<Shape>({{s.queries, s.keys},
                                     {1, 1, s.queries, s.keys},
                                     {s.batch, 1, s.queries, s.keys},
                                     {s.batch, s.heads, s.queries, s.keys},
                                     {s.queries, 1},
                                     {1, s.keys},
                                     {s.queries, std::max<int64_t>(1, s.keys - 1)},
                                     {1, s.queries, s.keys}});
    const bool ends_early = shape.back() != 1 && shape.back() < s.keys;
    in.push_back(b.Given(b.Chance(50) ? BoolMask(b, shape) : b.Random(shape), ends_early ? 100 : 30));
  } else if (past >= 0) {
    in.emplace_back();
  }
  if (past >= 0) {
    in.push_back(b.Input(b.Random({s.batch, groups, past, s.dim})));
    in.push_back(b.Input(b.Random({s.batch, groups, past, s.v_dim})));
  }
  if (b.Chance(30)) attrs.Set("is_causal", int64_t{1});
  if (b.Chance(20)) attrs.Set("softcap", b.Of({0.0f, 2.0f}));
  if (b.Chance(30)) attrs.Set("scale", 0.3f);
  const size_t outputs = b.Of<size_t>({1, 1, 3, 4});
  const std::vector<ValueId> y = b.Nodes(Op::kAttention, in, outputs, attrs);
  for (size_t i = 0; i < outputs; ++i) {
    if (i == 0 || b.Chance(60)) b.Output(y[i]);
  }
  return b.Finish("attention op");
}

}  // namespace

Variant AttentionVariant(VariantBuilder& b) { return b.Chance(75) ? Decomposed(b) : ByOp(b); }

}  // namespace octavo::passes
