// Weight-only quantization: W of MatMul(x, W) becomes DequantizeLinear in blocks along k; activations stay float.
//
//   weights4            u4, blocks of 32, each with its own zero point: the range of a block is rarely symmetric, and of 15
//                       steps none is to be wasted
//   weights4_symmetric  s4, the same without zero points: 4.5 instead of 4.63 bits a weight in the file
//   weights8            s8, blocks of 64, symmetric
//
// 4 bits: of 8 ranges around that of the block the one whose codes c are nearest to w, that is with the largest (w c)^2 / (c c), and
// then the scale of least squares, (w c) / (c c). A tenth less squared error than the range itself; nothing at run time. With
// calibration data codes make up for each other's errors (moments.h). Without, nothing is calibrated.
#include <algorithm>
#include <cmath>
#include <format>
#include <map>

#include "octavo/passes/attention.h"
#include "octavo/passes/quantize/moments.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

struct Format {
  DType dtype;
  int64_t block;
};

struct Blocked {
  Tensor codes, scale, zero;
};

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
void ChooseScales(int64_t rows, Format f, int32_t lowest, int32_t highest, Part& part) {
  for (int64_t c = 0; c < kColumns; ++c) {
    float lo = 0.0f, hi = 0.0f;
    for (int64_t i = 0; i < rows; ++i) lo = std::min(lo, part.w[i][c]), hi = std::max(hi, part.w[i][c]);
    const quant::QParams p =
        lowest < 0 ? quant::SymmetricParams(lo, hi, f.dtype) : quant::AffineParams(lo, hi, f.dtype);
    part.scale[c] = p.scale, part.zero[c] = p.zero_point;
  }
  if (quant::BitsOf(f.dtype) == 4) SearchScales(rows, lowest, highest, part);
}

// Blocks from the last to the first, in them rows from the last to the first; without `fit` each weight is on its own.
class BlockQuantizer {
 public:
  BlockQuantizer(const Tensor& w, Format f, const Compensation* fit)
      : f_(f), fit_(fit), k_(w.shape()[0]), n_(w.shape()[1]), x_(w.as<float>()) {
    const quant::IntRange range = quant::RangeOf(f.dtype);
    highest_ = static_cast<int32_t>(range.hi);
    lowest_ = range.lo < 0 ? -highest_ : 0;
    if (fit == nullptr) return;
    errors_.resize(x_.size());
    owed_.resize(static_cast<size_t>(f.block * n_));
  }

  Result<Blocked> Run() {
    const int64_t blocks = (k_ + f_.block - 1) / f_.block;
    Blocked out{Tensor::Zeros(f_.dtype, {k_, n_}), Tensor::Empty(DType::kF32, {blocks, n_}),
                Tensor::Zeros(f_.dtype, {blocks, n_})};
    for (int64_t b = blocks - 1; b >= 0; --b) {
      begin_ = b * f_.block, rows_ = std::min(k_ - begin_, f_.block);
      if (fit_ != nullptr) {
        OCTAVO_TRY_STATUS(Owed(*fit_, k_, {begin_, begin_ + rows_}, errors_.data(), n_, owed_.data()));
      }
      for (int64_t first = 0; first < n_; first += kColumns) {
        const int64_t count = std::min(kColumns, n_ - first);
        Part part = Fill(first, count);
        ChooseScales(rows_, f_, lowest_, highest_, part);
        for (int64_t c = 0; c < count; ++c) {
          out.scale.mutable_as<float>()[static_cast<size_t>(b * n_ + first + c)] = part.scale[c];
          Put(out.zero, b * n_ + first + c, part.zero[c]);
        }
        for (int64_t i = rows_ - 1; i >= 0; --i) RoundRow(i, first, count, part, out.codes);
      }
    }
    return out;
  }

 private:
  Part Fill(int64_t first, int64_t count) const {
    Part part;
    for (int64_t i = 0; i < rows_; ++i) {
      part.weight[i] = fit_ != nullptr ? fit_->weight[static_cast<size_t>(begin_ + i)] : 1.0f;
      for (int64_t c = 0; c < count; ++c) {
        const float owed = fit_ != nullptr ? owed_[static_cast<size_t>(i * n_ + first + c)] : 0.0f;
        part.w[i][c] = x_[static_cast<size_t>((begin_ + i) * n_ + first + c)] + owed;
      }
    }
    return part;
  }

  // What the row loses goes to those above it in the block.
  void RoundRow(int64_t i, int64_t first, int64_t count, Part& part, Tensor& codes) {
    float lost[kColumns] = {};
    for (int64_t c = 0; c < count; ++c) {
      const int64_t at = (begin_ + i) * n_ + first + c;
      const int32_t code = quant::QuantizeOne(part.w[i][c], part.scale[c], part.zero[c], lowest_, highest_);
      Put(codes, at, code);
      lost[c] = x_[static_cast<size_t>(at)] - static_cast<float>(code - part.zero[c]) * part.scale[c];
      if (fit_ != nullptr) errors_[static_cast<size_t>(at)] = lost[c];
    }
    for (int64_t above = 0; fit_ != nullptr && above < i; ++above) {
      const float share = fit_->v[static_cast<size_t>((begin_ + above) * k_ + begin_ + i)];
      for (int64_t c = 0; c < kColumns; ++c) part.w[above][c] += share * lost[c];
    }
  }

  Format f_;
  const Compensation* fit_;
  int64_t k_, n_;
  std::span<const float> x_;
  int32_t lowest_, highest_;
  std::vector<float> errors_;  // [k][n], of the rows that have codes
  std::vector<float> owed_;    // [block][n]
  int64_t begin_ = 0, rows_ = 0;
};

// Empty, or why the weight stays float. Ranges must not overflow, and a scale must not vanish.
std::string WhyFloat(const Tensor& w) {
  if (w.shape()[0] < 16) return std::format("its k is {}, less than a block of 16", w.shape()[0]);
  for (float v : w.as<float>()) {
    if (!(std::fabs(v) <= 1e37f)) return "its weight has values that are not finite or beyond 1e37";
  }
  return {};
}

struct Linear {
  NodeId id;
  ValueId x, w;
};

// What the data says of the activations of Linears, 1 GB of second moments at a time, or one.
class Fits {
 public:
  // Linears of one activation stand together.
  Fits(const Graph& g, PassContext& context, const std::vector<Linear>& linears) : g_(g), context_(context) {
    for (const Linear& l : linears) {
      if (values_.empty() || values_.back() != l.x)
        values_.push_back(l.x), depths_.push_back(g.ConstantOf(l.w)->shape()[0]);
    }
  }

  // Of the activation at hand or the one after it. Null: there is no data, or it is zero there.
  Result<const Compensation*> Of(ValueId x) {
    if (context_.moments && x != at_) {
      at_ = x;
      if (next_ == group_.size()) OCTAVO_TRY_STATUS(Gather());
      fit_ = Factor(std::move(group_[next_++]));
      if (!fit_) silent_.push_back(x);
    }
    return fit_ ? &*fit_ : nullptr;
  }

  // To be called when all is done.
  void Tell() const {
    if (silent_.empty()) return;
    context_.notes.push_back(
        std::format("the calibration data is zero in {} of {} activations that enter 4-bit products, '{}' first: their "
                    "weights have the codes nearest to them",
                    silent_.size(), values_.size(), g_.value(silent_[0]).name));
  }

 private:
  Status Gather() {
    constexpr int64_t kMostFloats = 1 << 28;
    const size_t first = done_;
    group_.clear();
    for (int64_t floats = 0; done_ < values_.size(); ++done_) {
      floats += depths_[done_] * depths_[done_];
      if (floats > kMostFloats && done_ > first) break;
      group_.emplace_back(depths_[done_]);
    }
    next_ = 0;
    return context_.moments({values_.data() + first, group_.size()}, group_);
  }

  const Graph& g_;
  PassContext& context_;
  std::vector<ValueId> values_;
  std::vector<int64_t> depths_;
  std::vector<SecondMoments> group_;
  size_t done_ = 0, next_ = 0;
  ValueId at_;
  std::optional<Compensation> fit_;
  std::vector<ValueId> silent_;
};

// Those to quantize, with the Linears of one activation together, in the order of the first.
std::vector<Linear> LinearsOf(const Graph& g, PassContext& context) {
  std::vector<Linear> linears;
  std::map<ValueId, size_t> seen;
  for (NodeId id : FindSites(g, context.keep_float).linears) {
    const Node& n = g.node(id);
    if (const std::string why = WhyFloat(*g.ConstantOf(n.inputs[1])); !why.empty()) {
      context.log.push_back(std::format("weights: {} stays float: {}", OriginName(n), why));
      continue;
    }
    seen.try_emplace(n.inputs[0], seen.size());
    linears.push_back({id, n.inputs[0], n.inputs[1]});
  }
  std::ranges::stable_sort(linears, {}, [&](const Linear& l) { return seen.at(l.x); });
  return linears;
}

Result<bool> Run(Graph& graph, PassContext& context, Format format) {
  Rewriter b(graph, "weights");
  const std::vector<Linear> linears = LinearsOf(graph, context);
  const bool fits_data = quant::BitsOf(format.dtype) == 4;
  Fits fits(graph, context, linears);
  std::map<ValueId, ValueId> done;  // weight -> its dequantized form; shared weights are quantized once
  for (size_t i = 0; i < linears.size(); ++i) {
    const auto& [id, x, w] = linears[i];
    if (!context.step(static_cast<int64_t>(i), static_cast<int64_t>(linears.size()))) return ir::Fail("interrupted");
    const Compensation* fit = nullptr;
    if (fits_data) {
      OCTAVO_TRY(fit, fits.Of(x));
    }
    auto [it, fresh] = done.try_emplace(w);
    if (fresh) {
      b.At(id, {id});
      const std::string name = graph.value(w).name;
      OCTAVO_TRY(const Blocked q, BlockQuantizer(*graph.ConstantOf(w), format, fit).Run());
      std::vector<ValueId> in{b.Constant(q.codes, name + "_quantized"), b.Constant(q.scale, name + "_scale")};
      if (quant::RangeOf(format.dtype).lo == 0) in.push_back(b.Constant(q.zero, name + "_zero_point"));
      it->second = b.Create(Op::kDequantizeLinear, std::move(in), {{"axis", int64_t{0}}, {"block_size", format.block}});
    }
    b.SetInput(id, 1, it->second);
  }
  fits.Tell();
  if (b.changed() && !graph.SortTopologically()) return ir::Fail("weights made a cycle");
  return b.changed();
}

}  // namespace

Result<bool> Weights4(Graph& graph, PassContext& context) { return Run(graph, context, {DType::kU4, 32}); }
Result<bool> Weights4Symmetric(Graph& graph, PassContext& context) { return Run(graph, context, {DType::kS4, 32}); }
Result<bool> Weights8(Graph& graph, PassContext& context) { return Run(graph, context, {DType::kS8, 64}); }

}  // namespace octavo::passes::quantize
