// com.microsoft ops around linear attention: those that ONNX has taken over since opset 27 become ONNX's, others a few standard ops.
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

Status LinearAttention(Site& s) {
  const int64_t q_heads = s.attrs().Int("q_num_heads", 0), heads = s.attrs().Int("kv_num_heads", 0);
  if (q_heads < heads) return s.Refuse("it has more heads of keys than of queries ({} and {})", heads, q_heads);
  if (s.attrs().Int("state_window", 0) != 0) return s.Refuse("state_window is set; export with the last state only");
  Attrs attrs = s.attrs();
  attrs.Erase("state_window");
  std::vector<ValueId> in;
  for (size_t i = 0; i < 6; ++i) in.push_back(s.In(i));
  const auto out = s.MakeN(Op::kLinearAttention, std::move(in), 2, std::move(attrs));
  s.Return(0, out[0]);
  s.Return(1, out[1]);
  return {};
}

Status CausalConvWithState(Site& s) {
  for (const auto& [name, value] : {std::pair{"ndim", 1},
                                    {"dilation", 1},
                                    {"channels_last", 0},
                                    {"state_window", 0},
                                    {"state_length", 0},
                                    {"input_channel_offset", 0},
                                    {"input_channels", 0},
                                    {"state_update_capacity", 0}}) {
    if (s.attrs().Int(name, value) != value)
      return s.Refuse("{} is {}; octavo takes {}", name, s.attrs().Int(name, value), value);
  }
  const auto out = s.MakeN(Op::kCausalConvWithState, {s.In(0), s.In(1), s.In(2), s.In(3)}, 2,
                           {{"activation", s.attrs().Str("activation", "none")}});
  s.Return(0, out[0]);
  s.Return(1, out[1]);
  return {};
}

// decay = scale * softplus(a + bias), beta = sigmoid(b)
Status LinearAttentionGate(Site& s) {
  if (s.DTypeOf(s.In(0)) != DType::kF32) return s.Refuse("its operand is not float32");
  s.Return(0, s.Make(Op::kMul, {s.In(2), s.Make(Op::kSoftplus, {s.Make(Op::kAdd, {s.In(0), s.In(1)})})}));
  if (s.Has(3)) s.Return(1, s.Make(Op::kSigmoid, {s.In(3)}));
  return {};
}

// The norm of every C columns, times the activated gate.
Status GatedRmsNorm(Site& s) {
  if (s.DTypeOf(s.In(0)) != DType::kF32) return s.Refuse("its operand is not float32");
  const int64_t columns = s.SizeOf(s.In(1), 0), all = s.SizeOf(s.In(0), -1), rank = s.Rank(s.In(0));
  if (columns < 1 || all < 1 || rank < 1) return s.Refuse("its numbers of columns are not known");
  if (all % columns != 0) return s.Refuse("{} columns are not made of groups of {}", all, columns);
  const std::string activation = s.attrs().Str("activation", "silu");
  if (activation != "silu" && activation != "swish" && activation != "sigmoid")
    return s.Refuse("its activation is not silu, swish or sigmoid");
  const ValueId shape = s.Make(Op::kShape, {s.In(0)});
  const ValueId groups = s.Reshape(s.In(0), {-1, columns});
  const ValueId norm = s.Make(Op::kRMSNormalization, {groups, s.In(1)},
                              {{"axis", int64_t{-1}}, {"epsilon", s.attrs().Float("epsilon", 1e-5f)}});
  const ValueId open = s.Make(Op::kSigmoid, {s.In(2)});
  const ValueId gate = activation == "sigmoid" ? open : s.Make(Op::kMul, {s.In(2), open});
  s.Return(0, s.Make(Op::kMul, {s.Make(Op::kReshape, {norm, shape}), gate}));
  return {};
}

// z * sigmoid(z) of z = scale * x
Status ScaledSilu(Site& s) {
  if (s.DTypeOf(s.In(0)) != DType::kF32) return s.Refuse("its operand is not float32");
  const ValueId scale =
      s.Has(1) ? s.Reshape(s.Cast(s.In(1), DType::kF32), {}) : s.Float(s.attrs().Float("alpha", 1.0f));
  const ValueId z = s.Make(Op::kMul, {s.In(0), scale});
  s.Return(0, s.Make(Op::kMul, {z, s.Make(Op::kSigmoid, {z})}));
  return {};
}

}  // namespace octavo::ir::vendor
