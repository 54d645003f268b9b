// int8 flash attention: every Arch against the scalar form, that against attention in double, its memory and its refusals.
#include <algorithm>

#include "sdpa_testing.h"

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
    for (const bool guard : {false, true}) {
      for (const DType out : {DType::kF32, DType::kU8}) {
        p->int8.nan_guard = guard, p->int8.o_type = out, p->int8.o_zero_point = 3;
        ExpectScalarBits(GetParam(), *p, false);
        if (HasFatalFailure()) return;
      }
    }
    p->int8.nan_guard = false, p->int8.o_type = DType::kF32;
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

// One row of attention in double, of the dequantized operands, and how far the codes of P may move each output.
struct Truth {
  const SdpaInt8Args& a;
  std::vector<double> s;

  static double Value(const void* data, DType type, int64_t at, int32_t zero) {
    const double q = type == DType::kU8 ? static_cast<const uint8_t*>(data)[at] : static_cast<const int8_t*>(data)[at];
    return q - zero;
  }
  static int64_t At(const SdpaStrides& s, int64_t b, int64_t h, int64_t row) {
    return b * s.batch + h * s.head + row * s.row;
  }

  Truth(const SdpaInt8Args& args, int64_t b, int64_t h, int64_t i) : a(args) {
    const SdpaShape& sh = a.shape;
    const int64_t kv = h / (sh.heads / sh.kv_heads);
    const int64_t offset = a.visibility.window.offset + (a.visibility.window.bottom_right ? sh.k_len - sh.q_len : 0);
    for (int64_t j = 0; j < sh.k_len; ++j) {
      double x = 0;
      for (int64_t d = 0; d < sh.head_size; ++d) {
        x += Value(a.q, a.q_type, At(a.q_strides, b, h, i) + d, a.q_zero_point) *
             Value(a.k, a.k_type, At(a.k_strides, b, kv, j) + d, a.k_zero_point);
      }
      x *= double{a.q_scale} * double{a.k_scale} * double{a.scale};
      if (a.softcap != 0) x = std::tanh(x / double{a.softcap}) * double{a.softcap};
      if (a.visibility.alibi != nullptr) x += double{a.visibility.alibi[h]} * static_cast<double>(j - i - offset);
      if (a.mask.data != nullptr)
        x += a.mask.data[b * a.mask.batch + h * a.mask.head + i * a.mask.row + j * a.mask.col];
      const SdpaWindow& w = a.visibility.window;
      const SdpaBoolMask& keep = a.visibility.keep;
      bool hide = (w.left >= 0 && j < i + offset - w.left) || (w.right >= 0 && j > i + offset + w.right);
      hide = hide ||
             (keep.data != nullptr && keep.data[b * keep.batch + h * keep.head + i * keep.row + j * keep.col] == 0);
      s.push_back(hide ? a.visibility.hidden_value : x);
    }
  }

  // y[c] and bound[c]; false: a row without meaning.
  bool Attend(int64_t b, int64_t h, std::vector<double>* y, std::vector<double>* bound) const {
    const SdpaShape& sh = a.shape;
    const int64_t kv = h / (sh.heads / sh.kv_heads);
    const double last = *std::ranges::max_element(s);
    if (std::isinf(last)) return false;
    std::vector<double> e, weight;
    double max = -kInf, sum = 0, lost = 0, largest = 0;
    for (size_t j = 0; j < s.size(); ++j) {
      if (j % kSdpaFlashKeys == 0) {
        max =
            std::max(max, *std::max_element(s.begin() + j, s.begin() + std::min(s.size(), j + size_t{kSdpaFlashKeys})));
      }
      const bool gone = std::isinf(s[j]) || s[j] < last - 1e5;  // Exp is 0, and so is the code
      e.push_back(gone ? 0 : std::exp(s[j] - last));
      weight.push_back(gone ? 0 : std::exp(max - last));
      sum += e.back(), lost += weight.back() / 510;
      if (!gone) largest = std::max(largest, std::fabs(s[j]));
    }
    // Roundings: of a score five (product, scale, cap, slope, mask) at its size and those of tanh, an Exp of 2 ulp, one a tile in o.
    const double rounding = (8 * largest + 32 + 3.0 * static_cast<double>(s.size()) / kSdpaFlashKeys) * 0x1p-23;
    const double least = std::max(1.0 - rounding, sum - lost);
    for (int64_t c = 0; c < sh.v_head_size; ++c) {
      const auto v = [&](int64_t j) {
        return Value(a.v, a.v_type, At(a.v_strides, b, kv, j) + c, a.v_zero_point) * double{a.v_scale};
      };
      double o = 0;
      for (int64_t j = 0; j < sh.k_len; ++j) o += e[j] * v(j) / sum;
      double off = 0;
      for (int64_t j = 0; j < sh.k_len; ++j) off += (weight[j] / 510 + e[j] * rounding) * std::fabs(v(j) - o);
      y->push_back(o);
      bound->push_back(off / least + 0x1p-20 * std::fabs(o));
    }
    return true;
  }
};

// The largest error, as a share of the bound.
double ExpectNearTruth(const Problem& p, double* largest) {
  const SdpaInt8Args& a = p.int8;
  const auto got = Flash(Arch::kScalar, a, OutBytes(p), false);
  double worst = 0;
  for (int64_t b = 0; b < a.shape.batch; ++b) {
    for (int64_t h = 0; h < a.shape.heads; ++h) {
      for (int64_t i = 0; i < a.shape.q_len; ++i) {
        std::vector<double> y, bound;
        const bool meaning = Truth(a, b, h, i).Attend(b, h, &y, &bound);
        for (int64_t c = 0; c < a.shape.v_head_size; ++c) {
          const auto at = static_cast<size_t>(Truth::At(a.o_strides, b, h, i) + c);
          float x = 0;
          double step = 0;
          if (a.o_type == DType::kF32) {
            std::memcpy(&x, &got[at * 4], 4);
          } else {
            x = static_cast<float>(Truth::Value(got.data(), a.o_type, static_cast<int64_t>(at), a.o_zero_point) *
                                   a.o_scale);
            step = 0.5001 * a.o_scale;
          }
          if (!meaning) {
            EXPECT_TRUE(a.o_type != DType::kF32 || (a.nan_guard ? x == 0 : std::isnan(x))) << x;
            continue;
          }
          double want = y[c];
          if (a.o_type != DType::kF32) {  // saturated
            const double low = a.o_type == DType::kU8 ? 0 : -128;
            want = std::clamp(want, (low - a.o_zero_point) * a.o_scale, (low + 255 - a.o_zero_point) * a.o_scale);
          }
          EXPECT_LE(std::fabs(x - want), bound[c] + step)
              << "row " << i << " column " << c << ": " << x << ", " << want;
          if (step == 0) worst = std::max(worst, std::fabs(x - want) / bound[c]);
          *largest = std::max(*largest, std::fabs(want));
          if (testing::Test::HasFailure()) return worst;
        }
      }
    }
  }
  return worst;
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
  a.p_type = DType::kU8, a.p_zero_point = 0, a.p_scale = 1 / 255.0f, a.p_relative = false;
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
