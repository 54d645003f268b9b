// What calibration remembers of one tensor: in fixed memory, and the same for every order of the data and every way it
// is cut into batches or shards, bit for bit. One state serves all calibrators (range.h); which one is asked at the
// end.
//
// The state is the exact minimum and maximum, a histogram, and the sums of the minima and maxima of the samples. The
// histogram's bins are fixed before any data is seen: a value's bin is the sign, the exponent and the first 8 bits of
// the mantissa of the float itself, so a bin is at most 2^-8 of its value wide, half a step of a u8 range that ends
// there. Counts are integers. 256 bins (2 KB) per sign and octave that occurs: 60 to 120 KB for usual activations,
// 1 MB at most, however much data there is.
#ifndef OCTAVO_QUANT_OBSERVE_H_
#define OCTAVO_QUANT_OBSERVE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/status.h"
#include "octavo/quant/exact_sum.h"

namespace octavo::quant {

// Values in [lo, hi], `count` of them. hi > 0 means lo >= 0, and the other way round; the bin of 0 is [0, 0].
struct Bin {
  double lo;
  double hi;
  uint64_t count;
};

class Observer {
 public:
  Observer() = default;
  Observer(const Observer& other) { *this = other; }
  Observer& operator=(const Observer& other);
  Observer(Observer&&) = default;
  Observer& operator=(Observer&&) = default;

  // Values of the sample at hand. Returns the index of the first NaN or infinity, after which the state is of no use;
  // -1: all were finite.
  int64_t Observe(std::span<const float> values);
  // The sample at hand is complete. One without values is not counted.
  void EndSample();

  // Minimum and maximum of every channel, and the power of rows: `values` are whole rows of `width` channels. All calls with one width.
  void ObserveChannels(std::span<const float> values, size_t width);
  struct ChannelRange {
    float lo = std::numeric_limits<float>::infinity();
    float hi = -std::numeric_limits<float>::infinity();
    bool operator==(const ChannelRange&) const = default;
  };
  // Empty unless ObserveChannels was called.
  const std::vector<ChannelRange>& channels() const { return channels_; }

  // Rows by their mean square, to a factor of 2^(1/4): the middle of each class and how many are in it. Rows of zeros are left out.
  std::vector<std::pair<double, uint64_t>> RowPowers() const;

  // As if this observer had seen the other's data too.
  void Merge(const Observer& other);

  uint64_t count() const { return count_; }
  uint64_t samples() const { return samples_; }
  // Exact; 0 if nothing was seen. Never -0.
  float min() const { return count_ == 0 ? 0.0f : min_; }
  float max() const { return count_ == 0 ? 0.0f : max_; }
  // Mean over the samples of their minima and maxima.
  double mean_min() const { return samples_ == 0 ? 0.0 : sum_min_.Value() / static_cast<double>(samples_); }
  double mean_max() const { return samples_ == 0 ? 0.0 : sum_max_.Value() / static_cast<double>(samples_); }
  // Bins that are not empty, in ascending order of value, cut to [min, max].
  std::vector<Bin> Bins() const;

  size_t bytes() const;  // that it takes in memory

  // Same state, same bytes.
  void AppendTo(std::string& out) const;
  // Takes its part off the front of `in`. has_rows: of format 2 or later.
  static ir::Result<Observer> Parse(std::string_view& in, bool has_rows = true);
  bool operator==(const Observer& other) const;

 private:
  static constexpr int kMantissaBits = 8;
  static constexpr size_t kBlockSize = size_t{1} << kMantissaBits;
  static constexpr size_t kBlocks = 512;  // sign and exponent; 255 and 511 (not finite) stay empty
  using Block = std::array<uint64_t, kBlockSize>;

  uint64_t count_ = 0;
  uint64_t samples_ = 0;
  float min_ = std::numeric_limits<float>::infinity();
  float max_ = -std::numeric_limits<float>::infinity();
  float sample_min_ = std::numeric_limits<float>::infinity();
  float sample_max_ = -std::numeric_limits<float>::infinity();
  ExactSum sum_min_, sum_max_;
  std::vector<ChannelRange> channels_;
  std::map<uint32_t, uint64_t> rows_;  // rows by exponent and first bit of the mantissa of their mean square
  std::array<std::unique_ptr<Block>, kBlocks> blocks_;
};

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_OBSERVE_H_
