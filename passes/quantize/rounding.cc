#include "octavo/passes/quantize/rounding.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "octavo/passes/quantize/parts.h"
#include "octavo/quant/numeric/code8.h"
#include "octavo/quant/numeric/qparams.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

void Put(Tensor& t, int64_t i, int32_t code) {
  auto bytes = t.mutable_as<uint8_t>();
  if (quant::BitsOf(t.dtype()) == 8) {
    bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(code);
  } else {
    bytes[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>((code & 15) << (i % 2 * 4));
  }
}

int64_t ColumnsAtOnce(DType dtype, int64_t n) {
  const bool shares_bytes =
      quant::BitsOf(dtype) == 4 && n % 2 != 0;  // the last code of a row and the first of the next
  return shares_bytes ? n : 256;
}

namespace {

// The scales on entry are those of the whole range.
void SearchScales(int32_t lowest, int32_t highest, Part& part) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding and taking it off rounds to nearest even
  float best[kColumns] = {}, found[kColumns], lo[kColumns], hi[kColumns];
  for (int64_t c = 0; c < kColumns; ++c) {
    found[c] = part.scale[c];
    lo[c] = static_cast<float>(lowest - part.zero[c]), hi[c] = static_cast<float>(highest - part.zero[c]);
  }
  for (const float share : {1.0f, 1.05f, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 0.7f}) {
    float wc[kColumns] = {}, cc[kColumns] = {}, per_step[kColumns];
    for (int64_t c = 0; c < kColumns; ++c) per_step[c] = 1.0f / (part.scale[c] * share);
    for (int64_t i = 0; i < part.rows; ++i) {
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

// By the range of each block.
void ScalesOfRange(const PartFormat& f, Part& part) {
  for (int64_t c = 0; c < kColumns; ++c) {
    float lo = 0.0f, hi = 0.0f;
    for (int64_t i = 0; i < part.rows; ++i) lo = std::min(lo, part.w[i][c]), hi = std::max(hi, part.w[i][c]);
    const quant::QParams p =
        f.lowest < 0 ? quant::SymmetricParams(lo, hi, f.dtype) : quant::AffineParams(lo, hi, f.dtype);
    part.scale[c] = p.scale, part.zero[c] = p.zero_point;
  }
  if (quant::BitsOf(f.dtype) == 4) SearchScales(f.lowest, f.highest, part);
}

// Some columns of a matrix.
class PartQuantizer {
 public:
  struct Columns {
    int64_t begin, count;
  };
  PartQuantizer(const Tensor& w, const PartFormat& f, const ChooseScales& choose, const Compensation* fit,
                Columns columns)
      : f_(f), choose_(choose), fit_(fit), k_(w.shape()[0]), n_(w.shape()[1]), columns_(columns), x_(w.as<float>()) {
    if (fit == nullptr) return;
    errors_.resize(static_cast<size_t>(k_ * columns.count));
    owed_.resize(static_cast<size_t>(f.block * columns.count));
  }

  double error() const { return error_; }

  void Run(Tensor& codes) {
    for (int64_t b = (k_ + f_.block - 1) / f_.block - 1; b >= 0; --b) {
      begin_ = b * f_.block, rows_ = std::min(k_ - begin_, f_.block);
      if (fit_ != nullptr) Owed(*fit_, k_, {begin_, begin_ + rows_}, errors_.data(), columns_.count, owed_.data());
      for (int64_t first = 0; first < columns_.count; first += kColumns) {
        Part part = Fill(b, first, std::min(kColumns, columns_.count - first));
        choose_(part);
        for (int64_t i = rows_ - 1; i >= 0; --i) RoundRow(i, first, part, codes);
      }
    }
  }

 private:
  Part Fill(int64_t block, int64_t first, int64_t count) const {
    Part part;
    part.block = block, part.first = columns_.begin + first, part.count = count, part.rows = rows_;
    for (int64_t i = 0; i < rows_; ++i) {
      part.weight[i] = fit_ != nullptr ? fit_->weight[static_cast<size_t>(begin_ + i)] : 1.0f;
      for (int64_t c = 0; c < count; ++c) {
        const float owed = fit_ != nullptr ? owed_[static_cast<size_t>(i * columns_.count + first + c)] : 0.0f;
        part.w[i][c] = x_[static_cast<size_t>((begin_ + i) * n_ + part.first + c)] + owed;
      }
    }
    return part;
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
    const int32_t code = quant::QuantizeOne(x, scale, zero, f_.lowest, f_.highest);
    return {code, static_cast<float>(code - zero)};
  }

  // What the row loses goes to those above it in the block.
  void RoundRow(int64_t i, int64_t first, Part& part, Tensor& codes) {
    float lost[kColumns] = {};
    for (int64_t c = 0; c < part.count; ++c) {
      const int64_t at = (begin_ + i) * n_ + part.first + c;
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

  const PartFormat& f_;
  const ChooseScales& choose_;
  const Compensation* fit_;
  int64_t k_, n_;
  Columns columns_;
  std::span<const float> x_;
  std::vector<float> errors_;  // [k] of its columns, in the rows that have codes
  std::vector<float> owed_;    // [block][n]
  int64_t begin_ = 0, rows_ = 0;
  double error_ = 0;
};

}  // namespace

// Columns do not know of each other.
RoundedParts RoundInParts(const Tensor& w, PartFormat format, const ChooseScales& choose, const Compensation* fit,
                          const ParallelFor& parallel) {
  const int64_t n = w.shape()[1], at_once = ColumnsAtOnce(format.dtype, n), tasks = (n + at_once - 1) / at_once;
  RoundedParts out{Tensor::Zeros(format.dtype, w.shape())};
  std::vector<double> errors(static_cast<size_t>(tasks));
  parallel(tasks, [&](int64_t task) {
    const int64_t begin = task * at_once;
    PartQuantizer columns(w, format, choose, fit, {begin, std::min(at_once, n - begin)});
    columns.Run(out.codes);
    errors[static_cast<size_t>(task)] = columns.error();
  });
  for (const double error : errors) out.error += error;
  return out;
}

Result<Blocked> RoundInBlocks(const Tensor& w, BlockFormat format, const Compensation* fit,
                              const ParallelFor& parallel) {
  const quant::IntRange range = quant::RangeOf(format.dtype);
  const auto highest = static_cast<int32_t>(range.hi);
  const PartFormat f{format.dtype, format.block, range.lo < 0 ? -highest : 0, highest};
  const int64_t n = w.shape()[1], blocks = (w.shape()[0] + format.block - 1) / format.block;
  Blocked out{{}, Tensor::Empty(DType::kF32, {blocks, n}), Tensor::Zeros(format.dtype, {blocks, n})};
  const ChooseScales choose = [&](Part& part) {
    ScalesOfRange(f, part);
    for (int64_t c = 0; c < part.count; ++c) {
      const int64_t at = part.block * n + part.first + c;
      out.scale.mutable_as<float>()[static_cast<size_t>(at)] = part.scale[c];
      Put(out.zero, at, part.zero[c]);
    }
  };
  RoundedParts rounded = RoundInParts(w, f, choose, fit, parallel);
  out.codes = std::move(rounded.codes), out.error = rounded.error;
  return out;
}

Result<Tensor> RoundColumns(const Tensor& w, std::span<const float> scales, ColumnFormat format,
                            const Compensation& fit, const ParallelFor& parallel) {
  const ChooseScales given = [&](Part& part) {
    for (int64_t c = 0; c < kColumns; ++c)
      part.scale[c] = scales[static_cast<size_t>(part.first + std::min(c, part.count - 1))], part.zero[c] = 0;
  };
  const PartFormat f{format.dtype, kLongestBlock, -format.limit, format.limit};
  return RoundInParts(w, f, given, &fit, parallel).codes;
}

}  // namespace octavo::passes::quantize
