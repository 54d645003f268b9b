// Flash attention: every Arch against the scalar form, that against the exact mode, and its memory.
#include <algorithm>

#include "sdpa_testing.h"

namespace octavo::kernels {
namespace {

std::vector<uint8_t> Flash(Arch arch, SdpaFloatArgs args, size_t out_bytes, bool split) {
  const SdpaShape& s = args.shape;
  Buffer out(out_bytes), scratch(SdpaFlashScratchBytes(arch, args, s.q_len));
  args.o = static_cast<float*>(out.data());
  const int64_t cut = split ? s.q_len / 3 : 0;
  for (int64_t i = 0; i < s.batch * s.heads; ++i) {
    SdpaFlash(arch, args, i / s.heads, i % s.heads, cut, s.q_len, scratch.data());
    if (cut > 0) SdpaFlash(arch, args, i / s.heads, i % s.heads, 0, cut, scratch.data());
  }
  EXPECT_TRUE(out.FenceStands() && scratch.FenceStands());
  const auto* bytes = static_cast<const uint8_t*>(out.data());
  return {bytes, bytes + out_bytes};
}

std::vector<float> Floats(const std::vector<uint8_t>& bytes) {
  std::vector<float> x(bytes.size() / 4);
  std::memcpy(x.data(), bytes.data(), bytes.size());
  return x;
}

// Flash and exact mode from the same scores. Rounding counted: a chain of fma over the keys in each; three roundings and an Exp
// of at most 3 ulp a tile; the argument of Exp, below 105 in size where it counts, rounded twice.
void ExpectNearExact(const SdpaFloatArgs& args, size_t out_elements, const std::vector<float>& v) {
  const std::vector<float> flash = Floats(Flash(Arch::kScalar, args, out_elements * 4, false));
  const std::vector<float> exact = Floats(Attend(Arch::kScalar, args, out_elements * 4, false));
  float largest = 0;
  for (float x : v) largest = std::max(largest, std::fabs(x));
  const auto keys = static_cast<double>(args.shape.k_len);
  const double ulps = 2 * keys + 10 * (keys / kSdpaFlashKeys + 1) + 4 * 105;
  for (size_t i = 0; i < flash.size(); ++i) {
    if (std::isnan(exact[i])) {
      ASSERT_TRUE(std::isnan(flash[i])) << i;
    } else {
      ASSERT_NEAR(flash[i], exact[i], ulps * 0x1p-24 * largest) << i;
    }
  }
}

class SdpaFlashTest : public testing::TestWithParam<Arch> {};

TEST_P(SdpaFlashTest, EqualsTheScalarForm) {
  for (int trial = 0; trial < 150; ++trial) {
    const int64_t kv = RandomInt(1, 2);
    const SdpaShape shape = {RandomInt(1, 2),
                             kv * RandomInt(1, 2),
                             kv,
                             trial % 3 == 0 ? 1 : RandomInt(1, 15),
                             RandomInt(1, 1600),
                             RandomInt(1, 20),
                             RandomInt(1, trial % 5 == 0 ? 200 : 40)};
    const auto seed = static_cast<uint32_t>(RandomInt(0, 1 << 30));
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto p = MakeProblem(shape, seed);
    std::mt19937 gen(seed + 1);
    const Hidden hidden = MakeHidden(shape, gen);
    if (seed % 3 != 0) p->real.visibility = hidden.see;
    ExpectSame(Flash(GetParam(), p->real, p->out_elements * 4, seed % 2 != 0),
               Flash(Arch::kScalar, p->real, p->out_elements * 4, false), true);
    if (HasFatalFailure()) return;
  }
}

std::string NameOf(const testing::TestParamInfo<Arch>& info) { return std::string(Name(info.param)); }
INSTANTIATE_TEST_SUITE_P(Archs, SdpaFlashTest, testing::ValuesIn(RunnableArchs()), NameOf);

TEST(SdpaFlashTruth, IsNearTheExactMode) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 gen(seed);
    const auto any = [&](int64_t most) { return static_cast<int64_t>(1 + gen() % most); };
    const SdpaShape shape{any(2), 4, 2, any(9), any(1600), any(20), any(10)};
    const auto p = MakeProblem(shape, seed);
    const Hidden hidden = MakeHidden(shape, gen);
    if (seed % 3 != 0) p->real.visibility = hidden.see;
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExpectNearExact(p->real, p->out_elements, p->vf);
    if (HasFatalFailure()) return;
  }
}

TEST(SdpaFlashTruth, ThirtyTwoThousandKeysInLessThanAMegabyte) {
  const auto p = MakeProblem({1, 1, 1, 6, 32768, 64, 64}, 11);
  SdpaFloatArgs& a = p->real;
  a.mask = {}, a.scale = 0.125f, a.softcap = 0.0f;
  for (const Arch arch : RunnableArchs()) {
    EXPECT_LT(SdpaFlashScratchBytes(arch, a, a.shape.q_len), size_t{1} << 20) << Name(arch);
    SdpaShape twice = a.shape;
    twice.k_len *= 2;
    SdpaFloatArgs longer = a;
    longer.shape = twice;
    EXPECT_EQ(SdpaFlashScratchBytes(arch, longer, 6), SdpaFlashScratchBytes(arch, a, 6));
    ExpectSame(Flash(arch, a, p->out_elements * 4, false), Flash(Arch::kScalar, a, p->out_elements * 4, false), true);
  }
  ExpectNearExact(a, p->out_elements, p->vf);
  const auto got = Floats(Flash(Arch::kScalar, a, p->out_elements * 4, false));
  EXPECT_TRUE(std::ranges::any_of(got, [](float x) { return std::fabs(x) > 1e-3f; }));
}

}  // namespace
}  // namespace octavo::kernels
