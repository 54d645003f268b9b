// Words that people write wrong: which one they meant is told where it is near, and only there.
#include "octavo/ir/near.h"

#include <gtest/gtest.h>

namespace octavo::ir {
namespace {

const std::vector<std::string> kWords{"recipe", "threads"};

TEST(Near, AThirdOfTheLettersAndAtMostTwoMayDiffer) {
  for (const char* word : {"recip", "Recipe", "reicpe", "recipes", "recepe", "rcpe"})
    EXPECT_EQ(Near(word, kWords), std::string_view(word) == "rcpe" ? "" : "; did you mean recipe?") << word;
  EXPECT_EQ(Near("thraeds", kWords), "; did you mean threads?");  // one swap
  EXPECT_EQ(Near("treasd", kWords), "; did you mean threads?");   // two changes of six letters
  for (const char* word : {"", "r", "device_id", "recipe.recipe"}) EXPECT_EQ(Near(word, kWords), "") << word;
  EXPECT_EQ(Near("recipe", {}), "");
}

TEST(Near, ALongWordIsNotCompared) {  // a table of lengths multiplied: a megabyte each would take 8 TB
  for (const size_t length : {65, 1000, 1 << 20}) {
    const std::string word(length, 'a');
    EXPECT_EQ(Near(word, {word.substr(1)}), "") << length;
  }
  EXPECT_EQ(Near(std::string(64, 'a'), {std::string(63, 'a')}), "; did you mean " + std::string(63, 'a') + "?");
}

TEST(Near, AnUnknownWordIsRefused) {
  EXPECT_TRUE(KnownWord("it", "recipe", kWords));
  EXPECT_TRUE(KnownWord("it", "threads", kWords));
  const auto told = [](std::string_view word) {
    const Status status = KnownWord("the execution provider", word, kWords);
    return status ? "known" : status.error().message;
  };
  EXPECT_EQ(told("recip"), "the execution provider takes recipe or threads, not 'recip'; did you mean recipe?");
  EXPECT_EQ(told("device_id"), "the execution provider takes recipe or threads, not 'device_id'");
  EXPECT_EQ(told(""), "the execution provider takes recipe or threads, not ''");
  EXPECT_EQ(told("a\nb"), "the execution provider takes recipe or threads, not 'a\\x0ab'");
}

TEST(Near, WordsAreListed) {
  EXPECT_EQ(Listed({}, "or"), "");
  EXPECT_EQ(Listed({"a"}, "or"), "a");
  EXPECT_EQ(Listed({"a", "b", "c"}, "and"), "a, b and c");
}

}  // namespace
}  // namespace octavo::ir
