// Packing, and the truth of LinearFp8: one output at a time.
#include <algorithm>
#include <format>

#include "octavo/kernels/fp8/fp8.h"
#include "octavo/kernels/gemm/gemm_ref.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::kernels {
namespace {

using quant::DType;

float Accumulate(const GemmInput& x, const PackedFp8& w, int64_t m, int64_t n) {
  const uint8_t* row = static_cast<const uint8_t*>(x.data) + m * x.stride;
  const auto &of_x = Fp8Values(x.dtype), &of_w = Fp8Values(w.dtype());
  float acc = 0.0f;
  for (int64_t k = 0; k < w.k(); ++k) acc += of_x[row[k]] * of_w[w.At(k, n)];
  return acc;
}

void Reference(const GemmInput& x, const Fp8Output& out, Range rows, int64_t begin, int64_t end) {
  const GemmOutput& y = out.y;
  for (int64_t m = rows.begin; m < rows.end; ++m) {
    for (int64_t n = begin; n < end; ++n) {
      const float scale = x.scale * y.w_scale[y.w_scale_per_column ? n : 0];
      internal::FinishReference(y, m, n, Accumulate(x, *out.w, m, n) * scale);
    }
  }
}

}  // namespace

const std::array<float, 256>& Fp8Values(DType t) {
  static const auto make = [](DType type) {
    std::array<float, 256> values{};
    for (size_t i = 0; i < 256; ++i) values[i] = quant::Fp8ToF32(static_cast<uint8_t>(i), type);
    return values;
  };
  static const std::array<float, 256> e4m3 = make(DType::kE4M3FN), e5m2 = make(DType::kE5M2);
  return t == DType::kE4M3FN ? e4m3 : e5m2;
}

std::optional<PackedFp8> PackedFp8::Of(const WeightSource& s, std::span<const WeightBytes> arrays) {
  if (arrays.size() != kArrays || !quant::IsFp8(s.dtype) || s.k <= 0 || s.n <= 0) return {};
  auto data = WeightArray<uint8_t>::View(arrays[0], static_cast<size_t>(ColumnBlocks(s.n) * s.k * 64));
  if (!data) return {};
  PackedFp8 w;
  w.k_ = s.k;
  w.n_ = s.n;
  w.dtype_ = s.dtype;
  w.data_ = std::move(*data);
  return w;
}

std::expected<PackedFp8, std::string> PackFp8(const WeightSource& s) {
  if (!quant::IsFp8(s.dtype)) return std::unexpected(std::format("the weights are {}, not fp8", Name(s.dtype)));
  if (s.k <= 0 || s.n <= 0) return std::unexpected(std::format("the weights are an empty matrix, {} x {}", s.k, s.n));
  PackedFp8 w;
  w.k_ = s.k;
  w.n_ = s.n;
  w.dtype_ = s.dtype;
  w.data_ = WeightArray<uint8_t>(static_cast<size_t>(ColumnBlocks(s.n) * s.k * 64));
  const auto* codes = static_cast<const uint8_t*>(s.data);
  for (int64_t n = 0; n < s.n; ++n) {
    uint8_t* to = w.data_.data() + n / 64 * s.k * 64 + n % 32 * 2 + n % 64 / 32;
    for (int64_t k = 0; k < s.k; ++k) {
      const uint8_t code = codes[s.transposed ? n * s.k + k : k * s.n + n];
      if (s.dtype == DType::kE4M3FN && (code & 0x7f) == 0x7f) {
        return std::unexpected(std::format("weight ({}, {}) is not a number", k, n));
      }
      to[k * 64] = code;
    }
  }
  return w;
}

int64_t Fp8Blocks(const Fp8Args& args) {
  int64_t blocks = 0;
  for (int i = 0; i < args.count; ++i) blocks += ColumnBlocks(args.out[i].w->n());
  return blocks;
}

void LinearFp8Reference(const Fp8Args& args, Range rows, Range blocks) {
  int64_t first = 0;  // block at which output i begins
  for (int i = 0; i < args.count; ++i) {
    const int64_t n = args.out[i].w->n();
    const int64_t begin = std::max<int64_t>(blocks.begin - first, 0) * kColumnBlock;
    Reference(args.x, args.out[i], rows, begin, std::min(n, (blocks.end - first) * kColumnBlock));
    first += ColumnBlocks(n);
  }
}

}  // namespace octavo::kernels
