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

// Up to 16 columns, from `first` on, into their panel. Empty, or why it cannot be done.
std::string PackPanel(const WeightSource& s, int64_t first, int8_t* panel, int32_t* sums) {
  const int64_t columns = std::min<int64_t>(16, s.n - first);
  int64_t magnitude[16] = {};
  int32_t zero_point[16];
  for (int64_t j = 0; j < columns; ++j) zero_point[j] = ZeroPoint(s, first + j);
  for (int64_t k = 0; k < s.k; ++k) {
    for (int64_t j = 0; j < columns; ++j) {
      const int32_t w = At(s, k, first + j) - zero_point[j];
      if (w < -128 || w > 127) {
        return std::format("weight [{}, {}] minus its zero point {} is {}, which does not fit into s8", k, first + j,
                           zero_point[j], w);
      }
      magnitude[j] += std::abs(w);
      sums[j] =
          static_cast<int32_t>(static_cast<uint32_t>(sums[j]) + static_cast<uint32_t>(w));  // refused below if it wraps
      panel[(k / 4) * 64 + j * 4 + k % 4] = static_cast<int8_t>(w);
    }
  }
  // |x - zx| <= 255, so this bounds the sum and, as everything wraps modulo 2^32, nothing else has to be bounded.
  for (int64_t j = 0; j < columns; ++j) {
    if (magnitude[j] * 255 > std::numeric_limits<int32_t>::max()) {
      return std::format("column {} has sum |w| = {}, and 255 times that leaves int32; split k", first + j,
                         magnitude[j]);
    }
  }
  return {};
}

// A lane of vpmaddubsw adds u8 * w over two neighbouring k. It lies between 255 times the sum of the negative weights
// and 255 times that of the positive ones, and reaches both: 128 of either is 32640 and fits, 129 is 32895 and does
// not.
struct LaneSums {
  int positive = 0;
  int negative = 0;

  void Add(int w) { (w > 0 ? positive : negative) += w; }
  bool Fits() const { return positive <= 128 && negative >= -128; }
};

int SafeQuadsOf(const int8_t* panel, int64_t k_padded) {
  int safe = 2;
  for (int64_t q = 0; q < k_padded / 4; q += 2) {  // padding makes the number of quads even
    for (int lane = 0; lane < 32; ++lane) {        // of 16 columns, two pairs a quad
      const int8_t* w = panel + q * 64 + lane * 2;
      LaneSums first, second, both;
      for (int i = 0; i < 2; ++i) {
        first.Add(w[i]), second.Add(w[64 + i]);
        both.Add(w[i]), both.Add(w[64 + i]);
      }
      if (!first.Fits() || !second.Fits()) return 0;
      if (!both.Fits()) safe = 1;
    }
  }
  return safe;
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
  packed.data_ = WeightArray<int8_t>(static_cast<size_t>(packed.k_padded() * packed.n_padded()));
  packed.sums_ = WeightArray<int32_t>(static_cast<size_t>(packed.n_padded()));
  packed.safe_quads_ = AlignedArray<uint8_t>(static_cast<size_t>(packed.n_padded() / 16));
  for (int64_t n = 0; n < source.n; n += 16) {
    int8_t* panel = packed.data_.data() + n / 16 * packed.k_padded() * 16;
    std::string reason = PackPanel(source, n, panel, packed.sums_.data() + n);
    if (!reason.empty()) return std::unexpected(std::move(reason));
    packed.safe_quads_.data()[n / 16] = static_cast<uint8_t>(SafeQuadsOf(panel, packed.k_padded()));
  }
  return packed;
}

}  // namespace octavo::kernels
