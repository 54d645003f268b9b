// Weight-only quantization: W of MatMul(x, W) becomes DequantizeLinear in blocks along k; activations stay float.
//
//   weights4            u4, blocks of 32, each with its own zero point: the range of a block is rarely symmetric, and of 15
//                       steps none is to be wasted
//   weights4_symmetric  s4, the same without zero points: 5 instead of 5.13 bits a weight in the file, scales in floats
//   weights8            s8, blocks of 64, symmetric
//
// With the option `bits`, weights that lose most by 4 bits get 8 (mixed_bits.h).
// With calibration data 4-bit codes make up for each other's errors (rounding.h). Without, nothing is calibrated.
#include <map>

#include "octavo/passes/quantize/expert_codes.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/round_weights.h"
#include "octavo/passes/quantize/rounding.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

class BlockCodes : public Codes {
 public:
  BlockCodes(BlockFormat format, const ParallelFor& parallel) : format_(format), parallel_(parallel) {}

  Result<double> Round(ValueId w, const Tensor& values, const Compensation* fit) override {
    OCTAVO_TRY(Blocked q, RoundInBlocks(values, format_, fit, parallel_));
    const double error = q.error;
    codes_.emplace(w, std::move(q));
    return error;
  }
  Status Widen(ValueId w, const Tensor& values) override {
    OCTAVO_TRY(codes_.at(w), RoundInBlocks(values, {DType::kS8, format_.block}, nullptr, parallel_));
    return {};
  }

  // Once for each weight.
  ValueId Put(Rewriter& b, ValueId w, const std::string& name) {
    Blocked& q = codes_.at(w);
    const bool has_zero = quant::RangeOf(q.codes.dtype()).lo == 0;
    std::vector<ValueId> in{b.Constant(std::move(q.codes), name + "_quantized"),
                            b.Constant(std::move(q.scale), name + "_scale")};
    if (has_zero) in.push_back(b.Constant(std::move(q.zero), name + "_zero_point"));
    return b.Create(Op::kDequantizeLinear, std::move(in), {{"axis", int64_t{0}}, {"block_size", format_.block}});
  }

 private:
  BlockFormat format_;
  const ParallelFor& parallel_;
  std::map<ValueId, Blocked> codes_;
};

Result<bool> Run(Graph& graph, PassRun& run, DType dtype, int64_t block) {
  const BlockFormat format{dtype, run.Option("block", block)};
  if (format.block != 16 && format.block != 32 && format.block != 64)
    return run.given_up = true, ir::Fail("a block has {} rows: use 16, 32 or 64", format.block);
  HowToRound how{.fits = quant::BitsOf(dtype) == 4};
  if (how.fits) {
    OCTAVO_TRY(how.bits, BitsOf(run));
  }
  BlockCodes codes(format, run.parallel);
  OCTAVO_TRY(const Rounded rounded, RoundWeights(graph, run, how, codes));
  Rewriter b(graph, "weights");
  std::map<ValueId, ValueId> made;  // weight -> its dequantized form
  for (const auto& [id, x, w] : rounded.linears) {
    if (const auto why = rounded.left.find(w); why != rounded.left.end()) {
      run.Leave("weights", graph.node(id), "stays float: " + why->second);
      continue;
    }
    auto [it, fresh] = made.try_emplace(w);
    if (fresh) {
      b.At(id, {id});
      it->second = codes.Put(b, w, graph.value(w).name);
    }
    b.SetInput(id, 1, it->second);
  }
  OCTAVO_TRY(const bool experts, ExpertBlocks(graph, run, format));
  const bool changed = b.changed() || experts;
  if (changed && !graph.SortTopologically()) return ir::Fail("weights made a cycle");
  return changed;
}

}  // namespace

Result<bool> Weights4(Graph& graph, PassRun& run) { return Run(graph, run, DType::kU4, kBlock4); }
Result<bool> Weights4Symmetric(Graph& graph, PassRun& run) { return Run(graph, run, DType::kS4, kBlock4); }
Result<bool> Weights8(Graph& graph, PassRun& run) { return Run(graph, run, DType::kS8, kBlock8); }

}  // namespace octavo::passes::quantize
