#include <cstdio>
#include <cstdlib>
#include <string>

#include "octavo/fuzz/sentence.h"
#include "octavo/fuzz/targets.h"

namespace octavo::fuzz {

void Broken(std::string_view law, std::string_view detail) {
  std::fprintf(stderr, "octavo fuzz: broken law: %s: %s\n", std::string(law).c_str(), std::string(detail).c_str());
  std::abort();
}

void CheckSentence(std::string_view sentence, std::string_view file) {
  if (const std::string wrong = WhatIsWrongWith(sentence, file); !wrong.empty()) Broken(wrong, sentence);
}

}  // namespace octavo::fuzz
