#include "octavo/ir/dim.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace octavo::ir {
namespace {

const Dim kBatch = Dim::Symbol("batch");
const Dim kSeq = Dim::Symbol("seq");
const Dim kPast = Dim::Symbol("past");

TEST(Dim, PrintsDeterministically) {
  EXPECT_EQ(Dim().ToString(), "?");
  EXPECT_EQ(Dim(7).ToString(), "7");
  EXPECT_EQ(Dim(-7).ToString(), "-7");
  EXPECT_EQ(Dim(0).ToString(), "0");
  EXPECT_EQ((kSeq * 12 * kBatch + 1).ToString(), "12*batch*seq + 1");
  EXPECT_EQ((kSeq + kPast).ToString(), "past + seq");
  EXPECT_EQ((Dim(3) - kSeq - kSeq * kSeq).ToString(), "-seq - seq*seq + 3");
  EXPECT_EQ(Dim::Symbol("a b").ToString(), "\"a b\"");
  EXPECT_EQ(Dim::Symbol("12").ToString(), "\"12\"");
  EXPECT_EQ(ToString(SymShape{kBatch, kSeq, 384}), "[batch,seq,384]");
  EXPECT_EQ(ToString(SymShape{}), "[]");
}

TEST(Dim, UnknownEqualsNothing) {
  EXPECT_FALSE(ProvablyEqual(Dim(), Dim()));
  EXPECT_FALSE(ProvablyDifferent(Dim(), Dim(3)));
  EXPECT_TRUE(SameRepresentation(Dim(), Dim()));
  EXPECT_FALSE((Dim() + 1).known());
  EXPECT_FALSE((Dim() * 0).known());
  EXPECT_FALSE((Dim() - Dim()).known());
  EXPECT_FALSE(Dim::Symbol("").known());
  EXPECT_FALSE(ProvablyEqual(SymShape{Dim()}, SymShape{Dim()}));
}

TEST(Dim, ComparesPolynomials) {
  EXPECT_TRUE(ProvablyEqual((kBatch + 1) * (kBatch - 1), kBatch * kBatch - 1));
  EXPECT_TRUE(ProvablyDifferent(kSeq, kSeq + 1));
  EXPECT_FALSE(ProvablyDifferent(kSeq, kBatch));
  EXPECT_FALSE(ProvablyEqual(kSeq, kBatch));
  EXPECT_TRUE((kSeq - kSeq).is_number());
  EXPECT_EQ((kSeq - kSeq).number(), 0);
  EXPECT_EQ(kSeq.symbol(), "seq");
  EXPECT_EQ((kSeq * 2).symbol(), "");
  EXPECT_EQ(Dim(3).symbol(), "");
}

TEST(Dim, DividesExactly) {
  EXPECT_EQ(ExactDiv(kBatch * kSeq * 384, kBatch * kSeq * 32).ToString(), "12");
  EXPECT_EQ(ExactDiv(kBatch * (kPast + kSeq) * 32, kPast + kSeq).ToString(), "32*batch");
  EXPECT_EQ(ExactDiv(kBatch * (kPast + kSeq) * 32, kBatch * (kPast + kSeq)).ToString(), "32");
  EXPECT_EQ(ExactDiv(Dim(0), kSeq).ToString(), "0");
  EXPECT_FALSE(ExactDiv(kSeq + 1, 2).known());
  EXPECT_FALSE(ExactDiv(kSeq, kBatch).known());
  EXPECT_FALSE(ExactDiv(kSeq + 1, kSeq).known());
  EXPECT_FALSE(ExactDiv(Dim(7), 0).known());
  EXPECT_FALSE(ExactDiv(Dim(7), Dim()).known());
}

TEST(Dim, BoundsFromBelow) {
  EXPECT_EQ((kBatch * kSeq + 3).LowerBound(), 3);
  EXPECT_EQ(Dim(-2).LowerBound(), -2);
  EXPECT_EQ((kBatch - kSeq).LowerBound(), std::nullopt);
  EXPECT_EQ(Dim().LowerBound(), std::nullopt);
}

TEST(Dim, OverflowIsUnknown) {
  const Dim big(std::numeric_limits<int64_t>::max());
  EXPECT_FALSE((big + 1).known());
  EXPECT_FALSE((big * 2).known());
  EXPECT_FALSE((Dim(std::numeric_limits<int64_t>::min()) - 1).known());
  EXPECT_EQ(Dim(std::numeric_limits<int64_t>::min()).ToString(), "-9223372036854775808");
  Dim wide = kSeq;
  for (int i = 0; i < 64; ++i) wide = wide * wide;
  EXPECT_FALSE(wide.known());
}

TEST(Dim, RefusesOtherText) {
  for (const char* text : {"", " ", "+", "a+", "a**b", "1 2", "a b", "\"", "\"\"", "\"\\q\"", "a?", "??", "3x",
                           "99999999999999999999", "a/2", "- ?"}) {
    EXPECT_FALSE(Dim::Parse(text).has_value()) << text;
  }
  EXPECT_EQ(Dim::Parse(" 2 * b*a - 3 + 1")->ToString(), "2*a*b - 2");
  EXPECT_FALSE(Dim::Parse("?")->known());
}

TEST(Dim, EvaluatesLikeIntegers) {
  const unsigned seed = 20260307;
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const std::string names[] = {"a", "b", "c 1"};
  for (int round = 0; round < 2000; ++round) {
    const int64_t values[] = {static_cast<int64_t>(rng() % 9), static_cast<int64_t>(rng() % 9 + 1),
                              static_cast<int64_t>(rng() % 9 + 1)};
    const auto lookup = [&](std::string_view n) -> std::optional<int64_t> {
      for (int i = 0; i < 3; ++i) {
        if (n == names[i]) return values[i];
      }
      return std::nullopt;
    };
    Dim d(static_cast<int64_t>(rng() % 5) - 2);
    int64_t truth = d.number();
    for (int step = 0; step < 5; ++step) {
      const size_t which = rng() % 4;
      const Dim operand = which < 3 ? Dim::Symbol(names[which]) : Dim(3);
      const int64_t number = which < 3 ? values[which] : 3;
      switch (rng() % 3) {
        case 0:
          d = d + operand, truth += number;
          break;
        case 1:
          d = d - operand, truth -= number;
          break;
        default:
          // Division undoes multiplication.
          EXPECT_TRUE(ProvablyEqual(ExactDiv(d * operand, operand), d)) << d.ToString();
          d = d * operand, truth *= number;
      }
    }
    ASSERT_TRUE(d.known());
    EXPECT_EQ(d.Evaluate(lookup), truth) << d.ToString();
    const auto again = Dim::Parse(d.ToString());
    ASSERT_TRUE(again.has_value()) << d.ToString();
    EXPECT_TRUE(ProvablyEqual(*again, d));
    EXPECT_EQ(again->ToString(), d.ToString());
  }
  EXPECT_EQ(kSeq.Evaluate([](std::string_view) { return std::nullopt; }), std::nullopt);
}

}  // namespace
}  // namespace octavo::ir
