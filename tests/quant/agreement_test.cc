#include "octavo/quant/agreement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace octavo::quant {
namespace {

using ir::Tensor;
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Agreement, KindsAreKnownByNameWidthAndSums) {
  const Tensor two = Tensor::F32({2, 2}, {3, 4, 0, 2}), sums = Tensor::F32({2, 2}, {0.25f, 0.75f, 1, 0});
  EXPECT_EQ(KindOf("hidden", two), RowKind::kVector);
  EXPECT_EQ(KindOf("my_Logits", two), RowKind::kLogits);
  EXPECT_EQ(KindOf("hidden", sums), RowKind::kProbabilities);
  EXPECT_EQ(KindOf("logits", sums), RowKind::kProbabilities);
  EXPECT_EQ(KindOf("hidden", Tensor::F32({1, 2}, {-0.5f, 1.5f})), RowKind::kVector)
      << "a sum of 1, but not of probabilities";
  EXPECT_EQ(KindOf("hidden", Tensor::F32({1, 2}, {NAN, 1})), RowKind::kVector);
  EXPECT_EQ(KindOf("logits", Tensor::F32({2, 1}, {1, 1})), RowKind::kVector) << "one class says nothing";
  EXPECT_EQ(KindOf("logits", Tensor::F32({0, 4}, {})), RowKind::kVector);
  EXPECT_EQ(KindOf("y", Tensor::Zeros(ir::DType::kF32, {1, 8192})), RowKind::kLogits);
  EXPECT_EQ(NameOf(RowKind::kProbabilities), "probabilities");
}

TEST(Agreement, KnownAnswers) {
  Agreement a;
  EXPECT_EQ(a.Top1(), 1);
  a.Add(RowKind::kProbabilities, Tensor::F32({2, 2}, {0.25f, 0.75f, 0.5f, 0.5f}),
        Tensor::F32({2, 2}, {0.5f, 0.5f, 0.5f, 0.5f}));
  EXPECT_EQ(a.rows(), 2);
  EXPECT_EQ(a.Top1(), 0.5);  // of equals the first
  EXPECT_NEAR(a.MeanKl(), (0.25 * std::log(0.5) + 0.75 * std::log(1.5)) / 2, 1e-9);
  EXPECT_NEAR(a.KlError(), a.MeanKl(), 1e-9) << "of x and 0 both are x / 2";
  Agreement l;
  // Softmax does not see a constant.
  l.Add(RowKind::kLogits, Tensor::F32({1, 3}, {100, 101, 98}), Tensor::F32({1, 3}, {0, 1, -2}));
  EXPECT_EQ(l.Top1(), 1);
  EXPECT_NEAR(l.MeanKl(), 0, 1e-9);
  l.Add(RowKind::kLogits, Tensor::F32({1, 2}, {std::log(0.25f), std::log(0.75f)}), Tensor::F32({1, 2}, {0, 0}));
  EXPECT_NEAR(l.MeanKl(), (0.25 * std::log(0.5) + 0.75 * std::log(1.5)) / 2, 1e-6);
}

TEST(Agreement, RowsThatAreNotFiniteAreNotTheSame) {
  Agreement a;
  a.Add(RowKind::kLogits, Tensor::F32({3, 2}, {1, 2, kInf, 0, 1, 2}), Tensor::F32({3, 2}, {1, 2, 1, 0, NAN, 2}));
  EXPECT_EQ(a.rows(), 3);
  EXPECT_DOUBLE_EQ(a.Top1(), 1.0 / 3);
  EXPECT_EQ(a.MeanKl(), 0);
  a.Add(RowKind::kProbabilities, Tensor::F32({1, 2}, {1, 0}), Tensor::F32({1, 2}, {0, 1}));
  EXPECT_EQ(a.kind(), RowKind::kLogits) << "the kind of the first stays";
}

}  // namespace
}  // namespace octavo::quant
