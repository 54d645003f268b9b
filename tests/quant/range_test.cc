#include "octavo/quant/range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace octavo::quant {
namespace {

Observer Seen(std::span<const float> values) {
  Observer o;
  EXPECT_EQ(o.Observe(values), -1);
  o.EndSample();
  return o;
}

double TrueError(std::span<const float> values, const QParams& p) {
  double sum = 0;
  for (const float x : values) sum += std::pow(double(x) - FakeQuant(x, p), 2);
  return sum / static_cast<double>(values.size());
}

std::vector<float> Normal(unsigned seed, size_t n, float outlier = 0, float share = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> unit(0, 1);
  std::vector<float> v(n);
  for (float& x : v) x = unit(random) < share ? outlier * (1 + 0.1f * normal(random)) : normal(random);
  return v;
}

Range Chosen(const Observer& o, RangeOptions options) { return ChooseRange(o, options).value(); }

TEST(Range, Names) {
  for (const char* name : {"minmax", "moving_average", "percentile", "entropy", "mse"}) {
    EXPECT_EQ(Name(CalibratorFromName(name).value()), name);
  }
  const auto bad = CalibratorFromName("average");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message,
            "there is no calibrator 'average'; there are: minmax, moving_average, percentile, entropy, mse");
}

TEST(Range, MinMaxAndMovingAverage) {
  Observer o;
  o.Observe(std::vector<float>{-1, 3});
  o.EndSample();
  o.Observe(std::vector<float>{-2, 8});
  o.EndSample();
  EXPECT_EQ(Chosen(o, {.calibrator = Calibrator::kMinMax}), (Range{-2, 8}));
  EXPECT_EQ(Chosen(o, {.calibrator = Calibrator::kMovingAverage}), (Range{-1.5f, 5.5f}));
  EXPECT_EQ(Chosen(Seen(std::vector<float>{2, 5}), {.calibrator = Calibrator::kMinMax}), (Range{0, 5}))
      << "0 is inside";
  EXPECT_EQ(Chosen(Seen(std::vector<float>{0, 0}), {}), (Range{0, 0}));
}

TEST(Range, PercentileIsTheQuantileOfTheData) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    auto v = Normal(seed, 20001, 50, 0.01f);
    const Observer o = Seen(v);
    std::ranges::sort(v);
    for (const double p : {90.0, 99.0, 99.9}) {
      const auto cut = (100 - p) / 200 * static_cast<double>(v.size());
      const double lo = v[static_cast<size_t>(cut)], hi = v[v.size() - 1 - static_cast<size_t>(cut)];
      const Range r = Chosen(o, {.calibrator = Calibrator::kPercentile, .percentile = p});
      EXPECT_NEAR(r.lo, lo, std::fabs(lo) / 100) << p;
      EXPECT_NEAR(r.hi, hi, std::fabs(hi) / 100) << p;
    }
    EXPECT_EQ(Chosen(o, {.calibrator = Calibrator::kPercentile, .percentile = 100}), (Range{v.front(), v.back()}));
  }
  EXPECT_FALSE(ChooseRange(Seen(std::vector<float>{1}), {.calibrator = Calibrator::kPercentile, .percentile = 50}));
  EXPECT_FALSE(ChooseRange(Seen(std::vector<float>{1}), {.calibrator = Calibrator::kPercentile, .percentile = NAN}));
}

TEST(Range, ExpectedErrorAgreesWithTheErrorOfTheData) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    const auto v = Normal(seed, 100000, 20, 0.001f);
    const Observer o = Seen(v);
    const auto bins = o.Bins();
    for (const DType t : {DType::kU8, DType::kS8, DType::kU4, DType::kU16, DType::kE4M3FN, DType::kE5M2}) {
      for (const float shrink : {1.0f, 0.5f, 0.1f}) {
        const QParams p = AffineParams(o.min() * shrink, o.max() * shrink, t);
        const double truth = TrueError(v, p);
        EXPECT_NEAR(ExpectedSquaredError(bins, p), truth, 0.03 * truth) << Name(t) << " " << shrink;
      }
    }
  }
}

// Everything at one point or two: no bin has a width where the data has none at its ends.
TEST(Range, ExpectedErrorOfPoints) {
  const QParams p{DType::kU8, 1.0f, 0};
  EXPECT_EQ(ExpectedSquaredError(Seen(std::vector<float>{0, 0}).Bins(), p), 0.0);
  EXPECT_NEAR(ExpectedSquaredError(Seen(std::vector<float>{3.25f}).Bins(), p), 0.0625, 1e-12);
  EXPECT_NEAR(ExpectedSquaredError(Seen(std::vector<float>{-2.0f}).Bins(), p), 4.0, 1e-12);
  EXPECT_NEAR(ExpectedSquaredError(Seen(std::vector<float>{258.0f}).Bins(), p), 9.0, 1e-12);
}

// No range of a finer, exhaustive grid does much better on the data itself.
TEST(Range, MseFindsNearlyTheBest) {
  for (unsigned seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE(seed);
    for (const float share : {0.0f, 0.0002f, 0.01f}) {
      const auto v = Normal(seed, 10000, 12, share);
      const Observer o = Seen(v);
      for (const bool symmetric : {false, true}) {
        const RangeOptions options{.symmetric = symmetric};
        const double got = TrueError(v, ChooseParams(o, options).value());
        double best = 1e30;
        for (int a = 0; a < 20; ++a) {
          for (int b = 0; b < 20; ++b) {
            const Range r{o.min() * static_cast<float>(20 - a) / 20, o.max() * static_cast<float>(20 - b) / 20};
            best = std::min(best, TrueError(v, ParamsOf(r, options)));
          }
        }
        EXPECT_LE(got, best * 1.05) << share << (symmetric ? " symmetric" : "");
        EXPECT_LE(got, TrueError(v, ParamsOf({o.min(), o.max()}, options)) * 1.001) << "worse than minmax";
      }
    }
  }
}

TEST(Range, MseClipsARareOutlierAndKeepsACommonOne) {
  // Least of (30 - c)^2 / 10^6 + ((c + 4.9) / 255)^2 / 12: c = 10.4.
  std::vector<float> v = Normal(1, 1000000);
  v[0] = 30;
  EXPECT_NEAR(Chosen(Seen(v), {}).hi, 10.4, 0.7);
  for (size_t i = 0; i < 10000; ++i) v[i] = 30;  // 1 %: clipping costs more than it gains
  EXPECT_EQ(Chosen(Seen(v), {}).hi, 30);
}

TEST(Range, EntropyCutsATailAndKeepsAFullRange) {
  std::vector<float> v = Normal(2, 100000);
  v[0] = 100;
  const Range cut = Chosen(Seen(v), {.calibrator = Calibrator::kEntropy});
  EXPECT_LT(cut.hi, 50);
  EXPECT_GT(cut.hi, 2);
  std::mt19937 random(4);
  for (float& x : v) x = static_cast<float>(random() % 65536) / 65536;
  const Range full = Chosen(Seen(v), {.calibrator = Calibrator::kEntropy});
  EXPECT_GT(full.hi, 0.95f);
  const Range symmetric = Chosen(Seen(v), {.calibrator = Calibrator::kEntropy, .dtype = DType::kS8, .symmetric = true});
  EXPECT_EQ(symmetric.lo, -symmetric.hi);
  EXPECT_GT(symmetric.hi, 0.9f);
}

TEST(Range, EveryCalibratorStaysInsideAndIsDeterministic) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    auto v = Normal(seed, 3000, 9, 0.01f);
    std::mt19937 random(seed);
    if (seed % 3 == 0) std::ranges::transform(v, v.begin(), [](float x) { return std::fabs(x); });
    if (seed % 3 == 1) std::ranges::transform(v, v.begin(), [](float x) { return -std::fabs(x) * 1e-20f; });
    const Observer o = Seen(v);
    std::ranges::shuffle(v, random);
    const Observer again = Seen(v);
    for (const char* name : {"minmax", "moving_average", "percentile", "entropy", "mse"}) {
      for (const DType t : {DType::kU8, DType::kS8, DType::kE4M3FN}) {
        const RangeOptions options{.calibrator = CalibratorFromName(name).value(), .dtype = t};
        const Range r = Chosen(o, options);
        EXPECT_EQ(r, Chosen(again, options)) << name;
        const float most = std::max(std::fabs(o.min()), std::fabs(o.max()));
        EXPECT_TRUE(r.lo <= 0 && r.hi >= 0 && r.lo >= -most && r.hi <= most && r.lo < r.hi)
            << name << r.lo << " " << r.hi;
        const bool inside = r.lo >= std::min(0.0f, o.min()) && r.hi <= std::max(0.0f, o.max());
        EXPECT_TRUE(inside || IsFp8(t)) << name;
      }
    }
  }
  EXPECT_FALSE(ChooseRange(Observer(), {}));
}

// Steps of fp8 grow with the value: what is cut off is lost, and nothing is finer for it.
TEST(Range, OfFp8IsEverythingSeen) {
  auto v = Normal(1, 100000, 1, 1);
  v.push_back(12);
  const Observer o = Seen(v);
  for (const char* name : {"entropy", "mse"}) {
    RangeOptions options{.calibrator = CalibratorFromName(name).value(), .dtype = DType::kE4M3FN};
    EXPECT_EQ(Chosen(o, options), (Range{std::min(0.0f, o.min()), 12})) << name;
    options.dtype = DType::kU4;
    EXPECT_LT(Chosen(o, options).hi, 12) << name;
  }
}

TEST(Range, SearchIsQuickEnough) {
  const Observer o = Seen(Normal(1, 300000, 30, 0.001f));
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(ChooseRange(o, {}));
  const auto ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("ms", std::to_string(ms));  // 3 on a 2.8 GHz Xeon
  EXPECT_LT(ms, 2000) << "a model has hundreds of values";
}

}  // namespace
}  // namespace octavo::quant
