// Few query rows against many keys: every Arch against the scalar form of the exact mode.
#include <sys/mman.h>

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

// As threads would: all parts of a step, the last one first, each with scratch of its own.
std::vector<uint8_t> DecodeInParts(Arch arch, SdpaInt8Args args, size_t out_bytes, int64_t parts) {
  Buffer out(out_bytes), shared(SdpaSplitKvBytes(arch, args, parts));
  args.o = out.data();
  for (int64_t i = 0; i < args.shape.batch * args.shape.kv_heads; ++i) {
    for (int step = 0; step < kSplitKvSteps; ++step) {
      for (int64_t part = parts - 1; part >= 0; --part) {
        Buffer scratch(SdpaDecodeScratchBytes(arch, args));
        SdpaSplitKv(arch, args, i / args.shape.kv_heads, i % args.shape.kv_heads, {step, part, parts}, shared.data(),
                    scratch.data());
        EXPECT_TRUE(scratch.FenceStands());
      }
    }
  }
  EXPECT_TRUE(shared.FenceStands());
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
  const std::vector<uint8_t> want = Attend(Arch::kScalar, p->int8, bytes, false);
  ExpectSame(Decode(arch, p->int8, bytes), want, floats);
  if (shape.heads / shape.kv_heads * shape.q_len > kSdpaDecodeRows) return;
  SCOPED_TRACE("in parts");
  ExpectSame(DecodeInParts(arch, p->int8, bytes, 1 + static_cast<int64_t>(seed % 5)), want, floats);
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

// Few codes that are not 0, as a long row has, and none at all: what is left out must not have counted.
TEST_P(SdpaDecodeInt8Test, MostCodesAreZero) {
  for (int trial = 0; trial < (ExecutionOf(GetParam()) == Execution::kTrap ? 4 : 40); ++trial) {
    const SdpaShape shape = {1, RandomInt(1, 8), 1, 1, RandomInt(200, 900), RandomInt(1, 70), RandomInt(1, 130)};
    const auto seed = static_cast<uint32_t>(RandomInt(0, 1 << 30));
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto p = MakeProblem(shape, seed);
    SdpaInt8Args& a = p->int8;
    a.p_type = seed % 2 != 0 ? DType::kU8 : DType::kS8;
    a.p_zero_point = seed % 3 == 0 ? 5 : a.p_type == DType::kU8 ? 0 : -128;
    a.p_relative = a.p_relative && seed % 3 != 0;
    a.p_scale = seed % 5 == 0 ? 4.0f : 1 / 255.0f;
    a.p_diffused = a.p_diffused && a.p_relative && seed % 5 != 0;
    const bool floats = a.o_type == DType::kF32;
    const size_t bytes = p->out_elements * (floats ? 4 : 1);
    ExpectSame(Decode(GetParam(), a, bytes), Attend(Arch::kScalar, a, bytes, false), floats);
    if (HasFatalFailure()) return;
  }
}

// Bytes that end where the next page cannot be read.
class AtAPageEnd {
 public:
  explicit AtAPageEnd(const std::vector<uint8_t>& bytes) : size_((bytes.size() + 4095) / 4096 * 4096) {
    pages_ =
        static_cast<uint8_t*>(mmap(nullptr, size_ + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(static_cast<void*>(pages_), MAP_FAILED);
    EXPECT_EQ(mprotect(pages_ + size_, 4096, PROT_NONE), 0);
    data_ = pages_ + size_ - bytes.size();
    std::memcpy(data_, bytes.data(), bytes.size());
  }
  ~AtAPageEnd() { munmap(pages_, size_ + 4096); }
  const uint8_t* data() const { return data_; }

 private:
  size_t size_;
  uint8_t* pages_;
  uint8_t* data_;
};

TEST_P(SdpaDecodeInt8Test, NothingBehindTheLastRowIsRead) {
  if (ExecutionOf(GetParam()) == Execution::kTrap) return;  // the same code, slowly
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t kv = RandomInt(1, 2);
    const SdpaShape shape = {1, kv, kv, RandomInt(1, 3), RandomInt(1, 200), RandomInt(1, 70), RandomInt(1, 70)};
    const auto seed = static_cast<uint32_t>(RandomInt(0, 1 << 30));
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto p = MakeProblem(shape, seed);
    SdpaInt8Args& a = p->int8;
    const bool floats = a.o_type == DType::kF32;
    const size_t bytes = p->out_elements * (floats ? 4 : 1);
    const std::vector<uint8_t> want = Attend(Arch::kScalar, a, bytes, false);
    const AtAPageEnd q(p->q8), k(p->k8), v(p->v8);
    a.q = q.data(), a.k = k.data(), a.v = v.data();
    ExpectSame(Decode(GetParam(), a, bytes), want, floats);
    if (HasFatalFailure()) return;
  }
}

std::string NameOf(const testing::TestParamInfo<Arch>& info) { return std::string(Name(info.param)); }
INSTANTIATE_TEST_SUITE_P(Archs, SdpaDecodeInt8Test, testing::ValuesIn(RunnableArchs()), NameOf);

}  // namespace
}  // namespace octavo::kernels
