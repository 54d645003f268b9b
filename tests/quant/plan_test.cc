#include "octavo/quant/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "octavo/quant/calibrate.h"

namespace octavo::quant {
namespace {

using ::testing::HasSubstr;

TEST(QuantPlan, TextIsSortedAndRoundTrips) {
  QuantPlan plan;
  plan.Quantize("/layer.0/q", {DType::kU8, 0.0234375f, 128}, Range{-3, 2.9765625f});
  plan.KeepFloat("/layer.0/mask", "an additive mask is not a measurement");
  plan.Quantize("b", {DType::kS8, 0.1f, 0}, {}, "set by hand");
  plan.KeepFloat("odd \"name\"\n\\\x01", "");
  const std::string text = plan.ToText();
  EXPECT_EQ(text,
            "octavo plan 1\n"
            "\"/layer.0/mask\" float \"an additive mask is not a measurement\"\n"
            "\"/layer.0/q\" u8 scale 0.0234375 zero_point 128 range -3 2.9765625\n"
            "\"b\" s8 scale 0.1 zero_point 0 \"set by hand\"\n"
            "\"odd \\\"name\\\"\\n\\\\\\x01\" float\n");
  const auto back = QuantPlan::Parse(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, plan);
  EXPECT_EQ(back->ParamsOf("b")->scale, 0.1f);
  EXPECT_EQ(back->ParamsOf("/layer.0/mask"), nullptr);
  EXPECT_EQ(back->Find("none"), nullptr);
}

TEST(QuantPlan, EveryScaleReadsBackToTheSameBits) {
  const unsigned seed = 21;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  QuantPlan plan;
  for (int i = 0; i < 5000; ++i) {
    const float scale = std::bit_cast<float>(0x00800000u + static_cast<uint32_t>(random()) % 0x7f000000u);
    plan.Quantize(std::to_string(i), {DType::kU8, scale, static_cast<int32_t>(random() % 256)}, Range{-scale, scale});
  }
  const auto back = QuantPlan::Parse(plan.ToText());
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, plan);
}

TEST(QuantPlan, ErrorsNameTheLine) {
  const auto error = [](std::string_view line) {
    const auto r = QuantPlan::Parse("octavo plan 1\n# a remark\n\n" + std::string(line) + "\n");
    return r ? "no error" : r.error().message;
  };
  EXPECT_EQ(error("\"x\" u8 scale 1 zero_point 0"), "no error");
  for (const char* line :
       {"x u8 scale 1 zero_point 0", "\"x", "\"x\"", "\"x\" f32 scale 1 zero_point 0",
        "\"x\" u8 scale one zero_point 0", "\"x\" u8 scale 0 zero_point 0", "\"x\" u8 scale nan zero_point 0",
        "\"x\" u8 scale 1e-45 zero_point 0", "\"x\" u8 scale 1 zero_point 256", "\"x\" u8 scale 1 zero_point -1",
        "\"x\" e4m3fn scale 1 zero_point 1", "\"x\" u8 scale 1", "\"x\" u8 scale 1 zero_point 0 range 2 1",
        "\"x\" u8 scale 1 zero_point 0 range 2", "\"x\" u8 scale 1 zero_point 0 extra", "\"x\" float because",
        "\"x\" float \"a\" \"b\"", "\"x\\"}) {
    EXPECT_THAT(error(line), HasSubstr("line 4 of the plan: ")) << line;
  }
  EXPECT_THAT(error("\"x\" float\n\"x\" float"), HasSubstr("line 5 of the plan: 'x' is there twice"));
  EXPECT_THAT(QuantPlan::Parse("something else").error().message, HasSubstr("first line"));
}

TEST(QuantPlan, FromACalibration) {
  Calibration c;
  c.values["x"].Observe(std::vector<float>{-51, 204});
  c.values["x"].EndSample();
  c.values["unseen"];
  const auto plan = MakePlan(c, {.calibrator = Calibrator::kMinMax});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->ToText(),
            "octavo plan 1\n\"unseen\" float \"no value was seen in calibration\"\n"
            "\"x\" u8 scale 1 zero_point 51 range -51 204\n");
  const auto bad = MakePlan(c, {.calibrator = Calibrator::kPercentile, .percentile = 3});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message, "value 'x': percentile 3 is not above 50 and at most 100");
}

}  // namespace
}  // namespace octavo::quant
