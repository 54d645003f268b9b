// From what an observer saw to a range, and from the range to scale and zero point: the calibrators.
#ifndef OCTAVO_QUANT_RANGE_H_
#define OCTAVO_QUANT_RANGE_H_

#include <string_view>

#include "octavo/ir/status.h"
#include "octavo/quant/numeric/qparams.h"
#include "octavo/quant/observe.h"

namespace octavo::quant {

enum class Calibrator : uint8_t {
  kMinMax,         // everything seen
  kMovingAverage,  // mean over the samples of their minima and maxima, see below
  kPercentile,     // leaves out (100 - percentile) / 2 % of the values at each end
  kEntropy,        // least Kullback-Leibler divergence between the values and their quantized image
  kMse,            // least expected squared quantization error; the default
};
// moving_average is the cumulative moving average: every sample (a row of the batch, never a batch) weighs the same.
// An exponential one would depend on the order of the samples, and shards could not be merged.
//
// mse is the default: on the MiniLM task (tests/data/minilm) it gives mean cosine 0.9945 against 0.9936 of minmax,
// and where clipping hurts, as percentile shows there with 0.9165, it does not clip, because it looks at the error
// first.
// fp8's steps grow with the value, so a smaller range makes none of them finer: entropy and mse take everything seen there. With what they
// had cut off, Qwen2.5-Coder 0.5B had a divergence of 0.116 instead of 0.035, Gemma 3 270M 3.5 times its perplexity by entropy.

constexpr Calibrator kDefaultCalibrator = Calibrator::kMse;

// "minmax", "moving_average", "percentile", "entropy", "mse".
std::string_view Name(Calibrator calibrator);
// A sentence with the names there are, if it is none.
ir::Result<Calibrator> CalibratorFromName(std::string_view name);

struct RangeOptions {
  Calibrator calibrator = kDefaultCalibrator;
  double percentile = 99.99;  // in (50, 100]
  DType dtype = DType::kU8;
  bool symmetric = false;  // always true for fp8
  bool power_of_two = false;
};

struct Range {
  float lo = 0;
  float hi = 0;
  bool operator==(const Range&) const = default;
};

// The range that the calibrator chooses: inside what was seen (symmetric: inside [-m, m], m the largest magnitude
// seen), and always with 0. Deterministic.
ir::Result<Range> ChooseRange(const Observer& observer, const RangeOptions& options);
// Scale and zero point of that range.
ir::Result<QParams> ChooseParams(const Observer& observer, const RangeOptions& options);
QParams ParamsOf(const Range& range, const RangeOptions& options);

// Mean of (x - FakeQuant(x))^2 over everything seen, where the values of a bin are taken as spread evenly over it: the
// error is integrated exactly over the bin (fp8: taken at its centre, for a bin lies within one rounding interval).
double ExpectedSquaredError(std::span<const Bin> bins, const QParams& params);

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_RANGE_H_
