#include "octavo/tests/passes/variants.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "octavo/tests/passes/variant_attention.h"
#include "octavo/tests/passes/variant_builder.h"

namespace octavo::passes {

using ir::DType;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;

namespace {

// Rank 1 to 4, some dims 1.
Shape SomeShape(VariantBuilder& b, int64_t least_rank = 1) {
  Shape s(static_cast<size_t>(b.Pick(least_rank, 4)));
  for (int64_t& d : s) d = b.Chance(20) ? 1 : b.Pick(2, 6);
  if (!s.empty() && b.Chance(70)) s.back() = b.Of<int64_t>({8, 16});
  return s;
}

// What a vector of the last dim may look like where it broadcasts: [d], [1], [], [1,1,d], [d,1], all of it, more dims than x has.
Tensor Spread(VariantBuilder& b, const Shape& x, float around) {
  const int64_t d = x.empty() ? 1 : x.back();
  Shape s;
  switch (b.Pick(0, 19)) {
    case 0:
      s = {1};
      break;
    case 1:
      break;
    case 2:
      s = {1, 1, d};
      break;
    case 3:
      s = Shape(x.begin(), x.end());
      break;
    case 4:
      s = {2, 1, 1, 1, d};
      break;
    case 5:
      s = x.size() > 1 ? Shape{x[x.size() - 2], 1} : Shape{1, 1};
      break;
    case 6:
      s = x.size() > 1 ? Shape{x[x.size() - 2], d} : Shape{3, d};
      break;
    default:
      s = {d};
      break;
  }
  Tensor t = b.As(b.Random(s, 0.3f), DType::kF32);
  for (float& v : t.mutable_as<float>()) v += around;
  return b.As(t, b.type);
}

ValueId HalfProduct(VariantBuilder& b, ValueId x, ValueId t) {
  const ValueId half = b.Nearly(0.5);
  const ValueId plus = b.Either(Op::kAdd, t, b.Nearly(1.0));
  switch (b.Pick(0, 2)) {
    case 0:
      return b.Either(Op::kMul, b.Either(Op::kMul, x, plus), half);
    case 1:
      return b.Either(Op::kMul, b.Either(Op::kMul, x, half), plus);
    default:
      return b.Either(Op::kMul, x, b.Either(Op::kMul, plus, half));
  }
}

ValueId Gelu(VariantBuilder& b, ValueId x) {
  if (b.Chance(20)) return b.Node(Op::kGelu, {x}, {{"approximate", std::string(b.Of({"none", "tanh"}))}});
  if (b.Chance(35)) return HalfProduct(b, x, b.Node(Op::kErf, {b.Node(Op::kDiv, {x, b.Nearly(std::numbers::sqrt2)})}));
  if (b.Chance(50))
    return HalfProduct(b, x, b.Node(Op::kErf, {b.Either(Op::kMul, x, b.Nearly(std::numbers::sqrt2 / 2))}));
  const ValueId cube =
      b.Chance(50) ? b.Node(Op::kPow, {x, b.Exponent(3.0)}) : b.Either(Op::kMul, b.Node(Op::kMul, {x, x}), x);
  const ValueId sum = b.Either(Op::kAdd, x, b.Either(Op::kMul, cube, b.Nearly(0.044715)));
  return HalfProduct(b, x, b.Node(Op::kTanh, {b.Either(Op::kMul, sum, b.Nearly(0.7978845608028654))}));
}

ValueId MeanOf(VariantBuilder& b, ValueId x) {
  const int64_t rank = b.Rank(x);
  std::vector<int64_t> axes{b.Axis(rank - 1, rank)};
  if (b.Chance(8)) axes[0] = b.Axis(b.Pick(0, rank - 1), rank);
  if (b.Chance(5) && rank > 1) axes = {rank - 2, -1};
  return b.Node(Op::kReduceMean, {x, b.Ints(axes)}, {{"keepdims", int64_t{b.Chance(95)}}});
}

ValueId Squared(VariantBuilder& b, ValueId x) {
  return b.Chance(60) ? b.Node(Op::kPow, {x, b.Exponent(2.0)}) : b.Node(Op::kMul, {x, x});
}

ValueId Norm(VariantBuilder& b, ValueId x) {
  const ValueId gamma = b.Given(Spread(b, b.Shape(x), 1), 80), beta = b.Given(Spread(b, b.Shape(x), 0), 80);
  const ValueId eps = b.Number(b.Of({1e-5, 1e-6, 1e-3}));
  if (b.Chance(50)) {
    const ValueId d = b.Node(Op::kSub, {x, MeanOf(b, x)});
    const ValueId root = b.Node(Op::kSqrt, {b.Either(Op::kAdd, MeanOf(b, Squared(b, d)), eps)});
    return b.Either(Op::kAdd, b.Either(Op::kMul, b.Node(Op::kDiv, {d, root}), gamma), beta);
  }
  const ValueId root = b.Node(Op::kSqrt, {b.Either(Op::kAdd, MeanOf(b, Squared(b, x)), eps)});
  if (b.Chance(40)) return b.Either(Op::kMul, b.Node(Op::kDiv, {x, root}), gamma);
  const ValueId inverse = b.Chance(50) ? b.Node(Op::kReciprocal, {root}) : b.Node(Op::kDiv, {b.Nearly(1.0), root});
  return b.Either(Op::kMul, b.Either(Op::kMul, x, inverse), gamma);
}

ValueId NormOp(VariantBuilder& b, ValueId x) {
  const Shape shape = b.Shape(x);
  const int64_t rank = b.Rank(x), axis = b.Chance(80) ? rank - 1 : b.Pick(0, rank - 1);
  const Shape row(shape.begin() + axis, shape.end());
  const auto vector = [&] { return b.Given(b.Random(b.Chance(85) ? row : Shape{row.back()}), 80); };
  const ir::Attrs attrs{{"axis", b.Axis(axis, rank)}};
  if (b.Chance(30)) return b.Node(Op::kRMSNormalization, {x, vector()}, attrs);
  std::vector<ValueId> in{x, vector()};
  if (b.Chance(70)) in.push_back(vector());
  const std::vector<ValueId> y = b.Nodes(Op::kLayerNormalization, in, b.Chance(80) ? 1 : 3, attrs);
  if (y.size() > 1 && b.Chance(50)) b.Output(y[1]);
  return y[0];
}

// x plus something of its shape, or that broadcasts.
ValueId Skip(VariantBuilder& b, ValueId x) {
  const ValueId other = b.Chance(70) ? b.Given(b.Random(b.Shape(x)), 10) : b.Given(Spread(b, b.Shape(x), 0), 50);
  return b.Either(Op::kAdd, x, other);
}

ValueId Activation(VariantBuilder& b, ValueId x) {
  switch (b.Pick(0, 6)) {
    case 0:
      return b.Node(Op::kRelu, {x});
    case 1:
      return b.Either(Op::kMul, x, b.Node(Op::kSigmoid, {x}));
    case 2:
      return b.Either(Op::kMul, x, b.Node(Op::kSigmoid, {b.Either(Op::kMul, x, b.Nearly(1.702))}));
    case 3:
      return b.Node(Op::kTanh, {x});
    case 4:
      return b.Node(Op::kSigmoid, {x});
    default:
      return Gelu(b, x);
  }
}

// Views that go back and forth, and selections.
ValueId Move(VariantBuilder& b, ValueId x) {
  const Shape s = b.Shape(x);
  const int64_t rank = b.Rank(x);
  std::vector<int64_t> perm(s.size());
  for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
  const int64_t axis = rank == 0 ? 0 : b.Pick(0, rank - 1);
  switch (b.Pick(0, 9)) {
    case 0:
      for (size_t i = perm.size(); i > 1; --i)
        std::swap(perm[i - 1], perm[static_cast<size_t>(b.Pick(0, static_cast<int64_t>(i) - 1))]);
      return b.Node(Op::kTranspose, {x}, {{"perm", perm}});
    case 1:
      return b.Node(Op::kReshape,
                    {x, b.Ints(rank > 1 ? std::vector<int64_t>{-1, s.back()} : std::vector<int64_t>{1, -1})});
    case 2:
      return b.Node(Op::kUnsqueeze, {x, b.Ints({b.Pick(-rank - 1, rank)})});
    case 3:
      return b.Chance(50) ? b.Node(Op::kSqueeze, {x}) : b.Node(Op::kSqueeze, {x, b.Ints({b.Axis(axis, rank)})});
    case 4:
      return b.Node(Op::kFlatten, {x}, {{"axis", b.Pick(-rank, rank)}});
    case 5:
      return b.Node(Op::kSlice,
                    {x, b.Ints({b.Pick(-2, 1)}), b.Ints({b.Of<int64_t>({2, -1, 1000})}), b.Ints({b.Axis(axis, rank)})});
    case 6:
      return b.Node(Op::kConcat, {x, x}, {{"axis", b.Axis(axis, rank)}});
    case 7:
      return b.Node(Op::kTile, {x, b.Ints(std::vector<int64_t>(s.size(), b.Pick(1, 2)))});
    case 8:
      return b.Node(Op::kExpand, {x, b.Ints(b.Chance(50) ? std::vector<int64_t>{2, 1, 1, 1, 1}
                                                         : std::vector<int64_t>(s.begin(), s.end()))});
    default:
      return b.Node(Op::kGather, {x, b.Constant(b.Chance(50) ? Tensor::S64({}, {0}) : Tensor::S64({2}, {0, -1}))},
                    {{"axis", b.Axis(axis, rank)}});
  }
}

// Arithmetic with constants that change nothing, or nearly.
ValueId Neutral(VariantBuilder& b, ValueId x) {
  const ValueId c = b.Chance(50) ? b.Number(b.Of({1.0, 0.0, -0.0})) : b.Constant(Spread(b, b.Shape(x), 1));
  const Op op = b.Of({Op::kAdd, Op::kSub, Op::kMul, Op::kDiv});
  if (b.Chance(30)) return b.Node(Op::kIdentity, {x});
  if (b.Chance(20)) return b.Nodes(Op::kDropout, {x}, 1)[0];
  return b.Node(op, {x, op == Op::kDiv ? b.Number(1.0) : c});
}

ValueId Step(VariantBuilder& b, ValueId x) {
  if (b.Rank(x) == 0) return Gelu(b, x);  // the others want a last dim
  switch (b.Pick(0, 8)) {
    case 0:
      return Gelu(b, x);
    case 1:
      return Norm(b, x);
    case 2:
      return NormOp(b, x);
    case 3:
      return Linear(b, x);
    case 4:
      return Activation(b, x);
    case 5:
      return Skip(b, x);
    case 6:
      return Move(b, x);
    case 7:
      return Neutral(b, x);
    default:
      return NormOp(b, Skip(b, x));
  }
}

Variant Chain(VariantBuilder& b) {
  b.type = b.Of({DType::kF32, DType::kF32, DType::kF32, DType::kF32, DType::kF16, DType::kF64});
  ValueId x = b.Input(b.Random(SomeShape(b)));
  const int64_t steps = b.Pick(1, 6);
  for (int64_t i = 0; i < steps; ++i) x = Step(b, x);
  b.Output(x);
  return b.Finish("chain");
}

}  // namespace

// x times a constant, plus what broadcasts.
ValueId Linear(VariantBuilder& b, ValueId x) {
  const Shape s = b.Shape(x);
  if (s.empty()) throw Invalid("a scalar has no columns");
  const int64_t k = s.back(), n = b.Of<int64_t>({1, 8, 16, 24});
  const float scale = 1 / std::sqrt(static_cast<float>(k));
  if (b.Rank(x) == 2 && b.Chance(30)) {
    const bool turned = b.Chance(50);
    std::vector<ValueId> in{x, b.Constant(b.Random(turned ? Shape{n, k} : Shape{k, n}, scale))};
    if (b.Chance(70)) in.push_back(b.Given(b.Random(b.Of<Shape>({{n}, {1}, {}, {1, n}, {s[0], 1}, {s[0], n}})), 90));
    ir::Attrs attrs{{"transB", int64_t{turned}}};
    if (b.Chance(20)) attrs.Set("alpha", 0.5f);
    if (b.Chance(20)) attrs.Set("beta", 2.0f);
    return b.Node(Op::kGemm, in, attrs);
  }
  const ValueId w = b.Constant(b.Random(b.Chance(95) ? Shape{k, n} : Shape{1, k, n}, scale));
  const ValueId y = b.Node(Op::kMatMul, {x, w});
  return b.Chance(70) ? b.Either(Op::kAdd, y, b.Given(Spread(b, b.Shape(y), 0), 90)) : y;
}

Variant MakeVariant(uint64_t seed) {
  for (uint64_t again = 0;; ++again) {
    VariantBuilder b(seed + (again << 40));
    try {
      switch (b.Pick(0, 3)) {
        case 0:
          return AttentionVariant(b);
        case 1:
          return CodesVariant(b);
        default:
          return Chain(b);
      }
    } catch (const Invalid&) {
    }
  }
}

}  // namespace octavo::passes
