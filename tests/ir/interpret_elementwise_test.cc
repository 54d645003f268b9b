// Element-wise ops where the ONNX node tests are silent: integer corners, broadcasting, empty tensors, NaN, narrow
// floats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "octavo/quant/numeric/float16.h"
#include "octavo/tests/ir/interpret_testing.h"

namespace octavo::ir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> Ints(const Tensor& t) { return t.defined() ? t.ToInts() : std::vector<int64_t>{}; }

TEST(Integers, DivTruncatesTowardZero) {
  EXPECT_THAT(Ints(Eval1(Op::kDiv, {S32({4}, {7, -7, 7, -7}), S32({4}, {2, 2, -2, -2})})), ElementsAre(3, -3, -3, 3));
}

TEST(Integers, ModHasTheDivisorsSign) {
  const std::vector<Tensor> in = {S32({4}, {7, -7, 7, -7}), S32({4}, {3, 3, -3, -3})};
  EXPECT_THAT(Ints(Eval1(Op::kMod, in)), ElementsAre(1, 2, -2, -1));
  EXPECT_THAT(Ints(Eval1(Op::kMod, in, {{"fmod", int64_t{1}}})), ElementsAre(1, -1, 1, -1));
}

TEST(Integers, SmallestByMinusOneWraps) {
  const Tensor least = S32({1}, {INT32_MIN}), minus = S32({1}, {-1});
  EXPECT_THAT(Ints(Eval1(Op::kDiv, {least, minus})), ElementsAre(INT32_MIN));
  EXPECT_THAT(Ints(Eval1(Op::kMod, {least, minus})), ElementsAre(0));
  EXPECT_THAT(Ints(Eval1(Op::kAbs, {least})), ElementsAre(INT32_MIN));
  EXPECT_THAT(Ints(Eval1(Op::kNeg, {S8({2}, {-128, 5})})), ElementsAre(-128, -5));
}

TEST(Integers, ZeroDivisorIsASentence) {
  EXPECT_THAT(ErrorOf(Op::kDiv, {S32({2}, {1, 2}), S32({2}, {1, 0})}),
              AllOf(HasSubstr("Div 'the_node'"), HasSubstr("divided by zero")));
  EXPECT_THAT(ErrorOf(Op::kMod, {S32({1}, {1}), S32({}, {0})}), HasSubstr("divided by zero"));
  EXPECT_THAT(ErrorOf(Op::kPow, {S32({1}, {0}), S32({}, {-1})}), HasSubstr("zero is raised"));
  // nothing to divide: no error
  EXPECT_EQ(Eval1(Op::kDiv, {S32({0}, {}), S32({1}, {0})}).shape(), (Shape{0}));
}

TEST(Integers, PowIsExact) {
  EXPECT_THAT(Ints(Eval1(Op::kPow, {Tensor::S64({3}, {3, -3, 2}), Tensor::S64({3}, {39, 39, 62})})),
              ElementsAre(4052555153018976267, -4052555153018976267, int64_t{1} << 62));
  EXPECT_THAT(Ints(Eval1(Op::kPow, {S32({5}, {1, -1, -1, 2, -2}), S32({5}, {-3, -3, -4, -1, -1})})),
              ElementsAre(1, -1, 1, 0, 0));
  EXPECT_THAT(Ints(Eval1(Op::kPow, {S32({1}, {10}), S32({1}, {10})})), ElementsAre(1410065408));  // 10^10 mod 2^32
  // a float exponent: computed in double, truncated
  EXPECT_THAT(Ints(Eval1(Op::kPow, {Tensor::S64({1}, {2}), Tensor::F32({1}, {0.5f})})), ElementsAre(1));
}

TEST(Integers, ArithmeticWraps) {
  EXPECT_THAT(Ints(Eval1(Op::kAdd, {U8({2}, {250, 3}), U8({1}, {10})})), ElementsAre(4, 13));
  EXPECT_THAT(Ints(Eval1(Op::kMul, {S8({1}, {100}), S8({1}, {3})})), ElementsAre(44));
  EXPECT_THAT(Ints(Eval1(Op::kSub, {S32({1}, {INT32_MIN}), S32({1}, {1})})), ElementsAre(INT32_MAX));
}

TEST(Integers, ShiftsBeyondTheWidthGiveZero) {
  EXPECT_THAT(
      Ints(Eval1(Op::kBitShift, {U8({3}, {255, 255, 1}), U8({3}, {8, 1, 7})}, {{"direction", std::string("LEFT")}})),
      ElementsAre(0, 254, 128));
  EXPECT_THAT(ErrorOf(Op::kBitShift, {U8({1}, {1}), U8({1}, {1})}), HasSubstr("direction"));
}

// Every pair of broadcast patterns against indexing by hand.
TEST(Broadcast, AgreesWithIndexArithmetic) {
  const uint32_t seed = 20240611;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 300; ++round) {
    const size_t rank = rng() % 5;
    Shape full(rank), shapes[2];
    for (auto& d : full) d = rng() % 10 == 0 ? 0 : 1 + rng() % 4;
    for (Shape& s : shapes) {
      s = full;
      for (auto& d : s) d = rng() % 3 == 0 ? 1 : d;
      s.erase(s.begin(), s.begin() + static_cast<int64_t>(rng() % (rank + 1)));
    }
    Shape out(rank);
    for (size_t i = 0; i < rank; ++i) {
      int64_t best = 1;
      for (const Shape& s : shapes) {
        if (i + s.size() >= rank && s[i + s.size() - rank] != 1) best = s[i + s.size() - rank];
      }
      out[i] = best;
    }
    while (!out.empty() && out.size() > std::max(shapes[0].size(), shapes[1].size())) out.erase(out.begin());
    Tensor in[2];
    for (int k = 0; k < 2; ++k) {
      std::vector<int64_t> v(static_cast<size_t>(ElementCount(shapes[k])));
      for (auto& e : v) e = static_cast<int64_t>(rng() % 1000);
      in[k] = Tensor::S64(shapes[k], v);
    }
    const Tensor y = Eval1(Op::kSub, {in[0], in[1]});
    ASSERT_EQ(y.shape(), out) << ToString(shapes[0]) << ToString(shapes[1]);
    for (int64_t i = 0; i < y.size(); ++i) {
      int64_t operand[2];
      for (int k = 0; k < 2; ++k) {
        int64_t rest = i, at = 0, step = 1;
        for (size_t d = out.size(); d-- > 0;) {
          const int64_t index = rest % out[d];
          rest /= out[d];
          if (d + shapes[k].size() < out.size()) continue;
          const int64_t size = shapes[k][d + shapes[k].size() - out.size()];
          at += (size == 1 ? 0 : index) * step;
          step *= size;
        }
        operand[k] = in[k].GetInt(at);
      }
      ASSERT_EQ(y.GetInt(i), operand[0] - operand[1]) << "element " << i;
    }
  }
}

TEST(Broadcast, RefusesWhatDoesNotFit) {
  EXPECT_THAT(ErrorOf(Op::kAdd, {Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6}), Tensor::F32({2}, {1, 2})}),
              AllOf(HasSubstr("[2,3]"), HasSubstr("[2]"), HasSubstr("broadcast")));
  EXPECT_THAT(ErrorOf(Op::kAdd, {Tensor::F32({1}, {1}), Tensor::S64({1}, {1})}), HasSubstr("element types"));
}

TEST(Floats, NanPassesThrough) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::F32({3}, {nan, -inf, 1.0f});
  EXPECT_TRUE(std::isnan(Eval1(Op::kRelu, {x}).GetDouble(0)));
  EXPECT_TRUE(std::isnan(Eval1(Op::kClip, {x, Tensor::ScalarF32(0), Tensor::ScalarF32(2)}).GetDouble(0)));
  EXPECT_TRUE(std::isnan(Eval1(Op::kMax, {x, Tensor::ScalarF32(5)}).GetDouble(0)));
  EXPECT_TRUE(std::isnan(Eval1(Op::kMin, {Tensor::ScalarF32(5), x}).GetDouble(0)));
  EXPECT_EQ(Eval1(Op::kMax, {x, Tensor::ScalarF32(5)}).GetDouble(1), 5.0);
  EXPECT_THAT(Ints(Eval1(Op::kIsNaN, {x})), ElementsAre(1, 0, 0));
  EXPECT_THAT(Ints(Eval1(Op::kIsInf, {x}, {{"detect_negative", int64_t{0}}})), ElementsAre(0, 0, 0));
  EXPECT_THAT(Ints(Eval1(Op::kEqual, {x, x})), ElementsAre(0, 1, 1));
}

TEST(Floats, SixteenBitsAreRoundedOncePerOp) {
  // 1 + 2^-11 is halfway between two f16: to even, 1.
  const uint16_t one = 0x3c00, tiny = quant::F32ToF16(0x1p-11f), more = quant::F32ToF16(0x1.8p-11f);
  const Tensor y =
      Eval1(Op::kAdd, {Make<uint16_t>(DType::kF16, {2}, {one, one}), Make<uint16_t>(DType::kF16, {2}, {tiny, more})});
  ASSERT_TRUE(y.defined());
  EXPECT_EQ(y.GetDouble(0), 1.0);
  EXPECT_EQ(y.GetDouble(1), 1.0 + 0x1p-10);
}

// Every f16, and what lies at and beside the middle of two.
TEST(Cast, HalvesAreThoseOfTheirDefinition) {
  const auto of = [](const std::vector<uint16_t>& bits) {
    Tensor t = Tensor::Empty(DType::kF16, {static_cast<int64_t>(bits.size())});
    std::ranges::copy(bits, t.mutable_as<uint16_t>().begin());
    return t;
  };
  std::vector<uint16_t> halves(65536);
  std::vector<float> floats;
  for (uint32_t h = 0; h < 65536; ++h) {
    halves[h] = static_cast<uint16_t>(h);
    const float v = quant::F16ToF32(halves[h]), next = quant::F16ToF32(static_cast<uint16_t>(h + 1));
    const float middle = v + (next - v) / 2;
    for (const float f : {v, middle, std::nextafter(middle, INFINITY), std::nextafter(middle, -INFINITY)})
      floats.push_back(f);
  }
  const Tensor wide = Eval1(Op::kCast, {of(halves)}, {{"to", int64_t{1}}});
  for (size_t h = 0; h < halves.size(); ++h) {
    ASSERT_EQ(std::bit_cast<uint32_t>(wide.as<float>()[h]), std::bit_cast<uint32_t>(quant::F16ToF32(halves[h]))) << h;
  }
  const Tensor x = Tensor::F32({static_cast<int64_t>(floats.size())}, floats);
  const Tensor half = Eval1(Op::kCast, {x}, {{"to", int64_t{10}}});
  for (size_t i = 0; i < floats.size(); ++i) ASSERT_EQ(half.as<uint16_t>()[i], quant::F32ToF16(floats[i])) << floats[i];
}

TEST(Cast, FloatsToIntegersBeyondTheRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::F32({5}, {-1.9f, 1.9f, 3e9f, -3.4e38f, nan});
  EXPECT_THAT(Ints(Eval1(Op::kCast, {x}, {{"to", int64_t{6}}})), ElementsAre(-1, 1, INT32_MIN, INT32_MIN, INT32_MIN));
  EXPECT_THAT(Ints(Eval1(Op::kCast, {x}, {{"to", int64_t{7}}})), ElementsAre(-1, 1, 3000000000, INT64_MIN, INT64_MIN));
  EXPECT_THAT(Ints(Eval1(Op::kCast, {x}, {{"to", int64_t{9}}})), ElementsAre(1, 1, 1, 1, 1));
}

TEST(Cast, DoubleToHalfRoundsOnce) {
  // Just above the tie between 1 and 1 + 2^-10: a stop at float32 would fall back onto the tie.
  const double d = 1.0 + 0x1p-11 + 0x1p-40;
  const Tensor y =
      Eval1(Op::kCast, {Tensor::Of<double>(DType::kF64, {1}, std::vector<double>{d})}, {{"to", int64_t{10}}});
  ASSERT_TRUE(y.defined());
  EXPECT_EQ(y.GetDouble(0), 1.0 + 0x1p-10);
}

TEST(Where, PicksAndBroadcasts) {
  const Tensor y = Eval1(Op::kWhere, {Bool({2, 1}, {1, 0}), Tensor::F32({3}, {1, 2, 3}), Tensor::ScalarF32(9)});
  ASSERT_TRUE(y.defined());
  EXPECT_THAT(y.ToFloats(), ElementsAre(1, 2, 3, 9, 9, 9));
  const Tensor s = Eval1(Op::kWhere, {Bool({2}, {1, 0}), Tensor::Strings({2}, {"a", "b"}), Tensor::Strings({}, {"z"})});
  ASSERT_TRUE(s.defined());
  EXPECT_THAT(s.strings(), ElementsAre("a", "z"));
}

TEST(Errors, NameOpNodeAndShapes) {
  const std::string e = ErrorOf(Op::kSin, {S32({2, 1}, {1, 2})});
  EXPECT_THAT(e, AllOf(HasSubstr("Sin 'the_node'"), HasSubstr("s32[2,1]"), HasSubstr("s32 is not one")));
  EXPECT_FALSE(CanEval(Op::kOpaque));
  EXPECT_THAT(ErrorOf(Op::kAdd, {S32({}, {1}), Tensor()}), HasSubstr("required input 1 is absent"));
}

}  // namespace
}  // namespace octavo::ir::testing
