#include "octavo/ir/text_lexer.h"

#include <algorithm>
#include <charconv>

#include "octavo/ir/names.h"

namespace octavo::ir::internal {

namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

bool IsPlain(std::string_view name) { return !name.empty() && std::ranges::all_of(name, IsNameChar); }

void AppendHex(std::string& out, std::string_view bytes) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kHexDigits[byte >> 4];
    out += kHexDigits[byte & 15];
  }
}

void AppendQuoted(std::string& out, std::string_view text) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const size_t shown = ShownAsIs(text.substr(at));
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (shown != 0) {
      out += text.substr(at, shown);
    } else {
      out += "\\x";
      AppendHex(out, text.substr(at, 1));
    }
    at += std::max<size_t>(shown, 1);
  }
  out += '"';
}

void AppendName(std::string& out, std::string_view name) {
  if (IsPlain(name)) {
    out += name;
  } else {
    AppendQuoted(out, name);
  }
}

char Lexer::Peek() {
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
    } else if (c == '\n') {
      ++line_;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return c;
    }
  }
  return 0;
}

bool Lexer::Eat(char c) {
  if (Peek() != c || c == 0) return false;
  ++at_;
  return true;
}

bool Lexer::EatWord(std::string_view word) {
  Peek();
  if (!text_.substr(at_).starts_with(word)) return false;
  const size_t end = at_ + word.size();
  if (end < text_.size() && IsNameChar(text_[end])) return false;
  at_ = end;
  return true;
}

std::unexpected<Error> Lexer::Expected(std::string_view what) {
  if (AtEnd()) return Refuse("expected {}, found the end", what);
  const std::string_view rest = text_.substr(at_, 24);
  return Refuse("expected {}, found '{}'", what, rest.substr(0, rest.find('\n')));
}

Status Lexer::Expect(char c) {
  if (Eat(c)) return {};
  return Expected(std::string("'") + c + "'");
}

Result<std::string> Lexer::Quoted() {
  if (!Eat('"')) return Expected("a quoted text");
  std::string out;
  while (at_ < text_.size() && text_[at_] != '"') {
    const char c = text_[at_++];
    if (c == '\n') return Refuse("a quoted text does not end on its line");
    if (c != '\\') {
      out += c;
      continue;
    }
    const char kind = at_ < text_.size() ? text_[at_++] : '\0';
    if (kind == '"' || kind == '\\') {
      out += kind;
    } else if (kind == 'n') {
      out += '\n';
    } else if (kind == 't') {
      out += '\t';
    } else if (kind == 'x' && at_ + 2 <= text_.size() && HexDigit(text_[at_]) >= 0 && HexDigit(text_[at_ + 1]) >= 0) {
      out += static_cast<char>(HexDigit(text_[at_]) * 16 + HexDigit(text_[at_ + 1]));
      at_ += 2;
    } else {
      return Refuse("expected one of \\\" \\\\ \\n \\t \\xHH in a quoted text");
    }
  }
  if (at_ >= text_.size()) return Refuse("a quoted text does not end");
  ++at_;
  return out;
}

std::string_view Lexer::Word() {
  Peek();
  const size_t start = at_;
  while (at_ < text_.size() && (IsNameChar(text_[at_]) || text_[at_] == '+')) ++at_;
  return text_.substr(start, at_ - start);
}

Result<std::string> Lexer::Name() {
  if (Peek() == '"') return Quoted();
  const std::string_view word = Word();
  if (word.empty()) return Expected("a name");
  return std::string(word);
}

Result<std::string> Lexer::HexBytes() {
  if (!Eat('"')) return Expected("quoted hex digits");
  const size_t end = text_.find('"', at_);
  if (end == std::string_view::npos) return Refuse("quoted hex digits do not end");
  const std::string_view digits = text_.substr(at_, end - at_);
  if (digits.size() % 2 != 0) return Refuse("expected an even number of hex digits, found {}", digits.size());
  std::string out(digits.size() / 2, '\0');
  for (size_t i = 0; i < out.size(); ++i) {
    const int high = HexDigit(digits[2 * i]);
    const int low = HexDigit(digits[2 * i + 1]);
    if (high < 0 || low < 0) return Refuse("expected hex digits 0-9 a-f");
    out[i] = static_cast<char>(high * 16 + low);
  }
  at_ = end + 1;
  return out;
}

Result<std::string_view> Lexer::Bracketed() {
  OCTAVO_TRY_STATUS(Expect('['));
  const size_t start = at_;
  bool quoted = false;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '\n') break;
    if (c == '"') quoted = !quoted;
    if (c == ']' && !quoted) return text_.substr(start, at_++ - start);
  }
  return Refuse("expected ']' on the same line");
}

Result<int64_t> Lexer::Int() {
  Peek();
  const std::string_view rest = text_.substr(at_);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc{}) return Expected("a whole number of 64 bits");
  at_ += static_cast<size_t>(end - rest.data());
  return value;
}

}  // namespace octavo::ir::internal
