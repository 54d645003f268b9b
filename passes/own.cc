#include "octavo/passes/own.h"

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/quantize/caches.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/rule_pass.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::passes {

namespace {

using Passes = std::vector<std::shared_ptr<const Pass>>;

void Add(Passes& all, PassInfo info, FunctionPass::Function run) {
  all.push_back(std::make_shared<FunctionPass>(std::move(info), std::move(run)));
}
void Add(Passes& all, PassInfo info, const std::vector<fusions::Rule>& rules, FunctionPass::Function run) {
  all.push_back(std::make_shared<RulePass>(std::move(info), rules, std::move(run)));
}

void AddFloat(Passes& all) {
  Add(all, {.name = "canonical", .what = "brings every exporter's graph to one form; exact but for `scale`"},
      canonical::Canonicalize);
  for (const auto& p : canonical::CanonicalPasses()) all.push_back(p);
  Add(all,
      {.name = "fuse_float",
       .what = "attention, LayerNorm, GELU, skip + norm in float",
       .takes = Form::kFloat,
       .leaves = Form::kFloat},
      fusions::FloatRules(), fusions::FuseFloat);
  Add(all,
      {.name = "qkv_float",
       .what = "Q, K and V projections as one MatMul",
       .takes = Form::kFloat,
       .leaves = Form::kFloat},
      fusions::FuseQkvFloat);
  Add(all, {.name = "to_f32", .what = "a model in f16 or bf16 becomes one in f32; inputs and outputs stay"},
      quantize::ToF32);
  Add(all,
      {.name = "windows", .what = "causal and window masks become attributes of attention; exact for finite scores"},
      fusions::FuseWindows);
  Add(all,
      {.name = "flash",
       .what = "attention over tiles of keys, in fixed memory; rounding differs, and int8 no longer quantizes P "
               "as the graph does"},
      fusions::UseFlash);
}

OptionInfo Bits() { return {"bits", 4.0, "of a weight's codes on the mean, 4 to 8: those that lose most by 4 get 8"}; }

void AddQuantizing(Passes& all) {
  Add(all,
      {.name = "gated",
       .what = "a product whose halves are multiplied, as SwiGLU's are, is made for each half",
       .takes = Form::kFloat,
       .leaves = Form::kFloat},
      quantize::Gated);
  Add(all,
      {.name = "conv_linears",
       .what =
           "convolutions as Linears over the channels of their windows, so that they are quantized; exact but for the "
           "order of sums",
       .takes = Form::kFloat,
       .leaves = Form::kFloat,
       .options = {OptionInfo{"separable", true, "whether those of kernel 1 beside depthwise ones are among them"}}},
      quantize::ConvLinears);
  Add(all,
      {.name = "rotate_stream",
       .what = "turns the residual stream by an orthogonal matrix, and back in what reads it; exact but for rounding",
       .takes = Form::kFloat,
       .leaves = Form::kFloat,
       .options = {OptionInfo{"worth", quantize::kRotationWorth,
                              "how many times the weights of the products that come in must turn; 0: nothing does"}}},
      quantize::RotateStream);
  Add(all,
      {.name = "rotate_values",
       .what = "turns values of attention by an orthogonal matrix, and back in the product behind it; exact but for "
               "rounding",
       .takes = Form::kFloat,
       .leaves = Form::kFloat},
      quantize::RotateValues);
  Add(all,
      {.name = "center_keys",
       .what =
           "takes off keys what all of them have in common, which Softmax does not see, by calibrated channel ranges",
       .takes = Form::kFloat,
       .leaves = Form::kFloat,
       .needs = Need::kRanges},
      quantize::CenterKeys);
  Add(all,
      {.name = "balance_keys",
       .what = "evens out the channels of queries and keys behind a rotary embedding or a norm, by calibrated channel "
               "ranges",
       .takes = Form::kFloat,
       .leaves = Form::kFloat,
       .needs = Need::kRanges},
      quantize::BalanceKeys);
  Add(all,
      {.name = "choose_rows",
       .what = "leaves Linears to whose rows one scale does harm to the pass `dynamic`, which gives each row its own",
       .takes = Form::kFloat,
       .leaves = Form::kFloat,
       .needs = Need::kRanges,
       .options = {OptionInfo{"db", quantize::kRowDb, "what rows must keep of themselves under one scale"}}},
      quantize::ChooseRows);
  Add(all,
      {.name = "smooth",
       .what = "evens out the channels that norms and activations hand to Linears, by calibrated channel ranges",
       .takes = Form::kFloat,
       .leaves = Form::kFloat,
       .needs = Need::kRanges},
      quantize::Smooth);
  Add(all,
      {.name = "reduce_range",
       .what = "int8 weights of the next passes get 7 bits: faster on CPUs without VNNI, half as precise"},
      quantize::ReduceRange);
  Add(all,
      {.name = "fit_weights",
       .what = "finds codes of int8 and fp8 weights that make up for each other's errors on the calibration data",
       .takes = Form::kFloat,
       .leaves = Form::kFloat,
       .needs = Need::kMoments},
      quantize::FitWeights);
  Add(all,
      {.name = "quantize",
       .what = "inserts Q/DQ by the calibrated ranges and quantizes weights",
       .takes = Form::kFloat,
       .leaves = Form::kQdq,
       .needs = Need::kRanges},
      quantize::Quantize);
  Add(all,
      {.name = "quantize_fp8",
       .what = "the same in E4M3FN; ranges are then chosen for that type",
       .takes = Form::kFloat,
       .leaves = Form::kFp8,
       .needs = Need::kRanges},
      quantize::Quantize);
  Add(all,
      {.name = "quantize_caches",
       .what = "KV caches that attention reads as codes enter and leave the graph as codes; same bits",
       .takes = Form::kQdq,
       .leaves = Form::kQdq},
      quantize::QuantizeCaches);
  Add(all,
      {.name = "quantize_tables",
       .what = "embedding tables to s8, one scale per row; experts that Gather takes, one per output",
       .takes = Form::kFloat,
       .leaves = Form::kQdq},
      quantize::QuantizeTables);
  Add(all,
      {.name = "dynamic",
       .what = "float Linears to int8, activations quantized at run time with one scale and zero point a row",
       .takes = Form::kFloat,
       .leaves = Form::kInt8},
      fusions::EpilogueRules(), quantize::Dynamic);
  Add(all,
      {.name = "dynamic4",
       .what = "the same with weights of 4 bits in whole steps, 16 rows each, of one scale a column",
       .takes = Form::kFloat,
       .leaves = Form::kInt8,
       .needs = Need::kMoments,
       .options = {Bits()}},
      fusions::EpilogueRules(), quantize::Dynamic4);
}

void AddBlocks(Passes& all) {
  const auto block = [](int64_t rows) {
    return OptionInfo{"block", rows, "rows of a weight that share a scale: 16, 32 or 64"};
  };
  Add(all,
      {.name = "weights4",
       .what = "weights to u4 in blocks with zero points; activations stay float",
       .takes = Form::kFloat,
       .leaves = Form::kBlocks,
       .needs = Need::kMoments,
       .options = {block(quantize::kBlock4), Bits()}},
      quantize::Weights4);
  Add(all,
      {.name = "weights4_symmetric",
       .what = "weights to s4 in blocks; activations stay float",
       .takes = Form::kFloat,
       .leaves = Form::kBlocks,
       .needs = Need::kMoments,
       .options = {block(quantize::kBlock4), Bits()}},
      quantize::Weights4Symmetric);
  Add(all,
      {.name = "weights8",
       .what = "weights to s8 in blocks; activations stay float",
       .takes = Form::kFloat,
       .leaves = Form::kBlocks,
       .options = {block(quantize::kBlock8)}},
      quantize::Weights8);
  Add(all,
      {.name = "fuse_weights",
       .what = "products with weights in blocks become one op",
       .takes = Form::kBlocks,
       .leaves = Form::kBlocks},
      fusions::BlockRules(), fusions::FuseWeights);
  Add(all,
      {.name = "dynamic_blocks",
       .what = "those products quantize activations at run time, one scale a block: several times as fast",
       .takes = Form::kBlocks,
       .leaves = Form::kInt8,
       .options = {{"steps", false, "blocks of 4 bits are rounded once more, to whole steps of one scale a column"}}},
      quantize::DynamicBlocks);
}

void AddInt8(Passes& all) {
  Add(all,
      {.name = "fuse_quantized",
       .what = "Q/DQ attention, linears and norms become int8 ops; exact",
       .takes = Form::kQdq,
       .leaves = Form::kInt8},
      fusions::QuantizedRules(), fusions::FuseQuantized);
  Add(all,
      {.name = "quantized_qkv",
       .what = "int8 projections of one attention become one op; exact",
       .takes = Form::kInt8,
       .leaves = Form::kInt8},
      fusions::PackedRules(), fusions::FuseQuantizedQkv);
  Add(all,
      {.name = "relative_probs",
       .what = "int8 attention quantizes exponentials, relative to the largest of a row, instead of probabilities",
       .takes = Form::kQdq,
       .leaves = Form::kQdq},
      fusions::RelativeProbs);
  Add(all,
      {.name = "diffuse_probs",
       .what = "int8 attention keeps what rounding leaves of an exponential's code for later keys, so that long tails "
               "count",
       .takes = Form::kQdq,
       .leaves = Form::kQdq},
      fusions::DiffuseProbs);
  Add(all,
      {.name = "tables",
       .what = "element-wise functions between codes of 8 bits become tables of 256 codes; exact",
       .takes = Form::kQdq,
       .leaves = Form::kInt8},
      fusions::FuseTables);
}

void AddVendor(Passes& all) {
  Add(all,
      {.name = "integer_form",
       .what = "MatMulInteger with its scales, and QLinearMatMul, become a MatMul of DequantizeLinears; exact"},
      vendor::IntegerForm);
  Add(all,
      {.name = "fuse_around",
       .what = "fuse_float without attention, before int8 rules",
       .takes = Form::kFloat,
       .leaves = Form::kFloat},
      vendor::FuseAroundAttention);
  Add(all,
      {.name = "fuse_left",
       .what = "attention in float where int8 rules left it; exact",
       .takes = Form::kFloat,
       .leaves = Form::kFloat},
      vendor::FuseAttentionLeft);
  Add(all,
      {.name = "why_not_int8",
       .what = "says what keeps attention out of int8; changes nothing",
       .takes = Form::kQdq,
       .leaves = Form::kQdq},
      vendor::WhyNotInt8);
}

}  // namespace

const Passes& OwnPasses() {
  static const auto* const passes = [] {
    auto* all = new Passes;
    AddFloat(*all);
    AddQuantizing(*all);
    AddBlocks(*all);
    AddInt8(*all);
    AddVendor(*all);
    return all;
  }();
  return *passes;
}

}  // namespace octavo::passes
