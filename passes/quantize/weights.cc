// Weight-only quantization: W of MatMul(x, W) becomes DequantizeLinear in blocks along k; activations stay float.
//
//   weights4            u4, blocks of 32, each with its own zero point: the range of a block is rarely symmetric, and of 15
//                       steps none is to be wasted
//   weights4_symmetric  s4, the same without zero points: 4.5 instead of 4.63 bits a weight in the file
//   weights8            s8, blocks of 64, symmetric
//
// With calibration data 4-bit codes make up for each other's errors (rounding.h). Without, nothing is calibrated.
#include <cmath>
#include <format>
#include <map>

#include "octavo/ir/mapped.h"
#include "octavo/passes/attention.h"
#include "octavo/passes/quantize/fits.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/rounding.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

// Empty, or why the weight stays float. Ranges must not overflow, and a scale must not vanish.
std::string WhyFloat(const Tensor& w) {
  if (w.shape()[0] < 16) return std::format("its k is {}, less than a block of 16", w.shape()[0]);
  for (float v : w.as<float>()) {
    if (!(std::fabs(v) <= 1e37f)) return "its weight has values that are not finite or beyond 1e37";
  }
  return {};
}

// With the Linears of one activation together, in the order of the first. What weights are fitted to is gathered for those alone that can be quantized.
std::vector<FitSite> LinearsOf(const Graph& g, PassRun& run) {
  std::vector<FitSite> linears;
  for (NodeId id : FindSites(g, run.keep_float).linears) {
    const Node& n = g.node(id);
    if (const std::string why = run.evidence.moments ? WhyFloat(*g.ConstantOf(n.inputs[1])) : ""; !why.empty()) {
      run.Leave("weights", n, "stays float: " + why);
      continue;
    }
    linears.push_back({id, n.inputs[0], n.inputs[1]});
  }
  GroupByActivation(linears);
  return linears;
}

Result<bool> Run(Graph& graph, PassRun& run, DType dtype, int64_t block) {
  const BlockFormat format{dtype, run.Option("block", block)};
  if (format.block != 16 && format.block != 32 && format.block != 64)
    return run.given_up = true, ir::Fail("a block has {} rows: use 16, 32 or 64", format.block);
  Rewriter b(graph, "weights");
  const std::vector<FitSite> linears = LinearsOf(graph, run);
  const bool fits_data = quant::BitsOf(format.dtype) == 4;
  Fits fits(graph, run, linears, 7);
  std::map<ValueId, ValueId> done;      // weight -> its dequantized form; shared weights are quantized once
  std::map<ValueId, std::string> left;  // why a weight stays float
  for (size_t i = 0; i < linears.size(); ++i) {
    const auto& [id, x, w] = linears[i];
    if (!run.step(static_cast<int64_t>(i), static_cast<int64_t>(linears.size())))
      return run.given_up = true, ir::Fail("interrupted");
    const Compensation* fit = nullptr;
    if (fits_data) {
      OCTAVO_TRY(fit, fits.Of(x));
    }
    auto [it, fresh] = done.try_emplace(w);
    // A weight is read, quantized and let go before the next one, since all of them may be more than the memory holds.
    if (std::string why = fresh ? WhyFloat(*graph.ConstantOf(w)) : std::string(); !why.empty())
      left[w] = std::move(why);
    if (left.contains(w)) {
      run.Leave("weights", graph.node(id), "stays float: " + left[w]);
      continue;
    }
    if (fresh) {
      b.At(id, {id});
      const std::string name = graph.value(w).name;
      OCTAVO_TRY(const Blocked q, RoundInBlocks(*graph.ConstantOf(w), format, fit, run.parallel));
      ir::ForgetPages(*graph.ConstantOf(w));
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

Result<bool> Weights4(Graph& graph, PassRun& run) { return Run(graph, run, DType::kU4, kBlock4); }
Result<bool> Weights4Symmetric(Graph& graph, PassRun& run) { return Run(graph, run, DType::kS4, kBlock4); }
Result<bool> Weights8(Graph& graph, PassRun& run) { return Run(graph, run, DType::kS8, kBlock8); }

}  // namespace octavo::passes::quantize
