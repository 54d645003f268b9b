// The state of the CPU's floats that every bit of a result rests on: round to nearest even, subnormals as they are, no trap. A host may
// run with another one: flush-to-zero for audio, a rounding mode for intervals, traps to find a NaN.
#ifndef OCTAVO_QUANT_NUMERIC_FLOAT_MODE_H_
#define OCTAVO_QUANT_NUMERIC_FLOAT_MODE_H_

#include <xmmintrin.h>

namespace octavo::quant {

// Sets that state on this thread; at its end puts back what was there, flags of exceptions included. Some 10 ns. (x87 is not touched:
// nothing here computes in long double.)
class FloatMode {
 public:
  FloatMode() : before_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~FloatMode() { _mm_setcsr(before_); }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  static constexpr unsigned kDefault = 0x1f80;  // all exceptions masked, all else 0
  unsigned before_;
};

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_NUMERIC_FLOAT_MODE_H_
