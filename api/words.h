// Sentences of the library are in words of Python and C++. The program has others for the same things.
#ifndef OCTAVO_API_WORDS_H_
#define OCTAVO_API_WORDS_H_

#include <string>
#include <utility>
#include <vector>

namespace octavo::api {

// A library's word, and the program's; who is to be replaced first comes first.
std::vector<std::pair<std::string, std::string>> WordsOfProgram();

}  // namespace octavo::api

#endif  // OCTAVO_API_WORDS_H_
