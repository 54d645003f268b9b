// Internal to ir/text*.cc: the characters of the text form, and the reader of its tokens.
#ifndef OCTAVO_IR_TEXT_LEXER_H_
#define OCTAVO_IR_TEXT_LEXER_H_

#include <string>
#include <string_view>

#include "octavo/ir/status.h"

namespace octavo::ir::internal {

// What a name may hold to be written without quotes. ':' and '/' are in it, because ONNX names are full of them; hence
// the separator ':' always stands between spaces.
constexpr bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '/' || c == ':' || c == '-';
}

bool IsPlain(std::string_view name);
// "..." with \" \\ \n \t and \xHH for other control characters and for bytes that are no UTF-8.
void AppendQuoted(std::string& out, std::string_view text);
void AppendName(std::string& out, std::string_view name);  // plain or quoted
void AppendHex(std::string& out, std::string_view bytes);

// Newlines are space like any other; '#' starts a comment to the end of the line.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  // The next character that is no space, 0 at the end; nothing is taken.
  char Peek();
  bool AtEnd() { return Peek() == 0; }
  // Takes the character or word if it comes next.
  bool Eat(char c);
  bool EatWord(std::string_view word);
  Status Expect(char c);
  Result<std::string> Quoted();
  Result<std::string> Name();            // plain or quoted
  std::string_view Word();               // the name characters that come next, and '+'; may be empty
  Result<std::string> HexBytes();        // "0a1f"
  Result<std::string_view> Bracketed();  // the text between '[' and its ']', quotes respected
  Result<int64_t> Int();

  // "line 12: ..."
  template <typename... Args>
  std::unexpected<Error> Refuse(std::format_string<Args...> fmt, Args&&... args) const {
    return std::unexpected(Error{std::format("line {}: ", line_) + std::format(fmt, std::forward<Args>(args)...)});
  }
  // "expected WHAT, found ..."
  std::unexpected<Error> Expected(std::string_view what);

 private:
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace octavo::ir::internal

#endif  // OCTAVO_IR_TEXT_LEXER_H_
