// com.microsoft MoE and QMoE: each token goes to its k best experts. The standard form runs every expert on every token, and weighs
// those that were not chosen with 0: the meaning, not a way to run it fast.
#include "octavo/ir/vendor/packed.h"
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

// One projection of all experts: weights [E, N, K] as float, and a bias [E, N] or none.
struct Projection {
  ValueId weight = {}, bias = {};
};

struct Activation {
  std::string type;
  float alpha = 1, beta = 0;
  bool limited = false;
  float limit = 0;
  int64_t fusion = 0;  // how gate and linear part lie in one projection: 0 apart, 1 interleaved, 2 one after the other
};

Result<Activation> ReadActivation(const Site& s) {
  Activation a{.type = s.attrs().Str("activation_type", "relu"),
               .alpha = s.attrs().Float("activation_alpha", 1.0f),
               .beta = s.attrs().Float("activation_beta", 0.0f),
               .limited = s.attrs().Has("swiglu_limit"),
               .limit = s.attrs().Float("swiglu_limit", 0.0f),
               .fusion = s.attrs().Int("swiglu_fusion", 0)};
  if (a.type != "relu" && a.type != "gelu" && a.type != "silu" && a.type != "identity" && a.type != "swiglu")
    return s.Refuse("its activation_type is not relu, gelu, silu, swiglu or identity");
  if (s.attrs().Int("swiglu_limit_after_activation", 0) != 0)
    return s.Refuse("swiglu_limit_after_activation is set, which only CUDA has");
  if (s.attrs().Int("use_sparse_mixer", 0) != 0) return s.Refuse("use_sparse_mixer is set, which only CUDA has");
  if (a.fusion < 0 || a.fusion > 2) return s.Refuse("swiglu_fusion is {}; octavo takes 0, 1 and 2", a.fusion);
  return a;
}

// x [E or 1, T, K] -> [E, T, N]
ValueId Project(Site& s, ValueId x, const Projection& p) {
  const ValueId y = s.Make(Op::kMatMul, {x, s.Transpose(p.weight, {0, 2, 1})});
  return p.bias.valid() ? s.Make(Op::kAdd, {y, s.Unsqueeze(p.bias, {1})}) : y;
}

ValueId Silu(Site& s, ValueId x, float alpha) {
  const ValueId scaled = alpha == 1.0f ? x : s.Make(Op::kMul, {x, s.Float(alpha)});
  return s.Make(Op::kMul, {x, s.Make(Op::kSigmoid, {scaled})});
}

// G * sigmoid(alpha * G) * (L + beta), G clamped from above, L on both sides.
ValueId SwiGlu(Site& s, const Activation& a, ValueId gate, ValueId linear) {
  if (a.limited) {
    gate = s.Make(Op::kMin, {gate, s.Float(a.limit)});
    linear = s.Make(Op::kClip, {linear, s.Float(-a.limit), s.Float(a.limit)});
  }
  if (a.beta != 0.0f) linear = s.Make(Op::kAdd, {linear, s.Float(a.beta)});
  return s.Make(Op::kMul, {Silu(s, gate, a.alpha), linear});
}

ValueId Activated(Site& s, const Activation& a, ValueId x, ValueId other) {
  if (a.type == "relu") return s.Make(Op::kRelu, {x});
  if (a.type == "gelu") return s.Make(Op::kGelu, {x}, {{"approximate", std::string("tanh")}});  // as ONNX Runtime
  if (a.type == "silu") return Silu(s, x, 1.0f);
  if (a.type == "identity") return x;
  if (other.valid()) return SwiGlu(s, a, x, other);
  if (a.fusion == 1) {  // pairs of gate and linear part
    const ValueId pairs = s.Make(Op::kReshape, {x, s.Ints({0, 0, -1, 2})});
    return SwiGlu(s, a, s.Make(Op::kGather, {pairs, s.Int(0)}, {{"axis", int64_t{3}}}),
                  s.Make(Op::kGather, {pairs, s.Int(1)}, {{"axis", int64_t{3}}}));
  }
  const auto halves = s.MakeN(Op::kSplit, {x}, 2, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}});
  return SwiGlu(s, a, halves[0], halves[1]);
}

// [E, T, 1]: what each expert counts for each token; 0 for those that are not among its k best.
ValueId Shares(Site& s, ValueId router, ValueId weights, int64_t k) {
  const ValueId all = s.Make(Op::kSoftmax, {router}, {{"axis", int64_t{-1}}});
  const auto best = s.MakeN(Op::kTopK, {weights.valid() ? router : all, s.Ints({k})}, 2, {{"axis", int64_t{-1}}});
  ValueId values = weights.valid() ? s.Make(Op::kGatherElements, {weights, best[1]}, {{"axis", int64_t{1}}}) : best[0];
  if (s.attrs().Int("normalize_routing_weights", 0) != 0) {
    values = s.Make(Op::kDiv, {values, s.Make(Op::kReduceSum, {values, s.Ints({-1})})});
  }
  const ValueId none = s.Make(Op::kConstantOfShape, {s.Make(Op::kShape, {router})});
  const ValueId placed = s.Make(Op::kScatterElements, {none, best[1], values}, {{"axis", int64_t{1}}});
  return s.Unsqueeze(s.Transpose(placed, {1, 0}), {2});
}

Status Mix(Site& s, const Activation& a, const Projection& in, const Projection& out, const Projection& gate,
           ValueId weights) {
  if (s.DTypeOf(s.In(0)) != DType::kF32) return s.Refuse("its operand is not float32");
  const int64_t k = s.attrs().Int("k", 1);
  if (k < 1) return s.Refuse("k is {}", k);
  const ValueId x = s.In(0), shape = s.Make(Op::kShape, {x});
  const ValueId columns = s.Make(Op::kShape, {x}, {{"start", int64_t{-1}}});
  const ValueId flat =
      s.Make(Op::kReshape, {x, s.Make(Op::kConcat, {s.Ints({1, -1}), columns}, {{"axis", int64_t{0}}})});
  const ValueId hidden = Project(s, flat, in);
  const ValueId y = Project(s, Activated(s, a, hidden, gate.weight.valid() ? Project(s, flat, gate) : ValueId{}), out);
  const ValueId share = Shares(s, s.In(1), weights, k);
  // An expert that was not asked may give infinity, which times 0 would be NaN.
  const ValueId asked =
      s.Make(Op::kWhere, {s.Make(Op::kEqual, {share, s.Float(0.0f)}), s.Float(0.0f), s.Make(Op::kMul, {y, share})});
  s.Return(0, s.Make(Op::kReshape, {s.Make(Op::kReduceSum, {asked, s.Ints({0})}, {{"keepdims", int64_t{0}}}), shape}));
  return {};
}

// Codes [E, N, K] and their scales as one float weight.
Result<ValueId> Weight(Site& s, size_t codes, size_t scales, size_t zeros, int64_t bits) {
  const Tensor *w = s.Const(s.In(codes)), *scale = s.Const(s.In(scales)), *zero = s.Const(s.In(zeros));
  const int64_t block = s.attrs().Int("block_size", 0);
  if (w == nullptr || scale == nullptr || (s.Has(zeros) && zero == nullptr))
    return s.Refuse("its weights, scales or zero points are no constants");
  const bool readable = w->dtype() == DType::kU8 && w->rank() == 3 && scale->dtype() == DType::kF32 &&
                        (bits == 2 || bits == 4 || bits == 8);
  if (!readable) return s.Refuse("its weights are not bytes of 2, 4 or 8 bits with float32 scales");
  const Shape shape = {w->shape()[0], w->shape()[1], w->shape()[2] * (8 / bits)};
  const int64_t blocks = block > 0 ? shape[2] / block : 1;
  const Shape scale_shape = block > 0 ? Shape{shape[0], shape[1], blocks} : Shape{shape[0], shape[1]};
  if (shape[2] < 1 || (block > 0 && shape[2] % block != 0) || scale->shape() != scale_shape)
    return s.Refuse("its scales do not have the shape that weights and block_size ask for");
  const Shape flat = {shape[0] * shape[1], shape[2]};
  const Shape points = block > 0 ? Shape{flat[0], blocks} : Shape{shape[0], shape[1]};
  if (zero != nullptr && (zero->dtype() != DType::kU8 || zero->size() != points[0] * BytesOfCodes(points[1], bits)))
    return s.Refuse("its zero points do not have the shape that weights and block_size ask for");
  Tensor z = zero != nullptr ? UnpackCodes(*zero, points[0], points[1], bits) : MidCodes(flat[0], blocks, bits);
  const ValueId values =
      s.Make(Op::kDequantizeLinear,
             {s.Constant(UnpackCodes(*w, flat[0], flat[1], bits)), s.Constant(scale->Reshaped({flat[0], blocks})),
              s.Constant(z.Reshaped({flat[0], blocks}))},
             {{"axis", int64_t{1}}, {"block_size", block > 0 ? block : shape[2]}});
  return s.Make(Op::kReshape, {values, s.Ints(shape)});
}

}  // namespace

Status MixtureOfExperts(Site& s) {
  OCTAVO_TRY(const Activation a, ReadActivation(s));
  const bool gated = a.type == "swiglu" && s.Has(6);
  if (s.Has(6) != gated) return s.Refuse("it has fc3_experts_weights, which belong to swiglu");
  return Mix(s, a, {s.In(2), s.In(3)}, {s.In(4), s.In(5)}, gated ? Projection{s.In(6), s.In(7)} : Projection{}, {});
}

Status QuantizedExperts(Site& s) {
  OCTAVO_TRY(const Activation a, ReadActivation(s));
  if (s.attrs().Str("quant_type", "int") != "int") return s.Refuse("its quant_type is not int");
  if (s.attrs().Int("weights_prepacked", -1) > 0)
    return s.Refuse("weights_prepacked is set, the layout of one GPU; export without it");
  const int64_t bits = s.attrs().Int("expert_weight_bits", 4);
  const bool gated = a.type == "swiglu" && s.Has(8);
  if (s.Has(8) != gated) return s.Refuse("it has fc3_experts_weights, which belong to swiglu");
  Projection in{{}, s.In(4)}, out{{}, s.In(7)}, gate{{}, s.In(10)};
  OCTAVO_TRY(in.weight, Weight(s, 2, 3, 11, s.attrs().Int("fc1_expert_weight_bits", bits)));
  OCTAVO_TRY(out.weight, Weight(s, 5, 6, 12, s.attrs().Int("fc2_expert_weight_bits", bits)));
  if (gated) {
    OCTAVO_TRY(gate.weight, Weight(s, 8, 9, 13, s.attrs().Int("fc3_expert_weight_bits", bits)));
  }
  return Mix(s, a, in, out, gate, s.In(14));
}

}  // namespace octavo::ir::vendor
