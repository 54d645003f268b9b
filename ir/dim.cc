#include "octavo/ir/dim.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <ranges>

namespace octavo::ir {

namespace {

// A dim with more terms or factors than this says nothing a fusion could use; hostile graphs must not blow it up.
constexpr size_t kMaxTerms = 64;
constexpr size_t kMaxFactors = 12;
constexpr char kNameless = '?';  // first byte of symbols without a name, which no name in a file has

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsPlainName(std::string_view name) {
  if (name.empty() || !IsLetter(name[0])) return false;
  return std::ranges::all_of(name, [](char c) { return IsLetter(c) || IsDigit(c) || c == '.'; });
}

// Plain names as they are, others as "..." with every awkward byte as \xHH.
void AppendName(std::string& out, std::string_view name) {
  if (IsPlainName(name)) {
    out += name;
    return;
  }
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  out += '"';
}

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Reader of the text form; every member returns false (or null) at text that does not fit.
struct Reader {
  std::string_view text;
  size_t at = 0;

  void Space() {
    while (at < text.size() && text[at] == ' ') ++at;
  }
  bool Eat(char c) {
    Space();
    if (at >= text.size() || text[at] != c) return false;
    ++at;
    return true;
  }
  std::optional<int64_t> Number() {
    int64_t v = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), v);
    if (error != std::errc{}) return std::nullopt;
    at = static_cast<size_t>(end - text.data());
    return v;
  }
  std::optional<std::string> Quoted() {
    std::string name;
    while (at < text.size() && text[at] != '"') {
      if (text[at] != '\\') {
        name += text[at++];
        continue;
      }
      if (at + 4 > text.size() || text[at + 1] != 'x') return std::nullopt;
      const int high = HexDigit(text[at + 2]);
      const int low = HexDigit(text[at + 3]);
      if (high < 0 || low < 0) return std::nullopt;
      name += static_cast<char>(high * 16 + low);
      at += 4;
    }
    if (at++ >= text.size() || name.empty()) return std::nullopt;
    return name;
  }
  std::optional<Dim> Factor() {
    Space();
    if (at >= text.size()) return std::nullopt;
    if (IsDigit(text[at])) {
      if (const auto v = Number()) return Dim(*v);
      return std::nullopt;
    }
    if (text[at] == '"') {
      ++at;
      if (const auto name = Quoted()) return Dim::Symbol(*name);
      return std::nullopt;
    }
    const size_t start = at;
    if (!IsLetter(text[at])) return std::nullopt;
    while (at < text.size() && (IsLetter(text[at]) || IsDigit(text[at]) || text[at] == '.')) ++at;
    return Dim::Symbol(text.substr(start, at - start));
  }
};

}  // namespace

Dim Dim::Symbol(std::string_view name) {
  Dim d;
  if (name.empty()) return d;
  d.known_ = true;
  d.terms_[{std::string(name)}] = 1;
  return d;
}

Dim Dim::Nameless() {
  static std::atomic<uint64_t> count = 0;
  return Symbol(std::string(1, kNameless) + std::to_string(++count));
}

std::optional<Dim> Dim::Parse(std::string_view text) {
  Reader r{text};
  if (r.Eat('?')) {
    r.Space();
    return r.at == text.size() ? std::optional<Dim>(Dim()) : std::nullopt;
  }
  Dim sum(0);
  bool minus = r.Eat('-');
  while (true) {
    auto product = r.Factor();
    if (!product) return std::nullopt;
    while (r.Eat('*')) {
      const auto factor = r.Factor();
      if (!factor) return std::nullopt;
      product = *product * *factor;
    }
    sum = minus ? sum - *product : sum + *product;
    r.Space();
    if (r.at == text.size()) break;
    minus = text[r.at] == '-';
    if (!minus && text[r.at] != '+') return std::nullopt;
    ++r.at;
  }
  if (!sum.known_) return std::nullopt;  // overflow
  return sum;
}

std::string Dim::symbol() const {
  if (!known_ || terms_.size() != 1) return {};
  const auto& [monomial, factor] = *terms_.begin();
  return monomial.size() == 1 && factor == 1 && monomial[0][0] != kNameless ? monomial[0] : std::string();
}

std::string Dim::ToString() const {
  if (!known_) return "?";
  if (is_number()) return std::to_string(number());
  for (const auto& monomial : std::views::keys(terms_)) {
    if (std::ranges::any_of(monomial, [](const std::string& name) { return name[0] == kNameless; })) return "?";
  }
  std::string out;
  const auto append = [&out](const Monomial& monomial, int64_t factor) {
    const bool minus = factor < 0;
    if (out.empty()) {
      out += minus ? "-" : "";
    } else {
      out += minus ? " - " : " + ";
    }
    // Negation in unsigned arithmetic: INT64_MIN has no positive twin.
    const uint64_t magnitude = minus ? 0 - static_cast<uint64_t>(factor) : static_cast<uint64_t>(factor);
    if (monomial.empty() || magnitude != 1) out += std::to_string(magnitude);
    for (size_t i = 0; i < monomial.size(); ++i) {
      if (i > 0 || magnitude != 1) out += '*';
      AppendName(out, monomial[i]);
    }
  };
  for (const auto& [monomial, factor] : terms_) {
    if (!monomial.empty()) append(monomial, factor);
  }
  if (const auto it = terms_.find({}); it != terms_.end()) append({}, it->second);
  return out;
}

Dim operator+(const Dim& a, const Dim& b) {
  if (!a.known_ || !b.known_) return {};
  Dim sum = a;
  for (const auto& [monomial, factor] : b.terms_) {
    int64_t& slot = sum.terms_[monomial];
    if (__builtin_add_overflow(slot, factor, &slot)) return {};
    if (slot == 0) sum.terms_.erase(monomial);
  }
  return sum.terms_.size() > kMaxTerms ? Dim() : sum;
}

Dim operator-(const Dim& a, const Dim& b) {
  if (!a.known_ || !b.known_) return {};
  Dim difference = a;
  for (const auto& [monomial, factor] : b.terms_) {
    int64_t& slot = difference.terms_[monomial];
    if (__builtin_sub_overflow(slot, factor, &slot)) return {};
    if (slot == 0) difference.terms_.erase(monomial);
  }
  return difference.terms_.size() > kMaxTerms ? Dim() : difference;
}

Dim operator*(const Dim& a, const Dim& b) {
  // Zero times anything that is known to be a size is zero, but unknown stays unknown: it may be an error value.
  if (!a.known_ || !b.known_) return {};
  Dim product(0);
  for (const auto& [left, x] : a.terms_) {
    for (const auto& [right, y] : b.terms_) {
      if (left.size() + right.size() > kMaxFactors) return {};
      Dim::Monomial monomial;
      monomial.reserve(left.size() + right.size());
      std::ranges::merge(left, right, std::back_inserter(monomial));
      int64_t factor;
      if (__builtin_mul_overflow(x, y, &factor)) return {};
      int64_t& slot = product.terms_[monomial];
      if (__builtin_add_overflow(slot, factor, &slot)) return {};
      if (slot == 0) product.terms_.erase(monomial);
      if (product.terms_.size() > kMaxTerms) return {};
    }
  }
  return product;
}

// Polynomial long division in the graded lexicographic order: of the terms of the highest degree, the one whose sorted
// names come first leads. The remainder must vanish.
Dim ExactDiv(const Dim& a, const Dim& b) {
  if (!a.known_ || !b.known_ || b.terms_.empty()) return {};
  const auto leading = [](const Dim& d) {
    return std::ranges::max_element(d.terms_, [](const auto& x, const auto& y) {
      return x.first.size() != y.first.size() ? x.first.size() < y.first.size() : y.first < x.first;
    });
  };
  const auto& [divisor, divisor_factor] = *leading(b);
  Dim quotient(0);
  Dim rest = a;
  while (rest.known_ && !rest.terms_.empty()) {
    if (quotient.terms_.size() > kMaxTerms) return {};
    const auto& [monomial, factor] = *leading(rest);
    if (factor == INT64_MIN || factor % divisor_factor != 0) return {};
    if (!std::ranges::includes(monomial, divisor)) return {};
    Dim step;
    step.known_ = true;
    Dim::Monomial difference;
    std::ranges::set_difference(monomial, divisor, std::back_inserter(difference));
    step.terms_[std::move(difference)] = factor / divisor_factor;
    quotient = quotient + step;
    rest = rest - step * b;
  }
  return rest.known_ ? quotient : Dim();
}

bool ProvablyDifferent(const Dim& a, const Dim& b) {
  const Dim difference = a - b;
  return difference.is_number() && difference.number() != 0;
}

std::optional<int64_t> Dim::LowerBound() const {
  if (!known_) return std::nullopt;
  int64_t constant = 0;
  for (const auto& [monomial, factor] : terms_) {
    if (monomial.empty()) {
      constant = factor;
    } else if (factor < 0) {
      return std::nullopt;
    }
  }
  return constant;
}

std::optional<int64_t> Dim::Evaluate(const std::function<std::optional<int64_t>(std::string_view)>& lookup) const {
  if (!known_) return std::nullopt;
  int64_t sum = 0;
  for (const auto& [monomial, factor] : terms_) {
    int64_t product = factor;
    for (const auto& name : monomial) {
      const auto value = lookup(name);
      if (!value || __builtin_mul_overflow(product, *value, &product)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
  }
  return sum;
}

std::string ToString(const SymShape& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? "," : "") + shape[i].ToString();
  return out + "]";
}

bool ProvablyEqual(const SymShape& a, const SymShape& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const Dim& x, const Dim& y) { return ProvablyEqual(x, y); });
}

}  // namespace octavo::ir
