// Float products against double, within (k + 2) * 2^-24 of the sum of the magnitudes.
#include "octavo/kernels/gemm/gemm_f32.h"

#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>
#include <vector>

#include "testing.h"

extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int count);

namespace octavo::kernels {
namespace {

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& bias,
                const std::vector<float>& y, int64_t m, int64_t k, int64_t n, int64_t x_stride, int64_t y_stride) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double exact = bias.empty() ? 0.0 : bias[static_cast<size_t>(j)];
      double magnitude = std::abs(exact);
      for (int64_t l = 0; l < k; ++l) {
        const double term = double{a[static_cast<size_t>(i * x_stride + l)]} * b[static_cast<size_t>(l * n + j)];
        exact += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(y[static_cast<size_t>(i * y_stride + j)], exact, magnitude * (static_cast<double>(k) + 2) * 0x1p-24);
    }
  }
}

std::vector<float> RandomFloats(int64_t count) {
  std::vector<float> v(static_cast<size_t>(count));
  for (auto& x : v) x = RandomFloat(-1, 1);
  return v;
}

TEST(GemmF32, EqualsDoubleWithinTheBound) {
  for (int trial = 0; trial < 20; ++trial) {
    const int64_t m = RandomInt(1, trial % 2 == 0 ? 5 : 70), k = RandomInt(1, 200), n = RandomInt(1, 150);
    const int64_t x_stride = k + RandomInt(0, 5), y_stride = n + RandomInt(0, 5);
    const std::vector<float> x = RandomFloats(m * x_stride), w = RandomFloats(k * n);
    const std::vector<float> bias = trial % 2 == 0 ? RandomFloats(n) : std::vector<float>();
    const bool transposed = trial % 3 == 0;
    const int64_t stride = (transposed ? k : n) + RandomInt(0, 3);  // columns of a wider matrix, too
    std::vector<float> given(static_cast<size_t>(stride * (transposed ? n : k)), 55.0f);
    for (int64_t i = 0; i < k * n; ++i) {
      const int64_t at = transposed ? i % n * stride + i / n : i / n * stride + i % n;
      given[static_cast<size_t>(at)] = w[static_cast<size_t>(i)];
    }
    auto packed = PackWeightsF32(given.data(), k, n, transposed, 64, stride);
    ASSERT_TRUE(packed.has_value()) << packed.error();
    std::vector<float> y(static_cast<size_t>(m * y_stride), 77.0f);
    const int64_t split = RandomInt(0, static_cast<int>(m));
    const GemmF32Args args{x.data(), x_stride, &*packed, bias.empty() ? nullptr : bias.data(), y.data(), y_stride};
    ASSERT_EQ(GemmF32(args, {0, split}), "");
    ASSERT_EQ(GemmF32(args, {split, m}), "");
    ExpectNear(x, w, bias, y, m, k, n, x_stride, y_stride);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = n; j < y_stride; ++j) ASSERT_EQ(y[static_cast<size_t>(i * y_stride + j)], 77.0f);
    }
  }
}

double CpuSeconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// oneDNN's OpenMP pool must not wake up: all processor time of the process is that of the threads that call, and one
// packed matrix serves several of them at once.
TEST(GemmF32, StaysOnTheCallingThread) {
  const int64_t m = 256, k = 512, n = 512;
  const std::vector<float> x = RandomFloats(m * k), w = RandomFloats(k * n);
  auto packed = PackWeightsF32(w.data(), k, n, false, m);
  ASSERT_TRUE(packed.has_value()) << packed.error();
  std::vector<std::vector<float>> y(3, std::vector<float>(static_cast<size_t>(m * n)));
  double own[3] = {};
  const auto work = [&](size_t i) {
    const double start = CpuSeconds(CLOCK_THREAD_CPUTIME_ID);
    for (int repeat = 0; repeat < 20; ++repeat) {
      EXPECT_EQ(GemmF32({x.data(), k, &*packed, nullptr, y[i].data(), n}, {0, m}), "");
    }
    own[i] = CpuSeconds(CLOCK_THREAD_CPUTIME_ID) - start;
  };
  const double start = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
  {
    std::jthread a(work, 1), b(work, 2);
    work(0);
  }
  const double all = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - start;
  EXPECT_LT(all, (own[0] + own[1] + own[2]) * 1.1 + 0.005);
  EXPECT_EQ(y[0], y[1]);
  EXPECT_EQ(y[0], y[2]);
  ExpectNear(x, w, {}, y[0], 3, k, n, k, n);
}

// A server sees every number of rows: they come down to a few, whose products are remembered, and one that is forgotten while it runs
// stays alive.
TEST(GemmF32, RemembersAFewShapes) {
  const int64_t k = 40, n = 33, most = 128;
  const std::vector<float> w = RandomFloats(k * n), x = RandomFloats(most * k);
  const auto packed = PackWeightsF32(w.data(), k, n, false, 64);
  ASSERT_TRUE(packed.has_value());
  EXPECT_EQ(packed->products(), 0u);
  const auto work = [&](int64_t gap, int64_t first) {
    for (int64_t i = 0; i < most; ++i) {
      const int64_t m = (first + i * 7) % most + 1, stride = n + gap;
      std::vector<float> y(static_cast<size_t>(m * stride));
      EXPECT_EQ(GemmF32({x.data(), k, &*packed, nullptr, y.data(), stride}, {0, m}), "");
      if (i % 20 == 0) ExpectNear(x, w, {}, y, m, k, n, k, stride);
    }
  };
  work(0, 0);
  if (packed->in_panels()) {
    EXPECT_EQ(packed->products(), 0u);
    return;
  }
  EXPECT_EQ(packed->products(), 2 * kRowUnitF32 - 1 + most / kRowUnitF32 - 1);
  {
    std::jthread a(work, 1, 1), b(work, 2, 2);
    work(0, 3);
  }
  EXPECT_EQ(packed->products(), kPackedF32Products);
}

// The host's OpenMP threads are its own: their number is what it was, after products, packing and refusals.
TEST(GemmF32, LeavesTheHostsThreads) {
  const int before = omp_get_max_threads();
  const std::vector<float> w = RandomFloats(40 * 33), x = RandomFloats(90 * 40);
  for (const int count : {1, 2, 5}) {
    omp_set_num_threads(count);
    const auto packed = PackWeightsF32(w.data(), 40, 33, false, 64);
    EXPECT_EQ(omp_get_max_threads(), count);
    std::vector<float> y(90 * 33);
    EXPECT_EQ(GemmF32({x.data(), 40, &*packed, nullptr, y.data(), 33}, {0, 90}), "");
    EXPECT_EQ(omp_get_max_threads(), count);
    MatMulF32Args args{.m = 9, .k = 40, .n = 33, .a = x.data(), .a_row = 40, .b = w.data(), .b_row = 33};
    args.c = y.data(), args.c_row = 33;
    EXPECT_EQ(MatMulF32(args, {0, 1}), "");
    EXPECT_EQ(omp_get_max_threads(), count);
    args.a_row = -1;  // refused
    MatMulF32(args, {0, 1});
    EXPECT_EQ(omp_get_max_threads(), count);
  }
  omp_set_num_threads(before);
}

// oneDNN 3.7.2 alone ends the process here within a second: the frame of a signal is written over the heap.
TEST(GemmF32, ASignalLeavesTheHeapAlone) {
  constexpr int64_t m = 128, k = 512, n = 512;
  const std::vector<float> w(static_cast<size_t>(k * n), 1.0f), x(static_cast<size_t>(m * k), 1.0f);
  const auto packed = PackWeightsF32(w.data(), k, n, false, m);
  ASSERT_TRUE(packed);
  static volatile sig_atomic_t signals = 0;
  struct sigaction handler = {}, before = {};
  handler.sa_handler = [](int) {
    volatile char frame[16384];  // as deep as a profiler's
    for (size_t i = 0; i < sizeof(frame); i += 16) frame[i] = 1;
    signals = signals + 1;
  };
  handler.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGALRM, &handler, &before), 0);
  const itimerval often = {{0, 500}, {0, 500}}, never = {};
  setitimer(ITIMER_REAL, &often, nullptr);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < end) {
    std::vector<float> y(static_cast<size_t>(m * n));  // made and freed around each: that is where a broken heap shows
    ASSERT_EQ(GemmF32({x.data(), k, &*packed, nullptr, y.data(), n}, {0, m}), "");
    ASSERT_TRUE(std::ranges::all_of(y, [](float v) { return v == static_cast<float>(k); }));
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  EXPECT_EQ(sigaction(SIGALRM, &before, nullptr), 0);
  EXPECT_GT(signals, 50);  // they come, between products
}

// oneDNN 3.7.2 forgets the row stride of a product of one column; ours must not.
TEST(GemmF32, OneColumnWithAStride) {
  for (int64_t m : {2, 6, 26, 69}) {
    const std::vector<float> x = RandomFloats(m * 121), w = RandomFloats(121), bias = RandomFloats(1);
    auto packed = PackWeightsF32(w.data(), 121, 1, false, 64);
    ASSERT_TRUE(packed.has_value());
    std::vector<float> y(static_cast<size_t>(m * 5), 77.0f);
    ASSERT_EQ(GemmF32({x.data(), 121, &*packed, bias.data(), y.data(), 5}, {0, m}), "");
    ExpectNear(x, w, bias, y, m, 121, 1, 121, 5);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_TRUE(i % 5 == 0 || y[i] == 77.0f) << i;
  }
}

TEST(MatMulF32, RandomShapesAndStrides) {
  for (int trial = 0; trial < 200; ++trial) {
    MatMulF32Args args;
    args.m = RandomInt(1, trial % 3 == 0 ? 2 : 40);
    args.k = RandomInt(1, trial % 5 == 0 ? 2 : 70);
    args.n = RandomInt(1, trial % 2 == 0 ? 2 : 40);
    if (trial % 20 == 19)
      args.k = RandomInt(500, 700), args.n = RandomInt(60, 200);  // more columns than are copied at once
    const int64_t count = RandomInt(1, 4);
    const bool a_transposed = RandomInt(0, 1) == 1, b_transposed = RandomInt(0, 1) == 1;
    const int64_t gap = RandomInt(0, 3);
    args.a_row = a_transposed ? 1 : args.k + gap;
    args.a_column = a_transposed ? args.m + gap : 1;
    args.a_batch = RandomInt(0, 3) == 0 ? 0 : (args.m + gap) * (args.k + gap);
    args.b_row = b_transposed ? 1 : args.n + gap;
    args.b_column = b_transposed ? args.k + gap : 1;
    args.b_batch = RandomInt(0, 3) == 0 ? 0 : (args.k + gap) * (args.n + gap);
    args.c_row = args.n + gap;
    args.c_batch = args.m * args.c_row + gap;
    const std::vector<float> a = RandomFloats((args.m + gap) * (args.k + gap) * count);
    const std::vector<float> b = RandomFloats((args.k + gap) * (args.n + gap) * count);
    std::vector<float> c(static_cast<size_t>(args.c_batch * count), 77.0f);
    args.a = a.data(), args.b = b.data(), args.c = c.data();
    ASSERT_EQ(MatMulF32(args, {0, count}), "")
        << args.a_row << " " << args.a_column << " " << args.b_row << " " << args.b_column;
    size_t written = 0;
    for (int64_t h = 0; h < count; ++h) {
      for (int64_t i = 0; i < args.m; ++i) {
        for (int64_t j = 0; j < args.n; ++j) {
          double exact = 0.0;
          for (int64_t l = 0; l < args.k; ++l) {
            exact += double{a[static_cast<size_t>(h * args.a_batch + i * args.a_row + l * args.a_column)]} *
                     b[static_cast<size_t>(h * args.b_batch + l * args.b_row + j * args.b_column)];
          }
          const float got = c[static_cast<size_t>(h * args.c_batch + i * args.c_row + j)];
          ASSERT_NEAR(got, exact, static_cast<double>((args.k + 2) * args.k) * 0x1p-24)
              << args.m << " " << args.k << " " << args.n << " gap " << gap << " transposed " << a_transposed
              << b_transposed << " batches " << count << " strides " << args.a_batch << " " << args.b_batch;
          ++written;
        }
      }
    }
    ASSERT_EQ(static_cast<size_t>(std::ranges::count(c, 77.0f)), c.size() - written) << "writes between the rows";
  }
}

// [B, S, H, D] operands, one call per batch entry, heads as the batch: q k^T with a transposed right operand.
TEST(MatMulF32, StridesOfAttention) {
  const int64_t heads = 3, s = 17, keys = 23, d = 32;
  const std::vector<float> q = RandomFloats(s * heads * d), k = RandomFloats(keys * heads * d);
  std::vector<float> scores(static_cast<size_t>(heads * s * keys));
  MatMulF32Args args;
  args.m = s, args.k = d, args.n = keys;
  args.a = q.data(), args.a_row = heads * d, args.a_batch = d;
  args.b = k.data(), args.b_row = 1, args.b_column = heads * d, args.b_batch = d;
  args.c = scores.data(), args.c_row = keys, args.c_batch = s * keys;
  ASSERT_EQ(MatMulF32(args, {0, 2}), "");
  ASSERT_EQ(MatMulF32(args, {2, 3}), "");
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < s; ++i) {
      for (int64_t j = 0; j < keys; ++j) {
        double exact = 0.0;
        for (int64_t l = 0; l < d; ++l) {
          exact +=
              double{q[static_cast<size_t>((i * heads + h) * d + l)]} * k[static_cast<size_t>((j * heads + h) * d + l)];
        }
        ASSERT_NEAR(scores[static_cast<size_t>((h * s + i) * keys + j)], exact, 34 * 32 * 0x1p-24);
      }
    }
  }
}

TEST(MatMulF32, BroadcastBatch) {
  const std::vector<float> a = RandomFloats(4 * 5 * 6), b = RandomFloats(6 * 7);
  std::vector<float> c(4 * 5 * 7);
  MatMulF32Args args;
  args.m = 5, args.k = 6, args.n = 7;
  args.a = a.data(), args.a_row = 6, args.a_batch = 30;
  args.b = b.data(), args.b_row = 7;
  args.c = c.data(), args.c_row = 7, args.c_batch = 35;
  ASSERT_EQ(MatMulF32(args, {0, 4}), "");
  ExpectNear(a, b, {}, c, 20, 6, 7, 6, 7);
}

}  // namespace
}  // namespace octavo::kernels
