#include "octavo/quant/agreement.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace octavo::quant {

namespace {

using ir::Tensor;

// A row of classes has more columns than any hidden state that is not called logits.
constexpr int64_t kVocabulary = 8192;
constexpr double kLeast = 1e-12;  // a probability of 0 costs no more than this one

int64_t ColumnsOf(const Tensor& t) { return t.rank() == 0 ? 1 : t.shape().back(); }

bool SumToOne(const Tensor& t, int64_t columns) {
  for (int64_t row = 0; row < t.size(); row += columns) {
    double sum = 0;
    for (int64_t i = row; i < row + columns; ++i) {
      const double x = t.GetDouble(i);
      if (!(x >= 0 && x <= 1.001)) return false;
      sum += x;
    }
    if (std::fabs(sum - 1) > 0.01) return false;
  }
  return true;
}

// A row as logarithms of probabilities. False: a number is not finite.
bool Logarithms(RowKind kind, const Tensor& t, int64_t first, std::vector<double>& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = t.GetDouble(first + static_cast<int64_t>(i));
    if (!std::isfinite(row[i])) return false;
  }
  if (kind == RowKind::kProbabilities) {
    for (double& x : row) x = std::log(std::max(x, kLeast));
    return true;
  }
  const double top = *std::ranges::max_element(row);
  double sum = 0;
  for (const double x : row) sum += std::exp(x - top);
  for (double& x : row) x -= top + std::log(sum);
  return true;
}

}  // namespace

std::string_view NameOf(RowKind kind) {
  switch (kind) {
    case RowKind::kLogits:
      return "logits";
    case RowKind::kProbabilities:
      return "probabilities";
    case RowKind::kVector:
      break;
  }
  return "vector";
}

RowKind KindOf(std::string_view name, const Tensor& output) {
  const int64_t columns = ColumnsOf(output);
  if (output.rank() < 2 || columns < 2 || output.size() == 0) return RowKind::kVector;
  if (SumToOne(output, columns)) return RowKind::kProbabilities;
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return lower.find("logit") != std::string::npos || columns >= kVocabulary ? RowKind::kLogits : RowKind::kVector;
}

void Agreement::Add(RowKind kind, const Tensor& want, const Tensor& got) {
  if (rows_ == 0) kind_ = kind;
  const int64_t columns = ColumnsOf(want);
  if (columns == 0) return;
  std::vector<double> a(static_cast<size_t>(columns)), b = a;
  for (int64_t row = 0; row < want.size(); row += columns) {
    ++rows_;
    if (!Logarithms(kind_, want, row, a) || !Logarithms(kind_, got, row, b)) continue;
    ++finite_;
    same_ += std::ranges::max_element(a) - a.begin() == std::ranges::max_element(b) - b.begin() ? 1 : 0;
    double kl = 0;
    for (size_t i = 0; i < a.size(); ++i) kl += std::exp(a[i]) * (a[i] - b[i]);
    kl_ += std::max(kl, 0.0);
    kl_squares_ += kl * kl;
  }
}

}  // namespace octavo::quant
