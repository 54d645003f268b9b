#include "octavo/ir/near.h"

#include <algorithm>
#include <format>
#include <numeric>

#include "octavo/ir/names.h"

namespace octavo::ir {

namespace {

// Longer words are no misspelt option, and comparing takes time by the product of lengths.
constexpr size_t kLongest = 64;

// Letters to change, add, leave out or swap with the next.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  std::iota(d[0].begin(), d[0].end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    d[i][0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string Near(std::string_view word, const std::vector<std::string>& words) {
  if (word.size() > kLongest) return {};
  const auto best = std::ranges::min_element(words, {}, [&](const std::string& w) { return Distance(word, w); });
  if (best == words.end() || Distance(word, *best) > std::min<size_t>(2, word.size() / 3)) return {};
  return std::format("; did you mean {}?", *best);
}

std::string Listed(const std::vector<std::string>& words, std::string_view last) {
  std::string all;
  for (size_t i = 0; i < words.size(); ++i)
    all += (i == 0 ? "" : i + 1 == words.size() ? std::format(" {} ", last) : ", ") + words[i];
  return all;
}

Status KnownWord(std::string_view what, std::string_view word, const std::vector<std::string>& words) {
  if (std::ranges::contains(words, word)) return {};
  return Fail("{} takes {}, not {}{}", what, Listed(words, "or"), Quoted(word), Near(word, words));
}

}  // namespace octavo::ir
