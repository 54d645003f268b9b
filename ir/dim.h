// Dim: the size of one tensor dimension: a number, a polynomial over named symbols ("batch", "12*seq", "past + seq"),
// or unknown. Unknown equals nothing, not even itself.
#ifndef OCTAVO_IR_DIM_H_
#define OCTAVO_IR_DIM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::ir {

class Dim {
 public:
  Dim() = default;                      // unknown
  Dim(int64_t number) : known_(true) {  // NOLINT: a number is a dim
    if (number != 0) terms_[{}] = number;
  }
  static Dim Unknown() { return {}; }
  // `name` is any dim_param; characters other than [A-Za-z0-9_.] are replaced by '_' by the importer, not here.
  static Dim Symbol(std::string_view name);
  // A size that nobody knows, but equal to itself: inference gives one to each such size, so that what is made of it is known to be of that size. It prints
  // as "?" and has no name in files.
  static Dim Nameless();
  // Inverse of ToString; nullopt for text that is none.
  static std::optional<Dim> Parse(std::string_view text);

  bool known() const { return known_; }
  bool is_number() const { return known_ && (terms_.empty() || (terms_.size() == 1 && terms_.begin()->first.empty())); }
  // Only where is_number().
  int64_t number() const { return terms_.empty() ? 0 : terms_.begin()->second; }
  // The symbol's name where the dim is exactly one symbol that has one, else empty.
  std::string symbol() const;

  // "?", "7", "batch", "12*batch*seq + 1": deterministic.
  std::string ToString() const;

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  // Exact quotient where there is one (a polynomial times b gives a), else unknown.
  friend Dim ExactDiv(const Dim& a, const Dim& b);

  // True only if both are known and the polynomials are equal.
  friend bool ProvablyEqual(const Dim& a, const Dim& b) { return a.known_ && b.known_ && a.terms_ == b.terms_; }
  // True only if they can be shown to differ (two different numbers, or a constant non-zero difference).
  friend bool ProvablyDifferent(const Dim& a, const Dim& b);
  // Same representation; unknown is the same as unknown here (text form, hashing), which says nothing about sizes.
  friend bool SameRepresentation(const Dim& a, const Dim& b) { return a.known_ == b.known_ && a.terms_ == b.terms_; }

  // The least value where every symbol may be anything from 0; nullopt: none can be told.
  std::optional<int64_t> LowerBound() const;

  // Value under a binding of the symbols; nullopt if one is missing or the dim is unknown.
  std::optional<int64_t> Evaluate(const std::function<std::optional<int64_t>(std::string_view)>& lookup) const;

 private:
  using Monomial = std::vector<std::string>;  // sorted symbol names, repeated for powers; empty: the constant term
  bool known_ = false;
  std::map<Monomial, int64_t> terms_;  // no zero coefficients
};

using SymShape = std::vector<Dim>;
std::string ToString(const SymShape& shape);  // "[batch,seq,384]"
// Both known, same rank, all dims provably equal.
bool ProvablyEqual(const SymShape& a, const SymShape& b);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_DIM_H_
