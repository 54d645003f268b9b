// Names come out of files: they may be of any length, equal to each other, or no text at all.
#ifndef OCTAVO_IR_NAMES_H_
#define OCTAVO_IR_NAMES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace octavo::ir {

bool IsUtf8(std::string_view text);

// Bytes of the first character if it may be shown as it is; 0: it is a control character or no UTF-8.
size_t ShownAsIs(std::string_view text);

// Fit for a sentence, a table or JSON: one line of UTF-8. Control characters, characters that turn the direction of text, and bytes that are
// no UTF-8 become \xHH; what goes beyond `most` bytes becomes "...".
std::string Clean(std::string_view text, size_t most = 120);
std::string Quoted(std::string_view name);  // 'Clean'

// What another name is made of: names that are made for each of many nodes must not multiply a long one. At most 200 bytes, whole characters.
std::string_view Stem(std::string_view name);

// Names that are taken. Amortized O(1) each, however many have the same wish.
class UniqueNames {
 public:
  bool contains(const std::string& name) const { return taken_.contains(name); }
  void Add(std::string name) { taken_.insert(std::move(name)); }
  // `wish` if it is free, else wish_1, wish_2, ...: the first that is free from then on.
  std::string Take(std::string wish, std::string_view separator = "_");

 private:
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int64_t> next_;  // by wish and separator
};

}  // namespace octavo::ir

#endif  // OCTAVO_IR_NAMES_H_
