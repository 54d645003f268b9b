#include "octavo/quant/observe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace octavo::quant {
namespace {

std::string BytesOf(const Observer& o) {
  std::string s;
  o.AppendTo(s);
  return s;
}

// Samples with outliers, tiny values, zeros of both signs, denormals.
std::vector<std::vector<float>> Samples(std::mt19937& random, size_t number) {
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> samples(number);
  for (auto& s : samples) {
    for (size_t n = 1 + random() % 50; n > 0; --n) {
      const auto kind = random() % 20;
      s.push_back(kind == 0   ? -0.0f
                  : kind == 1 ? 1e-42f * normal(random)
                  : kind == 2 ? 1e6f * normal(random)
                  : kind == 3 ? 1e-12f * normal(random)
                              : normal(random));
    }
  }
  return samples;
}

Observer Seen(const std::vector<std::vector<float>>& samples) {
  Observer o;
  for (const auto& s : samples) {
    EXPECT_EQ(o.Observe(s), -1);
    o.EndSample();
  }
  return o;
}

TEST(ExactSum, DoesNotRound) {
  ExactSum s;
  s.Add(3e38f);
  s.Add(1e-45f);
  s.Add(-3e38f);
  EXPECT_EQ(s.Value(), static_cast<double>(1e-45f));
  s.Add(-2 * 1e-45f);  // 2^-148
  EXPECT_EQ(s.Value(), -static_cast<double>(1e-45f));
  ExactSum t;
  for (int i = 0; i < 1000; ++i) t.Add(3.4028235e38f);
  EXPECT_EQ(t.Value(), 1000 * static_cast<double>(3.4028235e38f));
}

TEST(ExactSum, AgreesWithLongDoubleOnModestNumbers) {
  const unsigned seed = 11;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  ExactSum s;
  long double truth = 0;  // 64 bits of mantissa: exact for 2^20 floats of similar size
  for (int i = 0; i < 100000; ++i) {
    const float x =
        std::ldexp(static_cast<float>(static_cast<int32_t>(random())), -20 - static_cast<int>(random() % 8));
    s.Add(x);
    truth += x;
  }
  EXPECT_EQ(s.Value(), static_cast<double>(truth));
}

TEST(Observer, KnownAnswers) {
  const Observer o = Seen({{-1, 2, 0.5f}, {-0.0f, 4}, {}, {3}});
  EXPECT_EQ(o.count(), 6u);
  EXPECT_EQ(o.samples(), 3u) << "an empty sample is none";
  EXPECT_EQ(o.min(), -1);
  EXPECT_EQ(o.max(), 4);
  EXPECT_DOUBLE_EQ(o.mean_min(), (-1 + 0 + 3) / 3.0);
  EXPECT_DOUBLE_EQ(o.mean_max(), (2 + 4 + 3) / 3.0);
  const auto bins = o.Bins();
  ASSERT_EQ(bins.size(), 6u);
  const double values[] = {-1, 0, 0.5, 2, 3, 4};
  for (size_t i = 0; i < bins.size(); ++i) {
    EXPECT_LE(bins[i].lo, values[i]);
    EXPECT_GE(bins[i].hi, values[i]);
    EXPECT_LE(bins[i].hi - bins[i].lo, std::fabs(values[i]) / 256);
    EXPECT_EQ(bins[i].count, 1u);
  }
  EXPECT_FALSE(std::signbit(Seen({{-0.0f}}).min()));
}

TEST(Observer, BinsHoldTheDataInOrder) {
  const unsigned seed = 3;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto samples = Samples(random, 200);
  std::vector<float> sorted;
  for (const auto& s : samples) sorted.insert(sorted.end(), s.begin(), s.end());
  std::ranges::sort(sorted);
  const Observer o = Seen(samples);
  size_t at = 0;
  for (const Bin& b : o.Bins()) {
    for (uint64_t i = 0; i < b.count; ++i, ++at) {
      const double x = std::fabs(sorted[at]) < 0x1p-134f ? 0 : sorted[at];
      ASSERT_TRUE(x >= b.lo && x <= b.hi) << x << " is not in " << b.lo << ".." << b.hi;
    }
  }
  EXPECT_EQ(at, sorted.size());
}

TEST(Observer, OrderCutsAndShardsDoNotMatter) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    auto samples = Samples(random, 60);
    const std::string truth = BytesOf(Seen(samples));
    std::ranges::shuffle(samples, random);
    EXPECT_EQ(BytesOf(Seen(samples)), truth);
    const auto cut = static_cast<ptrdiff_t>(random() % samples.size());
    const Observer a = Seen({samples.begin(), samples.begin() + cut});
    const Observer b = Seen({samples.begin() + cut, samples.end()});
    Observer ab = a, ba = b;
    ab.Merge(b);
    ba.Merge(a);
    EXPECT_EQ(BytesOf(ab), truth);
    EXPECT_EQ(BytesOf(ba), truth);
    // A sample given in pieces is the same sample.
    Observer pieces;
    for (const auto& s : samples) {
      const std::span<const float> all = s;
      pieces.Observe(all.first(all.size() / 2));
      pieces.Observe(all.subspan(all.size() / 2));
      pieces.EndSample();
    }
    EXPECT_EQ(BytesOf(pieces), truth);
  }
}

TEST(Observer, FindsTheFirstThatIsNotFinite) {
  for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
    Observer o;
    EXPECT_EQ(o.Observe(std::vector<float>{1, 2, bad, NAN}), 2);
  }
}

TEST(Observer, MemoryDoesNotGrowWithData) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> data(100000);
  Observer o;
  size_t after_first = 0;
  for (int i = 0; i < 20; ++i) {
    for (float& x : data) x = normal(random);
    o.Observe(data);
    o.EndSample();
    if (i == 0) after_first = BytesOf(o).size();
  }
  EXPECT_EQ(o.count(), 2000000u);
  EXPECT_LT(BytesOf(o).size(), 2 * after_first);
}

// Mean squares 0, 1.25, 1.25, 24.5 and one beyond the largest float: zeros are left out, classes are a factor of 4/3 or 3/2 wide.
TEST(Observer, RowsByTheirPower) {
  Observer o;
  for (const auto& row : std::vector<std::vector<float>>{{0, 0}, {0.5f, 1.5f}, {-1.5f, 0.5f}, {7, 0}, {3e38f, 3e38f}}) {
    ASSERT_EQ(o.Observe(row), -1);
    o.ObserveChannels(row, 2);
    o.EndSample();
  }
  const auto powers = o.RowPowers();
  ASSERT_EQ(powers.size(), 3u);
  EXPECT_EQ(powers[0].second, 2u);
  EXPECT_LE(std::abs(std::log2(powers[0].first / 1.25)), 0.3);
  EXPECT_EQ(powers[1].second, 1u);
  EXPECT_LE(std::abs(std::log2(powers[1].first / 24.5)), 0.3);
  EXPECT_GE(powers[2].first, 0x1p126);
  Observer twice = o;
  twice.Merge(o);
  EXPECT_EQ(twice.RowPowers()[0].second, 4u);
  const std::string bytes = BytesOf(o);
  std::string_view in = bytes;
  EXPECT_EQ(*Observer::Parse(in), o);
}

// A file of format 1 ends each value behind the channels.
TEST(Observer, ReadsWhatKnowsNoRows) {
  Observer o;
  ASSERT_EQ(o.Observe(std::vector<float>{1, 2}), -1);
  o.EndSample();
  std::string bytes = BytesOf(o);
  ASSERT_EQ(bytes.back(), 0);  // no rows
  bytes.pop_back();
  std::string_view in = bytes;
  const auto old = Observer::Parse(in, false);
  ASSERT_TRUE(old);
  EXPECT_EQ(*old, o);
  EXPECT_TRUE(in.empty() && old->RowPowers().empty());
}

TEST(Observer, BytesRoundTripAndDamageIsNoticed) {
  std::mt19937 random(9);
  const Observer o = Seen(Samples(random, 30));
  const std::string bytes = BytesOf(o);
  std::string_view in = bytes;
  const auto back = Observer::Parse(in);
  ASSERT_TRUE(back);
  EXPECT_TRUE(in.empty());
  EXPECT_EQ(*back, o);
  EXPECT_EQ(Seen({}), Observer());
  for (size_t n = 0; n < bytes.size(); ++n) {
    std::string_view cut = std::string_view(bytes).substr(0, n);
    ASSERT_FALSE(Observer::Parse(cut)) << n;
  }
  // Any flip must end in a sentence or another state, never in a crash.
  for (int i = 0; i < 3000; ++i) {
    std::string bad = bytes;
    bad[random() % bad.size()] ^= static_cast<char>(1 + random() % 255);
    std::string_view view = bad;
    const auto r = Observer::Parse(view);
    if (r) {
      EXPECT_NE(BytesOf(*r), bytes);
    }
  }
}

}  // namespace
}  // namespace octavo::quant
