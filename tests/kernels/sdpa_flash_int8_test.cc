// int8 flash attention: every Arch against the scalar form, that against attention in double, its memory and its refusals.
#include <algorithm>

#include "sdpa_testing.h"
#include "sdpa_truth.h"

namespace octavo::kernels {
namespace {

std::vector<uint8_t> Flash(Arch arch, SdpaInt8Args args, size_t out_bytes, bool split) {
  const SdpaShape& s = args.shape;
  Buffer out(out_bytes), scratch(SdpaFlashScratchBytes(arch, args, s.q_len));
  args.o = out.data();
  const int64_t cut = split ? s.q_len / 3 : 0;
  for (int64_t i = 0; i < s.batch * s.heads; ++i) {
    SdpaFlash(arch, args, i / s.heads, i % s.heads, cut, s.q_len, scratch.data());
    if (cut > 0) SdpaFlash(arch, args, i / s.heads, i % s.heads, 0, cut, scratch.data());
  }
  EXPECT_TRUE(out.FenceStands() && scratch.FenceStands());
  const auto* bytes = static_cast<const uint8_t*>(out.data());
  return {bytes, bytes + out_bytes};
}

size_t OutBytes(const Problem& p) { return p.out_elements * (p.int8.o_type == DType::kF32 ? 4 : 1); }

void ExpectScalarBits(Arch arch, const Problem& p, bool split) {
  ExpectSame(Flash(arch, p.int8, OutBytes(p), split), Flash(Arch::kScalar, p.int8, OutBytes(p), false),
             p.int8.o_type == DType::kF32);
}

class SdpaFlashInt8Test : public testing::TestWithParam<Arch> {};

TEST_P(SdpaFlashInt8Test, EqualsTheScalarForm) {
  const int trials = GetParam() == Arch::kAvxVnni ? 30 : 150;  // that form may be emulated
  for (int trial = 0; trial < trials; ++trial) {
    const int64_t kv = RandomInt(1, 2);
    const SdpaShape shape = {RandomInt(1, 2),
                             kv * RandomInt(1, 2),
                             kv,
                             trial % 3 == 0 ? 1 : RandomInt(1, 15),
                             RandomInt(1, 1600),
                             RandomInt(1, trial % 7 == 0 ? 200 : 40),
                             RandomInt(1, trial % 5 == 0 ? 200 : 40)};
    const auto seed = static_cast<uint32_t>(RandomInt(0, 1 << 30));
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto p = MakeProblem(shape, seed);
    std::mt19937 gen(seed + 1);
    const Hidden hidden = MakeHidden(shape, gen);
    if (seed % 3 != 0) p->int8.visibility = hidden.see;
    ExpectScalarBits(GetParam(), *p, seed % 2 != 0);
    if (HasFatalFailure()) return;
  }
}

// More rows than share a tile; NaN and infinite scores in one tile of three.
TEST_P(SdpaFlashInt8Test, ManyRowsAndNoNumbers) {
  const auto many = MakeProblem({1, 1, 1, 800, 530, 16, 24}, 5);
  many->int8.visibility.window.right = 0;
  ExpectScalarBits(GetParam(), *many, false);
  for (const float odd : {std::nanf(""), kInf, -kInf}) {
    const auto p = MakeProblem({1, 1, 1, 9, 1300, 16, 16}, 6);
    std::vector<float> mask(9 * 1300, 0.0f);
    for (size_t row = 0; row < 9; row += 2) mask[row * 1300 + 600 + row] = odd;
    std::fill(mask.begin() + 1300, mask.begin() + 2600, -kInf);
    p->int8.mask = {mask.data(), 0, 0, 1300, 1};
    for (const SdpaGuard guard : {SdpaGuard::kNone, SdpaGuard::kNan, SdpaGuard::kMasked}) {
      for (const DType out : {DType::kF32, DType::kU8}) {
        p->int8.guard = guard, p->int8.o_type = out, p->int8.o_zero_point = 3;
        ExpectScalarBits(GetParam(), *p, false);
        if (HasFatalFailure()) return;
      }
    }
    p->int8.guard = SdpaGuard::kNone, p->int8.o_type = DType::kF32;
    p->int8.o_strides = {9 * 16, 16, 16};
    const auto bytes = Flash(GetParam(), p->int8, OutBytes(*p), false);
    for (size_t row = 0; row < 9; ++row) {
      float y;
      std::memcpy(&y, &bytes[row * 16 * 4], 4);
      EXPECT_EQ(std::isnan(y), row == 1 || (row % 2 == 0 && odd != -kInf)) << "row " << row << ": " << y;
    }
  }
}

std::string NameOf(const testing::TestParamInfo<Arch>& info) { return std::string(Name(info.param)); }
INSTANTIATE_TEST_SUITE_P(Archs, SdpaFlashInt8Test, testing::ValuesIn(RunnableArchs()), NameOf);

// The largest error, as a share of the bound.
double ExpectNearTruth(const Problem& p, double* largest) {
  return ExpectNearTruth(p.int8, Flash(Arch::kScalar, p.int8, OutBytes(p), false), largest);
}

TEST(SdpaFlashInt8Truth, IsNearAttentionInDouble) {
  double largest = 0, worst = 0;
  for (uint32_t seed = 1; seed <= 80; ++seed) {
    std::mt19937 gen(seed);
    const auto any = [&](int64_t most) { return static_cast<int64_t>(1 + gen() % most); };
    const SdpaShape shape{any(2), 4, 2, any(5), any(1600), any(40), any(6)};
    const auto p = MakeProblem(shape, seed);
    const Hidden hidden = MakeHidden(shape, gen);
    if (seed % 3 != 0) p->int8.visibility = hidden.see;
    SCOPED_TRACE("seed " + std::to_string(seed));
    worst = std::max(worst, ExpectNearTruth(*p, &largest));
    if (HasFailure()) return;
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_GT(worst, 0.05) << "the bound is so wide that it shows nothing";
}

// 2000 keys of equal weight: the exact mode's codes, of 1 / 2000 at scale 1/255, are all 0.
TEST(SdpaFlashInt8Truth, FlatRowsKeepTheirCodes) {
  const auto p = MakeProblem({1, 1, 1, 2, 2000, 8, 4}, 3);
  SdpaInt8Args& a = p->int8;
  a.mask = {}, a.softcap = 0.0f, a.o_type = DType::kF32, a.q_scale = 1e-9f;
  a.p_type = DType::kU8, a.p_zero_point = 0, a.p_scale = 1 / 255.0f, a.p_relative = a.p_diffused = false;
  a.v_type = DType::kU8, a.v_zero_point = 0, a.v_scale = 0.01f;
  double largest = 0;
  ExpectNearTruth(*p, &largest);
  EXPECT_GT(largest, 0.5);
  const auto exact = Attend(Arch::kScalar, a, OutBytes(*p), false);
  EXPECT_TRUE(std::ranges::all_of(exact, [](uint8_t b) { return b == 0; }));
}

TEST(SdpaFlashInt8Truth, ThirtyTwoThousandKeysInLessThanAMegabyte) {
  const auto p = MakeProblem({1, 1, 1, 6, 32768, 64, 64}, 11);
  SdpaInt8Args& a = p->int8;
  a.mask = {}, a.scale = 0.125f, a.softcap = 0.0f;
  for (const Arch arch : RunnableArchs()) {
    SdpaInt8Args longer = a;
    longer.shape.k_len *= 2;
    EXPECT_EQ(SdpaFlashScratchBytes(arch, longer, 32768), SdpaFlashScratchBytes(arch, a, 384)) << Name(arch);
    EXPECT_LT(SdpaFlashScratchBytes(arch, longer, 65536), size_t{1} << 20) << Name(arch);
    ExpectScalarBits(arch, *p, false);
  }
  double largest = 0;
  ExpectNearTruth(*p, &largest);
  EXPECT_GT(largest, 0.01);
}

// The lengths at which the sums of the exact form end, and beyond: scores through codes and divided, windows, groups, few rows and more.
TEST(SdpaFlashInt8Truth, AnyNumberOfKeysWithEveryStep) {
  double largest = 0;
  uint32_t seed = 20;
  for (const int64_t keys : {32768, 33026, 65794, 131072, 131073}) {
    for (const int64_t rows : {1, 7}) {
      for (int way = 0; way < 4; ++way) {
        SCOPED_TRACE(std::to_string(keys) + " keys, " + std::to_string(rows) + " rows, way " + std::to_string(way));
        const auto p = MakeProblem({1, 2, 1, rows, keys, 8, 4}, ++seed);
        SdpaInt8Args& a = p->int8;
        std::mt19937 gen(seed);
        if (way == 1) {
          a.product_codes = {DType::kU8, 0.11f, 120}, a.scaled_codes = {DType::kS8, 0.07f, 3}, a.divisor = 1.7f;
          a.masked_codes = {DType::kU8, 0.2f, 200}, a.prob_codes = {DType::kU8, 1 / 255.0f, 0},
          a.p_relative = a.p_diffused = false;
        }
        if (way == 2) a.visibility.window = {40000, 0, true};
        const Hidden hidden = MakeHidden(p->shape, gen);
        if (way == 3) a.visibility = hidden.see;
        ASSERT_EQ(SdpaFlashRefusal(a), "");
        for (const Arch arch : RunnableArchs()) ExpectScalarBits(arch, *p, rows > 1);
        if (keys < 131073) ExpectNearTruth(*p, &largest);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(largest, 0.01);
}

// Where codes of scores are drawn at random, also those that leave nothing of them.
TEST(SdpaFlashInt8Truth, EveryArchHasTheScalarBitsWithScoresThroughCodes) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 gen(seed);
    const auto any = [&](int64_t most) { return static_cast<int64_t>(1 + gen() % most); };
    const SdpaShape shape{any(2), 4, 2, any(13), any(1600), any(40), any(20)};
    const auto p = MakeProblem(shape, seed);
    const Hidden hidden = MakeHidden(shape, gen);
    if (seed % 3 != 0) p->int8.visibility = hidden.see;
    SetScoreCodes(&p->int8, gen);
    for (const Arch arch : RunnableArchs()) ExpectScalarBits(arch, *p, seed % 2 != 0);
    if (HasFatalFailure()) return;
  }
}

TEST(SdpaFlashInt8Truth, RefusesWhatItCannotRun) {
  const auto p = MakeProblem({1, 1, 1, 1, 64, 8, 8}, 1);
  SdpaInt8Args a = p->int8;
  a.shape.k_len = int64_t{1} << 24, a.p_scale = -1.0f;  // both are the exact mode's concern
  EXPECT_EQ(SdpaFlashRefusal(a), "");
  EXPECT_NE(SdpaRefusal(a), "");
  a.v_scale = 0.0f;
  EXPECT_NE(SdpaFlashRefusal(a), "");
  a = p->int8;
  a.q_type = a.k_type = a.v_type = a.p_type = DType::kE4M3FN;
  EXPECT_NE(SdpaFlashRefusal(a), "");
}

}  // namespace
}  // namespace octavo::kernels
