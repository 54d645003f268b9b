// Weight-only quantization: W of MatMul(x, W) becomes DequantizeLinear in blocks along k; activations stay float, so nothing
// is calibrated.
//
//   weights4            u4, blocks of 32, each with its own zero point: the range of a block is rarely symmetric, and of 15
//                       steps none is to be wasted
//   weights4_symmetric  s4, the same without zero points: 4.5 instead of 4.63 bits a weight in the file
//   weights8            s8, blocks of 64, symmetric
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

Blocked QuantizeBlocks(const Tensor& w, Format f) {
  const int64_t k = w.shape()[0], n = w.shape()[1], blocks = (k + f.block - 1) / f.block;
  const auto x = w.as<float>();
  Blocked out{Tensor::Zeros(f.dtype, {k, n}), Tensor::Empty(DType::kF32, {blocks, n}),
              Tensor::Zeros(f.dtype, {blocks, n})};
  const quant::IntRange range = quant::RangeOf(f.dtype);
  const auto highest = static_cast<int32_t>(range.hi);
  const int32_t lowest = range.lo < 0 ? -highest : 0;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t end = std::min(k, (b + 1) * f.block);
    for (int64_t column = 0; column < n; ++column) {
      float lo = 0.0f, hi = 0.0f;
      for (int64_t i = b * f.block; i < end; ++i) {
        lo = std::min(lo, x[static_cast<size_t>(i * n + column)]);
        hi = std::max(hi, x[static_cast<size_t>(i * n + column)]);
      }
      const quant::QParams p =
          lowest < 0 ? quant::SymmetricParams(lo, hi, f.dtype) : quant::AffineParams(lo, hi, f.dtype);
      out.scale.mutable_as<float>()[static_cast<size_t>(b * n + column)] = p.scale;
      Put(out.zero, b * n + column, p.zero_point);
      for (int64_t i = b * f.block; i < end; ++i) {
        Put(out.codes, i * n + column,
            quant::QuantizeOne(x[static_cast<size_t>(i * n + column)], p.scale, p.zero_point, lowest, highest));
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
