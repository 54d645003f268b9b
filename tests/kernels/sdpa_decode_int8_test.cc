// Few query rows against many keys: every Arch against the scalar form of the exact mode.
#include "octavo/kernels/sdpa/sdpa.h"
#include "sdpa_testing.h"

namespace octavo::kernels {
namespace {

std::vector<uint8_t> Decode(Arch arch, SdpaInt8Args args, size_t out_bytes) {
  Buffer scratch(SdpaDecodeScratchBytes(arch, args)), out(out_bytes);
  args.o = out.data();
  for (int64_t i = 0; i < args.shape.batch * args.shape.kv_heads; ++i) {
    SdpaDecode(arch, args, i / args.shape.kv_heads, i % args.shape.kv_heads, scratch.data());
  }
  EXPECT_TRUE(scratch.FenceStands());
  EXPECT_TRUE(out.FenceStands());
  const auto* p = static_cast<const uint8_t*>(out.data());
  return {p, p + out_bytes};
}

void Check(Arch arch, const SdpaShape& shape, uint32_t seed, bool hidden) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", q " + std::to_string(shape.q_len) + ", k " +
               std::to_string(shape.k_len) + ", d " + std::to_string(shape.head_size) + ", dv " +
               std::to_string(shape.v_head_size) + ", heads " + std::to_string(shape.heads) + "/" +
               std::to_string(shape.kv_heads));
  const auto p = MakeProblem(shape, seed);
  std::mt19937 gen(seed + 1);
  const Hidden see = MakeHidden(shape, gen);
  if (hidden) p->int8.visibility = see.see;
  ASSERT_EQ(SdpaRefusal(p->int8), "");
  const bool floats = p->int8.o_type == DType::kF32;
  const size_t bytes = p->out_elements * (floats ? 4 : 1);
  ExpectSame(Decode(arch, p->int8, bytes), Attend(Arch::kScalar, p->int8, bytes, false), floats);
}

class SdpaDecodeInt8Test : public testing::TestWithParam<Arch> {
  void TearDown() override { EXPECT_EQ(trap::TakeProblem(), ""); }
};

TEST_P(SdpaDecodeInt8Test, EqualsTheScalarForm) {
  const int cases = ExecutionOf(GetParam()) == Execution::kTrap ? 40 : 800;
  for (int trial = 0; trial < cases; ++trial) {
    const int64_t kv = RandomInt(1, 2);
    const SdpaShape shape = {RandomInt(1, 2),  kv * RandomInt(1, 5), kv, RandomInt(1, 8), RandomInt(1, 300),
                             RandomInt(1, 70), RandomInt(1, 70)};
    Check(GetParam(), shape, static_cast<uint32_t>(RandomInt(0, 1 << 30)), trial % 2 != 0);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SdpaDecodeInt8Test, EqualsTheScalarFormForModels) {
  uint32_t seed = 80000;
  const int repeats = ExecutionOf(GetParam()) == Execution::kTrap ? 1 : 4;
  for (const SdpaShape& shape : {SdpaShape{1, 8, 8, 1, 1000, 64, 64}, SdpaShape{1, 8, 2, 1, 2049, 64, 64},
                                 SdpaShape{2, 4, 1, 2, 511, 128, 128}, SdpaShape{1, 2, 2, 8, 700, 32, 96}}) {
    for (int i = 0; i < repeats; ++i) Check(GetParam(), shape, ++seed, i % 2 != 0);
    if (HasFatalFailure()) return;
  }
}

std::string NameOf(const testing::TestParamInfo<Arch>& info) { return std::string(Name(info.param)); }
INSTANTIATE_TEST_SUITE_P(Archs, SdpaDecodeInt8Test, testing::ValuesIn(RunnableArchs()), NameOf);

}  // namespace
}  // namespace octavo::kernels
