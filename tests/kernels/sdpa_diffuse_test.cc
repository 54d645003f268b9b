// Codes whose rests go to later keys (p_diffused): what they are, lane by lane, against whole numbers; what that keeps of a long tail; what
// is refused. sdpa_test, sdpa_decode_int8_test and thresholds_attention_test draw them for every form and size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "octavo/quant/numeric/math.h"
#include "octavo/tests/kernels/sdpa_testing.h"

namespace octavo::kernels {
namespace {

using quant::DType;

// One row of one head. Scores are k_j / 16, exact in floats; V tells keys apart: column c is 1 at the keys of c alone.
struct OneRow {
  OneRow(std::vector<uint8_t> scores, int64_t columns, float p_scale) : k(std::move(scores)) {
    const auto keys = static_cast<int64_t>(k.size());
    v.assign(static_cast<size_t>(keys * columns), 0);
    for (int64_t j = 0; j < keys; ++j) v[static_cast<size_t>(j * columns + j % columns)] = 1;
    a.shape = {1, 1, 1, 1, keys, 1, columns};
    a.q = q.data(), a.k = k.data(), a.v = v.data();
    a.q_strides = {1, 1, 1}, a.k_strides = {keys, keys, 1}, a.v_strides = {keys * columns, keys * columns, columns};
    a.o_strides = {columns, columns, columns};
    a.q_scale = 0.0625f, a.p_scale = p_scale, a.p_relative = a.p_diffused = true;
  }
  std::vector<float> Run(Arch arch, bool decode = false) {
    EXPECT_EQ(SdpaRefusal(a), "");
    std::vector<float> o(static_cast<size_t>(a.shape.v_head_size));
    a.o = o.data();
    Buffer packed(SdpaPackedBytes(arch, a)),
        scratch(std::max(SdpaScratchBytes(arch, a), SdpaDecodeScratchBytes(arch, a)));
    decode ? SdpaDecode(arch, a, 0, 0, scratch.data()) : SdpaHeads(arch, a, 0, 1, packed.data(), scratch.data());
    return o;
  }
  std::vector<uint8_t> q{1}, k, v;
  SdpaInt8Args a;
};

class SdpaDiffuseTest : public testing::TestWithParam<Arch> {};

// Column c of 16 sums the codes of lane c: the whole codes of the sum of 256ths, and a half for rounding.
TEST_P(SdpaDiffuseTest, ALaneHasTheCodesOfItsSum) {
  for (const int n : {255, 128, 127, 3}) {
    for (const int64_t keys : {1, 15, 16, 17, 63, 64, 65, 257, 700}) {
      std::vector<uint8_t> scores(static_cast<size_t>(keys));
      for (size_t j = 0; j < scores.size(); ++j) scores[j] = static_cast<uint8_t>(j == 5 ? 200 : 90 + j * 37 % 50);
      OneRow row(scores, 16, 1.0f / static_cast<float>(n));
      const float top = static_cast<float>(*std::max_element(scores.begin(), scores.end())) * 0.0625f;
      int64_t lanes[16], all = 0;
      std::fill_n(lanes, 16, 128);
      for (size_t j = 0; j < scores.size(); ++j) {
        const float e = quant::Exp(static_cast<float>(scores[j]) * 0.0625f - top);
        lanes[j % 16] += static_cast<int64_t>(std::nearbyint(e * static_cast<float>(256 * n)));
      }
      for (int64_t& lane : lanes) lane /= 256, all += lane;
      for (const bool decode : {false, true}) {
        const std::vector<float> o = row.Run(GetParam(), decode);
        for (size_t c = 0; c < 16; ++c) {
          ASSERT_EQ(o[c], static_cast<float>(lanes[c]) / static_cast<float>(std::max<int64_t>(all, 1)))
              << n << " codes, " << keys << " keys, lane " << c << (decode ? ", decoding" : "");
        }
      }
    }
  }
}

// One key draws most; the 700 others have an exponential of a 1000th each, together 0.4 of the mass.
TEST_P(SdpaDiffuseTest, ALongTailKeepsItsWeight) {
  std::vector<uint8_t> scores(701, 200 - 110);  // exp(-110 / 16) = 0.00103
  scores[0] = 200;
  OneRow row(scores, 701, 1 / 255.0f);
  const double e = std::exp(-110.0 / 16), exact = 1 / (1 + 700 * e);
  const auto first = [&] { return double{row.Run(GetParam())[0]}; };
  EXPECT_NEAR(exact, 0.58, 0.01);
  EXPECT_NEAR(first(), exact, 0.005);
  row.a.p_diffused = false;
  EXPECT_EQ(first(), 1.0) << "all below half a code";
}

std::string NameOf(const testing::TestParamInfo<Arch>& info) { return std::string(Name(info.param)); }
INSTANTIATE_TEST_SUITE_P(Archs, SdpaDiffuseTest, testing::ValuesIn(RunnableArchs()), NameOf);

TEST(SdpaDiffuse, RefusesOtherScales) {
  OneRow row({1, 2, 3}, 1, 1 / 255.0f);
  EXPECT_EQ(SdpaRefusal(row.a), "");
  const auto refused = [&] {
    return SdpaRefusal(row.a) == "Diffused probabilities are relative ones with a scale of 1 / n, n from 1 to 255.";
  };
  for (const float scale : {1 / 256.0f, 1 / 254.5f, 0.4f, 2.5f}) {
    row.a.p_scale = scale;
    EXPECT_TRUE(refused()) << scale << ": " << SdpaRefusal(row.a);
  }
  row.a.p_scale = 1 / 255.0f, row.a.p_relative = false;
  EXPECT_TRUE(refused());
  EXPECT_EQ(SdpaFlashRefusal(row.a), "") << "flash does not read it";
}

}  // namespace
}  // namespace octavo::kernels
