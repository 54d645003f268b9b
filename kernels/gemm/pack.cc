#include <algorithm>
#include <cstdlib>
#include <format>
#include <limits>

#include "octavo/kernels/gemm/gemm.h"

namespace octavo::kernels {
namespace {

int32_t At(const WeightSource& s, int64_t k, int64_t n) {
  const int64_t index = s.transposed ? n * s.k + k : k * s.n + n;
  return s.dtype == quant::DType::kU8 ? static_cast<const uint8_t*>(s.data)[index]
                                      : static_cast<const int8_t*>(s.data)[index];
}

int32_t ZeroPoint(const WeightSource& s, int64_t n) {
  if (s.zero_point == nullptr) return 0;
  return s.zero_point[s.zero_point_per_column ? n : 0];
}

// One column into its place in the canonical layout. Empty, or why it cannot be done.
std::string PackColumn(const WeightSource& s, int64_t n, int8_t* panel, int32_t* sum) {
  const int32_t zero_point = ZeroPoint(s, n);
  int64_t magnitude = 0;
  int64_t total = 0;
  for (int64_t k = 0; k < s.k; ++k) {
    const int32_t w = At(s, k, n) - zero_point;
    if (w < -128 || w > 127) {
      return std::format("weight [{}, {}] minus its zero point {} is {}, which does not fit into s8", k, n, zero_point, w);
    }
    magnitude += std::abs(w);
    total += w;
    panel[(k / 4) * 64 + (n % 16) * 4 + k % 4] = static_cast<int8_t>(w);
  }
  // |x - zx| <= 255, so this bounds the sum and, as everything wraps modulo 2^32, nothing else has to be bounded.
  if (magnitude * 255 > std::numeric_limits<int32_t>::max()) {
    return std::format("column {} has sum |w| = {}, and 255 times that leaves int32; split k", n, magnitude);
  }
  *sum = static_cast<int32_t>(total);
  return {};
}

}  // namespace

std::expected<PackedWeights, std::string> PackWeights(const WeightSource& source) {
  if (source.data == nullptr || source.k <= 0 || source.n <= 0) {
    return std::unexpected(std::format("weights of shape [{}, {}] have no elements to pack", source.k, source.n));
  }
  if (source.dtype != quant::DType::kS8 && source.dtype != quant::DType::kU8) {
    return std::unexpected(std::format("weights are {}; the int8 kernels take s8 or u8", quant::Name(source.dtype)));
  }
  PackedWeights packed;
  packed.k_ = source.k;
  packed.n_ = source.n;
  packed.data_ = AlignedArray<int8_t>(static_cast<size_t>(packed.k_padded() * packed.n_padded()));
  packed.sums_ = AlignedArray<int32_t>(static_cast<size_t>(packed.n_padded()));
  for (int64_t n = 0; n < source.n; ++n) {
    int8_t* panel = packed.data_.data() + n / 16 * packed.k_padded() * 16;
    std::string reason = PackColumn(source, n, panel, packed.sums_.data() + n);
    if (!reason.empty()) return std::unexpected(std::move(reason));
  }
  return packed;
}

}  // namespace octavo::kernels
