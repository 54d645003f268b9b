// Words that people write wrong: which known one they meant.
#ifndef OCTAVO_IR_NEAR_H_
#define OCTAVO_IR_NEAR_H_

#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/status.h"

namespace octavo::ir {

// "; did you mean --recipe?", where one of the words is near: at most two letters, and a third of them, to change, add, leave out or swap with the next.
std::string Near(std::string_view word, const std::vector<std::string>& words);

// Refuses a word that is none of `words`: "WHAT takes recipe or threads, not 'recip'; did you mean recipe?".
Status KnownWord(std::string_view what, std::string_view word, const std::vector<std::string>& words);

// "a, b or c", where `last` is "or".
std::string Listed(const std::vector<std::string>& words, std::string_view last);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_NEAR_H_
