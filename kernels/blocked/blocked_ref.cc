// Packing, and the truth of GemmBlocked: one output at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <format>

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

}  // namespace

std::expected<PackedBlocked, std::string> PackBlocked(const BlockedSource& s) {
  if (std::string why = Refusal(s); !why.empty()) return std::unexpected(std::move(why));
  PackedBlocked p;
  p.k_ = s.k;
  p.n_ = s.n;
  p.block_ = s.block;
  p.bits_ = quant::IsInt8(s.dtype) ? 8 : 4;
  const int64_t blocks = p.blocks(), panels = p.panels();
  const auto middle = static_cast<uint8_t>(1 << (p.bits_ - 1));
  p.data_ = WeightArray<uint8_t>(static_cast<size_t>(panels * blocks * p.record_bytes()));
  AlignedArray<uint8_t> zeros(static_cast<size_t>(panels * blocks * 16));
  std::memset(zeros.data(), middle, zeros.size());
  const int zero_code = s.dtype == DType::kS4 ? 8 : s.dtype == DType::kS8 ? 128 : 0;  // of the number 0
  bool all_middle = true;
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t b = 0; b < blocks; ++b) {
      uint8_t* record = p.data_.data() + ((n / 16) * blocks + b) * p.record_bytes();
      const int64_t parameter = s.transposed ? n * blocks + b : b * s.n + n;
      std::memcpy(record + n % 16 * 4, s.scale + parameter, 4);
      const int zero = s.zero_point == nullptr ? zero_code : CodeAt(s.zero_point, s.dtype, parameter);
      zeros.data()[((n / 16) * blocks + b) * 16 + n % 16] = static_cast<uint8_t>(zero);
      all_middle = all_middle && zero == middle;
      for (int64_t k = b * s.block; k < std::min(s.k, (b + 1) * s.block); ++k) {
        const int code = CodeAt(s.data, s.dtype, s.transposed ? n * s.k + k : k * s.n + n);
        PutCode(record + 64, p.bits_, k - b * s.block, n % 16, code);
      }
    }
  }
  if (!all_middle) p.zeros_ = std::move(zeros);
  return p;
}

void GemmBlockedReference(const BlockedArgs& args, Range rows, Range blocks) {
  const PackedBlocked& w = *args.w;
  const int64_t end = std::min(w.n(), blocks.end * kColumnBlock);
  for (int64_t m = rows.begin; m < rows.end; ++m) {
    for (int64_t n = blocks.begin * kColumnBlock; n < end; ++n) {
      const float* x = args.x + m * args.x_stride;
      float y = 0.0f;
      for (int64_t b = 0; b < w.blocks(); ++b) {
        float sum = 0.0f;
        for (int64_t i = 0; i < std::min(w.block(), w.k() - b * w.block()); ++i) {
          sum = std::fma(static_cast<float>(w.Code(b, i, n) - w.Zero(b, n)), x[b * w.block() + i], sum);
        }
        y = std::fma(sum, w.Scale(b, n), y);
      }
      args.y[m * args.y_stride + n] = args.bias == nullptr ? y : y + args.bias[n];
    }
  }
}

}  // namespace octavo::kernels
