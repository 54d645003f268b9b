// README's figures, for the tests that measure them.
#ifndef OCTAVO_TESTS_README_H_
#define OCTAVO_TESTS_README_H_

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace octavo::tests {

// README has these words, wherever its lines break.
inline testing::AssertionResult ReadmeSays(const std::string& words) {
  std::ifstream file(std::string(OCTAVO_SOURCE_DIR) + "/README.md");
  std::string text, word;
  while (file >> word) text += word + " ";
  if (text.find(words) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "README does not say '" << words << "'";
}

}  // namespace octavo::tests

#endif  // OCTAVO_TESTS_README_H_
