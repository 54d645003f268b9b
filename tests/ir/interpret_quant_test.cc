// Quantization: rounding, axes, blocks, 4-bit and fp8 forms; integers behind floats through views, and what a product
// of two such values is: the exact integer sum times one float scale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "octavo/quant/numeric/fp8.h"
#include "octavo/tests/ir/interpret_testing.h"

namespace octavo::ir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RtValue Dequantized(const Tensor& q, const Tensor& scale, const Tensor& zero, Attrs attrs = {}) {
  auto r = Eval(Op::kDequantizeLinear, {q, scale, zero}, std::move(attrs));
  return r ? (*r)[0] : RtValue{};
}

Tensor RandomS8(std::mt19937& rng, Shape shape) {
  Tensor t = Tensor::Empty(DType::kS8, std::move(shape));
  for (int8_t& v : t.mutable_as<int8_t>()) v = static_cast<int8_t>(rng());
  return t;
}
Tensor RandomU8(std::mt19937& rng, Shape shape) {
  Tensor t = Tensor::Empty(DType::kU8, std::move(shape));
  for (uint8_t& v : t.mutable_as<uint8_t>()) v = static_cast<uint8_t>(rng());
  return t;
}

TEST(QuantizeLinear, RoundsHalfToEvenBeforeTheZeroPoint) {
  const Tensor x = Tensor::F32({6}, {0.5f, 1.5f, -0.5f, 2.5f, 1000.0f, -1000.0f});
  const Tensor y = Eval1(Op::kQuantizeLinear, {x, Tensor::ScalarF32(1.0f), U8({}, {3})});
  ASSERT_TRUE(y.defined());
  EXPECT_THAT(y.ToInts(), ElementsAre(3, 5, 3, 5, 255, 0));
  const Tensor nan = Eval1(Op::kQuantizeLinear, {Tensor::F32({1}, {NAN}), Tensor::ScalarF32(1.0f), S8({}, {0})});
  EXPECT_THAT(nan.ToInts(), ElementsAre(-128));
}

TEST(QuantizeLinear, EveryTypeAndForm) {
  const Tensor x = Tensor::F32({2, 3}, {-9.0f, 7.4f, 2.0f, 100.0f, 500.0f, -3.0f});
  const Tensor s4 = Eval1(Op::kQuantizeLinear, {x, Tensor::ScalarF32(1.0f), Tensor()}, {{"output_dtype", int64_t{22}}});
  ASSERT_EQ(s4.dtype(), DType::kS4);
  EXPECT_THAT(s4.ToInts(), ElementsAre(-8, 7, 2, 7, 7, -3));
  const Tensor axis =
      Eval1(Op::kQuantizeLinear, {x, Tensor::F32({2}, {1.0f, 2.0f}), S8({2}, {0, 1})}, {{"axis", int64_t{0}}});
  EXPECT_THAT(axis.ToInts(), ElementsAre(-9, 7, 2, 51, 127, -1));  // -1.5 rounds to -2
  // blocks of 2 on the last axis: the second block of a row is one element
  const Tensor blocked = Eval1(Op::kQuantizeLinear, {x, Tensor::F32({2, 2}, {1, 2, 10, 100}), S8({2, 2}, {0, 0, 0, 0})},
                               {{"axis", int64_t{1}}, {"block_size", int64_t{2}}});
  EXPECT_THAT(blocked.ToInts(), ElementsAre(-9, 7, 1, 10, 50, 0));
  const Tensor fp8 =
      Eval1(Op::kQuantizeLinear, {x, Tensor::ScalarF32(1.0f), Tensor()}, {{"output_dtype", int64_t{17}}});
  ASSERT_EQ(fp8.dtype(), DType::kE4M3FN);
  EXPECT_EQ(fp8.GetDouble(4), 448.0);
  EXPECT_THAT(ErrorOf(Op::kQuantizeLinear, {x, Tensor::F32({2}, {1, 1}), S8({2}, {0, 0})}),
              HasSubstr("size of axis 1"));
}

TEST(DequantizeLinear, RefusesWhatHasNoMeaning) {
  EXPECT_THAT(ErrorOf(Op::kDequantizeLinear, {S8({2}, {1, 2}), Tensor::ScalarF32(1), U8({}, {0})}),
              HasSubstr("another type"));
  EXPECT_THAT(ErrorOf(Op::kDequantizeLinear, {S32({2}, {1, 2}), Tensor::ScalarF32(1), S32({}, {4})}),
              HasSubstr("must be 0"));
  EXPECT_THAT(ErrorOf(Op::kDequantizeLinear, {Tensor::F32({2}, {1, 2}), Tensor::ScalarF32(1)}), HasSubstr("f32"));
}

TEST(QuantForm, IsAttachedToEightBitsOnly) {
  EXPECT_NE(Dequantized(S8({2}, {1, 2}), Tensor::ScalarF32(1), S8({}, {0})).quant, nullptr);
  EXPECT_EQ(Dequantized(S32({2}, {1, 2}), Tensor::ScalarF32(1), S32({}, {0})).quant, nullptr);
  const RtValue v = Dequantized(S8({2, 1}, {1, 2}), Tensor::F32({1}, {0.5f}), S8({1}, {0}));
  ASSERT_NE(v.quant, nullptr);  // one parameter is per tensor
  EXPECT_EQ(v.quant->axis, -1);
  EXPECT_EQ(v.quant->scale.rank(), 0);
}

// After any view, (q - zero) * scale must still be the float tensor.
void ExpectConsistent(const RtValue& v, const char* what) {
  ASSERT_NE(v.quant, nullptr) << what;
  const QuantForm& f = *v.quant;
  ASSERT_EQ(f.q.shape(), v.tensor.shape()) << what;
  const Tensor again =
      Eval1(Op::kDequantizeLinear, {f.q, f.scale, f.zero_point}, {{"axis", f.axis < 0 ? int64_t{0} : f.axis}});
  EXPECT_TRUE(again.SameBits(v.tensor)) << what;
}

TEST(QuantForm, TravelsThroughViewsPerTensor) {
  std::mt19937 rng(7);
  const RtValue v = Dequantized(RandomU8(rng, {2, 3, 4}), Tensor::ScalarF32(0.37f), U8({}, {131}));
  const auto ints = [](std::vector<int64_t> i) {
    const auto n = static_cast<int64_t>(i.size());
    return RtValue{Tensor::S64({n}, std::move(i)), nullptr};
  };
  const struct {
    Op op;
    std::vector<RtValue> more;
    Attrs attrs;
    size_t outputs = 1;
  } views[] = {{Op::kReshape, {ints({4, -1})}, {}},
               {Op::kTranspose, {}, {{"perm", std::vector<int64_t>{2, 0, 1}}}},
               {Op::kSlice, {ints({1}), ints({3}), ints({1})}, {}},
               {Op::kSplit, {ints({1, 3})}, {{"axis", int64_t{2}}}, 2},
               {Op::kExpand, {ints({5, 2, 3, 4})}, {}},
               {Op::kUnsqueeze, {ints({0, 2})}, {}},
               {Op::kFlatten, {}, {}},
               {Op::kGather, {ints({1, 0, 1})}, {{"axis", int64_t{0}}}},
               {Op::kIdentity, {}, {}},
               {Op::kConcat, {v}, {{"axis", int64_t{1}}}}};
  for (const auto& view : views) {
    std::vector<RtValue> in = {v};
    in.insert(in.end(), view.more.begin(), view.more.end());
    auto r = EvalValues(view.op, in, view.attrs, view.outputs);
    ASSERT_TRUE(r) << r.error().message;
    for (const RtValue& out : *r) ExpectConsistent(out, InfoOf(view.op).name.data());
  }
  // Other ops drop them, and so does a Concat of different scales.
  EXPECT_EQ((*EvalValues(Op::kRelu, {v}))[0].quant, nullptr);
  const RtValue w = Dequantized(RandomU8(rng, {2, 3, 4}), Tensor::ScalarF32(0.38f), U8({}, {131}));
  EXPECT_EQ((*EvalValues(Op::kConcat, {v, w}, {{"axis", int64_t{1}}}))[0].quant, nullptr);
}

TEST(QuantForm, FollowsTheAxis) {
  std::mt19937 rng(8);
  const RtValue v =
      Dequantized(RandomS8(rng, {3, 1, 4}), Tensor::F32({3}, {1, 2, 3}), S8({3}, {0, 5, -5}), {{"axis", int64_t{0}}});
  auto t = EvalValues(Op::kTranspose, {v}, {{"perm", std::vector<int64_t>{2, 0, 1}}});
  ExpectConsistent((*t)[0], "Transpose");
  EXPECT_EQ((*t)[0].quant->axis, 1);
  auto s = EvalValues(Op::kSqueeze, {(*t)[0], {Tensor::S64({1}, {2}), nullptr}});
  ExpectConsistent((*s)[0], "Squeeze");
  auto u = EvalValues(Op::kUnsqueeze, {(*s)[0], {Tensor::S64({2}, {0, 1}), nullptr}});
  ExpectConsistent((*u)[0], "Unsqueeze");
  EXPECT_EQ((*u)[0].quant->axis, 3);
  EXPECT_EQ((*EvalValues(Op::kReshape, {v, {Tensor::S64({1}, {-1}), nullptr}}))[0].quant, nullptr);
}

TEST(IntegerMatMul, IsTheExactSumTimesOneScale) {
  const uint32_t seed = 99;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 20; ++round) {
    const int64_t batch = 1 + rng() % 3, m = 1 + rng() % 9, k = 1 + rng() % 300, n = 2 + rng() % 20;
    const Tensor a = RandomU8(rng, {batch, m, k}), b = RandomS8(rng, {k, n});
    Tensor scales = Tensor::Empty(DType::kF32, {n});
    for (float& s : scales.mutable_as<float>()) s = 0.001f + static_cast<float>(rng() % 1000) * 1e-5f;
    const float sa = 0.0173f;
    const uint8_t za = static_cast<uint8_t>(rng());
    const RtValue x = Dequantized(a, Tensor::ScalarF32(sa), U8({}, {za}));
    const RtValue w = Dequantized(b, scales, Tensor::Zeros(DType::kS8, {n}), {{"axis", int64_t{1}}});
    auto y = EvalValues(Op::kMatMul, {x, w});
    ASSERT_TRUE(y) << y.error().message;
    const auto got = (*y)[0].tensor.as<float>();
    ASSERT_EQ((*y)[0].tensor.shape(), (Shape{batch, m, n}));
    for (int64_t r = 0; r < batch * m; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        int64_t acc = 0;
        for (int64_t i = 0; i < k; ++i) acc += (a.GetInt(r * k + i) - za) * b.GetInt(i * n + c);
        const float want = static_cast<float>(acc) * (sa * scales.as<float>()[static_cast<size_t>(c)]);
        ASSERT_EQ(got[static_cast<size_t>(r * n + c)], want) << round << " at " << r << "," << c;
      }
    }
  }
}

TEST(IntegerMatMul, DeepSumsDoNotOverflow) {
  const int64_t k = 70000;  // 255 * 255 * 70000 > 2^31
  Tensor a = Tensor::Empty(DType::kU8, {1, k}), b = Tensor::Empty(DType::kU8, {k, 1});
  for (uint8_t& v : a.mutable_as<uint8_t>()) v = 255;
  for (uint8_t& v : b.mutable_as<uint8_t>()) v = 255;
  const Tensor one = Tensor::ScalarF32(1.0f);
  auto y = EvalValues(Op::kMatMul, {Dequantized(a, one, U8({}, {0})), Dequantized(b, one, U8({}, {0}))});
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_EQ((*y)[0].tensor.as<float>()[0], static_cast<float>(int64_t{255} * 255 * k));
}

TEST(IntegerGemm, TransposesTheIntegersAndAddsC) {
  std::mt19937 rng(3);
  const Tensor a = RandomS8(rng, {5, 4}), b = RandomS8(rng, {3, 5});  // both transposed by the op
  const Tensor scales = Tensor::F32({3}, {0.1f, 0.2f, 0.3f}), c = Tensor::F32({3}, {1, 2, 3});
  const RtValue x = Dequantized(a, Tensor::ScalarF32(0.5f), S8({}, {7}));
  const RtValue w = Dequantized(b, scales, S8({3}, {0, 0, 0}), {{"axis", int64_t{0}}});
  auto y = EvalValues(Op::kGemm, {x, w, {c, nullptr}}, {{"transA", int64_t{1}}, {"transB", int64_t{1}}});
  ASSERT_TRUE(y) << y.error().message;
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t n = 0; n < 3; ++n) {
      int64_t acc = 0;
      for (int64_t i = 0; i < 5; ++i) acc += (a.GetInt(i * 4 + r) - 7) * b.GetInt(n * 5 + i);
      const auto at = static_cast<size_t>(n);
      const float want = static_cast<float>(acc) * (0.5f * scales.as<float>()[at]) + c.as<float>()[at];
      EXPECT_EQ((*y)[0].tensor.as<float>()[static_cast<size_t>(r * 3 + n)], want);
    }
  }
}

TEST(IntegerMatMul, OtherFormsGoThroughFloats) {
  // A left operand quantized per row is a float product.
  const RtValue x =
      Dequantized(S8({2, 2}, {1, 2, 3, 4}), Tensor::F32({2}, {0.1f, 0.3f}), S8({2}, {0, 0}), {{"axis", int64_t{0}}});
  const RtValue w = Dequantized(S8({2, 1}, {5, 6}), Tensor::ScalarF32(0.7f), S8({}, {0}));
  auto exact = EvalValues(Op::kMatMul, {x, w});
  auto plain = Eval(Op::kMatMul, {x.tensor, w.tensor});
  ASSERT_TRUE(exact && plain);
  EXPECT_TRUE((*exact)[0].tensor.SameBits((*plain)[0].tensor));
}

TEST(MatMulInteger, ZeroPointsPerRowAndColumn) {
  const Tensor a = U8({2, 2}, {1, 2, 3, 4}), b = S8({2, 3}, {1, -2, 3, -4, 5, -6});
  const Tensor y = Eval1(Op::kMatMulInteger, {a, b, U8({2}, {1, 2}), S8({3}, {0, 1, 2})});
  ASSERT_TRUE(y.defined());
  // rows less zero: (0,1), (1,2); columns less zero: (1,-4), (-3,4), (1,-8)
  EXPECT_THAT(y.ToInts(), ElementsAre(-4, 4, -8, -7, 5, -15));
}

TEST(QLinearMatMul, RoundsBeforeItAddsTheZeroPoint) {
  // 1 * 1 * 0.5 = 0.5: with an odd zero point rint(0.5) + 1 is 1, as ONNX Runtime has it, whereas rint(0.5 + 1) would be 2.
  const Tensor one = Tensor::ScalarF32(1.0f), half = Tensor::ScalarF32(0.5f);
  const Tensor y = Eval1(Op::kQLinearMatMul,
                         {U8({1, 1}, {1}), half, U8({}, {0}), U8({1, 1}, {1}), one, U8({}, {0}), one, U8({}, {1})});
  ASSERT_TRUE(y.defined());
  EXPECT_EQ(y.GetInt(0), 1);
}

TEST(OctavoOps, MeanTheirBody) {
  std::mt19937 rng(5);
  const Tensor x = RandomU8(rng, {2, 3, 8}), w = RandomS8(rng, {8, 4});
  const Tensor xs = Tensor::ScalarF32(0.02f), xz = U8({}, {120}), ws = Tensor::F32({4}, {0.01f, 0.02f, 0.03f, 0.04f});
  const Tensor bias = Tensor::F32({4}, {1, -1, 0.5f, 0}), ys = Tensor::ScalarF32(0.05f), yz = U8({}, {10});
  const Tensor y = Eval1(Op::kQuantizedLinear, {x, xs, xz, w, ws, bias, ys, yz}, {{"activation", std::string("gelu")}});
  ASSERT_EQ(y.dtype(), DType::kU8);
  for (int64_t r = 0; r < 6; ++r) {
    for (int64_t n = 0; n < 4; ++n) {
      int64_t acc = 0;
      for (int64_t i = 0; i < 8; ++i) acc += (x.GetInt(r * 8 + i) - 120) * w.GetInt(i * 4 + n);
      const double v = static_cast<double>(acc) * 0.02 * ws.GetDouble(n) + bias.GetDouble(n);
      const double g = 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
      const double want = std::fmin(255, std::fmax(0, std::nearbyint(g / 0.05) + 10));
      EXPECT_NEAR(static_cast<double>(y.GetInt(r * 4 + n)), want, 1.0);
    }
  }
}

}  // namespace
}  // namespace octavo::ir::testing
