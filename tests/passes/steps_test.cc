// Weights of 4 bits in whole steps of one scale a column, against sums in double.
#include "octavo/passes/quantize/steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <thread>

#include "common_rows.h"
#include "octavo/passes/quantize/rounding.h"

namespace octavo::passes::quantize {

namespace {

using ir::DType;
using ir::kRowsOfStep;
using ir::Tensor;

const ParallelFor kAlone = [](int64_t n, const std::function<void(int64_t)>& task) {
  for (int64_t i = 0; i < n; ++i) task(i);
};
// Four threads, each with every fourth task, from the last to the first.
const ParallelFor kFour = [](int64_t n, const std::function<void(int64_t)>& task) {
  std::vector<std::jthread> threads;
  threads.reserve(4);
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&task, n, t] {
      for (int64_t i = n - 1; i >= 0; --i) {
        if (i % 4 == t) task(i);
      }
    });
  }
};

Tensor Normal(int64_t k, int64_t n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  Tensor w = Tensor::Empty(DType::kF32, {k, n});
  for (float& v : w.mutable_as<float>()) v = normal(rng);
  return w;
}

Compensation FitTo(const std::vector<float>& rows, int64_t k) {
  SecondMoments moments(k, kAlone);
  moments.Add(rows);
  return *Factor(std::move(moments), kAlone);
}

struct One {
  double code, step, zero, scale;
  double value() const { return scale * step * (code - zero); }
};
One At(const Stepped& q, int64_t i, int64_t j) {
  const int64_t n = q.scale.size(), block = i / kRowsOfStep * n + j;
  return {q.codes.GetDouble(i * n + j), q.step.GetDouble(block), q.zero.GetDouble(block), q.scale.GetDouble(j)};
}

// What rounding aimed at is half a step away, or farther beyond the last code; `error` is the sum of what is left; no code leaves a byte.
void Check(const Tensor& w, const Compensation* fit, const Stepped& q) {
  const int64_t k = w.shape()[0], n = w.shape()[1], blocks = (k + kRowsOfStep - 1) / kRowsOfStep;
  ASSERT_EQ(q.codes.shape(), w.shape());
  ASSERT_EQ(q.step.shape(), (ir::Shape{blocks, n}));
  ASSERT_EQ(q.zero.shape(), (ir::Shape{blocks, n}));
  ASSERT_EQ(q.scale.shape(), (ir::Shape{n}));
  for (int64_t i = 0; i < q.step.size(); ++i) {
    const double step = q.step.GetDouble(i), zero = q.zero.GetDouble(i);
    ASSERT_GE(step, 1);
    ASSERT_LE(step * std::max(zero, 15 - zero), 127) << "step " << step << ", zero " << zero;
  }
  for (const float s : q.scale.as<float>()) ASSERT_TRUE(std::isnormal(s) && s > 0) << s;
  double error = 0;
  for (int64_t j = 0; j < n; ++j) {
    std::vector<double> lost(static_cast<size_t>(k));
    for (int64_t i = k - 1; i >= 0; --i) {
      const One one = At(q, i, j);
      const double step = one.scale * one.step;
      double aim = w.GetDouble(i * n + j);
      lost[static_cast<size_t>(i)] = aim - one.value();
      for (int64_t behind = i + 1; fit != nullptr && behind < k; ++behind)
        aim += static_cast<double>(fit->v[static_cast<size_t>(i * k + behind)]) * lost[static_cast<size_t>(behind)];
      const double off = aim - one.value();
      // What a float of the sum may be off, in steps.
      const double about = 0.5 + 1e-4;
      if (one.code > 0) {
        ASSERT_GE(off, -about * step) << k << " x " << n << ": " << i << ", " << j;
      }
      if (one.code < 15) {
        ASSERT_LE(off, about * step) << k << " x " << n << ": " << i << ", " << j;
      }
      error += (fit != nullptr ? static_cast<double>(fit->weight[static_cast<size_t>(i)]) : 1.0) * off * off;
    }
  }
  EXPECT_NEAR(q.error, error, 1e-4 * error);
}

constexpr int64_t kShapes[][2] = {{16, 1}, {17, 1}, {1, 3}, {37, 2}, {48, 16}, {150, 271}, {100, 33}, {64, 600}};

TEST(Steps, EachWeightHasTheNearestCode) {
  for (const auto [k, n] : kShapes) {
    std::mt19937 rng(static_cast<unsigned>(k * 1000 + n));
    const Tensor w = Normal(k, n, rng);
    const auto q = RoundInSteps(w, nullptr, kAlone);
    ASSERT_TRUE(q.has_value());
    Check(w, nullptr, *q);
  }
}

TEST(Steps, CodesByTheFactor) {
  for (const auto [k, n] : kShapes) {
    std::mt19937 rng(static_cast<unsigned>(k * 1000 + n));
    const Compensation fit = FitTo(Rows(400, k, rng), k);
    const Tensor w = Normal(k, n, rng);
    const auto q = RoundInSteps(w, &fit, kAlone);
    ASSERT_TRUE(q.has_value());
    Check(w, &fit, *q);
  }
}

// The blocks that reach farthest are all but covered: what clips is less than a step away from its weight.
TEST(Steps, LittleClips) {
  std::mt19937 rng(3);
  const int64_t k = 320, n = 64;
  const Tensor w = Normal(k, n, rng);
  const auto q = RoundInSteps(w, nullptr, kAlone);
  ASSERT_TRUE(q.has_value());
  int clipped = 0;
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const One one = At(*q, i, j);
      const double off = std::fabs(w.GetDouble(i * n + j) - one.value()) / (one.scale * one.step);
      clipped += off > 0.501;
      ASSERT_LT(off, 2) << i << ", " << j;
    }
  }
  EXPECT_LT(clipped, k * n / 20);
}

TEST(Steps, BetterThanBlocksOfFloatScales) {
  std::mt19937 rng(4);
  const int64_t k = 640, n = 256;
  const Tensor w = Normal(k, n, rng);
  double power = 0;
  for (const float v : w.as<float>()) power += static_cast<double>(v) * v;
  const auto steps = RoundInSteps(w, nullptr, kAlone);
  const auto blocks = RoundInBlocks(w, {DType::kU4, 32}, nullptr, kAlone);
  ASSERT_TRUE(steps.has_value() && blocks.has_value());
  const double of_steps = 10 * std::log10(power / steps->error), of_blocks = 10 * std::log10(power / blocks->error);
  std::printf("steps in blocks of 16: %.2f dB, floats in blocks of 32: %.2f dB\n", of_steps, of_blocks);
  EXPECT_GT(of_steps, of_blocks + 0.5);
}

// On the rows that it was fitted to, and by the products themselves.
TEST(Steps, ProductsLoseLessWithAFit) {
  std::mt19937 rng(5);
  const int64_t k = 150, n = 40, rows = 400;
  const std::vector<float> x = Rows(rows, k, rng);
  const Compensation fit = FitTo(x, k);
  const Tensor w = Normal(k, n, rng);
  double lost[2] = {};
  for (const bool fitted : {false, true}) {
    const auto q = RoundInSteps(w, fitted ? &fit : nullptr, kAlone);
    ASSERT_TRUE(q.has_value());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        double off = 0;
        for (int64_t i = 0; i < k; ++i)
          off += x[static_cast<size_t>(r * k + i)] * (w.GetDouble(i * n + j) - At(*q, i, j).value());
        lost[fitted] += off * off;
      }
    }
  }
  std::printf("errors of products: nearest %.4g, fitted %.4g\n", lost[0], lost[1]);
  EXPECT_LT(lost[1], 0.5 * lost[0]);
}

// Columns of zeros, of denormals, of the least and the largest floats, of one sign, and of one weight among zeros, each with a normal one beside it.
TEST(Steps, ColumnsOfAnySize) {
  const int64_t k = 40, n = 9;
  std::mt19937 rng(6);
  Tensor w = Normal(k, n, rng);
  const auto x = w.mutable_as<float>();
  const auto at = [&x](int64_t i, int64_t j) -> float& { return x[static_cast<size_t>(i * n + j)]; };
  for (int64_t i = 0; i < k; ++i) {
    at(i, 0) = 0.0f;
    at(i, 1) *= 1e-41f;
    at(i, 2) *= 1e-37f;
    at(i, 3) = std::copysign(1e37f, at(i, 3));
    at(i, 4) = -std::fabs(at(i, 4));
    at(i, 5) = std::fabs(at(i, 5)) * 1e36f;
    at(i, 6) = i == 20 ? -3.0f : 0.0f;
    at(i, 7) = i < 16 ? at(i, 7) * 1e-41f : at(i, 7);
  }
  for (const bool fitted : {false, true}) {
    const Compensation fit = FitTo(Rows(200, k, rng), k);
    const auto q = RoundInSteps(w, fitted ? &fit : nullptr, kAlone);
    ASSERT_TRUE(q.has_value());
    Check(w, fitted ? &fit : nullptr, *q);
    EXPECT_TRUE(std::isfinite(q->error));
    EXPECT_EQ(q->scale.GetDouble(0), 1);
    for (int64_t i = 0; i < k; ++i) EXPECT_EQ(At(*q, i, 0).code, At(*q, i, 0).zero) << "zeros";
  }
  const auto q = RoundInSteps(w, nullptr, kAlone);
  for (const int64_t j : {3, 4, 5, 8}) {
    double error = 0, power = 0;
    for (int64_t i = 0; i < k; ++i) {
      const double off = w.GetDouble(i * n + j) - At(*q, i, j).value();
      error += off * off, power += w.GetDouble(i * n + j) * w.GetDouble(i * n + j);
    }
    EXPECT_LT(error, 0.01 * power) << j;
  }
  for (int64_t i = 0; i < k; ++i) {
    if (i != 20) {
      EXPECT_EQ(At(*q, i, 6).value(), 0);
    }
  }
  EXPECT_NEAR(At(*q, 20, 6).value(), -3, 0.25);
}

// Squares of such weights are no numbers, or zero; their codes are the same.
TEST(Steps, APowerOfTwoGoesIntoTheScale) {
  std::mt19937 rng(8);
  const Tensor w = Normal(64, 40, rng);
  const auto want = RoundInSteps(w, nullptr, kAlone);
  ASSERT_TRUE(want.has_value());
  for (const float power : {0x1p-100f, 0x1p100f}) {
    Tensor times = Normal(64, 40, rng);
    for (size_t i = 0; i < times.as<float>().size(); ++i) times.mutable_as<float>()[i] = w.as<float>()[i] * power;
    const auto q = RoundInSteps(times, nullptr, kAlone);
    ASSERT_TRUE(q.has_value());
    EXPECT_TRUE(q->codes.SameBits(want->codes) && q->step.SameBits(want->step) && q->zero.SameBits(want->zero));
    EXPECT_EQ(q->scale.as<float>()[5], want->scale.as<float>()[5] * power);
  }
}

TEST(Steps, TheSameBytesForAnyNumberOfThreads) {
  for (const int64_t n : {1400, 1401}) {  // several tasks; one, since columns share bytes
    const int64_t k = 70;
    std::mt19937 rng(7);
    const Compensation fit = FitTo(Rows(200, k, rng), k);
    const Tensor w = Normal(k, n, rng);
    for (const Compensation* f : {&fit, static_cast<const Compensation*>(nullptr)}) {
      const auto one = RoundInSteps(w, f, kAlone), four = RoundInSteps(w, f, kFour);
      ASSERT_TRUE(one.has_value() && four.has_value());
      EXPECT_TRUE(one->codes.SameBits(four->codes) && one->step.SameBits(four->step));
      EXPECT_TRUE(one->zero.SameBits(four->zero) && one->scale.SameBits(four->scale));
      EXPECT_EQ(one->error, four->error);
    }
  }
}

}  // namespace
}  // namespace octavo::passes::quantize
