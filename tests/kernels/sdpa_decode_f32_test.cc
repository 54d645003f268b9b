// Few query rows of a group at once: every Arch against the scalar form of the exact mode, and the part of a cache that no row
// sees is not read.
#include <sys/mman.h>

#include <algorithm>
#include <span>

#include "octavo/quant/numeric/coded_row.h"
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

// Rows of an operand as codes, and as the floats that those stand for.
struct CodedOperand {
  std::vector<std::byte> codes;
  std::vector<float> floats;

  CodedOperand(const SdpaShape& s, const float* data, const SdpaStrides& strides, int64_t width, int bits) {
    const int64_t rows = s.batch * s.kv_heads * s.k_len;
    codes.resize(static_cast<size_t>(rows) * quant::CodedRowBytes(width, bits));
    floats.resize(static_cast<size_t>(rows * width));
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t head = r / s.k_len;
      const float* x =
          data + head / s.kv_heads * strides.batch + head % s.kv_heads * strides.head + r % s.k_len * strides.row;
      std::byte* row = codes.data() + static_cast<size_t>(r) * quant::CodedRowBytes(width, bits);
      quant::EncodeRow(x, width, bits, row);
      quant::DecodeRow(row, width, bits, floats.data() + r * width);
    }
  }
  static SdpaStrides Strides(const SdpaShape& s, int64_t row) {
    return {s.kv_heads * s.k_len * row, s.k_len * row, row};
  }
};

TEST_P(SdpaDecodeF32Test, RowsOfCodesAreTheFloatsThatTheyStandFor) {
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t kv = RandomInt(1, 2);
    const SdpaShape shape = {RandomInt(1, 2),
                             kv * RandomInt(1, 9),
                             kv,
                             trial % 2 == 0 ? 1 : RandomInt(1, kSdpaDecodeRows),
                             RandomInt(1, 300),
                             RandomInt(1, trial % 3 == 0 ? 130 : 40),
                             RandomInt(1, trial % 5 == 0 ? 200 : 40)};
    const auto seed = static_cast<uint32_t>(RandomInt(0, 1 << 30));
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto p = MakeProblem(shape, seed);
    std::mt19937 gen(seed + 1);
    const Hidden hidden = MakeHidden(shape, gen);
    if (seed % 3 != 0) p->real.visibility = hidden.see;
    const int k_bits = RandomInt(0, 1) == 0 ? 4 : 8, v_bits = RandomInt(0, 1) == 0 ? 4 : 8;
    const CodedOperand k(shape, p->real.k, p->real.k_strides, shape.head_size, k_bits);
    const CodedOperand v(shape, p->real.v, p->real.v_strides, shape.v_head_size, v_bits);
    SdpaFloatArgs plain = p->real, coded;
    const bool both = trial % 4 != 0, keys = both || trial % 8 == 0;
    plain.k = k.floats.data(), plain.k_strides = CodedOperand::Strides(shape, shape.head_size);
    plain.v = v.floats.data(), plain.v_strides = CodedOperand::Strides(shape, shape.v_head_size);
    coded = plain;
    if (keys) {
      coded.k = reinterpret_cast<const float*>(k.codes.data()), coded.k_bits = k_bits;
      coded.k_strides =
          CodedOperand::Strides(shape, static_cast<int64_t>(quant::CodedRowBytes(shape.head_size, k_bits)));
    }
    if (both || !keys) {
      coded.v = reinterpret_cast<const float*>(v.codes.data()), coded.v_bits = v_bits;
      coded.v_strides =
          CodedOperand::Strides(shape, static_cast<int64_t>(quant::CodedRowBytes(shape.v_head_size, v_bits)));
    }
    const std::vector<uint8_t> want = Attend(Arch::kScalar, plain, p->out_elements * 4, false);
    ExpectSame(Decode(GetParam(), coded, p->out_elements * 4), want, true);
    ExpectSame(DecodeInParts(GetParam(), coded, p->out_elements * 4, RandomInt(1, 5)), want, true);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SdpaDecodeF32Test, KeysMayLieInManyPlaces) {
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t kv = RandomInt(1, 3);
    const SdpaShape shape = {RandomInt(1, 2),
                             kv * RandomInt(1, 9),
                             kv,
                             trial % 2 == 0 ? 1 : RandomInt(1, kSdpaDecodeRows),
                             RandomInt(17, 400),
                             RandomInt(1, 70),
                             RandomInt(1, 70)};
    const auto seed = static_cast<uint32_t>(RandomInt(0, 1 << 30));
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto p = MakeProblem(shape, seed);
    std::mt19937 gen(seed + 1);
    const Hidden hidden = MakeHidden(shape, gen);
    if (seed % 3 != 0) p->real.visibility = hidden.see;
    const bool coded = trial % 2 == 0;
    SdpaFloatArgs plain = p->real, split;
    const int bits = trial % 4 == 0 ? 4 : 8;
    const CodedOperand k(shape, p->real.k, p->real.k_strides, shape.head_size, bits);
    const CodedOperand v(shape, p->real.v, p->real.v_strides, shape.v_head_size, bits);
    plain.k = k.floats.data(), plain.k_strides = CodedOperand::Strides(shape, shape.head_size);
    plain.v = v.floats.data(), plain.v_strides = CodedOperand::Strides(shape, shape.v_head_size);
    split = plain, split.k_bits = split.v_bits = coded ? bits : 0;
    // Each place is in one of three copies of the operand, in whose places the others have other rows.
    std::vector<std::vector<std::byte>> copies;
    const auto in_places = [&](const CodedOperand& whole, int64_t width, const SdpaPlace*& of,
                               std::vector<SdpaPlace>& places) {
      const int64_t row = coded ? static_cast<int64_t>(quant::CodedRowBytes(width, bits)) : width;
      const std::span<const std::byte> bytes =
          coded ? std::span<const std::byte>(whole.codes) : std::as_bytes(std::span(whole.floats));
      const size_t row_bytes = static_cast<size_t>(row) * (coded ? 1 : sizeof(float));
      const size_t first_copy = copies.size();
      for (int i = 0; i < 3; ++i) copies.emplace_back(bytes.begin(), bytes.end());
      std::vector<size_t> chosen;
      for (int64_t at = 0; at < shape.k_len; at += kSdpaPlaceKeys) {
        chosen.push_back(first_copy + static_cast<size_t>(RandomInt(0, 2)));
        places.push_back(
            {reinterpret_cast<const float*>(copies[chosen.back()].data() + static_cast<size_t>(at) * row_bytes),
             CodedOperand::Strides(shape, row)});
      }
      for (size_t r = 0; r < bytes.size() / row_bytes; ++r) {
        const size_t right = chosen[r % static_cast<size_t>(shape.k_len) / static_cast<size_t>(kSdpaPlaceKeys)];
        for (size_t i = first_copy; i < first_copy + 3; ++i) {
          if (i != right)
            std::fill_n(copies[i].begin() + static_cast<ptrdiff_t>(r * row_bytes), row_bytes, std::byte{0x3f});
        }
      }
      of = places.data();
    };
    copies.reserve(6);
    std::vector<SdpaPlace> of_k, of_v;
    in_places(k, shape.head_size, split.k_places, of_k);
    if (trial % 5 != 0) in_places(v, shape.v_head_size, split.v_places, of_v);
    if (split.v_places == nullptr && coded) {
      split.v = reinterpret_cast<const float*>(v.codes.data());
      split.v_strides =
          CodedOperand::Strides(shape, static_cast<int64_t>(quant::CodedRowBytes(shape.v_head_size, bits)));
    }
    const std::vector<uint8_t> want = Attend(Arch::kScalar, plain, p->out_elements * 4, false);
    ExpectSame(Decode(GetParam(), split, p->out_elements * 4), want, true);
    ExpectSame(DecodeInParts(GetParam(), split, p->out_elements * 4, RandomInt(1, 5)), want, true);
    if (HasFatalFailure()) return;
  }
}

std::string NameOf(const testing::TestParamInfo<Arch>& info) { return std::string(Name(info.param)); }
INSTANTIATE_TEST_SUITE_P(Archs, SdpaDecodeF32Test, testing::ValuesIn(RunnableArchs()), NameOf);

}  // namespace
}  // namespace octavo::kernels
