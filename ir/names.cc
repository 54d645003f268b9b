#include "octavo/ir/names.h"

#include <algorithm>
#include <utility>

namespace octavo::ir {

namespace {

constexpr size_t kStem = 200;

struct Character {
  size_t bytes;  // 0: what comes first is no UTF-8
  uint32_t code;
};

// The first character of a text that is not empty: the shortest form only, no surrogates, nothing beyond U+10FFFF.
Character First(std::string_view text) {
  const auto byte = [text](size_t i) -> uint32_t { return static_cast<unsigned char>(text[i]); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {0, 0};
  uint32_t code = lead & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool shorter = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (shorter || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {0, 0};
  return {bytes, code};
}

// Control characters move the cursor and start a terminal's commands; separators of lines break a log; the others make text read
// differently from what it is.
bool IsSafe(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  return !(code >= 0x2028 && code <= 0x202e) && !(code >= 0x2066 && code <= 0x2069) && code != 0x200e &&
         code != 0x200f && code != 0xfeff;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = First(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

size_t ShownAsIs(std::string_view text) {
  const auto [bytes, code] = First(text);
  return IsSafe(code) ? bytes : 0;
}

std::string Clean(std::string_view text, size_t most) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto [bytes, code] = First(text.substr(at));
    const std::string_view character = text.substr(at, std::max<size_t>(bytes, 1));
    if (at + character.size() > most) return out + "...";
    if (bytes != 0 && IsSafe(code)) {
      out += character;
    } else {
      for (const char c : character) {
        const auto byte = static_cast<unsigned char>(c);
        out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      }
    }
    at += character.size();
  }
  return out;
}

std::string Quoted(std::string_view name) { return "'" + Clean(name) + "'"; }

std::string_view Stem(std::string_view name) {
  if (name.size() <= kStem) return name;
  size_t end = kStem;
  while (end > kStem - 4 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;
  return name.substr(0, end);
}

std::string UniqueNames::Take(std::string wish, std::string_view separator) {
  if (taken_.insert(wish).second) return wish;
  wish += separator;
  int64_t& next = next_[wish];
  for (;;) {
    std::string name = wish + std::to_string(++next);
    if (taken_.insert(name).second) return name;
  }
}

}  // namespace octavo::ir
