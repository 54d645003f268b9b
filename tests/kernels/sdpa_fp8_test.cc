// fp8 attention: the reference against double within a computed bound, every Arch against the reference bit for bit.
#include <algorithm>
#include <cmath>

#include "octavo/kernels/fp8/fp8.h"
#include "octavo/quant/numeric/code8.h"
#include "sdpa_testing.h"

namespace octavo::kernels {
namespace {

// The int8 problem with fp8 operands. not_numbers: some codes are NaN or infinite, and masks may hide whole rows.
std::unique_ptr<Problem> MakeFp8Problem(const SdpaShape& shape, uint32_t seed, bool not_numbers) {
  auto p = MakeProblem(shape, seed);
  std::mt19937 gen(seed + 7);
  std::normal_distribution<float> normal;
  SdpaInt8Args& a = p->int8;
  const auto type = [&] { return gen() % 3 != 0 ? DType::kE4M3FN : DType::kE5M2; };
  const auto fill = [&](std::vector<uint8_t>& codes, DType* t, float spread) {
    *t = type();
    for (uint8_t& c : codes) {
      c = quant::QuantizeFp8One(normal(gen) * spread, 1.0f, *t);
      if (not_numbers && gen() % 64 == 0) c = static_cast<uint8_t>(gen());
    }
  };
  const float spread = std::ldexp(1.0f, static_cast<int>(gen() % 8) - 2);
  fill(p->q8, &a.q_type, spread), fill(p->k8, &a.k_type, 3.0f), fill(p->v8, &a.v_type, 20.0f);
  a.p_type = type();
  a.q_scale = 0.3f / spread, a.k_scale = 0.11f, a.v_scale = 0.07f;
  constexpr float kProbScales[] = {1 / 448.0f, 1 / 448.0f, 1 / 256.0f, 1.0f, 1e-4f, 1e-20f, 1e10f};
  a.p_scale = kProbScales[gen() % 7];
  a.o_type = gen() % 3 == 0 ? DType::kF32 : type();
  a.o_scale = gen() % 4 == 0 ? 1e-4f : 0.01f;
  a.q_zero_point = a.k_zero_point = a.v_zero_point = a.p_zero_point = a.o_zero_point = 0;
  return p;
}

// Whole numbers up to 16 as q, k and v, and probabilities of E4M3FN that sum to 448 at most, or nearly: every sum of products has at
// most 24 bits, so it is the same in any order. (8192 = 2^13 of P V, in steps of 2^-9.)
std::unique_ptr<Problem> MakeExact(const SdpaShape& shape, uint32_t seed, bool not_numbers) {
  auto p = MakeFp8Problem(shape, seed, false);
  std::mt19937 gen(seed + 9);
  SdpaInt8Args& a = p->int8;
  const auto fill = [&](std::vector<uint8_t>& codes, DType t) {
    for (uint8_t& c : codes) {
      c = quant::QuantizeFp8One(static_cast<float>(static_cast<int>(gen() % 31) - 15), 1.0f, t);
      if (not_numbers && gen() % 64 == 0) c = t == DType::kE4M3FN ? 0xff : static_cast<uint8_t>(gen() | 0x7c);
    }
  };
  fill(p->q8, a.q_type), fill(p->k8, a.k_type), fill(p->v8, a.v_type);
  a.q_scale = 0.02f, a.k_scale = 0.11f, a.v_scale = 0.07f;
  a.p_type = DType::kE4M3FN, a.p_scale = gen() % 2 != 0 ? 1 / 448.0f : 1 / 256.0f;
  return p;
}

SdpaShape RandomShape(int trial) {
  const int64_t kv = RandomInt(1, 2);
  return {RandomInt(1, 2),
          kv * RandomInt(1, 3),
          kv,
          RandomInt(1, 15),
          RandomInt(1, trial % 4 == 0 ? 400 : 70),
          RandomInt(1, trial % 5 == 0 ? 150 : 40),
          RandomInt(1, trial % 5 == 1 ? 150 : 40)};
}

size_t OutBytes(const Problem& p) { return p.out_elements * (p.int8.o_type == DType::kF32 ? 4 : 1); }

enum class Codes { kAny, kExactSums };

void ExpectEqualsReference(Arch arch, bool bf16_pairs, Codes codes, int trials) {
  for (int trial = 0; trial < trials; ++trial) {
    const SdpaShape shape = RandomShape(trial);
    const auto seed = static_cast<uint32_t>(RandomInt(0, 1 << 30));
    SCOPED_TRACE("seed " + std::to_string(seed));
    const bool window = seed % 3 != 0, not_numbers = !window && seed % 2 == 0;
    const auto p =
        codes == Codes::kAny ? MakeFp8Problem(shape, seed, not_numbers) : MakeExact(shape, seed, not_numbers);
    std::mt19937 gen(seed + 1);
    const Hidden hidden = MakeHidden(shape, gen);
    if (window) p->int8.visibility = hidden.see;
    p->int8.bf16_pairs = bf16_pairs;
    ASSERT_EQ(SdpaRefusal(p->int8), "");
    const bool floats = p->int8.o_type == DType::kF32;
    ExpectSame(Attend(arch, p->int8, OutBytes(*p), seed % 2 != 0), Attend(Arch::kScalar, p->int8, OutBytes(*p), false),
               floats);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

class SdpaFp8Test : public ArchTest {};

TEST_P(SdpaFp8Test, EqualsTheReference) { ExpectEqualsReference(GetParam(), false, Codes::kAny, 300); }

INSTANTIATE_TEST_SUITE_P(All, SdpaFp8Test, ::testing::Values(Arch::kAvx2, Arch::kAvx512, Arch::kAvx512Vnni),
                         ArchTestName);

// vdpbf16ps, natively or through the trap.
TEST(SdpaFp8Pairs, EqualTheReference) {
  constexpr Arch kArch = Arch::kAvx512Vnni;
  ASSERT_TRUE(Fp8InPairs(kArch, true));
  const Execution execution = ExecutionOfPairs(kArch);
  if (execution == Execution::kNone) GTEST_SKIP() << Name(kArch) << ": not run on this CPU";
  if (execution == Execution::kTrap) trap::Install();
  const uint64_t before = trap::Executed().vector;
  ExpectEqualsReference(kArch, true, Codes::kAny, 120);
  EXPECT_EQ(trap::TakeProblem(), "");
  if (execution == Execution::kTrap) {
    EXPECT_GT(trap::Executed().vector, before);
  }
}

// AMX sums in another order, which no bit of these shows.
class SdpaFp8Amx : public ArchTest {};

TEST_P(SdpaFp8Amx, EqualsTheReferenceWhereSumsAreExact) {
  const uint64_t before = trap::Executed().tile;
  ExpectEqualsReference(GetParam(), false, Codes::kExactSums, 120);
  if (ExecutionOf(Arch::kAmx) == Execution::kTrap) {
    EXPECT_GT(trap::Executed().tile, before);
  }
}

// Pieces of one, seven and sixteen rows, and keys hidden before and behind: the same bits for every split.
TEST_P(SdpaFp8Amx, HasTheSameBitsForEverySplit) {
  for (int trial = 0; trial < 20; ++trial) {
    SdpaShape shape = RandomShape(trial);
    shape.q_len = RandomInt(1, 40);
    const auto seed = static_cast<uint32_t>(RandomInt(0, 1 << 30));
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto p = MakeFp8Problem(shape, seed, false);
    const bool floats = p->int8.o_type == DType::kF32;
    ExpectSame(Attend(GetParam(), p->int8, OutBytes(*p), true), Attend(GetParam(), p->int8, OutBytes(*p), false),
               floats);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SdpaFp8Amx, ::testing::Values(Arch::kAmx), ArchTestName);

double ValueAt(const std::vector<uint8_t>& codes, DType t, int64_t i) {
  return static_cast<double>(quant::Fp8ToF32(codes[static_cast<size_t>(i)], t));
}

// Codes of probabilities err by half of their distance; the rest is rounding of the products, in any order, and of exp.
class SdpaFp8Truth : public ArchTest {};
TEST_P(SdpaFp8Truth, IsWithinTheBoundOfTheExactValue) {
  double largest = 0;
  for (int trial = 0; trial < 60; ++trial) {
    SdpaShape s = RandomShape(trial);
    s.batch = s.heads = s.kv_heads = 1;
    const auto seed = static_cast<uint32_t>(RandomInt(0, 1 << 30));
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto p = MakeFp8Problem(s, seed, false);
    SdpaInt8Args& a = p->int8;
    a.o_type = DType::kF32, a.mask = {}, a.scale = 1.0f, a.softcap = 0.0f, a.p_type = DType::kE4M3FN,
    a.p_scale = 1 / 448.0f;
    const std::vector<uint8_t> bytes = Attend(GetParam(), a, OutBytes(*p), false);
    for (int64_t i = 0; i < s.q_len; ++i) {
      std::vector<double> score(static_cast<size_t>(s.k_len)), error(score.size());
      double top = -1e300, sum = 0, worst = 0;
      for (int64_t j = 0; j < s.k_len; ++j) {
        double acc = 0, magnitude = 0;
        for (int64_t d = 0; d < s.head_size; ++d) {
          const double x =
              ValueAt(p->q8, a.q_type, i * s.head_size + d) * ValueAt(p->k8, a.k_type, j * s.head_size + d);
          acc += x, magnitude += std::fabs(x);
        }
        const double factor = static_cast<double>(a.q_scale) * a.k_scale;
        score[static_cast<size_t>(j)] = acc * factor;
        worst = std::max(worst, magnitude * factor * static_cast<double>(s.head_size + 4) * 0x1p-24);
        top = std::max(top, acc * factor);
      }
      for (double& x : score) x = std::exp(x - top), sum += x;
      // Both the score and the maximum may be off, the sum as much again; and 20 ulp of exp, sum and quotients.
      const double relative = std::expm1(4 * worst) + 20 * 0x1p-23;
      for (int64_t c = 0; c < s.v_head_size; ++c) {
        double want = 0, bound = 0;
        for (int64_t j = 0; j < s.k_len; ++j) {
          const double prob = score[static_cast<size_t>(j)] / sum,
                       v = ValueAt(p->v8, a.v_type, j * s.v_head_size + c) * a.v_scale;
          want += prob * v;
          const double code = std::max(prob * 0x1p-4, 0x1p-10 / 448);
          bound +=
              std::fabs(v) * ((code + prob * relative) * 1.0625 + prob * static_cast<double>(s.k_len + 3) * 0x1p-23);
        }
        float got;
        std::memcpy(&got, &bytes[static_cast<size_t>(i * s.v_head_size + c) * 4], 4);
        ASSERT_LE(std::fabs(got - want), bound) << "row " << i << " column " << c;
        largest = std::max(largest, std::fabs(want) / bound);
      }
    }
  }
  EXPECT_GT(largest, 1.0);  // zeros would not pass
}
INSTANTIATE_TEST_SUITE_P(All, SdpaFp8Truth, ::testing::Values(Arch::kScalar, Arch::kAmx), ArchTestName);

TEST(SdpaFp8Refusal, NamesTheReason) {
  const auto p = MakeFp8Problem({1, 1, 1, 2, 3, 4, 5}, 3, false);
  SdpaInt8Args a = p->int8;
  a.v_type = DType::kU8;
  EXPECT_EQ(SdpaRefusal(a), "Q, K, V and the probabilities of an fp8 attention must all be fp8.");
  a = p->int8;
  a.o_type = DType::kS8;
  EXPECT_EQ(SdpaRefusal(a), "An fp8 attention writes fp8 or f32.");
  a = p->int8;
  a.k_scale = 0.0f;
  EXPECT_EQ(SdpaRefusal(a), "A scale of the fp8 attention is not a positive number.");
}

}  // namespace
}  // namespace octavo::kernels
