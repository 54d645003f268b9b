// The peers of `octavo bench --kernels` from oneDNN: they compute what ours compute, or the bench says that they do not.
#include "octavo/kernels/bench/onednn.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "octavo/kernels/bench/attention_truth.h"
#include "octavo/kernels/bench/onednn_graph.h"
#include "octavo/kernels/simd/aligned.h"
#include "testing.h"

namespace octavo::kernels::bench {
namespace {

constexpr int64_t kHeads = 6, kRows = 80, kSize = 64;

// Attention of [rows, heads * size] as in the benchmark, with random operands.
struct Problem {
  std::vector<uint8_t> q, k, v, o;
  std::vector<float> mask;
  SdpaInt8Args args;

  explicit Problem(bool with_mask) {
    const size_t size = kRows * kHeads * kSize;
    for (auto* x : {&q, &k, &v}) {
      for (size_t i = 0; i < size; ++i) x->push_back(static_cast<uint8_t>(RandomInt(0, 252)));
    }
    o.resize(size);
    for (int64_t i = 0; i < kRows; ++i) mask.push_back(i % 5 == 3 ? -10000.0f : RandomFloat(-2, 2));
    args.shape = {1, kHeads, kHeads, kRows, kRows, kSize, kSize};
    args.q = q.data(), args.k = k.data(), args.v = v.data(), args.o = o.data();
    args.q_strides = args.k_strides = args.v_strides = args.o_strides = {0, kSize, kHeads * kSize};
    args.o_type = quant::DType::kU8;
    args.q_zero_point = 119, args.k_zero_point = 121, args.v_zero_point = 130, args.o_zero_point = 125;
    args.q_scale = args.k_scale = args.v_scale = args.o_scale = 0.02f, args.p_scale = 1 / 255.0f, args.scale = 0.125f;
    if (with_mask) args.mask.data = mask.data();
    AlignedArray<uint8_t> packed(SdpaPackedBytes(Arch::kScalar, args)), scratch(SdpaScratchBytes(Arch::kScalar, args));
    SdpaHeads(Arch::kScalar, args, 0, kHeads, packed.data(), scratch.data());
  }
};

// Whether full weights saturate is the CPU's affair, and the bench's to report.
TEST(OneDnnInt8, WeightsOfSevenBitsAreRight) {
  OneDnnInt8 product(5, 768, 256, 64);
  EXPECT_GT(product.CodesOff(), 50) << "before it ran";
  product.Run();
  EXPECT_LE(product.CodesOff(), 1);
}

TEST(AttentionTruth, TakesOursAndRefusesWhatDiffers) {
  for (const bool mask : {false, true}) {
    Problem p(mask);
    EXPECT_LE(AttentionErrorU8(p.args, p.o.data()), kMostErrorU8);
    // The mask counts.
    SdpaInt8Args other = p.args;
    other.mask.data = mask ? nullptr : p.mask.data();
    EXPECT_GT(AttentionErrorU8(other, p.o.data()), kMostErrorU8);
    // Every head's last row is looked at.
    const size_t at = (kRows - 1) * kHeads * kSize + static_cast<size_t>(RandomInt(0, kHeads * kSize - 1));
    std::vector<uint8_t> wrong = p.o;
    wrong[at] = static_cast<uint8_t>(wrong[at] < 128 ? wrong[at] + 3 : wrong[at] - 3);
    EXPECT_GT(AttentionErrorU8(p.args, wrong.data()), kMostErrorU8);
    EXPECT_GT(AttentionErrorU8(p.args, std::vector<uint8_t>(p.o.size()).data()), kMostErrorU8);
    EXPECT_GT(AttentionErrorF32(p.args, std::vector<float>(p.o.size()).data()), kMostErrorF32);
  }
}

// Without VNNI its products of u8 and s8 saturate.
bool Vnni() {
  return ExecutionOf(Arch::kAvx512Vnni) == Execution::kNative || ExecutionOf(Arch::kAvxVnni) == Execution::kNative;
}

TEST(OneDnnGraph, IsOnePartitionThatComputesAttention) {
  for (const bool mask : {false, true}) {
    const Problem p(mask);
    EXPECT_EQ(OneDnnGraphAttention(p.args, false).problem(), "");
    if (Vnni()) {
      EXPECT_EQ(OneDnnGraphAttention(p.args, true).problem(), "");
    }
  }
}

TEST(OneDnnGraph, IsNoPeerWhereItsSumsSaturate) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process: the limit holds only before the first use
  const auto refused = [] {
    if (!LimitOneDnn(Arch::kAvx2)) return 2;
    const Problem p(true);
    OneDnnGraphAttention peer(p.args, true);
    peer.Run();  // does nothing
    return peer.problem().contains("away from attention") ? 0 : 1;
  };
  EXPECT_EXIT(std::exit(refused()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace octavo::kernels::bench
