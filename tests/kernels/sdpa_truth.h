// Attention in double, and how far int8 flash may be from it.
#ifndef OCTAVO_TESTS_KERNELS_SDPA_TRUTH_H_
#define OCTAVO_TESTS_KERNELS_SDPA_TRUTH_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "octavo/kernels/sdpa/sdpa.h"
#include "octavo/quant/numeric/math.h"
#include "octavo/quant/numeric/rounding.h"

namespace octavo::kernels {

using quant::DType;

// One row of attention in double, of the dequantized operands, and how far the codes of P may move each output.
struct Truth {
  const SdpaInt8Args& a;
  std::vector<double> s;

  static double Value(const void* data, DType type, int64_t at, int32_t zero) {
    const double q = type == DType::kU8 ? static_cast<const uint8_t*>(data)[at] : static_cast<const int8_t*>(data)[at];
    return q - zero;
  }
  static int64_t At(const SdpaStrides& s, int64_t b, int64_t h, int64_t row) {
    return b * s.batch + h * s.head + row * s.row;
  }

  double Real(double x, double bias) const {
    x *= double{a.q_scale} * double{a.k_scale} * double{a.scale};
    if (a.softcap != 0) x = std::tanh(x / double{a.softcap}) * double{a.softcap};
    return x + bias;
  }
  // Codes are steps: a score is on the right one only by the roundings that the contract has. (sdpa.h; slopes go with no codes here.)
  double Coded(float x, float bias) const {
    const auto through = [](const SdpaScoreCodes& c, float s) {
      const auto [lo, hi] = quant::RangeOf(c.type);
      if (!c.exist()) return s;
      const int32_t q =
          quant::QuantizeOne(s, c.scale, c.zero_point, static_cast<int32_t>(lo), static_cast<int32_t>(hi));
      return static_cast<float>(q - c.zero_point) * c.back();
    };
    x = through(a.product_codes, x * (a.q_scale * a.k_scale));
    if (a.scale != 1.0f) x = x * a.scale;
    if (a.divisor != 0.0f) x = x / a.divisor;
    x = through(a.scaled_codes, x);
    if (a.softcap != 0.0f) x = quant::Tanh(x / a.softcap) * a.softcap;
    return through(a.masked_codes, x + bias);
  }

  Truth(const SdpaInt8Args& args, int64_t b, int64_t h, int64_t i) : a(args) {
    const SdpaShape& sh = a.shape;
    const int64_t kv = h / (sh.heads / sh.kv_heads);
    const int64_t offset = a.visibility.window.offset + (a.visibility.window.bottom_right ? sh.k_len - sh.q_len : 0);
    for (int64_t j = 0; j < sh.k_len; ++j) {
      double x = 0;
      for (int64_t d = 0; d < sh.head_size; ++d) {
        x += Value(a.q, a.q_type, At(a.q_strides, b, h, i) + d, a.q_zero_point) *
             Value(a.k, a.k_type, At(a.k_strides, b, kv, j) + d, a.k_zero_point);
      }
      double bias =
          a.visibility.alibi == nullptr ? 0 : double{a.visibility.alibi[h]} * static_cast<double>(j - i - offset);
      if (a.mask.data != nullptr)
        bias += a.mask.data[b * a.mask.batch + h * a.mask.head + i * a.mask.row + j * a.mask.col];
      x = a.HasScoreSteps() ? Coded(static_cast<float>(x), static_cast<float>(bias)) : Real(x, bias);
      const SdpaWindow& w = a.visibility.window;
      const SdpaBoolMask& keep = a.visibility.keep;
      bool hide = (w.left >= 0 && j < i + offset - w.left) || (w.right >= 0 && j > i + offset + w.right);
      hide = hide ||
             (keep.data != nullptr && keep.data[b * keep.batch + h * keep.head + i * keep.row + j * keep.col] == 0);
      s.push_back(hide ? a.visibility.hidden_value : x);
    }
  }

  // y[c] and bound[c]; false: a row without meaning.
  bool Attend(int64_t b, int64_t h, std::vector<double>* y, std::vector<double>* bound) const {
    const SdpaShape& sh = a.shape;
    const int64_t kv = h / (sh.heads / sh.kv_heads);
    const double last = *std::ranges::max_element(s);
    if (std::isinf(last)) return false;
    std::vector<double> e, weight;
    double max = -std::numeric_limits<double>::infinity(), sum = 0, lost = 0, largest = 0;
    for (size_t j = 0; j < s.size(); ++j) {
      if (j % kSdpaFlashKeys == 0) {
        max =
            std::max(max, *std::max_element(s.begin() + j, s.begin() + std::min(s.size(), j + size_t{kSdpaFlashKeys})));
      }
      const bool gone = std::isinf(s[j]) || s[j] < last - 1e5;  // Exp is 0, and so is the code
      e.push_back(gone ? 0 : std::exp(s[j] - last));
      weight.push_back(gone ? 0 : std::exp(max - last));
      sum += e.back(), lost += weight.back() / 510;
      if (!gone) largest = std::max(largest, std::fabs(s[j]));
    }
    // Roundings: of a score five (product, scale, cap, slope, mask) at its size and those of tanh, an Exp of 2 ulp, one a tile in o.
    const double rounding = (8 * largest + 32 + 3.0 * static_cast<double>(s.size()) / kSdpaFlashKeys) * 0x1p-23;
    const double least = std::max(1.0 - rounding, sum - lost);
    for (int64_t c = 0; c < sh.v_head_size; ++c) {
      const auto v = [&](int64_t j) {
        return Value(a.v, a.v_type, At(a.v_strides, b, kv, j) + c, a.v_zero_point) * double{a.v_scale};
      };
      double o = 0;
      for (int64_t j = 0; j < sh.k_len; ++j) o += e[j] * v(j) / sum;
      double off = 0;
      for (int64_t j = 0; j < sh.k_len; ++j) off += (weight[j] / 510 + e[j] * rounding) * std::fabs(v(j) - o);
      y->push_back(o);
      bound->push_back(off / least + 0x1p-20 * std::fabs(o));
    }
    return true;
  }
};

// The largest error of the outputs `got`, as a share of the bound. `largest`: the largest of the outputs that there should be.
inline double ExpectNearTruth(const SdpaInt8Args& a, const std::vector<uint8_t>& got, double* largest) {
  double worst = 0;
  for (int64_t b = 0; b < a.shape.batch; ++b) {
    for (int64_t h = 0; h < a.shape.heads; ++h) {
      for (int64_t i = 0; i < a.shape.q_len; ++i) {
        std::vector<double> y, bound;
        const bool meaning = Truth(a, b, h, i).Attend(b, h, &y, &bound);
        for (int64_t c = 0; c < a.shape.v_head_size; ++c) {
          const auto at = static_cast<size_t>(Truth::At(a.o_strides, b, h, i) + c);
          float x = 0;
          double step = 0;
          if (a.o_type == DType::kF32) {
            std::memcpy(&x, &got[at * 4], 4);
          } else {
            x = static_cast<float>(Truth::Value(got.data(), a.o_type, static_cast<int64_t>(at), a.o_zero_point) *
                                   a.o_scale);
            step = 0.5001 * a.o_scale;
          }
          if (!meaning) {
            EXPECT_TRUE(a.o_type != DType::kF32 || (a.guard != SdpaGuard::kNone ? x == 0 : std::isnan(x))) << x;
            continue;
          }
          double want = y[c];
          if (a.o_type != DType::kF32) {  // saturated
            const double low = a.o_type == DType::kU8 ? 0 : -128;
            want = std::clamp(want, (low - a.o_zero_point) * a.o_scale, (low + 255 - a.o_zero_point) * a.o_scale);
          }
          EXPECT_LE(std::fabs(x - want), bound[c] + step)
              << "row " << i << " column " << c << ": " << x << ", " << want;
          if (step == 0) worst = std::max(worst, std::fabs(x - want) / bound[c]);
          *largest = std::max(*largest, std::fabs(want));
          if (testing::Test::HasFailure()) return worst;
        }
      }
    }
  }
  return worst;
}

}  // namespace octavo::kernels

#endif  // OCTAVO_TESTS_KERNELS_SDPA_TRUTH_H_
