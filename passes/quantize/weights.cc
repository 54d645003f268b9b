// Weight-only quantization: W of MatMul(x, W) becomes DequantizeLinear in blocks along k; activations stay float, so nothing
// is calibrated.
//
//   weights4            u4, blocks of 32, each with its own zero point: the range of a block is rarely symmetric, and of 15
//                       steps none is to be wasted
//   weights4_symmetric  s4, the same without zero points: 4.5 instead of 4.63 bits a weight in the file
//   weights8            s8, blocks of 64, symmetric
//
// 4 bits: of 8 ranges around that of the block the one whose codes c are nearest to w, that is with the largest (w c)^2 / (c c), and
// then the scale of least squares, (w c) / (c c). A tenth less squared error than the range itself; nothing at run time.
#include <algorithm>
#include <cmath>
#include <format>
#include <map>

#include "octavo/passes/attention.h"
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
        wc[c] += x * code, cc[c] += code * code;
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

Blocked QuantizeBlocks(const Tensor& w, Format f) {
  const int64_t k = w.shape()[0], n = w.shape()[1], blocks = (k + f.block - 1) / f.block;
  const auto x = w.as<float>();
  Blocked out{Tensor::Zeros(f.dtype, {k, n}), Tensor::Empty(DType::kF32, {blocks, n}),
              Tensor::Zeros(f.dtype, {blocks, n})};
  const quant::IntRange range = quant::RangeOf(f.dtype);
  const auto highest = static_cast<int32_t>(range.hi);
  const int32_t lowest = range.lo < 0 ? -highest : 0;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * f.block, rows = std::min(k - begin, f.block);
    for (int64_t first = 0; first < n; first += kColumns) {
      const int64_t count = std::min(kColumns, n - first);
      Part part;
      for (int64_t i = 0; i < rows; ++i) std::copy_n(x.data() + (begin + i) * n + first, count, part.w[i]);
      for (int64_t c = 0; c < kColumns; ++c) {
        float lo = 0.0f, hi = 0.0f;
        for (int64_t i = 0; i < rows; ++i) lo = std::min(lo, part.w[i][c]), hi = std::max(hi, part.w[i][c]);
        const quant::QParams p =
            lowest < 0 ? quant::SymmetricParams(lo, hi, f.dtype) : quant::AffineParams(lo, hi, f.dtype);
        part.scale[c] = p.scale, part.zero[c] = p.zero_point;
      }
      if (quant::BitsOf(f.dtype) == 4) SearchScales(rows, lowest, highest, part);
      for (int64_t c = 0; c < count; ++c) {
        out.scale.mutable_as<float>()[static_cast<size_t>(b * n + first + c)] = part.scale[c];
        Put(out.zero, b * n + first + c, part.zero[c]);
        for (int64_t i = 0; i < rows; ++i) {
          Put(out.codes, (begin + i) * n + first + c,
              quant::QuantizeOne(part.w[i][c], part.scale[c], part.zero[c], lowest, highest));
        }
      }
    }
  }
  return out;
}

// Empty, or why the weight stays float. Ranges must not overflow, and a scale must not vanish.
std::string WhyFloat(const Tensor& w) {
  if (w.shape()[0] < 16) return std::format("its k is {}, less than a block of 16", w.shape()[0]);
  for (float v : w.as<float>()) {
    if (!(std::fabs(v) <= 1e37f)) return "its weight has values that are not finite or beyond 1e37";
  }
  return {};
}

Result<bool> Run(Graph& graph, PassContext& context, Format format) {
  Rewriter b(graph, "weights");
  std::map<ValueId, ValueId> done;  // weight -> its dequantized form; shared weights are quantized once
  for (NodeId id : FindSites(graph).linears) {
    const Node n = graph.node(id);
    const Tensor& w = *graph.ConstantOf(n.inputs[1]);
    if (const std::string why = WhyFloat(w); !why.empty()) {
      context.log.push_back(std::format("weights: {} stays float: {}", OriginName(n), why));
      continue;
    }
    auto [it, fresh] = done.try_emplace(n.inputs[1]);
    if (fresh) {
      b.At(id, {id});
      const std::string name = graph.value(n.inputs[1]).name;
      const Blocked q = QuantizeBlocks(w, format);
      std::vector<ValueId> in{b.Constant(q.codes, name + "_quantized"), b.Constant(q.scale, name + "_scale")};
      if (quant::RangeOf(format.dtype).lo == 0) in.push_back(b.Constant(q.zero, name + "_zero_point"));
      it->second = b.Create(Op::kDequantizeLinear, std::move(in), {{"axis", int64_t{0}}, {"block_size", format.block}});
    }
    b.SetInput(id, 1, it->second);
  }
  if (b.changed() && !graph.SortTopologically()) return ir::Fail("weights made a cycle");
  return b.changed();
}

}  // namespace

Result<bool> Weights4(Graph& graph, PassContext& context) { return Run(graph, context, {DType::kU4, 32}); }
Result<bool> Weights4Symmetric(Graph& graph, PassContext& context) { return Run(graph, context, {DType::kS4, 32}); }
Result<bool> Weights8(Graph& graph, PassContext& context) { return Run(graph, context, {DType::kS8, 64}); }

}  // namespace octavo::passes::quantize
