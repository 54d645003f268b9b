#include "octavo/quant/moments.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/quant/varint.h"

namespace octavo::quant {

namespace {

constexpr int kSmallest = -60, kHighest = 60;  // exponents: squares of what is beyond are no floats to count on

// Rounded down.
int Divided(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

}  // namespace

std::optional<int> Moments::Code(std::span<const float> row, int16_t* codes) {
  float largest = 0.0f;
  bool finite = true;
  for (const float x : row) {
    largest = std::max(largest, std::fabs(x));
    finite &= std::fabs(x) <= std::numeric_limits<float>::max();
  }
  if (!finite || !(largest > 0.0f)) return {};
  const int exponent = std::ilogb(largest) + 1;
  if (exponent < kSmallest || exponent > kHighest) return {};
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding and taking it off rounds to nearest even
  const float scale = std::ldexp(1.0f, kCodeBits - exponent);
  for (size_t i = 0; i < row.size(); ++i) {
    const float code = (row[i] * scale + kRound) - kRound;
    codes[i] = static_cast<int16_t>(std::min(std::max(code, -float{kLargest}), float{kLargest}));
  }
  return exponent;
}

Moments::Sums Moments::Of(int exponent) {
  const int octaves = Divided(exponent, kOctaves);
  std::vector<int64_t>& sums = sums_[octaves];
  if (sums.empty()) sums.resize(size());
  return {sums.data(), 2 * (exponent - octaves * kOctaves)};
}

double Moments::At(int64_t i, int64_t j) const {
  double sum = 0;
  for (const auto& [octaves, sums] : sums_)
    sum +=
        std::ldexp(static_cast<double>(sums[static_cast<size_t>(Index(i, j))]), 2 * (octaves * kOctaves - kCodeBits));
  return sum;
}

ir::Status Moments::Merge(const Moments& other) {
  if (other.k_ == 0) return {};
  if (k_ != 0 && k_ != other.k_) return ir::Fail("one has {} channels, the other {}", k_, other.k_);
  k_ = other.k_, rows_ += other.rows_;
  for (const auto& [octaves, theirs] : other.sums_) {
    std::vector<int64_t>& ours = sums_[octaves];
    if (ours.empty()) ours.resize(size());
    for (size_t i = 0; i < ours.size(); ++i)  // a damaged file may hold any numbers
      ours[i] = static_cast<int64_t>(static_cast<uint64_t>(ours[i]) + static_cast<uint64_t>(theirs[i]));
  }
  return {};
}

size_t Moments::bytes() const { return sums_.size() * size() * sizeof(int64_t); }

// k, rows, how many arrays, and of each its octaves and its sums; signed numbers with the sign in the last bit.
void Moments::AppendTo(std::string& out) const {
  const auto signed_number = [&out](int64_t v) {
    AppendVarint(out, (static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63));
  };
  AppendVarint(out, static_cast<uint64_t>(k_));
  AppendVarint(out, rows_);
  AppendVarint(out, sums_.size());
  for (const auto& [octaves, sums] : sums_) {
    signed_number(octaves);
    for (const int64_t sum : sums) signed_number(sum);
  }
}

ir::Result<Moments> Moments::Parse(std::string_view& in) {
  bool ok = true;
  const auto take = [&] {
    const auto v = TakeVarint(in);
    ok &= v.has_value();
    return v.value_or(0);
  };
  const auto signed_number = [&] {
    const uint64_t v = take();
    return static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
  };
  constexpr uint64_t kMostChannels = 1 << 20;
  const uint64_t k = take(), rows = take();
  if (!ok || k > kMostChannels) return ir::Fail("the second moments are damaged");
  Moments m(static_cast<int64_t>(k));
  m.rows_ = rows;
  int before = kSmallest - kOctaves;
  for (uint64_t left = take(); ok && left > 0; --left) {
    const int64_t octaves = signed_number();
    ok = ok && k > 0 && octaves > before && octaves <= kHighest / kOctaves &&
         m.size() <= in.size();  // a byte each at least
    if (!ok) break;
    before = static_cast<int>(octaves);
    std::vector<int64_t>& sums = m.sums_[before];
    sums.resize(m.size());
    for (int64_t& sum : sums) sum = signed_number();
  }
  if (!ok) return ir::Fail("the second moments are damaged");
  return m;
}

}  // namespace octavo::quant
