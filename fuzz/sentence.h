// What every sentence that octavo gives to a person must be: one line of text in octavo's own words.
#ifndef OCTAVO_FUZZ_SENTENCE_H_
#define OCTAVO_FUZZ_SENTENCE_H_

#include <string>
#include <string_view>

namespace octavo::fuzz {

// Valid UTF-8: no stray bytes, no overlong forms, no surrogates.
bool IsUtf8(std::string_view text);

// Empty: nothing. Else one phrase: octavo says that it is at fault, another library speaks, bytes that no terminal should see. Words that `file` has,
// which the sentence is about, are the file's.
std::string WhatIsWrongWith(std::string_view sentence, std::string_view file = {});

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_SENTENCE_H_
