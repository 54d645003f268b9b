// Few query rows of a group at once: every Arch against the scalar form of the exact mode, and the part of a cache that no row
// sees is not read.
#include <sys/mman.h>

#include <algorithm>

#include "sdpa_testing.h"

namespace octavo::kernels {
namespace {

std::vector<uint8_t> Decode(Arch arch, SdpaFloatArgs args, size_t out_bytes) {
  const SdpaShape& s = args.shape;
  Buffer out(out_bytes), scratch(SdpaDecodeScratchBytes(arch, args));
  args.o = static_cast<float*>(out.data());
  for (int64_t i = 0; i < s.batch * s.kv_heads; ++i)
    SdpaDecode(arch, args, i / s.kv_heads, i % s.kv_heads, scratch.data());
  EXPECT_TRUE(out.FenceStands() && scratch.FenceStands());
  const auto* bytes = static_cast<const uint8_t*>(out.data());
  return {bytes, bytes + out_bytes};
}

// As threads would: all parts of a step, the last one first, each with scratch of its own.
std::vector<uint8_t> DecodeInParts(Arch arch, SdpaFloatArgs args, size_t out_bytes, int64_t parts) {
  const SdpaShape& s = args.shape;
  Buffer out(out_bytes), shared(SdpaSplitKvBytes(arch, args, parts));
  args.o = static_cast<float*>(out.data());
  for (int64_t i = 0; i < s.batch * s.kv_heads; ++i) {
    for (int step = 0; step < kSplitKvSteps; ++step) {
      for (int64_t part = parts - 1; part >= 0; --part) {
        Buffer scratch(SdpaDecodeScratchBytes(arch, args));
        SdpaSplitKv(arch, args, i / s.kv_heads, i % s.kv_heads, {step, part, parts}, shared.data(), scratch.data());
        EXPECT_TRUE(scratch.FenceStands());
      }
    }
  }
  EXPECT_TRUE(out.FenceStands() && shared.FenceStands());
  const auto* bytes = static_cast<const uint8_t*>(out.data());
  return {bytes, bytes + out_bytes};
}

class SdpaDecodeF32Test : public testing::TestWithParam<Arch> {};

TEST_P(SdpaDecodeF32Test, EqualsTheScalarForm) {
  for (int trial = 0; trial < 400; ++trial) {
    const int64_t kv = RandomInt(1, 2);
    const SdpaShape shape = {RandomInt(1, 2),
                             kv * RandomInt(1, 9),
                             kv,
                             trial % 2 == 0 ? 1 : RandomInt(1, kSdpaDecodeRows),
                             RandomInt(1, 400),
                             RandomInt(1, 20),
                             RandomInt(1, trial % 5 == 0 ? 200 : 40)};
    const auto seed = static_cast<uint32_t>(RandomInt(0, 1 << 30));
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto p = MakeProblem(shape, seed);
    std::mt19937 gen(seed + 1);
    Hidden hidden = MakeHidden(shape, gen);
    if (seed % 5 == 0) hidden.see.window = {};
    if (seed % 3 != 0) p->real.visibility = hidden.see;
    const std::vector<uint8_t> want = Attend(Arch::kScalar, p->real, p->out_elements * 4, false);
    ExpectSame(Decode(GetParam(), p->real, p->out_elements * 4), want, true);
    ExpectSame(DecodeInParts(GetParam(), p->real, p->out_elements * 4, RandomInt(1, 5)), want, true);
    if (HasFatalFailure()) return;
  }
}

// Rows that a cache of fixed length has not been given yet: nothing may depend on them, not even a page fault.
TEST_P(SdpaDecodeF32Test, TheHiddenTailOfACacheIsNotRead) {
  if (GetParam() == Arch::kScalar) return;  // the truth multiplies every key
  constexpr int64_t kKeys = 4096, kValid = 1000, kDim = 64;
  constexpr size_t kBytes = kKeys * kDim * sizeof(float), kSeen = 1024 * kDim * sizeof(float);
  const auto p = MakeProblem({1, 4, 1, 2, kKeys, kDim, kDim}, 5);
  SdpaFloatArgs& args = p->real;
  args.mask = {}, args.k_strides = args.v_strides = {0, 0, kDim};
  args.guard = SdpaGuard::kNone, args.softcap = 0.0f, args.scale = 0.125f;
  std::vector<uint8_t> keep(kKeys, 0);
  std::fill_n(keep.begin(), kValid, uint8_t{1});
  args.visibility = {};
  args.visibility.keep.data = keep.data();
  const std::vector<uint8_t> want = Attend(Arch::kScalar, args, p->out_elements * 4, false);
  for (const float** operand : {&args.k, &args.v}) {
    void* pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    std::memcpy(pages, *operand, kBytes);
    ASSERT_EQ(mprotect(static_cast<uint8_t*>(pages) + kSeen, kBytes - kSeen, PROT_NONE), 0);
    *operand = static_cast<const float*>(pages);
  }
  ExpectSame(Decode(GetParam(), args, p->out_elements * 4), want, true);
  EXPECT_TRUE(std::ranges::any_of(want, [](uint8_t b) { return b != 0; }));
  munmap(const_cast<float*>(args.k), kBytes);
  munmap(const_cast<float*>(args.v), kBytes);
}

std::string NameOf(const testing::TestParamInfo<Arch>& info) { return std::string(Name(info.param)); }
INSTANTIATE_TEST_SUITE_P(Archs, SdpaDecodeF32Test, testing::ValuesIn(RunnableArchs()), NameOf);

}  // namespace
}  // namespace octavo::kernels
