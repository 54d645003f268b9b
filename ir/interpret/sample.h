// Values of a picture between its elements.
#ifndef OCTAVO_IR_INTERPRET_SAMPLE_H_
#define OCTAVO_IR_INTERPRET_SAMPLE_H_

#include <cmath>
#include <cstdint>
#include <vector>

namespace octavo::ir::interpret {

// Interpolated linearly in every dim of `sizes` (at most 16); outside of the picture is 0. `at` may be anything, NaN too.
inline double SampleLinear(const double* image, const std::vector<int64_t>& sizes, const std::vector<double>& at) {
  const size_t n = sizes.size();
  for (size_t d = 0; d < n; ++d) {
    if (!(at[d] > -1 && at[d] < static_cast<double>(sizes[d]))) return 0;
  }
  double sum = 0;
  for (uint32_t corner = 0; corner < (1u << n); ++corner) {
    double weight = 1;
    int64_t flat = 0;
    for (size_t d = 0; d < n && weight != 0; ++d) {
      const auto low = static_cast<int64_t>(std::floor(at[d]));
      const bool high = (corner >> d & 1) != 0;
      const int64_t i = low + (high ? 1 : 0);
      const double rest = at[d] - static_cast<double>(low);
      weight *= i < 0 || i >= sizes[d] ? 0 : high ? rest : 1 - rest;
      flat = flat * sizes[d] + i;
    }
    if (weight != 0) sum += weight * image[flat];
  }
  return sum;
}

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_SAMPLE_H_
