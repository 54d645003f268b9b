// Windows, bool masks and slopes: every Arch against the scalar form, that against double, and what is left out.
#include "octavo/kernels/sdpa/sdpa_window.h"

#include <sys/mman.h>

#include <algorithm>

#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "sdpa_testing.h"

namespace octavo::kernels {
namespace {

void Check(Arch arch, const SdpaShape& shape, uint32_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", q " + std::to_string(shape.q_len) + ", k " +
               std::to_string(shape.k_len) + ", d " + std::to_string(shape.head_size));
  const auto p = MakeProblem(shape, seed);
  std::mt19937 gen(seed + 1);
  const Hidden hidden = MakeHidden(shape, gen);
  p->int8.visibility = p->real.visibility = hidden.see;
  if (gen() % 3 == 0) SetScoreCodes(&p->int8, gen);
  ASSERT_EQ(SdpaRefusal(p->int8), "");
  const bool floats = p->int8.o_type == DType::kF32, split = seed % 2 != 0;
  const size_t bytes = p->out_elements * (floats ? 4 : 1);
  ExpectSame(Attend(arch, p->int8, bytes, split), Attend(Arch::kScalar, p->int8, bytes, false), floats);
  ExpectSame(Attend(arch, p->real, p->out_elements * 4, split),
             Attend(Arch::kScalar, p->real, p->out_elements * 4, false), true);
}

class SdpaWindowTest : public testing::TestWithParam<Arch> {
  void TearDown() override { EXPECT_EQ(trap::TakeProblem(), ""); }
};

TEST_P(SdpaWindowTest, EqualsTheScalarForm) {
  const int cases = ExecutionOf(GetParam()) == Execution::kTrap ? 60 : 600;
  for (int trial = 0; trial < cases; ++trial) {
    const int64_t kv = RandomInt(1, 2);
    const SdpaShape shape = {RandomInt(1, 2),  kv * RandomInt(1, 2), kv, RandomInt(1, 40), RandomInt(1, 300),
                             RandomInt(1, 24), RandomInt(1, 40)};
    Check(GetParam(), shape, static_cast<uint32_t>(RandomInt(0, 1 << 30)));
    if (HasFatalFailure()) return;
  }
}

// Self-attention of one length, where blocks begin with few keys and end with all.
TEST_P(SdpaWindowTest, EqualsTheScalarFormWhereQueriesAreAsManyAsKeys) {
  const bool trapped = ExecutionOf(GetParam()) == Execution::kTrap;
  for (int64_t n = 1; n <= 330; n += trapped ? 47 : 7) {
    Check(GetParam(), {1, 2, 1, n, n, 16, 24}, static_cast<uint32_t>(RandomInt(0, 1 << 30)));
    if (HasFatalFailure()) return;
  }
}

class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
    data_ = static_cast<uint8_t*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Pages() { munmap(data_, bytes_); }
  uint8_t* data() { return data_; }
  // Whole pages within [begin, end) become unreadable; returns how many bytes.
  size_t Forbid(size_t begin, size_t end) {
    begin = (begin + kPage - 1) / kPage * kPage, end = end / kPage * kPage;
    if (begin >= end) return 0;
    EXPECT_EQ(mprotect(data_ + begin, end - begin, PROT_NONE), 0);
    return end - begin;
  }

 private:
  static constexpr size_t kPage = 4096;
  size_t bytes_;
  uint8_t* data_;
};

// The rows are computed while everything of K and V outside their window cannot be read.
template <typename Args>
void ComputeWithoutTheRest(Arch arch, Args args, const internal::SdpaLayout& l, size_t per_word, size_t out_bytes) {
  constexpr int64_t kFirst = 300, kLast = 348;
  Pages packed(SdpaPackedBytes(arch, args));
  Buffer scratch(SdpaScratchBytes(arch, args));
  std::vector<uint8_t> free(out_bytes), fenced(out_bytes);
  SdpaPack(arch, args, 0, 0, packed.data());
  args.o = reinterpret_cast<decltype(args.o)>(free.data());
  SdpaRows(arch, args, 0, 0, kFirst, kLast, packed.data(), scratch.data());
  internal::KeyRange keys = {args.shape.k_len, 0};
  const int64_t block = arch == Arch::kAmx ? 16 : 6;
  for (int64_t row = kFirst; row < kLast; row += block) {
    const internal::KeyRange span = internal::SpanOf(args.visibility.window, args.shape, row, block);
    keys = {std::min(keys.begin, span.begin), std::max(keys.end, span.end)};
  }
  ASSERT_EQ(keys.begin, 192);  // 300 - 100, down to a whole span
  ASSERT_EQ(keys.end, 384);    // 348, up
  const auto begin = static_cast<size_t>(keys.begin), end = static_cast<size_t>(keys.end);
  const size_t k_bytes = l.d_steps * 4, v_bytes = 64 / per_word;
  const size_t forbidden = packed.Forbid(0, begin * k_bytes) + packed.Forbid(end * k_bytes, l.v_at) +
                           packed.Forbid(l.v_at, l.v_at + begin * v_bytes) +
                           packed.Forbid(l.v_at + end * v_bytes, l.k_columns_at);
  EXPECT_GT(forbidden, l.k_columns_at * 7 / 10);
  args.o = reinterpret_cast<decltype(args.o)>(fenced.data());
  SdpaRows(arch, args, 0, 0, kFirst, kLast, packed.data(), scratch.data());
  EXPECT_EQ(free, fenced);
  EXPECT_TRUE(std::ranges::any_of(fenced, [](uint8_t b) { return b != 0; }));
}

TEST_P(SdpaWindowTest, TilesThatNoRowSeesAreNotRead) {
  const Arch arch = GetParam();
  if (arch == Arch::kScalar) return;  // packs nothing: the truth reads all of K and V where they lie
  const auto p = MakeProblem({1, 1, 1, 1024, 1024, 64, 16}, 7);
  SdpaVisibility see;
  see.window = {.left = 100, .right = 0};
  p->int8.visibility = p->real.visibility = see;
  p->int8.mask = p->real.mask = {};
  p->int8.p_type = DType::kU8, p->int8.p_zero_point = 0;
  const size_t per_word = arch == Arch::kAvx2 || arch == Arch::kAvx512 ? 2 : 4;
  const auto l =
      arch == Arch::kAmx ? internal::MakeSdpaLayout(p->shape, 4, 16, 16) : internal::MakeSdpaLayout(p->shape, per_word);
  ComputeWithoutTheRest(arch, p->int8, l, per_word, p->out_elements * 4);
  ComputeWithoutTheRest(arch, p->real, internal::MakeSdpaLayout(p->shape, 1), 1, p->out_elements * 4);
}

std::string NameOf(const testing::TestParamInfo<Arch>& info) { return std::string(Name(info.param)); }
INSTANTIATE_TEST_SUITE_P(Archs, SdpaWindowTest, testing::ValuesIn(RunnableArchs()), NameOf);

// By the definition, one key at a time, without a range.
bool Sees(const SdpaVisibility& v, const SdpaShape& s, int64_t b, int64_t h, int64_t i, int64_t j) {
  const int64_t distance = j - (v.window.bottom_right ? i + s.k_len - s.q_len : i);
  if (v.window.right >= 0 && distance > v.window.right) return false;
  if (v.window.left >= 0 && -distance > v.window.left) return false;
  return v.keep.data == nullptr ||
         v.keep.data[b * v.keep.batch + h * v.keep.head + i * v.keep.row + j * v.keep.col] != 0;
}

TEST(SdpaWindowTruth, RangesAreTheDefinition) {
  std::mt19937 gen(3);
  for (int trial = 0; trial < 3000; ++trial) {
    SdpaShape s;
    s.q_len = 1 + gen() % 30, s.k_len = 1 + gen() % 30;
    SdpaVisibility v;
    v.window = {static_cast<int64_t>(gen() % 40) - 1, static_cast<int64_t>(gen() % 40) - 1, gen() % 2 != 0};
    if (gen() % 8 == 0) v.window.right = INT64_MAX;
    if (gen() % 8 == 0) v.window.left = INT64_MAX;
    for (int64_t i = 0; i < s.q_len; ++i) {
      const internal::KeyRange range = internal::VisibleKeys(v.window, s, i);
      ASSERT_TRUE(0 <= range.begin && range.begin <= range.end && range.end <= s.k_len);
      for (int64_t j = 0; j < s.k_len; ++j)
        ASSERT_EQ(j >= range.begin && j < range.end, Sees(v, s, 0, 0, i, j)) << trial;
    }
  }
}

// How much of a causal layer is left: a half, a half block beside the diagonal, a half span before it.
TEST(SdpaWindowTruth, CausalAttentionLooksAtAboutHalf) {
  SdpaShape s;
  s.q_len = s.k_len = 1024;
  int64_t keys = 0;
  for (int64_t row = 0; row < 1024; row += 6) {
    const int64_t rows = std::min<int64_t>(6, 1024 - row);
    keys += internal::SpanOf({.right = 0}, s, row, rows).size() * rows;
  }
  EXPECT_LT(keys, 1024 * 1024 * 54 / 100);
  EXPECT_GE(keys, 1024 * 1025 / 2);
}

TEST(SdpaWindowTruth, FloatIsNearDouble) {
  int64_t compared = 0;
  double largest = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    std::mt19937 gen(seed);
    const auto any = [&](int64_t most) { return static_cast<int64_t>(1 + gen() % most); };
    const SdpaShape s{any(2), 4, 2, any(9), any(40), any(40), any(10)};
    const auto p = MakeProblem(s, seed);
    const Hidden hidden = MakeHidden(s, gen);
    SdpaFloatArgs& a = p->real;
    a.visibility = hidden.see, a.mask = {};
    const auto bytes = Attend(Arch::kScalar, a, p->out_elements * 4, false);
    for (int64_t n = 0; n < s.batch * s.heads * s.q_len; ++n) {
      const int64_t b = n / s.q_len / s.heads, h = n / s.q_len % s.heads, i = n % s.q_len;
      const auto at = [&](const float* x, const SdpaStrides& t, int64_t head, int64_t row) {
        return x + b * t.batch + head * t.head + row * t.row;
      };
      std::vector<double> prob;
      bool any_seen = false;
      double max = -1e300, sum = 0;
      for (int64_t j = 0; j < s.k_len; ++j) {
        double x = 0;
        for (int64_t d = 0; d < s.head_size; ++d)
          x += double{at(a.q, a.q_strides, h, i)[d]} * at(a.k, a.k_strides, h / 2, j)[d];
        x *= a.scale;
        if (a.softcap != 0) x = std::tanh(x / a.softcap) * a.softcap;
        const int64_t position = hidden.see.window.bottom_right ? i + s.k_len - s.q_len : i;
        if (hidden.see.alibi != nullptr) x += double{hidden.see.alibi[h]} * double(j - position);
        const bool sees = Sees(hidden.see, s, b, h, i, j);
        any_seen = any_seen || sees;
        prob.push_back(sees ? x : -1e200);
        max = std::max(max, prob.back());
      }
      for (double& x : prob) x = std::exp(x - max), sum += x;
      for (int64_t c = 0; c < s.v_head_size; ++c) {
        float got;
        std::memcpy(&got, &bytes[4 * (b * a.o_strides.batch + h * a.o_strides.head + i * a.o_strides.row + c)], 4);
        if (!any_seen && hidden.see.hidden_value == -kInf) {
          ASSERT_TRUE(a.guard != SdpaGuard::kNone ? got == 0.0f : std::isnan(got)) << "seed " << seed;
          continue;
        }
        double want = 0;  // a row that sees nothing at a finite value: uniform
        for (int64_t j = 0; j < s.k_len; ++j) want += prob[j] / sum * at(a.v, a.v_strides, h / 2, j)[c];
        ASSERT_NEAR(got, want, 2e-5) << "seed " << seed;
        ++compared, largest = std::max(largest, std::fabs(want));
      }
    }
  }
  EXPECT_GT(compared, 5000);
  EXPECT_GT(largest, 1.0);
}

// int8 with a window is int8 with the mask of the same keys, which sdpa_test.cc compares with int64.
TEST(SdpaWindowTruth, Int8IsTheMaskOfTheSameKeys) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 gen(seed);
    const auto any = [&](int64_t most) { return static_cast<int64_t>(1 + gen() % most); };
    const SdpaShape s{any(2), 4, 2, any(9), any(40), any(40), any(10)};
    const auto p = MakeProblem(s, seed);
    Hidden hidden = MakeHidden(s, gen);
    hidden.see.alibi = nullptr;
    SdpaInt8Args a = p->int8;
    a.mask = {};
    const bool floats = a.o_type == DType::kF32;
    const size_t bytes = p->out_elements * (floats ? 4 : 1);
    std::vector<float> mask;
    for (int64_t n = 0; n < s.batch * s.heads * s.q_len * s.k_len; ++n) {
      const int64_t j = n % s.k_len, i = n / s.k_len % s.q_len, h = n / s.k_len / s.q_len % s.heads;
      mask.push_back(Sees(hidden.see, s, n / s.k_len / s.q_len / s.heads, h, i, j) ? 0.0f : -3.4028235e38f);
    }
    hidden.see.hidden_value = -3.4028235e38f;
    a.visibility = hidden.see;
    const auto got = Attend(Arch::kScalar, a, bytes, false);
    a.visibility = {};
    a.mask = {mask.data(), s.heads * s.q_len * s.k_len, s.q_len * s.k_len, s.k_len, 1};
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExpectSame(got, Attend(Arch::kScalar, a, bytes, false), floats);
    if (HasFatalFailure()) return;
  }
}

TEST(SdpaWindowTruth, RefusalsNameTheReason) {
  SdpaFloatArgs a;
  a.visibility.window.left = -2;
  EXPECT_NE(SdpaRefusal(a).find("window"), std::string::npos);
  a.visibility = {}, a.visibility.hidden_value = 1.0f;
  EXPECT_NE(SdpaRefusal(a).find("hidden keys"), std::string::npos);
  a.visibility.hidden_value = std::nanf("");
  EXPECT_NE(SdpaRefusal(a).find("hidden keys"), std::string::npos);
}

}  // namespace
}  // namespace octavo::kernels
