// Weights in blocks as the products read them. Whole groups of 8 codes (4 of a byte) of 16 columns are turned a word at a time; what is left
// goes code by code.
#include <algorithm>
#include <array>
#include <cstring>
#include <format>
#include <utility>

#include "octavo/kernels/blocked/blocked.h"

namespace octavo::kernels {

using quant::DType;

namespace {

// Element `i` as an unsigned code: the signed types are moved up by half of their range.
int CodeAt(const void* data, DType dtype, int64_t i) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  switch (dtype) {
    case DType::kU4:
      return (bytes[i / 2] >> (i % 2 * 4)) & 15;
    case DType::kS4:
      return ((bytes[i / 2] >> (i % 2 * 4)) & 15) ^ 8;
    case DType::kU8:
      return bytes[i];
    default:
      return bytes[i] ^ 128;
  }
}

void PutCode(uint8_t* codes, int bits, int64_t i, int64_t n, int code) {
  if (bits == 8) {
    codes[(i / 4) * 64 + n * 4 + i % 4] = static_cast<uint8_t>(code);
  } else {
    codes[(i / 8) * 64 + n * 4 + i % 8 / 2] |= static_cast<uint8_t>(code << (i % 2 * 4));
  }
}

std::string Refusal(const BlockedSource& s) {
  const bool known = s.dtype == DType::kU4 || s.dtype == DType::kS4 || quant::IsInt8(s.dtype);
  if (!known) return std::format("blocked weights are {}; the kernels take 4- and 8-bit integers", Name(s.dtype));
  if (s.k <= 0 || s.n <= 0) return std::format("the weight matrix of {} x {} is empty", s.k, s.n);
  if (s.block < 16 || s.block > 1024 || s.block % 16 != 0) {
    return std::format("blocks of {}; the kernels take multiples of 16 up to 1024", s.block);
  }
  return {};
}

// 16 columns of a group of k: a word of each, the first k in its low bits.
using Words = std::array<uint32_t, 16>;

// Rows of 8 bytes, 16 nibbles, `stride` bytes apart.
void TurnNibbles(const uint8_t* rows, int64_t stride, Words& words) {
  std::array<uint32_t, 8> even{}, odd{};
  for (int r = 0; r < 8; ++r) {
    for (int j = 0; j < 8; ++j) {
      const uint32_t byte = rows[r * stride + j];
      even[j] |= (byte & 15) << (4 * r);
      odd[j] |= (byte >> 4) << (4 * r);
    }
  }
  for (int j = 0; j < 8; ++j) words[2 * j] = even[j], words[2 * j + 1] = odd[j];
}

// Rows of 16 bytes.
void TurnBytes(const uint8_t* rows, int64_t stride, Words& words) {
  for (int j = 0; j < 16; ++j) {
    uint32_t word = 0;
    for (int r = 0; r < 4; ++r) word |= static_cast<uint32_t>(rows[r * stride + j]) << (8 * r);
    words[j] = word;
  }
}

// Columns of consecutive codes, `stride` bytes apart.
void TakeColumns(const uint8_t* columns, int64_t stride, Words& words) {
  for (int j = 0; j < 16; ++j) std::memcpy(&words[j], columns + j * stride, 4);
}

class Packer {
 public:
  Packer(const BlockedSource& s, int bits) : s_(s), bits_(bits), group_(32 / bits) {
    const int64_t line = s.transposed ? s.k : s.n;
    whole_bytes_ = line * bits % 8 == 0;
    if (s.dtype == DType::kS4) flip_ = 0x88888888;
    if (s.dtype == DType::kS8) flip_ = 0x80808080;
  }

  // Rows [begin, end) of columns [n, n + columns), into the codes of their record, which are zeros.
  void Pack(int64_t begin, int64_t end, int64_t n, int64_t columns, uint8_t* codes) const {
    int64_t k = begin;
    if (columns == 16 && whole_bytes_) {
      for (; k + group_ <= end; k += group_) {
        Words words;
        Turn(k, n, words);
        for (uint32_t& word : words) word ^= flip_;
        std::memcpy(codes + (k - begin) / group_ * 64, words.data(), 64);
      }
    }
    for (; k < end; ++k) {
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t at = s_.transposed ? (n + j) * s_.k + k : k * s_.n + n + j;
        PutCode(codes, bits_, k - begin, j, CodeAt(s_.data, s_.dtype, at));
      }
    }
  }

 private:
  void Turn(int64_t k, int64_t n, Words& words) const {
    const auto* bytes = static_cast<const uint8_t*>(s_.data);
    if (s_.transposed) return TakeColumns(bytes + (n * s_.k + k) * bits_ / 8, s_.k * bits_ / 8, words);
    const uint8_t* rows = bytes + (k * s_.n + n) * bits_ / 8;
    bits_ == 4 ? TurnNibbles(rows, s_.n / 2, words) : TurnBytes(rows, s_.n, words);
  }

  const BlockedSource& s_;
  int bits_;
  int64_t group_;            // codes of a word
  bool whole_bytes_ = true;  // each row, or column, begins with a byte
  uint32_t flip_ = 0;
};

}  // namespace

PackedBlocked PackedBlocked::FormOf(const BlockedSource& s) {
  PackedBlocked p;
  p.k_ = s.k;
  p.n_ = s.n;
  p.block_ = s.block;
  p.bits_ = quant::IsInt8(s.dtype) ? 8 : 4;
  return p;
}

std::optional<PackedBlocked> PackedBlocked::Of(const BlockedSource& s, std::span<const WeightBytes> arrays) {
  if (arrays.size() != kArrays || !Refusal(s).empty()) return {};
  PackedBlocked p = FormOf(s);
  const auto records = static_cast<size_t>(p.panels() * p.blocks());
  auto data = WeightArray<uint8_t>::View(arrays[0], records * static_cast<size_t>(p.record_bytes()));
  auto zeros = WeightArray<uint8_t>::View(arrays[1], arrays[1].size == 0 ? 0 : records * 16);
  if (!data || !zeros) return {};
  p.data_ = std::move(*data), p.zeros_ = std::move(*zeros);
  return p;
}

std::expected<PackedBlocked, std::string> PackBlocked(const BlockedSource& s) {
  if (std::string why = Refusal(s); !why.empty()) return std::unexpected(std::move(why));
  PackedBlocked p = PackedBlocked::FormOf(s);
  const int64_t blocks = p.blocks(), panels = p.panels();
  const auto middle = static_cast<uint8_t>(1 << (p.bits_ - 1));
  p.data_ = WeightArray<uint8_t>(static_cast<size_t>(panels * blocks * p.record_bytes()));
  AlignedArray<uint8_t> zeros(static_cast<size_t>(panels * blocks * 16));
  std::memset(zeros.data(), middle, zeros.size());
  const int zero_code = s.dtype == DType::kS4 ? 8 : s.dtype == DType::kS8 ? 128 : 0;  // of the number 0
  const Packer packer(s, p.bits_);
  bool all_middle = true;
  const auto pack = [&](int64_t panel, int64_t b) {
    const int64_t first = panel * 16, columns = std::min<int64_t>(16, s.n - first);
    uint8_t* record = p.data_.data() + (panel * blocks + b) * p.record_bytes();
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t parameter = s.transposed ? (first + j) * blocks + b : b * s.n + first + j;
      std::memcpy(record + j * 4, s.scale + parameter, 4);
      const int zero = s.zero_point == nullptr ? zero_code : CodeAt(s.zero_point, s.dtype, parameter);
      zeros.data()[(panel * blocks + b) * 16 + j] = static_cast<uint8_t>(zero);
      all_middle = all_middle && zero == middle;
    }
    packer.Pack(b * s.block, std::min(s.k, (b + 1) * s.block), first, columns, record + 64);
  };
  // As the source lies.
  for (int64_t i = 0; i < panels * blocks; ++i)
    s.transposed ? pack(i / blocks, i % blocks) : pack(i % panels, i / panels);
  if (all_middle) return p;
  p.zeros_ = WeightArray<uint8_t>(zeros.size());
  std::memcpy(p.zeros_.data(), zeros.data(), zeros.size());
  return p;
}

}  // namespace octavo::kernels
