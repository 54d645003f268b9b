#include "octavo/fuzz/sentence.h"

#include <algorithm>
#include <cstdint>
#include <format>

namespace octavo::fuzz {

namespace {

// Phrases of the C++ library and of what octavo is built on. What a sentence quotes is the file's own text.
constexpr std::string_view kForeign[] = {
    "json.exception",
    "std::",
    "basic_string",
    "vector::",
    "bad_alloc",
    "bad_array_new_length",
    "terminate called",
    "protobuf",
    "[libproto",
    "google::",
    "could not create a",
    "dnnl",
    "zlib",
    "stoi",
    "stol",
    "map::at",
    "bad_function",
    "bad_optional",
    "bad_variant",
    "what():",
    "filesystem error",
    "_M_",
    "deque::",
    "__n (which is",
    "tbb::",
};

// Length of the UTF-8 sequence that begins at `text`, 0: none does.
size_t SequenceAt(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool outside = (first == 0xed && byte(1) > 0x9f) || (first == 0xf4 && byte(1) > 0x8f);
  return overlong || outside ? 0 : length;
}

std::string WithoutQuoted(std::string_view sentence) {
  std::string out;
  bool inside = false;
  for (const char c : sentence) {
    if (c == '\'')
      inside = !inside;
    else if (!inside)
      out += c;
  }
  return out;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = SequenceAt(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string WhatIsWrongWith(std::string_view sentence, std::string_view file) {
  if (sentence.empty()) return "an empty sentence";
  const std::string own = WithoutQuoted(sentence);
  std::string text(file);
  std::erase(text, '\'');  // as they are from `own`
  const auto says = [&](std::string_view words) { return own.contains(words) && !text.contains(words); };
  if (says("octavo is at fault")) return "octavo says that it is at fault";
  for (const std::string_view words : kForeign) {
    if (says(words)) return std::format("words of another library ({})", words);
  }
  if (!IsUtf8(sentence)) return "bytes that are no UTF-8";
  if (std::ranges::any_of(sentence, [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7f; }))
    return "control characters";
  return {};
}

}  // namespace octavo::fuzz
