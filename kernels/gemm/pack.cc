#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <format>
#include <limits>
#include <span>
#include <utility>

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

// Four rows of 16 columns, `stride` apart, less the zero points of the columns. False where one leaves s8.
template <typename T>
bool PackFour(const T* rows, int64_t stride, const int32_t* zero_point, int8_t* out, int32_t* sums,
              int32_t* magnitude) {
  int32_t lo = 0, hi = 0;
  std::array<std::array<int32_t, 16>, 4> w;
  for (int r = 0; r < 4; ++r) {
    for (int j = 0; j < 16; ++j) {
      const int32_t v = rows[r * stride + j] - zero_point[j];
      w[r][j] = v;
      lo = std::min(lo, v), hi = std::max(hi, v);
      sums[j] += v;
      magnitude[j] += v < 0 ? -v : v;
    }
  }
  std::array<uint32_t, 16> words;
  for (int j = 0; j < 16; ++j) {
    words[j] = static_cast<uint32_t>(w[0][j] & 255) | static_cast<uint32_t>(w[1][j] & 255) << 8 |
               static_cast<uint32_t>(w[2][j] & 255) << 16 | static_cast<uint32_t>(w[3][j] & 255) << 24;
  }
  std::memcpy(out, words.data(), 64);
  return lo >= -128 && hi <= 127;
}

// The first rows of a whole panel, by fours. How many they are; none that an error stands in.
int64_t PackWhole(const WeightSource& s, int64_t first, const int32_t* zero_point, int8_t* panel, int32_t* sums,
                  int64_t* magnitude) {
  constexpr int64_t kAtOnce = 1 << 16;  // sums of so many stay in int32
  const auto* at = static_cast<const uint8_t*>(s.data) + first;
  for (int64_t k = 0; k + 4 <= s.k;) {
    std::array<int32_t, 16> part{}, size{};
    const int64_t begin = k, end = std::min(s.k / 4 * 4, k + kAtOnce);
    for (; k < end; k += 4) {
      int8_t* out = panel + k / 4 * 64;
      const bool fits =
          s.dtype == quant::DType::kU8
              ? PackFour(at + k * s.n, s.n, zero_point, out, part.data(), size.data())
              : PackFour(reinterpret_cast<const int8_t*>(at) + k * s.n, s.n, zero_point, out, part.data(), size.data());
      if (!fits) return begin;
    }
    for (int j = 0; j < 16; ++j) {
      sums[j] = static_cast<int32_t>(static_cast<uint32_t>(sums[j]) + static_cast<uint32_t>(part[j]));
      magnitude[j] += size[j];
    }
  }
  return s.k / 4 * 4;
}

// Sums of |w| of some columns, from `first` on. Empty, or why a product with them may leave int32. |x - zx| <= 255, so this bounds the
// sum and, as everything wraps modulo 2^32, nothing else has to be bounded.
std::string WhyTooLarge(std::span<const int64_t> magnitude, int64_t first) {
  for (size_t j = 0; j < magnitude.size(); ++j) {
    if (magnitude[j] * 255 > std::numeric_limits<int32_t>::max()) {
      return std::format("column {} has sum |w| = {}, and 255 times that leaves int32; split k",
                         first + static_cast<int64_t>(j), magnitude[j]);
    }
  }
  return {};
}

// Up to 16 columns, from `first` on, into their panel. Empty, or why it cannot be done.
std::string PackPanel(const WeightSource& s, int64_t first, int8_t* panel, int32_t* sums) {
  const int64_t columns = std::min<int64_t>(16, s.n - first);
  int64_t magnitude[16] = {};
  int32_t zero_point[16] = {};
  for (int64_t j = 0; j < columns; ++j) zero_point[j] = ZeroPoint(s, first + j);
  const bool whole = columns == 16 && !s.transposed &&
                     std::ranges::all_of(zero_point, [](int32_t z) { return z >= -128 && z <= 255; });
  for (int64_t k = whole ? PackWhole(s, first, zero_point, panel, sums, magnitude) : 0; k < s.k; ++k) {
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
  return WhyTooLarge({magnitude, static_cast<size_t>(columns)}, first);
}

int Nibble(const void* data, int64_t i) { return static_cast<const uint8_t*>(data)[i / 2] >> (i % 2 * 4) & 15; }

// Up to 16 columns of 4-bit weights with steps. Empty, or why it cannot be done.
std::string PackSteppedPanel(const WeightSource& s, int64_t first, int8_t* panel, int32_t* sums) {
  const int64_t columns = std::min<int64_t>(16, s.n - first);
  std::array<int64_t, 16> magnitude{}, total{};
  for (int64_t begin = 0; begin < s.k; begin += kStepRows) {
    auto* unit = reinterpret_cast<uint8_t*>(panel) + begin / 64 * PackedWeights::kSteppedUnit;
    uint8_t* steps = unit + begin % 64 / kStepRows * 16;
    std::array<int32_t, 16> step{}, zero{};
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t at = begin / kStepRows * s.n + first + j;
      step[j] = Nibble(s.step, at);
      zero[j] = s.step_zero != nullptr ? Nibble(s.step_zero, at) : 0;
      steps[j] = static_cast<uint8_t>(step[j] | zero[j] << 4);
    }
    for (int64_t k = begin; k < begin + kStepRows; ++k) {
      uint8_t* line = unit + 64 + k % 64 / 8 * 64 + k % 4;
      std::array<int32_t, 16> codes = zero;  // behind the last row the weight is 0
      for (int64_t j = 0; k < s.k && j < columns; ++j) codes[j] = Nibble(s.data, k * s.n + first + j);
      int32_t lo = 0, hi = 0;
      for (int64_t j = 0; j < 16; ++j) {
        const int32_t w = step[j] * (codes[j] - zero[j]);
        lo = std::min(lo, w), hi = std::max(hi, w);
        magnitude[j] += w < 0 ? -w : w, total[j] += w;
        line[j * 4] |= static_cast<uint8_t>(codes[j] << (k % 8 / 4 * 4));
      }
      if (lo < -128 || hi > 127)
        return std::format("row {} has a weight of {} steps, which does not fit into s8", k, lo < -128 ? lo : hi);
    }
  }
  for (int64_t j = 0; j < columns; ++j) sums[j] = static_cast<int32_t>(total[j]);  // refused here if it wraps
  return WhyTooLarge(std::span(magnitude).first(static_cast<size_t>(columns)), first);
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
    for (int64_t lane = 0; lane < 32; ++lane) {    // of 16 columns, two pairs a quad
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

std::optional<PackedWeights> PackedWeights::Of(const WeightSource& source, std::span<const WeightBytes> arrays) {
  if (arrays.size() != kArrays || source.k <= 0 || source.n <= 0) return {};
  PackedWeights packed(source);
  const auto padded = static_cast<size_t>(packed.n_padded());
  auto data = WeightArray<int8_t>::View(arrays[0], static_cast<size_t>(packed.panel_bytes()) * padded / 16);
  auto sums = WeightArray<int32_t>::View(arrays[1], padded);
  auto safe_quads = WeightArray<uint8_t>::View(arrays[2], padded / 16);
  if (!data || !sums || !safe_quads) return {};
  packed.data_ = std::move(*data), packed.sums_ = std::move(*sums), packed.safe_quads_ = std::move(*safe_quads);
  return packed;
}

std::expected<PackedWeights, std::string> PackWeights(const WeightSource& source) {
  if (source.data == nullptr || source.k <= 0 || source.n <= 0) {
    return std::unexpected(std::format("weights of shape [{}, {}] have no elements to pack", source.k, source.n));
  }
  const bool stepped = source.dtype == quant::DType::kU4;
  if (!quant::IsInt8(source.dtype) && !stepped) {
    return std::unexpected(
        std::format("weights are {}; the int8 kernels take s8, u8 or u4 with steps", quant::Name(source.dtype)));
  }
  if (stepped && (source.step == nullptr || source.transposed || source.zero_point != nullptr))
    return std::unexpected("weights of 4 bits need steps and zeros of their own, and rows along k");
  PackedWeights packed(source);
  packed.data_ = WeightArray<int8_t>(static_cast<size_t>(packed.panel_bytes() * (packed.n_padded() / 16)));
  packed.sums_ = WeightArray<int32_t>(static_cast<size_t>(packed.n_padded()));
  packed.safe_quads_ = WeightArray<uint8_t>(static_cast<size_t>(packed.n_padded() / 16));
  for (int64_t n = 0; n < source.n; n += 16) {
    int8_t* panel = packed.data_.data() + n / 16 * packed.panel_bytes();
    std::string reason = (stepped ? PackSteppedPanel : PackPanel)(source, n, panel, packed.sums_.data() + n);
    if (!reason.empty()) return std::unexpected(std::move(reason));
    if (stepped) continue;  // their codes, not the weights, go through vpmaddubsw
    packed.safe_quads_.data()[n / 16] = static_cast<uint8_t>(SafeQuadsOf(panel, packed.k_padded()));
  }
  return packed;
}

}  // namespace octavo::kernels
