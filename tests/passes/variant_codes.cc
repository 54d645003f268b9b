#include <cmath>

#include "octavo/quant/numeric/code8.h"
#include "octavo/tests/passes/variant_attention.h"

namespace octavo::passes {

using ir::DType;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;

namespace {

// Scale and zero point: one number, of rank 0 or 1, or one for each of `channels`.
struct Params {
  ValueId scale, zero;
  bool per_channel = false;
};

Tensor Codes(VariantBuilder& b, DType t, const Shape& shape) {
  Tensor codes = Tensor::Zeros(t, shape);
  for (uint8_t& c : codes.mutable_as<uint8_t>()) c = static_cast<uint8_t>(b.Pick(0, 255));
  if (quant::IsFp8(t)) return b.As(b.Random(shape), t);
  return codes;
}

Params SomeParams(VariantBuilder& b, DType t, float scale, int64_t channels, bool symmetric) {
  Params p;
  p.per_channel = channels > 0;
  const Shape shape = channels > 0 ? Shape{channels} : b.Chance(75) ? Shape{} : Shape{1};
  std::vector<float> scales(static_cast<size_t>(std::max<int64_t>(channels, 1)));
  for (float& s : scales) s = scale * static_cast<float>(b.Pick(5, 15)) / 10;
  p.scale = b.Constant(b.As(Tensor::F32(shape, scales), b.type));
  Tensor zero = Tensor::Zeros(t, shape);
  if (quant::IsInt8(t) && !symmetric) {
    const auto at = static_cast<uint8_t>(t == DType::kU8 ? b.Pick(100, 150) : b.Pick(0, 20));
    for (uint8_t& z : zero.mutable_as<uint8_t>()) z = at;
  }
  if (!symmetric || t != DType::kS8 || b.Chance(60)) p.zero = b.Constant(std::move(zero));
  if (t != DType::kU8 && !p.zero.valid()) p.zero = b.Constant(Tensor::Zeros(t, shape));
  return p;
}

ValueId Quantized(VariantBuilder& b, ValueId x, DType t, float scale) {
  const Params p = SomeParams(b, t, scale, 0, b.Chance(30));
  return b.Node(Op::kQuantizeLinear, {x, p.scale, p.zero});
}

ValueId Back(VariantBuilder& b, ValueId q) {
  const ir::Node n = *b.variant().graph.Producer(q);
  return b.Node(Op::kDequantizeLinear, {q, n.input(1), n.input(2)});
}

ValueId Coded(VariantBuilder& b, ValueId x, DType t, float scale = 0.03f) { return Back(b, Quantized(b, x, t, scale)); }

ValueId Weight(VariantBuilder& b, DType t, int64_t k, int64_t n) {
  const int64_t style = b.Pick(0, 9);
  const int64_t channels = style < 5 ? n : style == 5 ? k : 0;
  const Params p = SomeParams(b, t, 0.004f, channels, !b.Chance(10));
  std::vector<ValueId> in{b.Constant(Codes(b, t, {k, n})), p.scale};
  if (p.zero.valid()) in.push_back(p.zero);
  return b.Node(Op::kDequantizeLinear, in, {{"axis", b.Axis(channels == k && style == 5 ? 0 : 1, 2)}});
}

ValueId CodedLinear(VariantBuilder& b, ValueId x, DType t) {
  const int64_t k = b.Shape(x).back(), n = b.Of<int64_t>({1, 8, 16});
  ValueId y = b.Node(Op::kMatMul, {x, Weight(b, quant::IsFp8(t) ? t : DType::kS8, k, n)});
  if (b.Chance(70))
    y = b.Either(Op::kAdd, y,
                 b.Given(b.Random(b.Of<Shape>({{n}, {n}, {n}, {1}, {}, {1, n}, {1, 1, n}, {2, 1, 1, n}})), 90));
  switch (b.Pick(0, 7)) {
    case 0:
      y = b.Node(Op::kGelu, {y});
      break;
    case 1:
      y = b.Node(Op::kRelu, {y});
      break;
    case 2:
      y = b.Either(Op::kMul, y, b.Node(Op::kSigmoid, {y}));
      break;
    case 3:
      y = b.Either(Op::kMul, y, b.Node(Op::kSigmoid, {b.Either(Op::kMul, y, b.Nearly(1.702))}));
      break;
    case 4:
      y = b.Either(Op::kAdd, y, b.Input(b.Random(b.Chance(70) ? b.Shape(y) : Shape{1, b.Shape(y).back()})));
      break;
    default:
      break;
  }
  if (b.Chance(10)) y = b.Node(Op::kMul, {y, b.Constant(b.Random(b.Of<Shape>({{n}, {1}, {}, {1, n}})))});
  return y;
}

ValueId CodedNorm(VariantBuilder& b, ValueId x) {
  const int64_t d = b.Shape(x).back();
  if (b.Chance(50)) x = b.Node(Op::kAdd, {x, b.Input(b.Random(b.Chance(80) ? b.Shape(x) : Shape{d}))});
  const auto vector = [&] { return b.Constant(b.Random({b.Chance(85) ? d : 1})); };
  if (b.Chance(30)) return b.Node(Op::kRMSNormalization, {x, vector()}, {{"axis", int64_t{-1}}});
  return b.Node(Op::kLayerNormalization, {x, vector(), vector()}, {{"axis", int64_t{-1}}});
}

// An element-wise chain with codes behind every op.
ValueId CodedChain(VariantBuilder& b, ValueId x, DType t) {
  const int64_t steps = b.Pick(1, 4);
  for (int64_t i = 0; i < steps; ++i) {
    const Op op = b.Of({Op::kErf, Op::kRelu, Op::kTanh, Op::kSigmoid, Op::kMul, Op::kAdd, Op::kDiv});
    const bool two = op == Op::kMul || op == Op::kAdd || op == Op::kDiv;
    const ValueId other =
        b.Chance(70) ? b.Number(0.7)
                     : Coded(b, b.Constant(b.Random(b.Of<Shape>({{}, {1}, {1, 1, 1}, {b.Shape(x).back()}}))), t);
    x = two ? b.Node(op, {x, op == Op::kDiv ? b.Number(1.3) : other}) : b.Node(op, {x});
    if (b.Chance(70)) x = Coded(b, x, t);
  }
  return x;
}

ValueId CodedAttention(VariantBuilder& b, DType t) {
  const int64_t batch = b.Pick(1, 2), queries = b.Pick(1, 4), keys = b.Chance(70) ? queries : b.Pick(1, 4),
                heads = b.Pick(1, 3), dim = 4;
  const bool three = b.Chance(15);
  const auto operand = [&](int64_t length) {
    return Coded(b, b.Input(b.Random(three ? Shape{batch, length, dim} : Shape{batch, heads, length, dim})), t);
  };
  const ValueId q = operand(queries), k = operand(keys), v = operand(keys);
  const std::vector<int64_t> perm = three ? std::vector<int64_t>{0, 2, 1} : std::vector<int64_t>{0, 1, 3, 2};
  ValueId s = b.Node(Op::kMatMul, {q, b.Node(Op::kTranspose, {k}, {{"perm", perm}})});
  if (b.Chance(20)) s = Coded(b, s, t, 0.1f);
  if (b.Chance(60)) s = b.Chance(50) ? b.Either(Op::kMul, s, b.Number(0.5)) : b.Node(Op::kDiv, {s, b.Number(2)});
  if (b.Chance(20)) s = Coded(b, s, t, 0.1f);
  if (b.Chance(40))
    s = b.Either(
        Op::kAdd, s,
        b.Input(b.Random(b.Of<Shape>({{queries, keys}, {batch, 1, 1, keys}, {}, {1, 1, 2, keys}, {2, 1, 1, keys}}))));
  ValueId p = b.Node(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}});
  if (b.Chance(15)) p = b.Node(Op::kWhere, {b.Node(Op::kIsNaN, {p}), b.Number(0), p});
  const DType tp = quant::IsFp8(t) ? t : b.Chance(80) ? DType::kU8 : DType::kS8;
  const ValueId scale = b.Constant(b.As(Tensor::ScalarF32(b.Of({1 / 255.0f, 1 / 256.0f, 0.003921f})), b.type));
  const ValueId zero = b.Constant(Tensor::Zeros(tp, {}));
  p = b.Node(Op::kDequantizeLinear, {b.Node(Op::kQuantizeLinear, {p, scale, zero}), scale, zero});
  const ValueId o = b.Node(Op::kMatMul, {p, v});
  return b.Chance(60) ? Coded(b, o, t) : o;
}

}  // namespace

Variant CodesVariant(VariantBuilder& b) {
  b.type = b.Chance(88) ? DType::kF32 : DType::kF16;
  const DType t = b.Of({DType::kU8, DType::kU8, DType::kS8, DType::kE4M3FN});
  ValueId y;
  if (b.Chance(30)) {
    y = CodedAttention(b, t);
  } else {
    Shape shape(static_cast<size_t>(b.Pick(1, 3)), b.Pick(1, 4));
    shape.back() = 16;
    ValueId x = b.Input(b.Random(shape));
    const int64_t steps = b.Pick(1, 3);
    for (int64_t i = 0; i < steps; ++i) {
      x = Coded(b, x, t);
      if (b.Chance(15)) x = b.Node(Op::kReshape, {x, b.Ints({-1, b.Shape(x).back()})});
      x = b.Chance(50) ? CodedLinear(b, x, t) : b.Chance(50) ? CodedNorm(b, x) : CodedChain(b, x, t);
    }
    y = x;
    if (b.Chance(60)) y = Quantized(b, y, t, 0.03f);
  }
  b.Output(y);
  Variant v = b.Finish("codes");
  v.quantized = true;
  return v;
}

}  // namespace octavo::passes
