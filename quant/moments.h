// Second moments of the rows of an activation, H = sum x' x, in whole numbers: the same for every order of the rows and every way they are
// cut into batches or shards, bit for bit, like everything that calibration keeps (observe.h). What weights are fitted to.
//
// A row counts as codes of 12 bits, its largest value just below 2^11, so the rounding of a row is its own affair, and products of
// codes add up exactly. What the codes of a row are worth is a power of two; rows whose powers lie within eight octaves share one array of sums in
// 64 bits, which hold 2^27 rows. Nearly all activations need one or two such arrays.
#ifndef OCTAVO_QUANT_MOMENTS_H_
#define OCTAVO_QUANT_MOMENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/status.h"

namespace octavo::quant {

class Moments {
 public:
  static constexpr int kCodeBits = 11;  // without the sign
  static constexpr int32_t kLargest = (1 << kCodeBits) - 1;

  Moments() = default;
  explicit Moments(int64_t k) : k_(k) {}
  int64_t k() const { return k_; }  // 0: nothing was ever seen
  uint64_t rows() const { return rows_; }

  // The codes of a row, and the exponent e that all values are smaller than 2^e in size by. Nothing: the row is zero, not finite, or so small or
  // large that its squares are no floats to count on; it then counts as a row of zeros.
  static std::optional<int> Code(std::span<const float> row, int16_t* codes);
  void CountRows(uint64_t rows) { rows_ += rows; }
  // Where sums of products of such rows' codes go: those of columns i <= j to [Index(i, j)], times 2^shift.
  struct Sums {
    int64_t* at;
    int shift;
  };
  Sums Of(int exponent);
  int64_t Index(int64_t i, int64_t j) const { return i * k_ - i * (i - 1) / 2 + j - i; }

  // H of columns i <= j.
  double At(int64_t i, int64_t j) const;

  // As if all rows had been seen by one. Of the same activation.
  ir::Status Merge(const Moments& other);
  size_t bytes() const;  // that it takes in memory
  // Same rows, same bytes.
  void AppendTo(std::string& out) const;
  // Takes its part off the front of `in`.
  static ir::Result<Moments> Parse(std::string_view& in);
  bool operator==(const Moments&) const = default;

 private:
  static constexpr int kOctaves = 8;
  size_t size() const { return static_cast<size_t>(k_ * (k_ + 1) / 2); }

  int64_t k_ = 0;
  uint64_t rows_ = 0;
  std::map<int, std::vector<int64_t>> sums_;  // by exponents / kOctaves, rounded down
};

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_MOMENTS_H_
