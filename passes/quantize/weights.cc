// Weight-only quantization: W of MatMul(x, W) becomes DequantizeLinear in blocks along k; activations stay float.
//
//   weights4            u4, blocks of 32, each with its own zero point: the range of a block is rarely symmetric, and of 15
//                       steps none is to be wasted
//   weights4_symmetric  s4, the same without zero points: 5 instead of 5.13 bits a weight in the file, scales in floats
//   weights8            s8, blocks of 64, symmetric
//
// With the option `bits`, weights that lose most by 4 bits get 8 (mixed_bits.h).
// With calibration data 4-bit codes make up for each other's errors (rounding.h). Without, nothing is calibrated.
#include <algorithm>
#include <cmath>
#include <format>
#include <map>

#include "octavo/ir/mapped.h"
#include "octavo/passes/attention.h"
#include "octavo/passes/quantize/expert_codes.h"
#include "octavo/passes/quantize/fits.h"
#include "octavo/passes/quantize/mixed_bits.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/rounding.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

// Ranges must not overflow, and a scale must not vanish.
std::string WhyInFloat(const Tensor& w) {
  if (w.shape()[0] < 16) return std::format("its k is {}, less than a block of 16", w.shape()[0]);
  for (float v : w.as<float>()) {
    if (!(std::fabs(v) <= 1e37f)) return "its weight has values that are not finite or beyond 1e37";
  }
  return {};
}

namespace {

// With the Linears of one activation together, in the order of the first. What weights are fitted to is gathered for those alone that can be quantized.
std::vector<FitSite> LinearsOf(const Graph& g, PassRun& run) {
  std::vector<FitSite> linears;
  for (NodeId id : FindSites(g, run.keep_float).linears) {
    const Node& n = g.node(id);
    if (const std::string why = run.evidence.moments ? WhyInFloat(*g.ConstantOf(n.inputs[1])) : ""; !why.empty()) {
      run.Leave("weights", n, "stays float: " + why);
      continue;
    }
    linears.push_back({id, n.inputs[0], n.inputs[1]});
  }
  GroupByActivation(linears);
  return linears;
}

// The weights of all Linears in codes; shared ones are quantized once.
class Weights {
 public:
  // bits: on the mean; of 4-bit formats.
  Weights(Graph& graph, PassRun& run, BlockFormat format, double bits)
      : g_(graph), run_(run), format_(format), bits_(bits), linears_(LinearsOf(graph, run)) {}

  Status Round() {
    const bool fits_data = quant::BitsOf(format_.dtype) == 4;
    Fits fits(g_, run_, linears_, 7);
    for (size_t i = 0; i < linears_.size(); ++i) {
      const FitSite& site = linears_[i];
      OCTAVO_TRY_STATUS(Step(i));
      const Compensation* fit = nullptr;
      if (fits_data) {
        OCTAVO_TRY(fit, fits.Of(site.x));
      }
      if (codes_.contains(site.w) || left_.contains(site.w)) continue;
      // A weight is read, quantized and let go before the next one, since all of them may be more than the memory holds.
      const Tensor& w = *g_.ConstantOf(site.w);
      if (std::string why = WhyInFloat(w); !why.empty()) {
        left_[site.w] = std::move(why);
        continue;
      }
      OCTAVO_TRY(Blocked q, RoundInBlocks(w, format_, fit, run_.parallel));
      if (bits_ > 4) {
        const double power = PowerOfProducts(w, fit);
        of_four_.push_back({site.x, w.size(), power > 0 ? q.error / power : 0});
        rounded_.push_back(i);
      }
      ir::ForgetPages(w);
      codes_.emplace(site.w, std::move(q));
    }
    fits.Tell();
    return bits_ > 4 ? Widen() : Status();
  }

  Result<bool> Put() {
    Rewriter b(g_, "weights");
    std::map<ValueId, ValueId> made;  // weight -> its dequantized form
    for (const auto& [id, x, w] : linears_) {
      if (left_.contains(w)) {
        run_.Leave("weights", g_.node(id), "stays float: " + left_[w]);
        continue;
      }
      auto [it, fresh] = made.try_emplace(w);
      if (fresh) it->second = Dequantized(b, id, w);
      b.SetInput(id, 1, it->second);
    }
    OCTAVO_TRY(const bool experts, ExpertBlocks(g_, run_, format_));
    const bool changed = b.changed() || experts;
    if (changed && !g_.SortTopologically()) return ir::Fail("weights made a cycle");
    return changed;
  }

 private:
  Status Step(size_t done) {
    if (run_.step(static_cast<int64_t>(done), static_cast<int64_t>(linears_.size()))) return {};
    return run_.given_up = true, ir::Fail("interrupted");
  }

  // Weights that lose most get 8 bits, the nearest codes: what the fit still mends there is a hundredth of what 4 bits lose.
  Status Widen() {
    const std::vector<size_t> chosen = WorthEightBits(of_four_, bits_);
    double spent = 0, all = 0;
    for (const FourBits& w : of_four_) all += static_cast<double>(w.weights);
    for (size_t i = 0; i < chosen.size(); ++i) {
      const FitSite& site = linears_[rounded_[chosen[i]]];
      OCTAVO_TRY_STATUS(Step(i));
      const Tensor& w = *g_.ConstantOf(site.w);
      OCTAVO_TRY(codes_.at(site.w), RoundInBlocks(w, {DType::kS8, format_.block}, nullptr, run_.parallel));
      ir::ForgetPages(w);
      spent += static_cast<double>(w.size());
      run_.log.push_back(std::format("weights: {} gets 8 bits: 4 would lose {:.2g} of the power of its products",
                                     OriginName(g_.node(site.id)), of_four_[chosen[i]].lost));
    }
    run_.notes.push_back(
        std::format("{} of {} weights have 8 bits, the others 4: {:.2f} on the mean, scales not counted", chosen.size(),
                    of_four_.size(), 4 + 4 * spent / std::max(all, 1.0)));
    return {};
  }

  ValueId Dequantized(Rewriter& b, NodeId id, ValueId w) {
    b.At(id, {id});
    const std::string name = g_.value(w).name;
    Blocked& q = codes_.at(w);
    const bool has_zero = quant::RangeOf(q.codes.dtype()).lo == 0;
    std::vector<ValueId> in{b.Constant(std::move(q.codes), name + "_quantized"),
                            b.Constant(std::move(q.scale), name + "_scale")};
    if (has_zero) in.push_back(b.Constant(std::move(q.zero), name + "_zero_point"));
    return b.Create(Op::kDequantizeLinear, std::move(in), {{"axis", int64_t{0}}, {"block_size", format_.block}});
  }

  Graph& g_;
  PassRun& run_;
  BlockFormat format_;
  double bits_;
  std::vector<FitSite> linears_;
  std::map<ValueId, Blocked> codes_;
  std::map<ValueId, std::string> left_;  // why a weight stays float
  std::vector<FourBits> of_four_;        // what 4 bits lose, of the weights of these Linears
  std::vector<size_t> rounded_;
};

Result<bool> Run(Graph& graph, PassRun& run, DType dtype, int64_t block) {
  const BlockFormat format{dtype, run.Option("block", block)};
  if (format.block != 16 && format.block != 32 && format.block != 64)
    return run.given_up = true, ir::Fail("a block has {} rows: use 16, 32 or 64", format.block);
  const double bits = quant::BitsOf(dtype) == 4 ? run.Option<double>("bits", 4) : 4;
  if (!(bits >= 4 && bits <= 8))
    return run.given_up = true, ir::Fail("weights have {:g} bits on the mean: use 4 to 8", bits);
  Weights weights(graph, run, format, bits);
  OCTAVO_TRY_STATUS(weights.Round());
  return weights.Put();
}

}  // namespace

Result<bool> Weights4(Graph& graph, PassRun& run) { return Run(graph, run, DType::kU4, kBlock4); }
Result<bool> Weights4Symmetric(Graph& graph, PassRun& run) { return Run(graph, run, DType::kS4, kBlock4); }
Result<bool> Weights8(Graph& graph, PassRun& run) { return Run(graph, run, DType::kS8, kBlock8); }

}  // namespace octavo::passes::quantize
