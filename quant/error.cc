#include "octavo/quant/error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace octavo::quant {

namespace {

double CosineOf(double dot, double want, double got) {
  if (want == 0 && got == 0) return 1;
  if (want == 0 || got == 0) return 0;
  return dot / (std::sqrt(want) * std::sqrt(got));
}

bool SameOddity(double a, double b) { return (std::isnan(a) && std::isnan(b)) || a == b; }

}  // namespace

ir::Status ErrorStats::Add(const ir::Tensor& want, const ir::Tensor& got) {
  if (want.shape() != got.shape()) {
    return ir::Fail("shapes differ: {} is wanted, {} was given", ir::ToString(want.shape()), ir::ToString(got.shape()));
  }
  if (BitsOf(want.dtype()) == 0 || BitsOf(got.dtype()) == 0) return ir::Fail("only tensors of numbers can be compared");
  const int64_t n = want.size();
  const int64_t columns = want.rank() == 0 ? 1 : want.shape().back();
  if (n > 0) widest_row_ = std::max(widest_row_, columns);
  for (int64_t row = 0; row < n; row += columns) {
    double dot = 0, want_sum = 0, got_sum = 0, error_sum = 0;
    for (int64_t i = row; i < row + columns; ++i) {
      const double w = want.GetDouble(i), g = got.GetDouble(i);
      if (!std::isfinite(w) || !std::isfinite(g)) {
        mismatches_ += !SameOddity(w, g);
        continue;
      }
      const double error = std::fabs(w - g);
      dot += w * g;
      want_total_ += w;
      want_sum += w * w;
      got_sum += g * g;
      error_sum += error * error;
      abs_sum_ += error;
      ++count_;
      if (error > max_abs_) {
        max_abs_ = error;
        worst_batch_ = batches_;
        worst_element_ = i;
      }
    }
    const double cosine = CosineOf(dot, want_sum, got_sum);
    row_cosine_sum_ += cosine;
    row_turn_squares_ += (1 - cosine) * (1 - cosine);
    ++rows_;
    dot_ += dot;
    want_sum_ += want_sum;
    got_sum_ += got_sum;
    error_sum_ += error_sum;
    row_want_squares_ += want_sum * want_sum;
    row_products_ += want_sum * error_sum;
    row_error_squares_ += error_sum * error_sum;
  }
  ++batches_;
  return {};
}

void ErrorStats::Merge(const ErrorStats& other) {
  if (other.max_abs_ > max_abs_) {
    max_abs_ = other.max_abs_;
    worst_batch_ = batches_ + other.worst_batch_;
    worst_element_ = other.worst_element_;
  }
  count_ += other.count_;
  mismatches_ += other.mismatches_;
  rows_ += other.rows_;
  batches_ += other.batches_;
  widest_row_ = std::max(widest_row_, other.widest_row_);
  want_total_ += other.want_total_;
  want_sum_ += other.want_sum_;
  got_sum_ += other.got_sum_;
  dot_ += other.dot_;
  error_sum_ += other.error_sum_;
  abs_sum_ += other.abs_sum_;
  row_cosine_sum_ += other.row_cosine_sum_;
  row_turn_squares_ += other.row_turn_squares_;
  row_want_squares_ += other.row_want_squares_;
  row_products_ += other.row_products_;
  row_error_squares_ += other.row_error_squares_;
}

double StandardError(double sum, double squares, int64_t n) {
  if (n < 2) return 0;
  const double number = static_cast<double>(n), mean = sum / number;
  return std::sqrt(std::max(0.0, squares / number - mean * mean) / (number - 1));
}

double ErrorStats::SqnrDb() const {
  if (error_sum_ == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(want_sum_ / error_sum_);
}

double ErrorStats::SqnrError() const {
  if (rows_ < 2 || error_sum_ == 0 || want_sum_ == 0) return 0;
  // A row moves the quotient by its share of the error less its share of the signal; these shares add up to 0.
  const double squares = row_error_squares_ / (error_sum_ * error_sum_) - 2 * row_products_ / (error_sum_ * want_sum_) +
                         row_want_squares_ / (want_sum_ * want_sum_);
  return 10 / std::numbers::ln10 *
         std::sqrt(std::max(0.0, squares) * static_cast<double>(rows_) / static_cast<double>(rows_ - 1));
}

double ErrorStats::RSquared() const {
  if (error_sum_ == 0) return 1;
  const double centred = want_sum_ - want_total_ * want_total_ / static_cast<double>(count_);
  // Sums of squares that cancel to their last digits say that nothing varies.
  const double signal = centred > 1e-12 * want_sum_ ? centred : want_sum_;
  return signal == 0 ? -std::numeric_limits<double>::infinity() : 1 - error_sum_ / signal;
}

double ErrorStats::Cosine() const { return CosineOf(dot_, want_sum_, got_sum_); }

ir::Status AddErrors(const ir::TensorMap& want, const ir::TensorMap& got, std::map<std::string, ErrorStats>& stats) {
  for (const auto& [name, tensor] : want) {
    const auto it = got.find(name);
    if (it == got.end()) return ir::Fail("there is no output '{}' to compare with", name);
    if (auto status = stats[name].Add(tensor, it->second); !status) {
      return ir::Fail("output '{}': {}", name, status.error().message);
    }
  }
  return {};
}

}  // namespace octavo::quant
