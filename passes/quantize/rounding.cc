#include "octavo/passes/quantize/rounding.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "octavo/quant/numeric/code8.h"
#include "octavo/quant/numeric/qparams.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

void Put(Tensor& t, int64_t i, int32_t code) {
  auto bytes = t.mutable_as<uint8_t>();
  if (quant::BitsOf(t.dtype()) == 8) {
    bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(code);
  } else {
    bytes[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>((code & 15) << (i % 2 * 4));
  }
}

// A block of a few columns, 0 where the matrix has ended.
constexpr int64_t kColumns = 16, kLongestBlock = 64;
struct Part {
  float w[kLongestBlock][kColumns] = {};
  float weight[kLongestBlock];  // of the squared error of a row
  float scale[kColumns];
  int32_t zero[kColumns];
};

// The scales on entry are those of the whole range.
void SearchScales(int64_t rows, int32_t lowest, int32_t highest, Part& part) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding and taking it off rounds to nearest even
  float best[kColumns] = {}, found[kColumns], lo[kColumns], hi[kColumns];
  for (int64_t c = 0; c < kColumns; ++c) {
    found[c] = part.scale[c];
    lo[c] = static_cast<float>(lowest - part.zero[c]), hi[c] = static_cast<float>(highest - part.zero[c]);
  }
  for (const float share : {1.0f, 1.05f, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 0.7f}) {
    float wc[kColumns] = {}, cc[kColumns] = {}, per_step[kColumns];
    for (int64_t c = 0; c < kColumns; ++c) per_step[c] = 1.0f / (part.scale[c] * share);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = 0; c < kColumns; ++c) {
        const float x = part.w[i][c], step = std::min(std::max(x * per_step[c], lo[c]), hi[c]);
        const float code = (step + kRound) - kRound;
        wc[c] += part.weight[i] * x * code, cc[c] += part.weight[i] * code * code;
      }
    }
    for (int64_t c = 0; c < kColumns; ++c) {
      const float score = cc[c] > 0.0f ? wc[c] * (wc[c] / cc[c]) : 0.0f;
      if (!(score > best[c])) continue;
      best[c] = score, found[c] = wc[c] / cc[c];
    }
  }
  for (int64_t c = 0; c < kColumns; ++c) {
    // A column of denormals or of the largest floats keeps its range: products of theirs are not numbers that can be compared.
    if (std::isnormal(found[c]) && found[c] > 0.0f && std::isfinite(best[c])) part.scale[c] = found[c];
  }
}

// Fills a part's scales and zero points.
void ChooseScales(int64_t rows, BlockFormat f, int32_t lowest, int32_t highest, Part& part) {
  for (int64_t c = 0; c < kColumns; ++c) {
    float lo = 0.0f, hi = 0.0f;
    for (int64_t i = 0; i < rows; ++i) lo = std::min(lo, part.w[i][c]), hi = std::max(hi, part.w[i][c]);
    const quant::QParams p =
        lowest < 0 ? quant::SymmetricParams(lo, hi, f.dtype) : quant::AffineParams(lo, hi, f.dtype);
    part.scale[c] = p.scale, part.zero[c] = p.zero_point;
  }
  if (quant::BitsOf(f.dtype) == 4) SearchScales(rows, lowest, highest, part);
}

// Some columns of a matrix: blocks from the last to the first, in them rows from the last to the first; without `fit` each weight is on its own.
class BlockQuantizer {
 public:
  struct Columns {
    int64_t begin, count;
  };
  // scales: of the columns of the matrix; empty: each block chooses its own.
  BlockQuantizer(const Tensor& w, BlockFormat f, int32_t lowest, int32_t highest, std::span<const float> scales,
                 const Compensation* fit, Columns columns)
      : f_(f),
        fit_(fit),
        k_(w.shape()[0]),
        n_(w.shape()[1]),
        columns_(columns),
        x_(w.as<float>()),
        scales_(scales),
        lowest_(lowest),
        highest_(highest) {
    if (fit == nullptr) return;
    errors_.resize(static_cast<size_t>(k_ * columns.count));
    owed_.resize(static_cast<size_t>(f.block * columns.count));
  }

  double error() const { return error_; }

  Status Run(Blocked& out) {
    for (int64_t b = (k_ + f_.block - 1) / f_.block - 1; b >= 0; --b) {
      begin_ = b * f_.block, rows_ = std::min(k_ - begin_, f_.block);
      if (fit_ != nullptr) Owed(*fit_, k_, {begin_, begin_ + rows_}, errors_.data(), columns_.count, owed_.data());
      for (int64_t first = 0; first < columns_.count; first += kColumns) {
        const int64_t count = std::min(kColumns, columns_.count - first);
        Part part = Fill(first, count);
        if (scales_.empty()) {
          ChooseScales(rows_, f_, lowest_, highest_, part);
        } else {
          GiveScales(first, count, part);
        }
        for (int64_t c = 0; c < count; ++c) {
          const int64_t at = b * n_ + columns_.begin + first + c;
          out.scale.mutable_as<float>()[static_cast<size_t>(at)] = part.scale[c];
          Put(out.zero, at, part.zero[c]);
        }
        for (int64_t i = rows_ - 1; i >= 0; --i) RoundRow(i, first, count, part, out.codes);
      }
    }
    return {};
  }

 private:
  Part Fill(int64_t first, int64_t count) const {
    Part part;
    for (int64_t i = 0; i < rows_; ++i) {
      part.weight[i] = fit_ != nullptr ? fit_->weight[static_cast<size_t>(begin_ + i)] : 1.0f;
      for (int64_t c = 0; c < count; ++c) {
        const float owed = fit_ != nullptr ? owed_[static_cast<size_t>(i * columns_.count + first + c)] : 0.0f;
        part.w[i][c] = x_[static_cast<size_t>((begin_ + i) * n_ + columns_.begin + first + c)] + owed;
      }
    }
    return part;
  }

  void GiveScales(int64_t first, int64_t count, Part& part) const {
    for (int64_t c = 0; c < kColumns; ++c) {
      part.scale[c] = scales_[static_cast<size_t>(columns_.begin + first + std::min(c, count - 1))], part.zero[c] = 0;
    }
  }

  struct Code {
    int32_t code;
    float steps;  // of the scale
  };
  Code Nearest(float x, float scale, int32_t zero) const {
    if (quant::IsFp8(f_.dtype)) {
      const uint8_t code = quant::QuantizeFp8One(x, scale, f_.dtype);
      return {code, quant::Fp8ToF32(code, f_.dtype)};
    }
    const int32_t code = quant::QuantizeOne(x, scale, zero, lowest_, highest_);
    return {code, static_cast<float>(code - zero)};
  }

  // What the row loses goes to those above it in the block.
  void RoundRow(int64_t i, int64_t first, int64_t count, Part& part, Tensor& codes) {
    float lost[kColumns] = {};
    for (int64_t c = 0; c < count; ++c) {
      const int64_t at = (begin_ + i) * n_ + columns_.begin + first + c;
      const auto [code, steps] = Nearest(part.w[i][c], part.scale[c], part.zero[c]);
      Put(codes, at, code);
      lost[c] = x_[static_cast<size_t>(at)] - steps * part.scale[c];
      const double off = part.w[i][c] - steps * part.scale[c];
      error_ += static_cast<double>(part.weight[i]) * off * off;
      if (fit_ != nullptr) errors_[static_cast<size_t>((begin_ + i) * columns_.count + first + c)] = lost[c];
    }
    for (int64_t above = 0; fit_ != nullptr && above < i; ++above) {
      const float share = fit_->v[static_cast<size_t>((begin_ + above) * k_ + begin_ + i)];
      for (int64_t c = 0; c < kColumns; ++c) part.w[above][c] += share * lost[c];
    }
  }

  BlockFormat f_;
  const Compensation* fit_;
  int64_t k_, n_;
  Columns columns_;
  std::span<const float> x_;
  std::span<const float> scales_;
  int32_t lowest_, highest_;
  std::vector<float> errors_;  // [k] of its columns, in the rows that have codes
  std::vector<float> owed_;    // [block][n]
  int64_t begin_ = 0, rows_ = 0;
  double error_ = 0;
};

// Columns do not know of each other. They are cut by shape, not by threads, so that products of floats have the same bits for any number.
Result<Blocked> Round(const Tensor& w, BlockFormat f, int32_t lowest, int32_t highest, std::span<const float> scales,
                      const Compensation* fit, const ParallelFor& parallel) {
  const int64_t k = w.shape()[0], n = w.shape()[1], blocks = (k + f.block - 1) / f.block;
  Blocked out{Tensor::Zeros(f.dtype, {k, n}), Tensor::Empty(DType::kF32, {blocks, n}),
              Tensor::Zeros(f.dtype, {blocks, n})};
  const bool shares_bytes =
      quant::BitsOf(f.dtype) == 4 && n % 2 != 0;  // the last code of a row and the first of the next
  const int64_t at_once = shares_bytes ? n : 256;
  std::mutex lock;
  Status status;
  std::vector<double> errors(static_cast<size_t>((n + at_once - 1) / at_once));
  parallel((n + at_once - 1) / at_once, [&](int64_t part) {
    const int64_t begin = part * at_once;
    BlockQuantizer columns(w, f, lowest, highest, scales, fit, {begin, std::min(at_once, n - begin)});
    const Status done = columns.Run(out);
    errors[static_cast<size_t>(part)] = columns.error();
    const std::lock_guard guard(lock);
    if (!done) status = done;
  });
  if (!status) return std::unexpected(status.error());
  for (const double error : errors) out.error += error;
  return out;
}

}  // namespace

Result<Blocked> RoundInBlocks(const Tensor& w, BlockFormat format, const Compensation* fit,
                              const ParallelFor& parallel) {
  const quant::IntRange range = quant::RangeOf(format.dtype);
  const auto highest = static_cast<int32_t>(range.hi);
  return Round(w, format, range.lo < 0 ? -highest : 0, highest, {}, fit, parallel);
}

Result<Tensor> RoundColumns(const Tensor& w, std::span<const float> scales, ColumnFormat format,
                            const Compensation& fit, const ParallelFor& parallel) {
  const int limit = format.limit;
  OCTAVO_TRY(Blocked q, Round(w, {format.dtype, kLongestBlock}, -limit, limit, scales, &fit, parallel));
  return std::move(q.codes);
}

}  // namespace octavo::passes::quantize
