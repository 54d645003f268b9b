// com.microsoft MoE and QMoE: each token goes to its k best experts. Float constants are gathered for each token, as transformers exports its
// mixtures, which one step runs where they lie. Experts in codes are Linears of their own, as MatMulNBits is one, and see the tokens alone
// that were sent to them. What is left (weights that are no constants, small codes) runs every expert on every token, and weighs those
// that were not chosen with 0: the meaning, not a way to run it fast.
#include <algorithm>
#include <initializer_list>

#include "octavo/ir/vendor/packed.h"
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

// One projection of all experts: weights [E, N, K] as float, and a bias [E, N] or none; or of one expert, [N, K] and [N].
struct Projection {
  ValueId weight = {}, bias = {};
  bool one = false;
  int64_t columns = 0;  // N; 0: not known
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
  const ValueId y = s.Make(
      Op::kMatMul, {x, s.Transpose(p.weight, p.one ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{0, 2, 1})});
  if (!p.bias.valid()) return y;
  return s.Make(Op::kAdd, {y, p.one ? p.bias : s.Unsqueeze(p.bias, {1})});
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

// x of `columns`; 0: not known.
ValueId Activated(Site& s, const Activation& a, ValueId x, ValueId other, int64_t columns) {
  if (a.type == "relu") return s.Make(Op::kRelu, {x});
  if (a.type == "gelu") return s.Make(Op::kGelu, {x}, {{"approximate", std::string("tanh")}});  // as ONNX Runtime
  if (a.type == "silu") return Silu(s, x, 1.0f);
  if (a.type == "identity") return x;
  if (other.valid()) return SwiGlu(s, a, x, other);
  if (a.fusion == 1) {  // pairs of gate and linear part; of no rows a -1 would be any number
    const ValueId pairs = s.Make(Op::kReshape, {x, s.Ints({0, 0, columns > 0 ? columns / 2 : -1, 2})});
    return SwiGlu(s, a, s.Make(Op::kGather, {pairs, s.Int(0)}, {{"axis", int64_t{3}}}),
                  s.Make(Op::kGather, {pairs, s.Int(1)}, {{"axis", int64_t{3}}}));
  }
  const auto halves = s.MakeN(Op::kSplit, {x}, 2, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}});
  return SwiGlu(s, a, halves[0], halves[1]);
}

// In f32, whatever the node's type is: 16 bits are a format of storage here, as in ONNX Runtime.
ValueId Wide(Site& s, ValueId v) { return s.DTypeOf(s.In(0)) == DType::kF32 ? v : s.Cast(v, DType::kF32); }

// [T, k]: the experts of each token, and what each of them counts.
struct Best {
  ValueId experts, shares;
};
Best BestOf(Site& s, ValueId weights, int64_t k) {
  const ValueId router = Wide(s, s.In(1)), all = s.Make(Op::kSoftmax, {router}, {{"axis", int64_t{-1}}});
  const auto best = s.MakeN(Op::kTopK, {weights.valid() ? router : all, s.Ints({k})}, 2, {{"axis", int64_t{-1}}});
  ValueId values = weights.valid() ? s.Make(Op::kGatherElements, {weights, best[1]}, {{"axis", int64_t{1}}}) : best[0];
  if (s.attrs().Int("normalize_routing_weights", 0) != 0) {
    values = s.Make(Op::kDiv, {values, s.Make(Op::kReduceSum, {values, s.Ints({-1})})});
  }
  return {best[1], values};
}

// What was made for nothing may be infinite, which times 0 would be NaN.
ValueId Weighed(Site& s, ValueId y, ValueId share) {
  return s.Make(Op::kWhere, {s.Make(Op::kEqual, {share, s.Float(0.0f)}), s.Float(0.0f), s.Make(Op::kMul, {y, share})});
}

// The operand as [1, T, K].
ValueId Flat(Site& s) {
  const ValueId x = Wide(s, s.In(0)), columns = s.Make(Op::kShape, {x}, {{"start", int64_t{-1}}});
  return s.Make(Op::kReshape, {x, s.Make(Op::kConcat, {s.Ints({1, -1}), columns}, {{"axis", int64_t{0}}})});
}

// The sum of y along `axis`, in the shape of the operand.
void ReturnSum(Site& s, ValueId y, int64_t axis) {
  ValueId sum = s.Make(Op::kReduceSum, {y, s.Ints({axis})}, {{"keepdims", int64_t{0}}});
  if (const DType type = s.DTypeOf(s.In(0)); type != DType::kF32) sum = s.Cast(sum, type);
  s.Return(0, s.Make(Op::kReshape, {sum, s.Make(Op::kShape, {s.In(0)})}, {{"allowzero", int64_t{1}}}));
}

// The operand's rows, one for each place: [T * k, 1, K].
ValueId RowsOfPlaces(Site& s, int64_t k) {
  const ValueId x = s.Make(Op::kSqueeze, {Flat(s), s.Ints({0})});
  const ValueId columns = s.Make(Op::kShape, {x}, {{"start", int64_t{-1}}});
  const ValueId each = s.Make(Op::kExpand, {s.Unsqueeze(x, {1}), s.Ints({1, k, 1})});
  return s.Make(Op::kReshape, {each, s.Make(Op::kConcat, {s.Ints({-1, 1}), columns}, {{"axis", int64_t{0}}})});
}

bool AreConstant(const Site& s, std::initializer_list<size_t> weights) {
  return std::ranges::all_of(weights, [&s](size_t i) {
    const Tensor* w = s.Const(s.In(i));
    return w != nullptr && w->rank() == 3;
  });
}

// y [E, T, N] of all experts; those that are not among a token's best count 0.
void Weigh(Site& s, ValueId y, ValueId weights, int64_t k) {
  const Best best = BestOf(s, weights, k);
  const ValueId none = s.Make(Op::kConstantOfShape, {s.Make(Op::kShape, {s.In(1)})});
  const ValueId shares = s.Make(Op::kScatterElements, {none, best.experts, best.shares}, {{"axis", int64_t{1}}});
  ReturnSum(s, Weighed(s, y, s.Unsqueeze(s.Transpose(shares, {1, 0}), {2})), 0);
}

Result<int64_t> Chosen(const Site& s) {
  const int64_t k = s.attrs().Int("k", 1);
  if (k < 1) return s.Refuse("k is {}", k);
  return k;
}

// One expert, or all of them where weights are [E, N, K] and x is [1, T, K].
ValueId Expert(Site& s, const Activation& a, ValueId x, const Projection& in, const Projection& out,
               const Projection& gate) {
  const ValueId hidden = Project(s, x, in);
  return Project(s, Activated(s, a, hidden, gate.weight.valid() ? Project(s, x, gate) : ValueId{}, in.columns), out);
}

// Codes [E, N, K] with a scale for each row or each block of it.
struct Codes {
  const Tensor *weights = nullptr, *scales = nullptr, *zeros = nullptr;
  ValueId bias = {};
  Shape shape;
  int64_t bits = 4, block = 0, blocks = 1;
  bool alone = false;  // nothing else reads the weights
};

Result<Codes> ReadCodes(Site& s, size_t codes, size_t zeros, int64_t bits) {
  const Tensor *w = s.Const(s.In(codes)), *scale = s.Const(s.In(codes + 1)), *zero = s.Const(s.In(zeros));
  const int64_t block = s.attrs().Int("block_size", 0);
  if (w == nullptr || scale == nullptr || (s.Has(zeros) && zero == nullptr))
    return s.Refuse("its weights, scales or zero points are no constants");
  const bool readable = w->dtype() == DType::kU8 && w->rank() == 3 && scale->dtype() == DType::kF32 &&
                        (bits == 2 || bits == 4 || bits == 8);
  if (!readable) return s.Refuse("its weights are not bytes of 2, 4 or 8 bits with float32 scales");
  const Shape shape = {w->shape()[0], w->shape()[1], w->shape()[2] * (8 / bits)};
  const int64_t blocks = block > 0 ? shape[2] / block : 1;
  const Shape scale_shape = block > 0 ? Shape{shape[0], shape[1], blocks} : Shape{shape[0], shape[1]};
  if (shape[0] < 1 || shape[2] < 1 || (block > 0 && shape[2] % block != 0) || scale->shape() != scale_shape)
    return s.Refuse("its scales do not have the shape that weights and block_size ask for");
  // Rows of zero points begin on a byte; without blocks they are those of an expert, one for each row.
  const int64_t rows = block > 0 ? shape[0] * shape[1] : shape[0], count = block > 0 ? blocks : shape[1];
  if (zero != nullptr && (zero->dtype() != DType::kU8 || zero->size() != rows * BytesOfCodes(count, bits)))
    return s.Refuse("its zero points do not have the shape that weights and block_size ask for");
  return Codes{
      w, scale, zero, s.In(codes + 2), shape, bits, block > 0 ? block : shape[2], blocks, s.IsReadOnce(s.In(codes))};
}

// Experts [first, first + count) as one float weight: [N, K], transposed, for one; [count, N, K] otherwise.
Projection Dequantized(Site& s, const Codes& c, int64_t first, int64_t count, bool one) {
  const auto part = [&](const Tensor& t) {
    const size_t bytes = t.byte_size() / static_cast<size_t>(c.shape[0]);
    const int64_t size = t.size() / c.shape[0] * count;
    return Tensor::View(t.dtype(), {size}, t.buffer(),
                        static_cast<size_t>(t.data() - t.buffer()->data()) + bytes * static_cast<size_t>(first));
  };
  const int64_t rows = count * c.shape[1];
  const bool each = c.blocks == 1 && c.block == c.shape[2] && s.attrs().Int("block_size", 0) <= 0;
  Tensor z = c.zeros == nullptr ? MidCodes(rows, c.blocks, c.bits)
             : each             ? UnpackCodes(part(*c.zeros), count, c.shape[1], c.bits)
                                : UnpackCodes(part(*c.zeros), rows, c.blocks, c.bits);
  const ValueId w =
      s.Make(Op::kDequantizeLinear,
             {s.Constant(UnpackCodes(part(*c.weights), rows, c.shape[2], c.bits)),
              s.Constant(part(*c.scales).Reshaped({rows, c.blocks})), s.Constant(z.Reshaped({rows, c.blocks}))},
             {{"axis", int64_t{1}}, {"block_size", c.block}});
  if (one) {
    const ValueId bias =
        c.bias.valid() ? s.Make(Op::kGather, {c.bias, s.Int(first)}, {{"axis", int64_t{0}}}) : ValueId{};
    return {w, bias, true, c.shape[1]};
  }
  return {s.Make(Op::kReshape, {w, s.Ints({count, c.shape[1], c.shape[2]})}), c.bias};
}

// Experts of their own: expert(e, rows) of the rows [1, n, K] that were sent to e gives [1, n, columns]. Each token has k places, each of one expert.
template <class One>
void SendRows(Site& s, int64_t experts, ValueId x, int64_t columns, ValueId weights, int64_t k, const One& expert) {
  const Best best = BestOf(s, weights, k);
  const ValueId places = s.Make(Op::kReshape, {best.experts, s.Ints({-1})});
  std::vector<ValueId> at, results;
  for (int64_t e = 0; e < experts; ++e) {
    const ValueId own = s.Make(Op::kNonZero, {s.Make(Op::kEqual, {places, s.Int(e)})});
    at.push_back(s.Make(Op::kReshape, {own, s.Ints({-1})}));
    const ValueId tokens = s.Make(Op::kDiv, {at.back(), s.Int(k)});
    results.push_back(expert(e, s.Make(Op::kGather, {x, tokens}, {{"axis", int64_t{1}}})));
  }
  const ValueId all =
      s.Make(Op::kSqueeze, {s.Make(Op::kConcat, std::move(results), {{"axis", int64_t{1}}}), s.Ints({0})});
  const ValueId none = s.Make(Op::kConstantOfShape, {s.Make(Op::kShape, {all})});
  const ValueId order = s.Unsqueeze(s.Make(Op::kConcat, std::move(at), {{"axis", int64_t{0}}}), {1});
  const ValueId placed = s.Reshape(s.Make(Op::kScatterND, {none, order, all}), {-1, k, columns});
  ReturnSum(s, Weighed(s, placed, s.Unsqueeze(best.shares, {2})), 1);
}

// Whether each expert is a Linear of its own: its twenty nodes, of 100 bytes and more each, are then few beside the bytes of its weights. Below kLeast codes
// a matrix of 4 bits has less than 512 bytes, so the nodes would weigh more. Chosen by that, not measured; `qmoe_apart` of the tests lies on the edge.
bool AreApart(std::initializer_list<const Codes*> all) {
  constexpr int64_t kMostExperts = 512, kLeast = 1024;
  return std::ranges::all_of(all, [](const Codes* c) {
    return c == nullptr || (c->alone && c->shape[0] <= kMostExperts && c->shape[1] * c->shape[2] >= kLeast);
  });
}

}  // namespace

Status MixtureOfExperts(Site& s) {
  OCTAVO_TRY(const Activation a, ReadActivation(s));
  const bool gated = a.type == "swiglu" && s.Has(6);
  if (s.Has(6) != gated) return s.Refuse("it has fc3_experts_weights, which belong to swiglu");
  OCTAVO_TRY(const int64_t k, Chosen(s));
  const DType type = s.DTypeOf(s.In(0));
  if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16)
    return s.Refuse("its operand is not float32, float16 or bfloat16");
  if (AreConstant(s, {2, 4, gated ? size_t{6} : 2})) {
    const Best best = BestOf(s, {}, k);
    const ValueId places = s.Make(Op::kReshape, {best.experts, s.Ints({-1})});
    const auto own = [&](size_t weight) {  // of each place, and not more of 16 bits than that
      const auto taken = [&](ValueId v) { return Wide(s, s.Make(Op::kGather, {v, places}, {{"axis", int64_t{0}}})); };
      const ValueId bias = s.Has(weight + 1) ? taken(s.In(weight + 1)) : ValueId{};
      return Projection{taken(s.In(weight)), bias, false, s.SizeOf(s.In(weight), 1)};
    };
    const ValueId y = Expert(s, a, RowsOfPlaces(s, k), own(2), own(4), gated ? own(6) : Projection{});
    const ValueId placed = s.Make(Op::kReshape, {y, s.Ints({-1, k, s.SizeOf(s.In(4), 1)})});
    ReturnSum(s, Weighed(s, placed, s.Unsqueeze(best.shares, {2})), 1);
    return {};
  }
  const auto all = [&](size_t weight) {
    return Projection{Wide(s, s.In(weight)), s.Has(weight + 1) ? Wide(s, s.In(weight + 1)) : ValueId{}};
  };
  Weigh(s, Expert(s, a, Flat(s), all(2), all(4), gated ? all(6) : Projection{}), {}, k);
  return {};
}

Status QuantizedExperts(Site& s) {
  OCTAVO_TRY(const Activation a, ReadActivation(s));
  if (s.attrs().Str("quant_type", "int") != "int") return s.Refuse("its quant_type is not int");
  if (s.attrs().Int("weights_prepacked", -1) > 0)
    return s.Refuse("weights_prepacked is set, the layout of one GPU; export without it");
  const int64_t bits = s.attrs().Int("expert_weight_bits", 4);
  const bool gated = a.type == "swiglu" && s.Has(8);
  if (s.Has(8) != gated) return s.Refuse("it has fc3_experts_weights, which belong to swiglu");
  OCTAVO_TRY(const Codes in, ReadCodes(s, 2, 11, s.attrs().Int("fc1_expert_weight_bits", bits)));
  OCTAVO_TRY(const Codes out, ReadCodes(s, 5, 12, s.attrs().Int("fc2_expert_weight_bits", bits)));
  Codes third;
  if (gated) {
    OCTAVO_TRY(third, ReadCodes(s, 8, 13, s.attrs().Int("fc3_expert_weight_bits", bits)));
  }
  const int64_t experts = in.shape[0];
  if (out.shape[0] != experts || (gated && third.shape[0] != experts))
    return s.Refuse("its projections are of different numbers of experts");
  OCTAVO_TRY(const int64_t k, Chosen(s));
  if (s.DTypeOf(s.In(0)) != DType::kF32) return s.Refuse("its operand is not float32");
  const ValueId x = Flat(s);
  const auto some = [&](ValueId rows, int64_t first, int64_t count, bool one) {
    return Expert(s, a, rows, Dequantized(s, in, first, count, one), Dequantized(s, out, first, count, one),
                  gated ? Dequantized(s, third, first, count, one) : Projection{});
  };
  if (AreApart({&in, &out, gated ? &third : nullptr})) {
    SendRows(s, experts, x, out.shape[1], s.In(14), k, [&](int64_t e, ValueId rows) { return some(rows, e, 1, true); });
  } else {
    Weigh(s, some(x, 0, experts, false), s.In(14), k);
  }
  return {};
}

}  // namespace octavo::ir::vendor
