// Figures that documents state, for the tests that measure them.
#ifndef OCTAVO_TESTS_DOCS_H_
#define OCTAVO_TESTS_DOCS_H_

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace octavo::tests {

// docs/families.md has these words, wherever its lines break.
inline testing::AssertionResult FamiliesSay(const std::string& words) {
  std::ifstream file(std::string(OCTAVO_SOURCE_DIR) + "/docs/families.md");
  std::string text, word;
  while (file >> word) text += word + " ";
  if (text.find(words) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "docs/families.md does not say '" << words << "'";
}

}  // namespace octavo::tests

#endif  // OCTAVO_TESTS_DOCS_H_
