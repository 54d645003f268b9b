// Where the float and the int8 attention rule agree: what stands between their two products (sdpa_parts.h says what it takes).
#include "octavo/passes/fusions/sdpa_parts.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

SdpaMiddle MatchScoresToProbabilities(RuleBuilder& r, Var q, Var kt, bool with_codes, bool relative) {
  SdpaMiddle mid;
  const auto coded = [&](int place, const std::string& name, Var x) {
    if (!with_codes) return x;
    SdpaMiddle::Codes& codes = mid.codes[place];
    codes.quantized = r.MayEscape(r.Open(r.Op(name + "_quantized", Op::kQuantizeLinear, {x})));
    codes.dequantized = r.MayEscape(r.Open(r.Op(name + "_dequantized", Op::kDequantizeLinear, {codes.quantized})));
    return r.Optional(codes.dequantized, x);
  };
  const Var product = coded(0, "scores", r.MayEscape(r.Op("scores", Op::kMatMul, {q, kt})));
  mid.scale = r.Scalar("scale");
  std::vector<Var> by{r.MayEscape(r.AnyOrder("scaled", Op::kMul, product, mid.scale)), product};
  if (with_codes) {
    mid.divisor = r.Scalar("divisor");
    by.insert(by.begin() + 1, r.MayEscape(r.Op("divided", Op::kDiv, {product, mid.divisor})));
  }
  const Var scaled = coded(1, "scaled", r.OneOf("scaled?", by));
  mid.cap = r.Scalar("softcap");
  mid.cap_again = r.Scalar("softcap_again");
  const Var tanh = r.Op("tanh", Op::kTanh, {r.Op("cap_divided", Op::kDiv, {scaled, mid.cap})});
  const Var capped = r.Optional(r.MayEscape(r.AnyOrder("capped", Op::kMul, tanh, mid.cap_again)), scaled);
  mid.mask = r.Input("mask");
  const Var masked =
      coded(2, "masked", r.Optional(r.MayEscape(r.AnyOrder("masked", Op::kAdd, capped, mid.mask)), capped));
  mid.keep = r.Input("keep");
  mid.hidden = r.Scalar("hidden");
  const Var where = r.MayEscape(r.Op("kept", Op::kWhere, {mid.keep, masked, mid.hidden}));
  std::vector<Var> ways{where};
  if (with_codes) {  // a float graph has only the first way by now (canonical/scores.cc)
    mid.hide = r.Input("hide");
    ways.push_back(r.MayEscape(r.Op("not_hidden", Op::kWhere, {mid.hide, mid.hidden, masked})));
  }
  const Var kept = r.Optional(coded(4, "kept", r.OneOf("kept?", ways)), masked);
  if (relative) {
    mid.top = r.Open(r.Op("row_maximum", Op::kReduceMax, {kept, r.Constant("row_axis")}));
    mid.p = r.Op("exponentials", Op::kExp, {r.Op("centered", Op::kSub, {kept, mid.top})});
    return mid;
  }
  const Var softmax = r.MayEscape(r.Op("probabilities", Op::kSoftmax, {kept}, LastAxis(-1)));
  mid.guard =
      r.MayEscape(r.Op("nan_guard", Op::kWhere, {r.Op("is_nan", Op::kIsNaN, {softmax}), r.Scalar("zero"), softmax}));
  mid.guarded_top = r.Open(r.Op("row_maximum", Op::kReduceMax, {kept, r.Constant("row_axis")}));
  mid.is_masked = r.Op("is_masked", Op::kIsInf, {mid.guarded_top}, [](const Graph&, const Node& n) {
    return std::string(n.attrs.Int("detect_negative", 1) != 0 ? "" : "it does not see -inf");
  });
  mid.masked_guard = r.MayEscape(r.Op("masked_guard", Op::kWhere, {mid.is_masked, r.Scalar("nothing"), softmax}));
  mid.p = coded(3, "recoded", r.OneOf("guarded?", {mid.guard, mid.masked_guard, softmax}));
  return mid;
}

}  // namespace octavo::passes::fusions
