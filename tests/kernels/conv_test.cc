// Float convolutions against double, for random shapes of one to three spatial dims, groups, strides, dilations and paddings.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <random>

#include "octavo/kernels/conv/conv_f32.h"

extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int count);

namespace octavo::kernels {
namespace {

int64_t Product(const std::vector<int64_t>& v) {
  int64_t p = 1;
  for (const int64_t x : v) p *= x;
  return p;
}

struct Sum {
  double value = 0, of_magnitudes = 0;
};

// y(filter, at) in double.
Sum Exact(const ConvShape& s, const std::vector<float>& x, const std::vector<float>& w, int64_t filter,
          std::vector<int64_t> at) {
  const int64_t channels = s.channels / s.groups, group = filter / (s.filters / s.groups);
  const int64_t window = Product(s.kernel), image = Product(s.in);
  Sum sum;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t k = 0; k < window; ++k) {
      int64_t flat = 0, rest = k, scale = 1;
      bool inside = true;
      for (size_t d = s.in.size(); d-- > 0;) {
        const int64_t i = at[d] * s.stride[d] - s.before[d] + rest % s.kernel[d] * s.dilation[d];
        rest /= s.kernel[d];
        inside &= i >= 0 && i < s.in[d];
        flat += i * scale, scale *= s.in[d];
      }
      if (!inside) continue;
      const double p = static_cast<double>(x[static_cast<size_t>((group * channels + c) * image + flat)]) *
                       w[static_cast<size_t>((filter * channels + c) * window + k)];
      sum.value += p, sum.of_magnitudes += std::fabs(p);
    }
  }
  return sum;
}

ConvShape RandomShape(std::mt19937& gen) {
  const auto draw = [&](int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(gen() % static_cast<uint32_t>(hi - lo + 1));
  };
  ConvShape s;
  s.groups = gen() % 3 == 0 ? draw(2, 4) : 1;
  s.channels = s.groups * draw(1, 9), s.filters = s.groups * draw(1, 20);
  for (size_t d = 0, dims = 1 + gen() % 3; d < dims; ++d) {
    s.kernel.push_back(draw(1, 4)), s.stride.push_back(draw(1, 3)), s.dilation.push_back(draw(1, 2));
    s.before.push_back(draw(0, 2)), s.after.push_back(draw(0, 2));
    s.in.push_back(s.dilation[d] * (s.kernel[d] - 1) + 1 + draw(0, 7));
  }
  return s;
}

void ExpectNearExact(const ConvShape& s, bool bias, std::mt19937& gen) {
  std::normal_distribution<float> normal;
  const int64_t depth = s.channels / s.groups * Product(s.kernel);
  std::vector<float> x(static_cast<size_t>(s.channels * Product(s.in))), w(static_cast<size_t>(s.filters * depth)),
      b(static_cast<size_t>(s.filters));
  for (auto* v : {&x, &w, &b}) {
    for (float& f : *v) f = normal(gen);
  }
  const std::vector<int64_t> out = s.Out();
  std::vector<float> y(static_cast<size_t>(s.filters * Product(out)), NAN);
  const auto conv = ConvF32::Make(s, w.data(), bias);
  ASSERT_TRUE(conv) << conv.error();
  ASSERT_EQ(conv->Run(x.data(), bias ? b.data() : nullptr, y.data()), "");
  std::vector<int64_t> at(out.size(), 0);
  for (size_t i = 0; i < y.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i);
    for (size_t d = out.size(); d-- > 0;) at[d] = rest % out[d], rest /= out[d];
    Sum want = Exact(s, x, w, rest, at);
    if (bias) want.value += b[static_cast<size_t>(rest)], want.of_magnitudes += std::fabs(b[static_cast<size_t>(rest)]);
    // Any order of float sums: at most (depth + 1) roundings of partial sums no larger than that of the magnitudes.
    ASSERT_NEAR(y[i], want.value, static_cast<double>(depth + 2) * 0x1p-24 * want.of_magnitudes) << "element " << i;
  }
}

TEST(ConvF32, RandomShapesAreNearTheExactSums) {
  int fast = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 gen(seed);
    const ConvShape s = RandomShape(gen);
    if (!ConvF32::Make(
            s, std::vector<float>(static_cast<size_t>(s.filters * s.channels / s.groups * Product(s.kernel))).data(),
            false)) {
      continue;  // oneDNN has its reference loops alone
    }
    ++fast;
    ExpectNearExact(s, gen() % 2 == 0, gen);
  }
  EXPECT_GT(fast, 150);
}

TEST(ConvF32, PatchesOfAViT) {
  std::mt19937 gen(1);
  ExpectNearExact({.channels = 3,
                   .filters = 40,
                   .groups = 1,
                   .in = {48, 64},
                   .kernel = {16, 16},
                   .stride = {16, 16},
                   .dilation = {1, 1},
                   .before = {0, 0},
                   .after = {0, 0}},
                  true, gen);
}

// The host's OpenMP threads and its signals are its own, after convolutions, packing and refusals.
TEST(ConvF32, LeavesTheHostAsItWas) {
  const int before = omp_get_max_threads();
  const ConvShape shape = {.channels = 8,
                           .filters = 8,
                           .in = {9, 9},
                           .kernel = {3, 3},
                           .stride = {1, 1},
                           .dilation = {1, 1},
                           .before = {1, 1},
                           .after = {1, 1}};
  const std::vector<float> w(8 * 8 * 9, 1.0f), x(8 * 81, 1.0f);
  std::vector<float> y(8 * 81);
  for (const int count : {1, 2, 5}) {
    omp_set_num_threads(count);
    const auto conv = ConvF32::Make(shape, w.data(), false);
    EXPECT_EQ(omp_get_max_threads(), count);
    ASSERT_TRUE(conv) << conv.error();
    EXPECT_EQ(conv->Run(x.data(), nullptr, y.data()), "");
    EXPECT_EQ(omp_get_max_threads(), count);
    ConvShape wrong = shape;
    wrong.groups = 3;
    EXPECT_FALSE(ConvF32::Make(wrong, w.data(), false));
    EXPECT_EQ(omp_get_max_threads(), count);
    sigset_t held;
    sigemptyset(&held);
    ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &held), 0);
    EXPECT_EQ(sigismember(&held, SIGALRM), 0);
  }
  omp_set_num_threads(before);
}

TEST(ConvF32, WhatMakesNoSenseIsRefused) {
  const ConvShape good = {.channels = 4,
                          .filters = 6,
                          .groups = 2,
                          .in = {8},
                          .kernel = {3},
                          .stride = {1},
                          .dilation = {1},
                          .before = {0},
                          .after = {0}};
  const std::vector<float> w(36, 1.0f);
  EXPECT_TRUE(ConvF32::Make(good, w.data(), false));
  const auto refused = [&](auto change, const char* why) {
    ConvShape s = good;
    change(s);
    const auto made = ConvF32::Make(s, w.data(), false);
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().find(why), std::string::npos) << made.error();
  };
  refused([](ConvShape& s) { s.groups = 4; }, "groups");
  refused([](ConvShape& s) { s.stride = {0}; }, "out of range");
  refused([](ConvShape& s) { s.before = {-1}; }, "out of range");
  refused([](ConvShape& s) { s.after = {INT64_MAX}; }, "out of range");
  refused([](ConvShape& s) { s.kernel = {9}; }, "does not fit");
  refused([](ConvShape& s) { s.stride = {1, 1}; }, "for each spatial dim");
  refused([](ConvShape& s) { s.in = {}; }, "one to three");
}

}  // namespace
}  // namespace octavo::kernels
