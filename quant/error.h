// How far one tensor is from another: gathered over any number of batches, in double.
#ifndef OCTAVO_QUANT_ERROR_H_
#define OCTAVO_QUANT_ERROR_H_

#include <cstdint>
#include <map>
#include <string>

#include "octavo/ir/interpret.h"
#include "octavo/ir/tensor.h"

namespace octavo::quant {

// How surely the mean of `n` values is that of all there might be, if they were drawn apart: by their sum and the sum of their squares. 0 for one.
double StandardError(double sum, double squares, int64_t n);

class ErrorStats {
 public:
  // `got` against `want`, both of any numeric type. An error if the shapes differ. Elements that are the same NaN or
  // infinity in both agree and are left out; any other that is not finite counts in mismatches() and nowhere else.
  ir::Status Add(const ir::Tensor& want, const ir::Tensor& got);
  void Merge(const ErrorStats& other);

  int64_t count() const { return count_; }
  int64_t mismatches() const { return mismatches_; }
  bool exact() const { return mismatches_ == 0 && error_sum_ == 0; }
  // 10 log10(sum want^2 / sum (want - got)^2); infinite where nothing differs, -infinite where only `got` is not 0.
  double SqnrDb() const;
  // Its standard error over the rows along the last axis, to first order; 0 for fewer than two, and where SqnrDb() is infinite.
  double SqnrError() const;
  // Of all elements as one vector; 1 where both are 0 everywhere, 0 where one is.
  double Cosine() const;
  // Mean of the cosines of the rows along the last axis: the figure for embeddings.
  double MeanRowCosine() const { return rows_ == 0 ? 1 : row_cosine_sum_ / static_cast<double>(rows_); }
  double RowCosineError() const {
    return StandardError(static_cast<double>(rows_) - row_cosine_sum_, row_turn_squares_, rows_);
  }
  // Whether every row is one number, as scores and likelihoods are: its cosine is 1 or -1, so RSquared() is the figure for them.
  bool IsOneNumberARow() const { return rows_ > 0 && widest_row_ == 1; }
  // 1 - sum (want - got)^2 / sum (want - mean)^2 over all elements, at most 1; the mean is 0 where all of `want` are one number.
  double RSquared() const;
  double MaxAbs() const { return max_abs_; }
  double MeanAbs() const { return count_ == 0 ? 0 : abs_sum_ / static_cast<double>(count_); }
  // Where the largest error was: number of the Add (from 0) and element; -1: nowhere.
  int64_t worst_batch() const { return worst_batch_; }
  int64_t worst_element() const { return worst_element_; }

 private:
  int64_t count_ = 0, mismatches_ = 0, rows_ = 0, batches_ = 0, widest_row_ = 0;
  double want_total_ = 0;  // of the numbers; the sums below are of squares
  double want_sum_ = 0, got_sum_ = 0, dot_ = 0, error_sum_ = 0, abs_sum_ = 0, max_abs_ = 0, row_cosine_sum_ = 0;
  double row_turn_squares_ = 0;  // of 1 - cosine
  double row_want_squares_ = 0, row_products_ = 0,
         row_error_squares_ = 0;  // of a row's sums of squares of `want` and of the error
  int64_t worst_batch_ = -1, worst_element_ = -1;
};

// For each tensor of `want` by name; an error if `got` lacks one.
ir::Status AddErrors(const ir::TensorMap& want, const ir::TensorMap& got, std::map<std::string, ErrorStats>& stats);

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_ERROR_H_
