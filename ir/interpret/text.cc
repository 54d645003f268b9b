// Ops on texts: StringConcat, StringSplit, StringNormalizer, TfIdfVectorizer.
#include <algorithm>
#include <map>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/strided.h"
#include "octavo/ir/interpret/strings.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/ir/names.h"

namespace octavo::ir::interpret {

namespace {

using Words = std::vector<std::string>;

Status OnlyTexts(const Tensor& t) { return t.dtype() == DType::kString ? Status{} : Status(BadType(t.dtype())); }

Status StringConcat(Call& call) {
  const Tensor &a = call.T(0), &b = call.T(1);
  OCTAVO_TRY_STATUS(OnlyTexts(a));
  OCTAVO_TRY_STATUS(OnlyTexts(b));
  OCTAVO_TRY(const Shape shape, BroadcastShapes(a.shape(), b.shape()));
  OCTAVO_TRY_STATUS(CheckShape(DType::kString, shape));
  const auto space = MakeSpace<2>(shape, {BroadcastStrides(a.shape(), shape), BroadcastStrides(b.shape(), shape)});
  ChargeWords(static_cast<size_t>(ElementCount(shape)), 0);
  Words words;
  ForEachRow(space, [&](const std::array<int64_t, 2>& at) {
    for (int64_t i = 0; i < space.dims.back(); ++i) {
      const std::string& left = a.strings()[static_cast<size_t>(at[0] + i * space.strides.back()[0])];
      const std::string& right = b.strings()[static_cast<size_t>(at[1] + i * space.strides.back()[1])];
      ChargeWork(left.size() + right.size());
      words.push_back(left + right);
    }
  });
  call.Return(Tensor::Strings(shape, std::move(words)));
  return {};
}

// --- StringSplit -----------------------------------------------------------------------------------------------

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// At most `most` + 1 parts; without a delimiter runs of white space separate, and none is left at the ends.
Words Parts(std::string_view text, std::string_view delimiter, int64_t most) {
  Words parts;
  if (delimiter.empty()) {
    while (true) {
      while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
      if (text.empty()) return parts;
      const size_t end = static_cast<int64_t>(parts.size()) < most
                             ? static_cast<size_t>(std::ranges::find_if(text, IsSpace) - text.begin())
                             : text.size();
      std::string_view part = text.substr(0, end);
      while (end == text.size() && !part.empty() && IsSpace(part.back())) part.remove_suffix(1);
      parts.emplace_back(part);
      text.remove_prefix(end);
    }
  }
  if (text.empty()) return parts;
  for (size_t end;
       static_cast<int64_t>(parts.size()) < most && (end = text.find(delimiter)) != std::string_view::npos;) {
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end + delimiter.size());
  }
  parts.emplace_back(text);
  return parts;
}

Status StringSplit(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY_STATUS(OnlyTexts(x));
  const std::string delimiter = call.node.attrs.Str("delimiter", "");
  const int64_t most = call.Int("maxsplit", INT64_MAX);
  if (most < 0) return Fail("maxsplit is {}", most);
  std::vector<Words> all;
  ChargeWork(x.strings().size() * sizeof(Words));
  size_t longest = 0;
  Tensor counts = Tensor::Empty(DType::kS64, x.shape());
  for (const std::string& text : x.strings()) {
    ChargeWork(text.size() * sizeof(std::string));  // a part a character at most
    all.push_back(Parts(text, delimiter, most));
    longest = std::max(longest, all.back().size());
    MutablePtr<int64_t>(counts)[all.size() - 1] = static_cast<int64_t>(all.back().size());
  }
  Shape shape = x.shape();
  shape.push_back(static_cast<int64_t>(longest));
  OCTAVO_TRY_STATUS(CheckShape(DType::kString, shape));
  ChargeWords(static_cast<size_t>(ElementCount(shape)), 0);
  Words words;
  for (Words& parts : all) {
    parts.resize(longest);
    words.insert(words.end(), std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end()));
  }
  call.Return(Tensor::Strings(std::move(shape), std::move(words)), 0);
  call.Return(std::move(counts), 1);
  return {};
}

// --- StringNormalizer ------------------------------------------------------------------------------------------

bool IsAscii(const std::string& text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 128; });
}
std::string Cased(std::string text, bool upper) {
  for (char& c : text) {
    if (upper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z') c = static_cast<char>(c ^ 32);
  }
  return text;
}

Status StringNormalizer(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY_STATUS(OnlyTexts(x));
  if (x.rank() < 1 || x.rank() > 2 || (x.rank() == 2 && x.shape()[0] != 1))
    return Fail("the operand must be [n] or [1, n]");
  const std::string action = call.node.attrs.Str("case_change_action", "NONE");
  if (action != "NONE" && action != "LOWER" && action != "UPPER")
    return Fail("case_change_action {} is not NONE, LOWER or UPPER", Quoted(action));
  const bool exact = call.Int("is_case_sensitive", 0) != 0;
  const Attr* attr = call.node.attrs.Find("stopwords");
  const auto* stop = attr == nullptr ? nullptr : std::get_if<Words>(attr);
  const bool folds = action != "NONE" || (!exact && stop != nullptr && !stop->empty());
  Words words;
  size_t bytes = 0;
  for (const std::string& text : x.strings()) bytes += text.size();
  ChargeWords(x.strings().size(), bytes);
  for (const std::string& text : x.strings()) {
    if (folds && !IsAscii(text))
      return Fail("upper and lower case of {} depend on a locale, which octavo does not have", Quoted(text));
    const auto same = [&](const std::string& word) {
      return exact ? word == text : Cased(word, false) == Cased(text, false);
    };
    if (stop != nullptr && std::ranges::any_of(*stop, same)) continue;
    words.push_back(action == "NONE" ? text : Cased(text, action == "UPPER"));
  }
  if (words.empty()) words.emplace_back();
  Shape shape = x.shape();
  shape.back() = static_cast<int64_t>(words.size());
  call.Return(Tensor::Strings(std::move(shape), std::move(words)));
  return {};
}

// --- TfIdfVectorizer -------------------------------------------------------------------------------------------

struct Grams {
  std::map<std::vector<std::string>, size_t> index;  // words of a gram to its place in the pool
  std::vector<int64_t> columns;
  std::vector<float> weights;
  int64_t width = 0, least = 1, most = 1, skips = 0;
  std::string mode;
};

template <typename T>
const std::vector<T>* ListOf(const Call& call, std::string_view name) {
  const Attr* attr = call.node.attrs.Find(name);
  return attr == nullptr ? nullptr : std::get_if<std::vector<T>>(attr);
}

// The pool holds all 1-grams, then all 2-grams and so on; ngram_counts says where each begins.
Status ReadPool(const Call& call, const Words& pool, Grams& g) {
  const std::vector<int64_t> starts = call.node.attrs.Ints("ngram_counts");
  size_t gram = 0;
  for (size_t n = 0; n < starts.size(); ++n) {
    const int64_t end = n + 1 < starts.size() ? starts[n + 1] : static_cast<int64_t>(pool.size());
    const auto length = static_cast<int64_t>(n + 1);
    if (starts[n] < 0 || end < starts[n] || end > static_cast<int64_t>(pool.size()) || (end - starts[n]) % length != 0)
      return Fail("ngram_counts {} does not fit a pool of {}", ToString(starts), pool.size());
    for (int64_t i = starts[n]; i < end; i += length)
      g.index.emplace(Words(pool.begin() + i, pool.begin() + i + length), gram++);
  }
  g.columns = call.node.attrs.Ints("ngram_indexes");
  if (g.columns.size() != gram) return Fail("{} ngram_indexes for {} grams", g.columns.size(), gram);
  for (const int64_t c : g.columns) {
    if (c < 0 || c >= (int64_t{1} << 31)) return Fail("ngram_indexes hold {}", c);
    g.width = std::max(g.width, c + 1);
  }
  if (const auto* weights = ListOf<float>(call, "weights")) g.weights = *weights;
  if (g.weights.empty()) g.weights.assign(gram, 1.0f);
  if (g.weights.size() != gram) return Fail("{} weights for {} grams", g.weights.size(), gram);
  return {};
}

Result<Grams> GramsOf(const Call& call) {
  Grams g;
  g.mode = call.node.attrs.Str("mode", "");
  g.least = call.Int("min_gram_length", 1), g.most = call.Int("max_gram_length", 1),
  g.skips = call.Int("max_skip_count", 0);
  if (g.mode != "TF" && g.mode != "IDF" && g.mode != "TFIDF")
    return Fail("mode {} is not TF, IDF or TFIDF", Quoted(g.mode));
  if (g.least < 1 || g.most < g.least || g.skips < 0)
    return Fail("grams of {} to {} with {} skips", g.least, g.most, g.skips);
  const bool texts = call.T(0).dtype() == DType::kString;
  Words pool;
  if (texts) {
    if (const auto* words = ListOf<std::string>(call, "pool_strings")) pool = *words;
  } else {
    for (const int64_t v : call.node.attrs.Ints("pool_int64s")) pool.push_back(std::to_string(v));
  }
  ChargeWords(pool.size(), 0);
  OCTAVO_TRY_STATUS(ReadPool(call, pool, g));
  // Longer grams than the pool has are nowhere to be found.
  g.most = std::min(g.most, static_cast<int64_t>(call.node.attrs.Ints("ngram_counts").size()));
  return g;
}

// Counts the grams of `words` in all lengths and with all gaps, into the columns of the pool.
void CountGrams(const Grams& g, std::span<const std::string> words, float* y) {
  const auto n = static_cast<int64_t>(words.size());
  std::vector<int64_t> counts(g.columns.size(), 0);
  for (int64_t length = g.least; length <= std::min(g.most, n); ++length) {
    for (int64_t gap = 1; gap <= std::min(g.skips, n) + 1; ++gap) {
      if (length == 1 && gap > 1) break;  // one word has no gaps
      if ((length - 1) * gap >= n) break;
      for (int64_t start = 0; start + (length - 1) * gap < n; ++start) {
        Words gram;
        for (int64_t i = 0; i < length; ++i) gram.push_back(words[static_cast<size_t>(start + i * gap)]);
        if (const auto it = g.index.find(gram); it != g.index.end()) ++counts[it->second];
      }
    }
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const float times = g.mode == "IDF" ? 1.0f : static_cast<float>(counts[i]);
    y[g.columns[i]] += g.mode == "TF" ? times : times * g.weights[i];
  }
}

Status TfIdf(Call& call) {
  const Tensor& x = call.T(0);
  if (x.dtype() != DType::kString && x.dtype() != DType::kS32 && x.dtype() != DType::kS64) return BadType(x.dtype());
  if (x.rank() < 1 || x.rank() > 2) return Fail("the operand must have rank 1 or 2");
  OCTAVO_TRY(const Grams g, GramsOf(call));
  OCTAVO_TRY(const Tensor texts, CastTo(x, DType::kString));
  Shape shape = x.shape();
  shape.back() = g.width;
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF32, shape));
  const auto n = static_cast<size_t>(x.shape().back());
  ChargeWords(n, 0);
  ChargeWork(g.columns.size() * sizeof(int64_t));
  const size_t rows = x.rank() == 2 ? static_cast<size_t>(x.shape()[0]) : 1;
  for (size_t i = 0; i < rows; ++i) {
    CountGrams(g, std::span(texts.strings()).subspan(i * n, n),
               MutablePtr<float>(y) + static_cast<int64_t>(i) * g.width);
  }
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterText(Table& t) {
  t.Set(Op::kStringConcat, StringConcat);
  t.Set(Op::kStringSplit, StringSplit);
  t.Set(Op::kStringNormalizer, StringNormalizer);
  t.Set(Op::kTfIdfVectorizer, TfIdf);
}

}  // namespace octavo::ir::interpret
