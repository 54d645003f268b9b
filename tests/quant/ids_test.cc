#include "octavo/quant/ids.h"

#include <optional>

#include "gtest/gtest.h"

namespace octavo::quant {
namespace {

TEST(IdRanges, TextThatIsNoneIsToldFromText) {
  const IdRanges ranges{{"a", {-3, 5}}, {"b", {}}, {"c", {7, 7}}};
  EXPECT_EQ(ToText(ranges), R"({"a":[-3,5],"b":[],"c":[7,7]})");
  EXPECT_EQ(IdRangesOf(ToText(ranges)), ranges);
  for (const char* bad : {"", "[]", "{", R"({"a":1})", R"({"a":[1]})", R"({"a":[1,2,3]})", R"({"a":[2,1]})",
                          R"({"a":[0.5,1]})", R"({"a":["0",1]})", R"({"a":[0,18446744073709551615]})"})
    EXPECT_EQ(IdRangesOf(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace octavo::quant
