#include "octavo/fuzz/sentence.h"

#include <gtest/gtest.h>

namespace octavo::fuzz {
namespace {

TEST(Sentence, GoodOnesPass) {
  EXPECT_EQ(WhatIsWrongWith("node 'n' (Conv): group 3 does not divide 4 filters; export it again"), "");
  EXPECT_EQ(WhatIsWrongWith("'std::vector' is the file's own name"), "");
  EXPECT_EQ(WhatIsWrongWith("there is no pass 'octavo is at fault'"), "");
  EXPECT_EQ(WhatIsWrongWith("na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80"), "");
}

TEST(Sentence, EachDefectIsSeen) {
  for (const char* bad :
       {"", "[json.exception.type_error.302] type must be number", "std::bad_alloc", "vector::_M_default_append",
        "reading: octavo is at fault, a check", "two\nlines", "bell \x07", "\xff", "cut \xe2\x82", "\xed\xa0\x80",
        "overlong \xc0\xaf", "could not create a primitive"}) {
    EXPECT_NE(WhatIsWrongWith(bad), "") << bad;
  }
}

}  // namespace
}  // namespace octavo::fuzz
