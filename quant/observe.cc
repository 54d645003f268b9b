#include "octavo/quant/observe.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "octavo/quant/varint.h"

namespace octavo::quant {

namespace {

constexpr int kRowShift = 22;  // leaves sign, exponent and one bit of the mantissa

}  // namespace

Observer& Observer::operator=(const Observer& other) {
  if (this == &other) return *this;
  count_ = other.count_;
  samples_ = other.samples_;
  min_ = other.min_;
  max_ = other.max_;
  sample_min_ = other.sample_min_;
  sample_max_ = other.sample_max_;
  sum_min_ = other.sum_min_;
  sum_max_ = other.sum_max_;
  channels_ = other.channels_;
  rows_ = other.rows_;
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks_[i] = other.blocks_[i] ? std::make_unique<Block>(*other.blocks_[i]) : nullptr;
  }
  return *this;
}

int64_t Observer::Observe(std::span<const float> values) {
  float lo = sample_min_;
  float hi = sample_max_;
  for (size_t i = 0; i < values.size(); ++i) {
    const float x = values[i] + 0.0f;  // -0 becomes 0
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    if ((bits & 0x7f800000u) == 0x7f800000u) return static_cast<int64_t>(i);
    auto& block = blocks_[bits >> 23];
    if (!block) [[unlikely]] {
      block = std::make_unique<Block>();
    }
    ++(*block)[(bits >> (23 - kMantissaBits)) & (kBlockSize - 1)];
    lo = x < lo ? x : lo;
    hi = x > hi ? x : hi;
  }
  sample_min_ = lo;
  sample_max_ = hi;
  count_ += values.size();
  return -1;
}

void Observer::EndSample() {
  if (sample_min_ > sample_max_) return;  // nothing seen
  sum_min_.Add(sample_min_);
  sum_max_.Add(sample_max_);
  min_ = std::min(min_, sample_min_);
  max_ = std::max(max_, sample_max_);
  ++samples_;
  sample_min_ = std::numeric_limits<float>::infinity();
  sample_max_ = -std::numeric_limits<float>::infinity();
}

void Observer::ObserveChannels(std::span<const float> values, size_t width) {
  if (channels_.empty()) channels_.resize(width);
  for (size_t row = 0; row + width <= values.size(); row += width) {
    double power = 0;  // squares of floats are exact in double, and a row is always summed in this order
    for (size_t c = 0; c < width; ++c) {
      const float v = values[row + c];
      channels_[c].lo = std::min(channels_[c].lo, v);
      channels_[c].hi = std::max(channels_[c].hi, v);
      power += static_cast<double>(v) * static_cast<double>(v);
    }
    const auto mean = static_cast<float>(std::min(power / static_cast<double>(width), 0x1p127));
    const uint32_t bits = std::bit_cast<uint32_t>(mean);
    if (bits != 0) ++rows_[bits >> kRowShift];
  }
}

std::vector<std::pair<double, uint64_t>> Observer::RowPowers() const {
  std::vector<std::pair<double, uint64_t>> powers;
  for (const auto& [bin, n] : rows_) {
    const double low =
        std::bit_cast<float>(bin << kRowShift);  // 1 or 1.5 times a power of 2; the class ends at 1.5 or 2
    powers.emplace_back(low * (bin % 2 == 0 ? std::sqrt(1.5) : std::sqrt(2 / 1.5)), n);
  }
  return powers;
}

void Observer::Merge(const Observer& other) {
  count_ += other.count_;
  samples_ += other.samples_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_min_.Add(other.sum_min_);
  sum_max_.Add(other.sum_max_);
  if (channels_.empty()) channels_ = other.channels_;
  for (size_t c = 0; c < std::min(channels_.size(), other.channels_.size()); ++c) {
    channels_[c] = {std::min(channels_[c].lo, other.channels_[c].lo), std::max(channels_[c].hi, other.channels_[c].hi)};
  }
  for (const auto& [bin, n] : other.rows_) rows_[bin] += n;
  for (size_t i = 0; i < kBlocks; ++i) {
    if (!other.blocks_[i]) continue;
    if (!blocks_[i]) blocks_[i] = std::make_unique<Block>();
    for (size_t k = 0; k < kBlockSize; ++k) (*blocks_[i])[k] += (*other.blocks_[i])[k];
  }
}

std::vector<Bin> Observer::Bins() const {
  std::vector<Bin> bins;
  const double lowest = min(), highest = max();
  const auto add = [&](size_t block, size_t k) {
    const uint64_t n = blocks_[block] ? (*blocks_[block])[k] : 0;
    if (n == 0) return;
    const auto first = static_cast<uint32_t>((block & 255) << 23 | k << (23 - kMantissaBits));
    const uint32_t last = first + (1u << (23 - kMantissaBits));  // of the bin above; infinity at the very end
    double lo = std::bit_cast<float>(first);
    double hi = last >= 0x7f800000u ? 0x1p128 : static_cast<double>(std::bit_cast<float>(last));
    if (first == 0) hi = 0;  // zero, and denormals below 2^-134 which count as zero
    if (block >= 256) {
      lo = -std::exchange(hi, -lo);
    }
    if (lo != hi) {
      lo = std::clamp(lo, lowest, highest);
      hi = std::clamp(hi, lowest, highest);
    }
    bins.push_back({lo, hi, n});
  };
  for (size_t block = kBlocks; block-- > 256;) {
    for (size_t k = kBlockSize; k-- > 0;) add(block, k);
  }
  for (size_t block = 0; block < 256; ++block) {
    for (size_t k = 0; k < kBlockSize; ++k) add(block, k);
  }
  return bins;
}

size_t Observer::bytes() const {
  const auto blocks = static_cast<size_t>(std::ranges::count_if(blocks_, [](const auto& b) { return b != nullptr; }));
  return sizeof(*this) + blocks * sizeof(Block) + channels_.capacity() * sizeof(ChannelRange);
}

bool Observer::operator==(const Observer& other) const {
  std::string a, b;
  AppendTo(a);
  other.AppendTo(b);
  return a == b;
}

// count, samples, min, max, the two sums, then the bins: gap to the bin before, count.
void Observer::AppendTo(std::string& out) const {
  AppendVarint(out, count_);
  AppendVarint(out, samples_);
  AppendVarint(out, std::bit_cast<uint32_t>(min()));
  AppendVarint(out, std::bit_cast<uint32_t>(max()));
  for (const auto* sum : {&sum_min_, &sum_max_}) {
    for (const uint64_t limb : sum->limbs()) AppendVarint(out, limb);
  }
  std::string bins;
  uint64_t number = 0, next = 0;
  for (size_t block = 0; block < kBlocks; ++block) {
    if (!blocks_[block]) continue;
    for (size_t k = 0; k < kBlockSize; ++k) {
      const uint64_t n = (*blocks_[block])[k];
      if (n == 0) continue;
      const uint64_t index = block * kBlockSize + k;
      AppendVarint(bins, index - next);
      AppendVarint(bins, n);
      next = index + 1;
      ++number;
    }
  }
  AppendVarint(out, number);
  out += bins;
  AppendVarint(out, channels_.size());
  for (const ChannelRange& c : channels_) {
    AppendVarint(out, std::bit_cast<uint32_t>(c.lo + 0.0f));  // -0 and 0 are one value: same data, same bytes
    AppendVarint(out, std::bit_cast<uint32_t>(c.hi + 0.0f));
  }
  AppendVarint(out, rows_.size());
  for (const auto& [bin, n] : rows_) {
    AppendVarint(out, bin);
    AppendVarint(out, n);
  }
}

ir::Result<Observer> Observer::Parse(std::string_view& in, bool has_rows) {
  bool ok = true;
  const auto take = [&] {
    const auto v = TakeVarint(in);
    ok &= v.has_value();
    return v.value_or(0);
  };
  Observer o;
  o.count_ = take();
  o.samples_ = take();
  const auto lo = std::bit_cast<float>(static_cast<uint32_t>(take()));
  const auto hi = std::bit_cast<float>(static_cast<uint32_t>(take()));
  for (auto* sum : {&o.sum_min_, &o.sum_max_}) {
    std::array<uint64_t, ExactSum::kLimbs> limbs;
    for (auto& limb : limbs) limb = take();
    sum->set_limbs(limbs);
  }
  ok = ok && std::isfinite(lo) && std::isfinite(hi) && lo <= hi && (o.count_ > 0) == (o.samples_ > 0);
  if (o.count_ > 0) o.min_ = lo, o.max_ = hi;
  uint64_t index = 0, total = 0;
  for (uint64_t left = take(); ok && left > 0; --left) {
    const uint64_t gap = take();
    const uint64_t n = take();
    ok = ok && gap < kBlocks * kBlockSize && index + gap < kBlocks * kBlockSize && n > 0;
    if (!ok) break;
    index += gap;
    const size_t block = index / kBlockSize;
    if (block % 256 == 255) ok = false;
    if (!o.blocks_[block]) o.blocks_[block] = std::make_unique<Block>();
    (*o.blocks_[block])[index % kBlockSize] = n;
    total += n;
    ++index;
  }
  if (!ok || total != o.count_) return ir::Fail("the histogram is damaged");
  const uint64_t channels = take();
  ok = ok && channels <= in.size();  // each takes two bytes at least
  for (uint64_t c = 0; ok && c < channels; ++c) {
    const auto low = std::bit_cast<float>(static_cast<uint32_t>(take()));
    const auto high = std::bit_cast<float>(static_cast<uint32_t>(take()));
    o.channels_.push_back({low, high});
  }
  if (!ok) return ir::Fail("the channel ranges are damaged");
  for (uint64_t left = has_rows ? take() : 0; ok && left > 0; --left) {
    const uint64_t bin = take(), n = take();
    ok = ok && bin < (0x7f800000u >> kRowShift) && n > 0 && o.rows_.emplace(static_cast<uint32_t>(bin), n).second;
  }
  if (!ok) return ir::Fail("the powers of rows are damaged");
  return o;
}

}  // namespace octavo::quant
