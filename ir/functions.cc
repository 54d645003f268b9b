#include "octavo/ir/functions.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "octavo/ir/names.h"

namespace octavo::ir {

namespace {

// Builds a body: inputs are bound to the node's slots, absent ones stay invalid.
class Body {
 public:
  Body(const Graph& outer, const Node& node) : node_(node) {
    g_.name = InfoOf(node.op).name;
    g_.info.opsets[""] = 18;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      slots_.push_back(v.valid() ? g_.AddInput("i" + std::to_string(i), outer.value(v).type) : ValueId{});
    }
  }

  ValueId In(size_t slot) const { return slot < slots_.size() ? slots_[slot] : ValueId{}; }
  DType TypeOf(size_t slot) const { return In(slot) ? g_.value(In(slot)).type.dtype : DType::kUndefined; }
  const Attrs& attrs() const { return node_.attrs; }
  int64_t Int(std::string_view name, int64_t fallback = 0) const { return node_.attrs.Int(name, fallback); }

  ValueId Make(Op op, std::vector<ValueId> inputs, Attrs a = {}) {
    while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
    return g_.node(g_.AddNode(op, std::move(inputs), 1, std::move(a))).output();
  }
  ValueId Scalar(float v) { return g_.AddConstant(Tensor::ScalarF32(v)); }
  ValueId Whole(int64_t v) { return g_.AddConstant(Tensor::S64({}, {v})); }
  ValueId Ints(std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return g_.AddConstant(Tensor::S64({n}, std::move(v)));
  }
  ValueId Reshape(ValueId x, std::vector<int64_t> target) { return Make(Op::kReshape, {x, Ints(std::move(target))}); }
  ValueId Size(size_t slot, int64_t axis) {  // scalar
    const ValueId size = Make(Op::kShape, {In(slot)}, {{"end", axis + 1}, {"start", axis}});
    return Make(Op::kSqueeze, {size, Ints({0})});
  }
  ValueId Count(ValueId n) { return Make(Op::kRange, {Whole(0), n, Whole(1)}); }
  ValueId Transpose(ValueId x, std::vector<int64_t> perm) {
    return Make(Op::kTranspose, {x}, {{"perm", std::move(perm)}});
  }

  Graph Finish(const std::vector<ValueId>& outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].valid()) g_.AddOutput("o" + std::to_string(i), outputs[i]);
    }
    return std::move(g_);
  }

 private:
  const Node& node_;
  Graph g_;
  std::vector<ValueId> slots_;
};

ValueId Activation(Body& b, const std::string& name, ValueId x) {
  if (name == "relu") return b.Make(Op::kRelu, {x});
  if (name == "sigmoid") return b.Make(Op::kSigmoid, {x});
  if (name == "tanh") return b.Make(Op::kTanh, {x});
  if (name == "silu") return b.Make(Op::kMul, {x, b.Make(Op::kSigmoid, {x})});
  if (name == "quick_gelu")
    return b.Make(Op::kMul, {x, b.Make(Op::kSigmoid, {b.Make(Op::kMul, {x, b.Scalar(1.702f)})})});
  ValueId t;
  if (name == "gelu") {
    t = b.Make(Op::kErf, {b.Make(Op::kDiv, {x, b.Scalar(1.41421354f)})});
  } else if (name == "gelu_tanh") {
    const ValueId cube = b.Make(Op::kMul, {b.Make(Op::kMul, {x, x}), x});
    const ValueId sum = b.Make(Op::kAdd, {x, b.Make(Op::kMul, {cube, b.Scalar(0.044715f)})});
    t = b.Make(Op::kTanh, {b.Make(Op::kMul, {sum, b.Scalar(0.797884583f)})});
  } else {
    return x;  // "none"
  }
  const ValueId product = b.Make(Op::kMul, {x, b.Make(Op::kAdd, {t, b.Scalar(1.0f)})});
  return b.Make(Op::kMul, {product, b.Scalar(0.5f)});
}

// The activation of slots 0..2, dequantized; with per_token nothing, for DequantizeLinear has no scale a row.
ValueId Dequantized(Body& b) {
  return b.Int("per_token") != 0 ? ValueId{} : b.Make(Op::kDequantizeLinear, {b.In(0), b.In(1), b.In(2)});
}

// Weights of a Linear in codes of 8 bits.
struct LinearWeight {
  ValueId codes;
  ValueId zero = {};  // none: 0
};

// x (slots 0..2, dequantized: xd) times the weight of these slots.
ValueId Product(Body& b, ValueId xd, const LinearWeight& w, ValueId w_scale) {
  if (xd) return b.Make(Op::kMatMul, {xd, b.Make(Op::kDequantizeLinear, {w.codes, w_scale}, {{"axis", int64_t{1}}})});
  // The zero point of a row, which few runtimes take in MatMulInteger, times what the weights of a column add up to.
  const auto to = [&b](ValueId v, DType type) { return b.Make(Op::kCast, {v}, {{"to", static_cast<int64_t>(type)}}); };
  ValueId wide = to(w.codes, DType::kS32);
  if (w.zero) wide = b.Make(Op::kSub, {wide, to(w.zero, DType::kS32)});
  const ValueId columns = b.Make(Op::kReduceSum, {wide, b.Ints({0})}, {{"keepdims", int64_t{0}}});
  const ValueId compensation = b.Make(Op::kMul, {to(b.In(2), DType::kS32), columns});
  const ValueId product = b.Make(Op::kMatMulInteger, w.zero ? std::vector<ValueId>{b.In(0), w.codes, {}, w.zero}
                                                            : std::vector<ValueId>{b.In(0), w.codes});
  const ValueId real = to(b.Make(Op::kSub, {product, compensation}), DType::kF32);
  // Row scale times column scale as the product of a column and a row: one multiplication each, so the same bits as Mul. As
  // Mul, ONNX Runtime's MatMulIntegerToFloat fusion takes the scales and applies that of the first row to all (1.31).
  return b.Make(Op::kMul, {real, b.Make(Op::kMatMul, {b.In(1), b.Reshape(w_scale, {1, -1})})});
}

// One projection by w: slots of w, w_scale, bias, y_scale, y_zp start at `first`; xd is the dequantized activation.
ValueId Linear(Body& b, ValueId xd, const LinearWeight& w, size_t first, const std::string& activation,
               ValueId post_scale = {}, ValueId residual = {}) {
  ValueId y = Product(b, xd, w, b.In(first + 1));
  if (b.In(first + 2)) y = b.Make(Op::kAdd, {y, b.In(first + 2)});
  y = Activation(b, activation, y);
  if (post_scale) y = b.Make(Op::kMul, {y, post_scale});
  if (residual) y = b.Make(Op::kAdd, {y, residual});
  if (b.In(first + 3)) y = b.Make(Op::kQuantizeLinear, {y, b.In(first + 3), b.In(first + 4)});
  return y;
}

// The weight of a QuantizedLinear; that of 4 bits as the codes of 8 that it stands for. In products of integers they are unsigned: ONNX Runtime's
// sums of u8 and s8 saturate on CPUs without VNNI.
LinearWeight WeightOf(Body& b, bool integers) {
  if (!b.In(10)) return {b.In(3)};
  const auto to = [&b](ValueId v, DType type) { return b.Make(Op::kCast, {v}, {{"to", static_cast<int64_t>(type)}}); };
  const ValueId codes = b.Make(Op::kDequantizeLinear, {b.In(3), to(b.In(10), DType::kF32), b.In(11)},
                               {{"axis", int64_t{0}}, {"block_size", kRowsOfStep}});
  if (!integers) return {to(codes, DType::kS8)};
  return {to(b.Make(Op::kAdd, {codes, b.Scalar(128.0f)}), DType::kU8), to(b.Scalar(128.0f), DType::kU8)};
}

Graph QuantizedLinearBody(Body b) {
  const ValueId xd = Dequantized(b);
  return b.Finish({Linear(b, xd, WeightOf(b, !xd), 3, b.attrs().Str("activation", "none"), b.In(8), b.In(9))});
}

Graph QuantizedQkvBody(Body b, size_t branches) {
  const ValueId xd = Dequantized(b);
  std::vector<ValueId> outputs;
  outputs.reserve(branches);
  for (size_t i = 0; i < branches; ++i) outputs.push_back(Linear(b, xd, {b.In(3 + 5 * i)}, 3 + 5 * i, "none"));
  return b.Finish(outputs);
}

Graph QuantizeTokensBody(Body b) {
  const ValueId x = b.In(0), nothing = b.Scalar(0.0f), most = b.Scalar(255.0f);
  const auto end = [&](Op reduce, Op with_zero) {  // of the row, and of what 255 steps are made of
    return b.Make(with_zero, {b.Make(reduce, {x, b.Ints({-1})}, {{"keepdims", int64_t{1}}}), nothing});
  };
  const ValueId lo = end(Op::kReduceMin, Op::kMin), hi = end(Op::kReduceMax, Op::kMax);
  const ValueId spread = b.Make(Op::kSub, {b.Make(Op::kDiv, {hi, most}), b.Make(Op::kDiv, {lo, most})});
  const ValueId scale = b.Make(Op::kMax, {spread, b.Scalar(0x1p-100f)});
  const auto code = [&](ValueId v) {
    return b.Make(Op::kCast, {b.Make(Op::kClip, {v, nothing, most})}, {{"to", static_cast<int64_t>(DType::kU8)}});
  };
  const ValueId zero = b.Make(Op::kRound, {b.Make(Op::kSub, {nothing, b.Make(Op::kDiv, {lo, scale})})});
  const ValueId steps = b.Make(Op::kRound, {b.Make(Op::kDiv, {x, scale})});
  const ValueId at = b.Make(Op::kClip, {zero, nothing, most});
  return b.Finish({code(b.Make(Op::kAdd, {steps, at})), scale, code(zero)});
}

// Out of past, now and a row of zeros.
Graph CacheAppendBody(Body b) {
  const ValueId old = b.Size(0, 2), fresh = b.Size(1, 2), rows = b.In(3);
  const ValueId least = b.Make(Op::kSub, {b.Whole(0), fresh});
  ValueId before = b.Make(Op::kMax, {b.Make(Op::kMin, {b.In(2), old}), least});
  before = b.Make(Op::kUnsqueeze, {before, b.Ints({1})});
  const ValueId at = b.Count(rows);
  const ValueId behind = b.Make(Op::kMin, {b.Make(Op::kSub, {at, before}), fresh});
  const ValueId row = b.Make(Op::kWhere, {b.Make(Op::kLess, {at, before}), at, b.Make(Op::kAdd, {behind, old})});
  const auto sizes = [&](int64_t start, int64_t end) {
    return b.Make(Op::kShape, {b.In(0)}, {{"end", end}, {"start", start}});
  };
  const ValueId target = b.Make(Op::kConcat, {sizes(0, 2), b.Reshape(rows, {1}), sizes(3, 4)}, {{"axis", int64_t{0}}});
  const ValueId index = b.Make(Op::kExpand, {b.Make(Op::kUnsqueeze, {row, b.Ints({1, 3})}), target});
  const ValueId both = b.Make(Op::kConcat, {b.In(0), b.In(1)}, {{"axis", int64_t{2}}});
  const ValueId all = b.Make(Op::kPad, {both, b.Ints({0, 0, 0, 0, 0, 0, 1, 0})});
  return b.Finish({b.Make(Op::kGatherElements, {all, index}, {{"axis", int64_t{2}}})});
}

constexpr int64_t kMostSize = int64_t{1} << 31;  // of a head, a block, ...: products of two do not overflow

// k of a LinearBlocked; 0: not known, which no graph with constant weights has.
int64_t DepthOfBlocked(const Graph& g, const Node& node) {
  const auto& shape = g.value(node.input(1)).type.shape;
  if (!shape || shape->size() != 2) return 0;
  const Dim& k = (*shape)[node.attrs.Int("transposed", 0) != 0 ? 1 : 0];
  return k.is_number() && k.number() > 0 && k.number() <= kMostSize ? k.number() : 0;
}

// Input 0, `depth` values a row, through codes of 8 bits with one scale a block of a row.
ValueId ThroughRowCodes(Body& b, int64_t depth, int64_t block) {
  const int64_t blocks = (depth + block - 1) / block, padding = blocks * block - depth;
  ValueId x = b.In(0);
  if (padding > 0) x = b.Make(Op::kPad, {x, b.Ints({0, padding}), ValueId{}, b.Ints({-1})});
  const ValueId shape = b.Make(Op::kShape, {x}), rows = b.Make(Op::kShape, {x}, {{"end", int64_t{-1}}});
  const ValueId parts = b.Make(Op::kConcat, {rows, b.Ints({blocks, block})}, {{"axis", int64_t{0}}});
  x = b.Make(Op::kReshape, {x, parts}, {{"allowzero", int64_t{1}}});
  const ValueId top = b.Make(Op::kReduceMax, {b.Make(Op::kAbs, {x}), b.Ints({-1})}, {{"keepdims", int64_t{1}}});
  const ValueId scale = b.Make(Op::kMax, {b.Make(Op::kDiv, {top, b.Scalar(127.0f)}), b.Scalar(0x1p-100f)});
  const ValueId steps = b.Make(Op::kRound, {b.Make(Op::kDiv, {x, scale})});
  const ValueId codes = b.Make(Op::kClip, {steps, b.Scalar(-127.0f), b.Scalar(127.0f)});
  x = b.Make(Op::kReshape, {b.Make(Op::kMul, {codes, scale}), shape}, {{"allowzero", int64_t{1}}});
  if (padding > 0) x = b.Make(Op::kSlice, {x, b.Ints({0}), b.Ints({depth}), b.Ints({-1})});
  return x;
}

Graph LinearBlockedBody(Body b, int64_t depth) {
  const bool transposed = b.Int("transposed") != 0;
  ValueId w = b.Make(Op::kDequantizeLinear, {b.In(1), b.In(2), b.In(3)},
                     {{"axis", int64_t{transposed ? 1 : 0}}, {"block_size", b.Int("block_size")}});
  if (transposed) w = b.Transpose(w, {1, 0});
  const ValueId x = b.Int("x_bits") == 8 ? ThroughRowCodes(b, depth, b.Int("block_size")) : b.In(0);
  ValueId y = b.Make(Op::kMatMul, {x, w});
  if (b.In(4)) y = b.Make(Op::kAdd, {y, b.In(4)});
  return b.Finish({y});
}

Graph LookupBody(Body b) {
  const ValueId index = b.Make(Op::kCast, {b.In(0)}, {{"to", static_cast<int64_t>(DType::kS64)}});
  return b.Finish({b.Make(Op::kGather, {b.In(1), index}, {{"axis", int64_t{0}}})});
}

// Head split of operand `x` of rank `rank` with `heads` heads of `dim`: [B,S,H*D] -> [B,H,S,D]; rank 4 is left alone.
ValueId SplitHeads(Body& b, ValueId x, int64_t rank, int64_t heads, int64_t dim) {
  if (rank == 4) return x;
  return b.Transpose(b.Reshape(x, {0, 0, heads, dim}), {0, 2, 1, 3});
}

// Each of `groups` key/value heads serves heads/groups query heads: [B,G,S,D] -> [B,H,S,D].
ValueId RepeatHeads(Body& b, ValueId x, int64_t groups, int64_t heads, int64_t dim) {
  if (groups == heads) return x;
  const ValueId five = b.Make(Op::kUnsqueeze, {x, b.Ints({2})});
  const ValueId wide = b.Make(Op::kExpand, {five, b.Ints({1, 1, heads / groups, 1, 1})});
  return b.Reshape(wide, {0, heads, -1, dim});
}

// key - query - offset, s64 [Sq,Sk]. The lengths are those of q and k: scores with another reader would not fuse.
ValueId KeyDistance(Body& b) {
  const ValueId queries = b.Size(0, b.Int("q_rank", 4) - 2), keys = b.Size(1, b.Int("k_rank", 4) - 2);
  ValueId rows = b.Count(queries);
  if (b.Int("bottom_right") != 0) rows = b.Make(Op::kAdd, {rows, b.Make(Op::kSub, {keys, queries})});
  return b.Make(Op::kSub, {b.Count(keys), b.Make(Op::kUnsqueeze, {rows, b.Ints({1})})});
}

// Codes with the scale and zero point of these slots as numbers; step (0: there is none) stands for the scale.
ValueId OfCodes(Body& b, ValueId codes, size_t slot, float step) {
  return b.Make(Op::kDequantizeLinear, {codes, step != 0.0f ? b.Scalar(step) : b.In(slot), b.In(slot + 1)});
}

// Quantized and dequantized with the scale and zero point of these slots; slot 0, or nothing there: as it is.
ValueId ThroughCodes(Body& b, ValueId x, size_t slot, float step = 0.0f) {
  if (slot == 0 || !b.In(slot)) return x;
  return OfCodes(b, b.Make(Op::kQuantizeLinear, {x, b.In(slot), b.In(slot + 1)}), slot, step);
}

// Slopes and mask are added, the sum goes through the codes of `codes`, hidden keys get their value.
ValueId Visible(Body& b, ValueId s, ValueId mask, ValueId keep, ValueId slopes, size_t codes) {
  const int64_t left = b.Int("window_left", -1), right = b.Int("window_right", -1);
  const ValueId distance = slopes || left >= 0 || right >= 0 ? KeyDistance(b) : ValueId{};
  if (slopes) {
    const ValueId steps = b.Make(Op::kCast, {distance}, {{"to", static_cast<int64_t>(DType::kF32)}});
    const ValueId bias = b.Make(Op::kMul, {b.Make(Op::kUnsqueeze, {slopes, b.Ints({1, 2})}), steps});
    mask = mask ? b.Make(Op::kAdd, {bias, mask}) : bias;
  }
  if (mask) s = b.Make(Op::kAdd, {s, mask});
  s = ThroughCodes(b, s, codes);
  const auto also = [&](ValueId condition) { keep = keep ? b.Make(Op::kAnd, {keep, condition}) : condition; };
  if (left >= 0) also(b.Make(Op::kGreaterOrEqual, {distance, b.Whole(-left)}));
  if (right >= 0) also(b.Make(Op::kLessOrEqual, {distance, b.Whole(right)}));
  if (!keep) return s;
  return b.Make(Op::kWhere,
                {keep, s, b.Scalar(b.attrs().Float("hidden_value", -std::numeric_limits<float>::infinity()))});
}

// Of each row of scores, relative to its largest.
ValueId Exponentials(Body& b, ValueId s) {
  const ValueId top = b.Make(Op::kReduceMax, {s, b.Ints({-1})}, {{"keepdims", int64_t{1}}});
  return b.Make(Op::kExp, {b.Make(Op::kSub, {s, top})});
}

// Their codes as whole numbers: the largest of a row is 1 / p_scale. A row without meaning is 0. What rounding leaves of a key goes to the
// sixteenth behind it: sums of 256ths along such keys, cut to whole codes, less those of the sums before.
ValueId DiffusedCodes(Body& b, ValueId s) {
  const auto s64 = static_cast<int64_t>(DType::kS64);
  const ValueId n = b.Make(Op::kRound, {b.Make(Op::kDiv, {b.Scalar(1.0f), b.In(9)})});
  const ValueId parts = b.Make(Op::kMul, {Exponentials(b, s), b.Make(Op::kMul, {n, b.Scalar(256.0f)})});
  const ValueId known = b.Make(Op::kWhere, {b.Make(Op::kIsNaN, {parts}), b.Scalar(0.0f), parts});
  const ValueId whole = b.Make(Op::kCast, {b.Make(Op::kRound, {known})}, {{"to", s64}});
  const ValueId keys = b.Make(Op::kUnsqueeze, {b.Size(1, b.Int("k_rank", 4) - 2), b.Ints({0})});
  const ValueId rest = b.Make(Op::kMod, {b.Make(Op::kNeg, {keys}), b.Ints({16})});
  const ValueId pads = b.Make(Op::kConcat, {b.Ints({0, 0, 0, 0, 0, 0, 0}), rest}, {{"axis", int64_t{0}}});
  const ValueId lanes = b.Reshape(b.Make(Op::kPad, {whole, pads}), {0, 0, 0, -1, 16});
  const ValueId sums = b.Make(Op::kAdd, {b.Make(Op::kCumSum, {lanes, b.Whole(3)}), b.Whole(128)});
  const auto cut = [&](ValueId x) { return b.Make(Op::kDiv, {x, b.Whole(256)}); };
  const ValueId codes = b.Make(Op::kSub, {cut(sums), cut(b.Make(Op::kSub, {sums, lanes}))});
  const ValueId row = b.Make(Op::kSlice, {b.Reshape(codes, {0, 0, 0, -1}), b.Ints({0}), keys, b.Ints({3})});
  const ValueId bytes = b.Make(Op::kCast, {row}, {{"to", static_cast<int64_t>(DType::kU8)}});
  return b.Make(Op::kDequantizeLinear, {bytes, b.Scalar(1.0f)});
}

// The codes of exponentials as whole numbers: of each row of scores the largest is 1 / p_scale. A row without meaning is 0.
ValueId RelativeCodes(Body& b, ValueId s) {
  if (b.Int("p_relative") == kSdpaDiffused) return DiffusedCodes(b, s);
  const ValueId e = Exponentials(b, s);
  return b.Make(Op::kDequantizeLinear, {b.Make(Op::kQuantizeLinear, {e, b.In(9), b.In(10)}), b.Scalar(1.0f), b.In(10)});
}

Graph SdpaBody(Body b, bool int8) {
  const int64_t heads = b.Int("num_heads");
  const int64_t groups = b.Int("kv_num_heads", heads);
  const int64_t dim = b.Int("head_dim");
  const int64_t v_dim = b.Int("v_head_dim", dim);
  // Integers are moved as such; ONNX moves no fp8 before opset 21, and never by Expand, so fp8 becomes float first.
  const bool fp8 = int8 && quant::IsFp8(b.TypeOf(0));
  const auto dequantize = [&](ValueId x, size_t slot, bool here = true) {
    return int8 && here ? b.Make(Op::kDequantizeLinear, {x, b.In(slot), b.In(slot + 1)}) : x;
  };
  const ValueId in_q = dequantize(b.In(0), 3, fp8), in_k = dequantize(b.In(1), 5, fp8),
                in_v = dequantize(b.In(2), 7, fp8);
  const ValueId q = SplitHeads(b, in_q, b.Int("q_rank", 4), heads, dim);
  // One Transpose from the split to [B,G,D,S], as the canonical form has it.
  ValueId kt;
  if (b.Int("k_rank", 4) == 3 && groups == heads) {
    kt = b.Transpose(b.Reshape(in_k, {0, 0, heads, dim}), {0, 2, 3, 1});
  } else {
    const ValueId k = SplitHeads(b, in_k, b.Int("k_rank", 4), groups, dim);
    kt = b.Transpose(RepeatHeads(b, k, groups, heads, dim), {0, 1, 3, 2});
  }
  const ValueId v = RepeatHeads(b, SplitHeads(b, in_v, b.Int("v_rank", 4), groups, v_dim), groups, heads, v_dim);

  ValueId s = b.Make(Op::kMatMul, {dequantize(q, 3, !fp8), dequantize(kt, 5, !fp8)});
  s = ThroughCodes(b, s, int8 ? kSdpaProductCodes : 0, b.attrs().Float("product_step", 0.0f));
  const float scale = b.attrs().Float("scale", 1.0f);
  if (scale != 1.0f) s = b.Make(Op::kMul, {s, b.Scalar(scale)});
  if (const float c = int8 ? b.attrs().Float("divisor", 0.0f) : 0.0f; c != 0.0f) s = b.Make(Op::kDiv, {s, b.Scalar(c)});
  s = ThroughCodes(b, s, int8 ? kSdpaScaledCodes : 0);
  if (const float cap = b.attrs().Float("softcap", 0.0f); cap != 0.0f) {
    s = b.Make(Op::kMul, {b.Make(Op::kTanh, {b.Make(Op::kDiv, {s, b.Scalar(cap)})}), b.Scalar(cap)});
  }
  const size_t mask = int8 ? 13 : 3;
  s = Visible(b, s, b.In(mask), b.In(mask + 1), b.In(mask + 2), int8 ? kSdpaMaskedCodes : 0);
  const bool flash = b.Int("flash") != 0, relative = int8 && !fp8 && !flash && b.Int("p_relative") != 0;
  ValueId p = relative ? RelativeCodes(b, s) : b.Make(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}});
  if (!relative) {
    if (b.Int("nan_guard") == kSdpaGuardMasked) {
      const ValueId top = b.Make(Op::kReduceMax, {s, b.Ints({-1})}, {{"keepdims", int64_t{1}}});
      p = b.Make(Op::kWhere, {b.Make(Op::kIsInf, {top}, {{"detect_positive", int64_t{0}}}), b.Scalar(0.0f), p});
    } else if (b.Int("nan_guard") != 0) {
      p = b.Make(Op::kWhere, {b.Make(Op::kIsNaN, {p}), b.Scalar(0.0f), p});
    }
    p = ThroughCodes(b, p, int8 ? kSdpaProbCodes : 0);
    if (int8 && (fp8 || !flash)) p = ThroughCodes(b, p, 9, b.attrs().Float("p_step", 0.0f));
  }
  ValueId o = b.Make(Op::kMatMul, {p, dequantize(v, 7, !fp8)});
  if (relative) {
    const ValueId sum = b.Make(Op::kReduceSum, {p, b.Ints({-1})}, {{"keepdims", int64_t{1}}});
    o = b.Make(Op::kDiv, {o, b.Make(Op::kMax, {sum, b.Scalar(1.0f)})});
  }
  const auto quantize = [&](bool here) {
    if (int8 && here && b.In(11)) o = b.Make(Op::kQuantizeLinear, {o, b.In(11), b.In(12)});
  };
  quantize(!fp8);
  if (b.Int("out_rank", 4) == 3) o = b.Reshape(b.Transpose(o, {0, 2, 1, 3}), {0, 0, heads * v_dim});
  quantize(fp8);
  return b.Finish({o});
}

// LayerNormalization or RMSNormalization of the last axis with the gamma (and beta) of these slots.
ValueId Norm(Body& b, ValueId x, size_t gamma) {
  if (b.Int("rms") != 0) {
    return b.Make(Op::kRMSNormalization, {x, b.In(gamma)},
                  {{"axis", int64_t{-1}}, {"epsilon", b.attrs().Float("epsilon", 1e-5f)}});
  }
  return b.Make(Op::kLayerNormalization, {x, b.In(gamma), b.In(gamma + 1)},
                {{"axis", int64_t{-1}}, {"epsilon", b.attrs().Float("epsilon", 1e-5f)}});
}

Graph SkipLayerNormBody(Body b, bool wants_sum) {
  const ValueId sum = b.Make(Op::kAdd, {b.In(0), b.In(1)});
  const ValueId y = Norm(b, sum, 2);
  return b.Finish({y, wants_sum ? sum : ValueId{}});
}

// y and q always: a function must name all of its outputs, whatever a call leaves out.
Graph NormQuantBody(Body b, bool wants_sum) {
  const ValueId x = b.In(1) ? b.Make(Op::kAdd, {b.In(0), b.In(1)}) : b.In(0);
  const ValueId y = Norm(b, x, 2);
  const ValueId own = b.In(6) ? Norm(b, x, 6) : y;
  ValueId q = b.Make(Op::kQuantizeLinear, {own, b.In(4), b.In(5)});
  if (b.In(8)) q = b.Make(Op::kGather, {q, b.In(8)}, {{"axis", int64_t{-1}}});
  return wants_sum ? b.Finish({y, q, x}) : b.Finish({y, q});
}

}  // namespace

Result<Graph> BodyOf(const Graph& graph, const Node& node) {
  switch (node.op) {
    case Op::kCacheAppend:
      return CacheAppendBody({graph, node});
    case Op::kQuantizedLinear:
      return QuantizedLinearBody({graph, node});
    case Op::kLookup:
      if (const auto& shape = graph.value(node.input(1)).type.shape;
          shape && (shape->size() != 1 || !ProvablyEqual((*shape)[0], Dim(256)))) {
        return Fail("node {} (Lookup): its table {} does not have 256 codes", Quoted(node.name), ToString(*shape));
      }
      return LookupBody({graph, node});
    case Op::kQuantizeTokens:
      return QuantizeTokensBody({graph, node});
    case Op::kLinearBlocked:
      if (const int64_t block = node.attrs.Int("block_size", 0); block <= 0 || block > kMostSize)
        return Fail("node {} (LinearBlocked): its block_size is {}", Quoted(node.name), block);
      if (const int64_t bits = node.attrs.Int("x_bits", 0); bits != 0 && bits != 8) {
        return Fail("node {} (LinearBlocked): x_bits is {}; it is 0 or 8", Quoted(node.name), bits);
      } else if (bits == 8 && DepthOfBlocked(graph, node) == 0) {
        return Fail("node {} (LinearBlocked): with x_bits the shape of its weights must be known", Quoted(node.name));
      }
      return LinearBlockedBody({graph, node}, DepthOfBlocked(graph, node));
    case Op::kQuantizedQkv: {
      const size_t branches = node.outputs.size();
      if (node.inputs.size() > 3 + 5 * branches || node.inputs.size() + 3 < 3 + 5 * branches) {
        return Fail("node {} (QuantizedQkv): {} inputs do not fit {} branches of 5", Quoted(node.name),
                    node.inputs.size(), branches);
      }
      return QuantizedQkvBody({graph, node}, branches);
    }
    case Op::kSdpa:
    case Op::kQuantizedSdpa: {
      const int64_t heads = node.attrs.Int("num_heads", 0);
      const int64_t groups = node.attrs.Int("kv_num_heads", heads);
      const int64_t dim = node.attrs.Int("head_dim", 0), v_dim = node.attrs.Int("v_head_dim", dim);
      if (heads <= 0 || groups <= 0 || heads % groups != 0 || dim <= 0 || v_dim <= 0 ||
          std::max({heads, dim, v_dim}) > kMostSize) {
        return Fail(
            "node {} ({}): num_heads {}, kv_num_heads {}, head_dim {} and v_head_dim {} do not make sense together",
            Quoted(node.name), InfoOf(node.op).name, heads, groups, dim, v_dim);
      }
      for (const char* rank : {"q_rank", "k_rank", "v_rank", "out_rank"}) {
        const int64_t n = node.attrs.Int(rank, 4);
        if (n != 3 && n != 4)
          return Fail("node {} ({}): {} is {}; it is 3 or 4", Quoted(node.name), InfoOf(node.op).name, rank, n);
      }
      if (node.attrs.Int("p_relative", 0) != 0 && node.input(kSdpaProbCodes)) {
        return Fail("node {} (QuantizedSdpa): p_relative has no probabilities that pass through codes",
                    Quoted(node.name));
      }
      return SdpaBody({graph, node}, node.op == Op::kQuantizedSdpa);
    }
    case Op::kSkipLayerNorm:
      return SkipLayerNormBody({graph, node}, node.output(1).valid());
    case Op::kNormQuant:
      return NormQuantBody({graph, node}, node.output(2).valid());
    default:
      return Fail("node {}: {} has no body", Quoted(node.name), InfoOf(node.op).name);
  }
}

Status Expand(Graph& graph, NodeId id) {
  OCTAVO_TRY(Graph body, BodyOf(graph, graph.node(id)));
  const Node node = graph.node(id);  // a copy: the store may grow
  std::vector<std::string> origin = node.origin;
  origin.emplace_back("pass:expand");
  std::vector<ValueId> map(body.value_capacity());
  for (ValueId in : body.inputs()) {
    const std::string& name = body.value(in).name;  // "i<slot>"
    map[in.index] = node.inputs[std::stoul(name.substr(1))];
  }
  for (NodeId inner : body.NodesInOrder()) {
    const Node& n = body.node(inner);
    std::vector<ValueId> inputs;
    inputs.reserve(n.inputs.size());
    for (ValueId v : n.inputs) inputs.push_back(v.valid() ? map[v.index] : ValueId{});
    const NodeId made = graph.AddNode(n.op, std::move(inputs), n.outputs.size(), n.attrs, node.name, id);
    graph.SetOrigin(made, origin);
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      map[n.outputs[i].index] = graph.node(made).outputs[i];
      graph.SetType(graph.node(made).outputs[i], body.value(n.outputs[i]).type);
    }
  }
  for (const GraphOutput& o : body.outputs()) {
    const ValueId from = node.outputs[std::stoul(o.name.substr(1))];
    if (!from.valid()) continue;
    const ValueId to = map[o.value.index];
    graph.SetType(to, graph.value(from).type);
    graph.ReplaceAllUses(from, to);
  }
  graph.Erase(id);
  return {};
}

}  // namespace octavo::ir
