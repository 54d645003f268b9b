// Activations for tests of weights that are fitted to data.
#ifndef OCTAVO_TESTS_PASSES_COMMON_ROWS_H_
#define OCTAVO_TESTS_PASSES_COMMON_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace octavo::passes::quantize {

// Rows with a few directions in common, so that their moments are far from diagonal and codes can make up for each other.
inline std::vector<float> Rows(int64_t rows, int64_t k, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> mix(static_cast<size_t>(5 * k)), x(static_cast<size_t>(rows * k));
  for (float& v : mix) v = normal(rng);
  for (int64_t r = 0; r < rows; ++r) {
    float common[5];
    for (float& v : common) v = normal(rng);
    for (int64_t i = 0; i < k; ++i) {
      float& v = x[static_cast<size_t>(r * k + i)];
      v = 0.3f * normal(rng);
      for (int64_t c = 0; c < 5; ++c) v += common[c] * mix[static_cast<size_t>(c * k + i)];
    }
  }
  return x;
}

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_TESTS_PASSES_COMMON_ROWS_H_
