#include "families.h"

#include <algorithm>
#include <cmath>

namespace octavo::runtime::testing {

using ir::DType;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;

namespace {

// Floats from lo to hi, everything else by its bits.
Tensor Random(DType dtype, Shape shape, double lo, double hi, std::mt19937& gen) {
  Tensor t = Tensor::Empty(dtype, std::move(shape));
  if (dtype == DType::kF32) {
    std::uniform_real_distribution<float> of(static_cast<float>(lo), static_cast<float>(hi));
    for (float& v : t.mutable_as<float>()) v = of(gen);
    return t;
  }
  std::uniform_int_distribution<int64_t> of(std::llround(lo), std::llround(hi));
  for (int64_t& v : t.mutable_as<int64_t>()) {
    if (dtype == DType::kS64) v = of(gen);
  }
  for (uint8_t& v : t.mutable_as<uint8_t>()) {
    if (dtype != DType::kS64) v = static_cast<uint8_t>(of(gen));
  }
  return t;
}

}  // namespace

ValueId Maker::Input(const std::string& name, DType dtype, Shape dims, double lo, double hi) {
  ir::SymShape shape;
  for (const int64_t d : dims) {
    static constexpr const char* kNames[] = {"batch", "rows", "keys"};
    const ir::Dim dim = d >= 0 ? ir::Dim(d) : ir::Dim::Symbol(kNames[-1 - d]);
    shape.push_back(knowledge_ == Knowledge::kDims ? dim : ir::Dim::Unknown());
  }
  ir::Type type{dtype, std::move(shape)};
  if (knowledge_ == Knowledge::kDtype) type.shape.reset();
  sources_.push_back({family + "_" + name, dtype, std::move(dims), lo, hi});
  const ValueId input = graph.AddInput(sources_.back().name, std::move(type));
  return through ? through(graph, input) : input;
}

ValueId Maker::Constant(DType dtype, Shape shape, double lo, double hi) {
  return graph.AddConstant(Random(dtype, std::move(shape), lo, hi, gen_));
}

ValueId Maker::Node(Op op, std::vector<ValueId> in, ir::Attrs attrs, size_t outputs) {
  const std::string name = family + "_" + std::to_string(graph.node_count());
  return graph.node(graph.AddNode(op, std::move(in), outputs, std::move(attrs), name)).output();
}

void Maker::Output(ValueId value) { graph.AddOutput(family + "_out" + std::to_string(graph.outputs().size()), value); }

void Maker::Codes(std::vector<ValueId>& in, DType dtype, float scale, int zero) {
  in.push_back(Number(scale));
  Tensor z = Tensor::Zeros(dtype, {});
  z.mutable_data()[0] = static_cast<std::byte>(zero);
  in.push_back(graph.AddConstant(z));
}

ir::TensorMap Maker::Inputs(const Sizes& sizes, std::mt19937& gen) const {
  ir::TensorMap inputs;
  for (const Source& s : sources_) {
    Shape shape = s.dims;
    for (int64_t& d : shape) d = d == kBatch ? sizes.batch : d == kRows ? sizes.rows : d == kKeys ? sizes.keys : d;
    inputs[s.name] = Random(s.dtype, std::move(shape), s.lo, s.hi, gen);
  }
  return inputs;
}

namespace {

constexpr int64_t kK = 64, kN = 96, kHeads = 4, kDim = 16;

// Slots of one product: weights, scale, bias, scale and zero point of y, which is f32 where they are absent.
void Branch(Maker& m, std::vector<ValueId>& in, DType w, int64_t n, bool codes) {
  in.push_back(m.Constant(w, {kK, n}, 0, w == DType::kS8 ? 255 : 0x50));
  in.push_back(m.Constant(DType::kF32, {n}, 0.001, 0.01));
  in.push_back(m.Constant(DType::kF32, {n}, -1, 1));
  if (codes) {
    m.Codes(in, w == DType::kS8 ? DType::kU8 : w, 0.1f, w == DType::kS8 ? 128 : 0);
  } else {
    in.insert(in.end(), 2, ValueId{});
  }
}

ValueId CodesOfX(Maker& m, DType dtype, std::vector<ValueId>& in) {
  const bool fp8 = dtype == DType::kE4M3FN;
  in = {m.Input("x", dtype, {kBatch, kRows, kK}, 0, fp8 ? 0x50 : 255)};
  m.Codes(in, dtype, 0.05f, fp8 ? 0 : 110);
  return in[0];
}

void Linear(Maker& m, DType x, DType w, bool residual) {
  std::vector<ValueId> in;
  CodesOfX(m, x, in);
  Branch(m, in, w, kN, false);
  in.push_back({});
  if (residual) in.push_back(m.Input("residual", DType::kF32, {kBatch, kRows, kN}, -1, 1));
  while (!in.back().valid()) in.pop_back();
  m.Output(m.Node(Op::kQuantizedLinear, in, {{"activation", std::string("gelu")}}));
}

void Qkv(Maker& m, DType x, DType w) {
  std::vector<ValueId> in;
  CodesOfX(m, x, in);
  for (int i = 0; i < 3; ++i) Branch(m, in, w, kN, i == 1);
  const ValueId first = m.Node(Op::kQuantizedQkv, in, {{"activation", std::string("none")}}, 3);
  const std::vector<ValueId> outputs = m.graph.node(m.graph.value(first).producer).outputs;
  for (const ValueId v : outputs) m.Output(v);
}

// A product of codes that are made at run time: one scale for all, or one a row.
void Dynamic(Maker& m, bool per_token) {
  const ValueId x = m.Input("x", DType::kF32, {kBatch, kRows, kK}, -2, 2);
  const ValueId first = m.Node(per_token ? Op::kQuantizeTokens : Op::kDynamicQuantizeLinear, {x}, {}, 3);
  std::vector<ValueId> in = m.graph.node(m.graph.value(first).producer).outputs;
  Branch(m, in, DType::kS8, kN, false);
  in.resize(in.size() - 2);
  ir::Attrs attrs = {{"activation", std::string("none")}};
  if (per_token) attrs.Set("per_token", int64_t{1});
  m.Output(m.Node(Op::kQuantizedLinear, in, attrs));
}

void Blocked(Maker& m, DType dtype, int64_t x_bits) {
  constexpr int64_t kBlock = 32, kWide = 256;
  const ValueId x = m.Input("x", DType::kF32, {kBatch, kRows, kK}, -2, 2);
  const ValueId w = m.Constant(dtype, {kK, kWide}, 0, 255);
  const ValueId scale = m.Constant(DType::kF32, {kK / kBlock, kWide}, 0.001, 0.01);
  const ValueId zero = m.Constant(dtype, {kK / kBlock, kWide}, 0, 255);
  m.Output(m.Node(Op::kLinearBlocked, {x, w, scale, zero, m.Constant(DType::kF32, {kWide}, -1, 1)},
                  {{"block_size", kBlock}, {"x_bits", x_bits}}));
}

// Gate and up, and what stands behind them.
void Gated(Maker& m, int64_t x_bits) {
  constexpr int64_t kBlock = 32, kWide = 256;
  const ValueId x = m.Input("x", DType::kF32, {kBatch, kRows, kK}, -2, 2);
  const ValueId z = m.Input("z", DType::kF32, {kBatch, kRows, kWide}, -2, 2);
  const auto product = [&] {
    return m.Node(
        Op::kLinearBlocked,
        {x, m.Constant(DType::kU4, {kK, kWide}, 0, 255), m.Constant(DType::kF32, {kK / kBlock, kWide}, 0.001, 0.01)},
        {{"block_size", kBlock}, {"x_bits", x_bits}});
  };
  const ValueId gate = product(), up = product();
  const ValueId silu = m.Node(Op::kMul, {gate, m.Node(Op::kSigmoid, {gate})});
  m.Output(m.Node(Op::kAdd, {m.Node(Op::kMul, {silu, up}), z}));
}

// A product by heads behind the rows of a cache, turned by a rotary embedding.
void TurnedHeads(Maker& m) {
  constexpr int64_t kBlock = 32, kWide = kHeads * kDim;
  const ValueId x = m.Input("x", DType::kF32, {kBatch, kRows, kK}, -2, 2);
  const ValueId past = m.Input("past", DType::kF32, {kBatch, kHeads, kKeys, kDim}, -2, 2);
  const ValueId cos = m.Input("cos", DType::kF32, {kBatch, 1, kRows, kDim}, -1, 1);
  const ValueId sin = m.Input("sin", DType::kF32, {kBatch, 1, kRows, kDim}, -1, 1);
  const ValueId w = m.Constant(DType::kU4, {kK, kWide}, 0, 255);
  const ValueId y = m.Node(Op::kLinearBlocked, {x, w, m.Constant(DType::kF32, {kK / kBlock, kWide}, 0.001, 0.01)},
                           {{"block_size", kBlock}, {"x_bits", int64_t{8}}});
  const auto ints = [&](std::vector<int64_t> values) {
    return m.graph.AddConstant(Tensor::S64({static_cast<int64_t>(values.size())}, values));
  };
  const ValueId by_heads = m.Node(Op::kReshape, {y, ints({0, 0, kHeads, kDim})});
  const ValueId h = m.Node(Op::kTranspose, {by_heads}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  const ValueId high = m.Node(Op::kSlice, {h, ints({kDim / 2}), ints({kDim}), ints({3})});
  const ValueId low = m.Node(Op::kSlice, {h, ints({0}), ints({kDim / 2}), ints({3})});
  const ValueId turned = m.Node(Op::kConcat, {m.Node(Op::kNeg, {high}), low}, {{"axis", int64_t{-1}}});
  const ValueId sum = m.Node(Op::kAdd, {m.Node(Op::kMul, {h, cos}), m.Node(Op::kMul, {turned, sin})});
  m.Output(m.Node(Op::kConcat, {past, sum}, {{"axis", int64_t{2}}}));
}

// Gate and up as products of codes.
void GatedLinear(Maker& m) {
  constexpr int64_t kWide = 256;
  const ValueId x = m.Input("x", DType::kU8, {kBatch, kRows, kK}, 0, 255);
  const ValueId z = m.Input("z", DType::kF32, {kBatch, kRows, kWide}, -2, 2);
  std::vector<ValueId> codes{x};
  m.Codes(codes, DType::kU8, 0.02f, 128);
  const auto product = [&] {
    std::vector<ValueId> in = codes;
    in.insert(in.end(),
              {m.Constant(DType::kS8, {kK, kWide}, -128, 127), m.Constant(DType::kF32, {kWide}, 0.001, 0.01)});
    return m.Node(Op::kQuantizedLinear, in);
  };
  const ValueId gate = product();
  m.Output(m.Node(Op::kAdd, {m.Node(Op::kMul, {gate, product()}), z}));
}

struct Attention {
  DType q = DType::kF32;
  int64_t heads = kHeads, groups = kHeads, rows = kRows;
  int64_t rank = 4;
  bool flash = false, causal = false, window = false, mask = false, keep = false, slopes = false;
};

void Attend(Maker& m, const Attention& a) {
  const bool f32 = a.q == DType::kF32, fp8 = a.q == DType::kE4M3FN;
  const double lo = f32 ? -1 : 0, hi = f32 ? 1 : fp8 ? 0x38 : 255;
  const auto operand = [&](const char* name, DType dtype, int64_t heads, int64_t rows) {
    const Shape shape = a.rank == 3 ? Shape{kBatch, rows, heads * kDim} : Shape{kBatch, heads, rows, kDim};
    return m.Input(name, dtype, shape, lo, hi);
  };
  const DType v = f32 || fp8 ? a.q : DType::kU8;
  std::vector<ValueId> in = {operand("q", a.q, a.heads, a.rows), operand("k", a.q, a.groups, kKeys),
                             operand("v", v, a.groups, kKeys)};
  if (!f32) {
    m.Codes(in, a.q, 1 / 64.0f, 0), m.Codes(in, a.q, 1 / 64.0f, 0), m.Codes(in, v, 1 / 255.0f, 0);
    m.Codes(in, v, 1 / 255.0f, 0);
    in.insert(in.end(), 2, ValueId{});
  }
  in.push_back(a.mask ? m.Input("mask", DType::kF32, {kBatch, 1, 1, kKeys}, -2, 0) : ValueId{});
  in.push_back(a.keep ? m.Input("keep", DType::kBool, {kBatch, 1, a.rows, kKeys}, 0, 1) : ValueId{});
  in.push_back(a.slopes ? m.Constant(DType::kF32, {a.heads}, -0.5, 0) : ValueId{});
  while (!in.back().valid()) in.pop_back();
  ir::Attrs attrs = {{"num_heads", a.heads}, {"kv_num_heads", a.groups}, {"head_dim", kDim},
                     {"v_head_dim", kDim},   {"q_rank", a.rank},         {"k_rank", a.rank},
                     {"v_rank", a.rank},     {"out_rank", a.rank},       {"scale", 0.25f}};
  if (a.causal || a.window) attrs.Set("window_right", int64_t{0}), attrs.Set("bottom_right", int64_t{1});
  if (a.window) attrs.Set("window_left", int64_t{20});
  if (a.flash) attrs.Set("flash", int64_t{1});
  m.Output(m.Node(f32 ? Op::kSdpa : Op::kQuantizedSdpa, std::move(in), attrs));
}

ValueId RowOfX(Maker& m, double lo, double hi) { return m.Constant(DType::kF32, {kK}, lo, hi); }
ValueId Floats(Maker& m, const std::string& name) { return m.Input(name, DType::kF32, {kBatch, kRows, kK}, -2, 2); }

void NormQuant(Maker& m) {
  std::vector<ValueId> in = {Floats(m, "x"), Floats(m, "skip"), RowOfX(m, 0.5, 2), RowOfX(m, -1, 1)};
  m.Codes(in, DType::kU8, 0.02f, 128);
  const ValueId first = m.Node(Op::kNormQuant, in, {{"epsilon", 1e-5f}}, 3);
  const std::vector<ValueId> outputs = m.graph.node(m.graph.value(first).producer).outputs;
  for (const ValueId v : outputs) m.Output(v);
}

void Chain(Maker& m) {
  const ValueId x = Floats(m, "x"), y = Floats(m, "y");
  const ValueId sum = m.Node(Op::kAdd, {m.Node(Op::kMul, {x, RowOfX(m, -1, 1)}), y});
  std::vector<ValueId> in = {m.Node(Op::kSigmoid, {sum})};
  m.Codes(in, DType::kU8, 1 / 255.0f, 0);
  m.Output(m.Node(Op::kQuantizeLinear, in));
}

void Quantize(Maker& m, bool dequantize) {
  std::vector<ValueId> in = {dequantize ? m.Input("x", DType::kS8, {kBatch, kRows, kK}, 0, 255) : Floats(m, "x")};
  m.Codes(in, dequantize ? DType::kS8 : DType::kU8, 0.02f, 5);
  m.Output(m.Node(dequantize ? Op::kDequantizeLinear : Op::kQuantizeLinear, in));
}

void CacheWrite(Maker& m) {
  const ValueId cache = m.Input("cache", DType::kF32, {kBatch, kHeads, 200, kDim}, -1, 1);
  const ValueId update = m.Input("update", DType::kF32, {kBatch, kHeads, 3, kDim}, -1, 1);
  m.Output(m.Node(Op::kTensorScatter, {cache, update, m.Input("at", DType::kS64, {kBatch}, 0, 190)},
                  {{"axis", int64_t{-2}}}));
}

void CacheAppend(Maker& m) {
  const ValueId cache = m.Input("cache", DType::kF32, {kBatch, kHeads, 200, kDim}, -1, 1);
  const ValueId now = m.Input("now", DType::kF32, {kBatch, kHeads, 3, kDim}, -1, 1);
  const ValueId before = m.Input("before", DType::kS64, {kBatch}, -4, 210);
  const ValueId rows = m.Input("rows", DType::kS64, {}, 0, 220);
  m.Output(m.Node(Op::kCacheAppend, {cache, now, before, rows}));
}

void Rotary(Maker& m, bool heads_first) {
  const ValueId x = heads_first ? m.Input("x", DType::kF32, {kBatch, kHeads, kRows, kDim}, -1, 1)
                                : m.Input("x", DType::kF32, {kBatch, kRows, kHeads * kDim}, -1, 1);
  const ValueId cos = m.Constant(DType::kF32, {60, 4}, -1, 1), sin = m.Constant(DType::kF32, {60, 4}, -1, 1);
  ir::Attrs attrs = {{"rotary_embedding_dim", int64_t{8}}};
  if (!heads_first) attrs.Set("num_heads", kHeads);
  m.Output(m.Node(Op::kRotaryEmbedding, {x, cos, sin, m.Input("at", DType::kS64, {kBatch, kRows}, 0, 59)}, attrs));
}

void Split(Maker& m) {
  const ValueId first = m.Node(Op::kSplit, {Floats(m, "x")}, {{"axis", int64_t{1}}, {"num_outputs", int64_t{2}}}, 2);
  const std::vector<ValueId> outputs = m.graph.node(m.graph.value(first).producer).outputs;
  for (const ValueId v : outputs) m.Output(v);
}

// Windows of two rows, a row of zeros around them.
void Windows(Maker& m) {
  const auto ints = [&](std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return m.graph.AddConstant(Tensor::S64({n}, std::move(v)));
  };
  const ValueId padded = m.Node(Op::kPad, {Floats(m, "x"), ints({0, 1, 0, 0, 0, 0})});
  const ValueId first = m.Node(Op::kSlice, {padded, ints({0}), ints({-1}), ints({1})}),
                second = m.Node(Op::kSlice, {padded, ints({1}), ints({INT64_MAX}), ints({1})});
  m.Output(m.Node(Op::kConcat, {first, second}, {{"axis", int64_t{2}}}));
}

void Slice(Maker& m) {
  const auto ints = [&](std::vector<int64_t> v) { return m.graph.AddConstant(Tensor::S64({1}, std::move(v))); };
  m.Output(m.Node(Op::kSlice, {Floats(m, "x"), ints({1}), ints({-1}), ints({2}), ints({2})}));
}

// `op` between two Transposes, on an image whose channels stand last (runtime/channels_last.h).
ValueId Turned(Maker& m, Op op, std::vector<ValueId> others, ir::Attrs attrs) {
  const auto turned = [&](ValueId v, std::vector<int64_t> perm) {
    return m.Node(Op::kTranspose, {v}, {{"perm", std::move(perm)}});
  };
  others.insert(others.begin(), turned(m.Input("x", DType::kF32, {kBatch, 20, 24, 6}, -1, 1), {0, 3, 1, 2}));
  return turned(m.Node(op, std::move(others), std::move(attrs)), {0, 2, 3, 1});
}

std::function<void(Maker&)> Of(Op op, ir::Attrs attrs = {}) {
  return [op, attrs](Maker& m) { m.Output(m.Node(op, {Floats(m, "x")}, attrs)); };
}

std::vector<Family> Products() {
  return {
      {"linear_int8", "linear_int8 ", [](Maker& m) { Linear(m, DType::kU8, DType::kS8, false); }},
      {"linear_residual", "linear_int8 ", [](Maker& m) { Linear(m, DType::kS8, DType::kS8, true); }},
      {"linear_dynamic", "linear_int8 ", [](Maker& m) { Dynamic(m, false); }},
      {"linear_per_token", "quantize_tokens+linear_int8 ", [](Maker& m) { Dynamic(m, true); }},
      {"qkv_int8", "qkv_int8 ", [](Maker& m) { Qkv(m, DType::kU8, DType::kS8); }},
      {"linear_fp8", "linear_fp8 ", [](Maker& m) { Linear(m, DType::kE4M3FN, DType::kE4M3FN, true); }},
      {"qkv_fp8", "qkv_fp8 ", [](Maker& m) { Qkv(m, DType::kE4M3FN, DType::kE4M3FN); }},
      {"blocked4", "linear_blocked4 ", [](Maker& m) { Blocked(m, DType::kU4, 0); }},
      {"blocked8", "linear_blocked8 ", [](Maker& m) { Blocked(m, DType::kU8, 0); }},
      {"gated", "linear_blocked4+", [](Maker& m) { Gated(m, 0); }},
      {"gated_codes", "linear_blocked4_int8+", [](Maker& m) { Gated(m, 8); }},
      {"turned_heads", "linear_blocked4_int8+rotary+append", TurnedHeads},
      {"gated_linear", "linear_int8+", GatedLinear},
      {"blocked4_codes", "linear_blocked4_int8 ", [](Maker& m) { Blocked(m, DType::kU4, 8); }},
      {"matmul", "matmul_f32",
       [](Maker& m) { m.Output(m.Node(Op::kMatMul, {Floats(m, "x"), m.Constant(DType::kF32, {kK, 600}, -1, 1)})); }},
      {"matmul_batched", "matmul_f32_batched",
       [](Maker& m) {
         const ValueId b = m.Input("b", DType::kF32, {kBatch, kK, kKeys}, -1, 1);
         m.Output(m.Node(Op::kMatMul, {Floats(m, "a"), b}));
       }},
      {"conv", "conv_f32 ",
       [](Maker& m) {
         const ValueId x = m.Input("x", DType::kF32, {kBatch, 6, 20, 24}, -1, 1);
         const ValueId w = m.Constant(DType::kF32, {40, 6, 3, 3}, -1, 1), bias = m.Constant(DType::kF32, {40}, -1, 1);
         m.Output(m.Node(Op::kConv, {x, w, bias}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}}));
       }},
      {"turned_conv", "conv_f32+Add+Relu ",
       [](Maker& m) {
         const ValueId r = m.Input("r", DType::kF32, {kBatch, 20, 24, 40}, -1, 1);
         const ValueId y =
             Turned(m, Op::kConv, {m.Constant(DType::kF32, {40, 6, 3, 3}, -1, 1), m.Constant(DType::kF32, {40}, -1, 1)},
                    {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
         m.Output(m.Node(Op::kRelu, {m.Node(Op::kAdd, {y, r})}));
       }},
      {"conv_transpose", "conv_f32 ",
       [](Maker& m) {
         const ValueId x = m.Input("x", DType::kF32, {kBatch, 6, 9, 7}, -1, 1);
         m.Output(m.Node(Op::kConvTranspose, {x, m.Constant(DType::kF32, {6, 10, 2, 2}, -1, 1)},
                         {{"strides", std::vector<int64_t>{2, 2}}}));
       }},
      {"max_pool", "pool MaxPool ",
       [](Maker& m) { m.Output(Turned(m, Op::kMaxPool, {}, {{"kernel_shape", std::vector<int64_t>{2, 2}}})); }},
      {"global_pool", "pool GlobalAveragePool ", [](Maker& m) { m.Output(Turned(m, Op::kGlobalAveragePool, {}, {})); }},
      {"resize", "resize",
       [](Maker& m) {
         const ValueId scales = m.graph.AddConstant(Tensor::F32({4}, {1, 1, 2, 1.5}));
         m.Output(Turned(m, Op::kResize, {ValueId{}, scales}, {{"mode", std::string("linear")}}));
       }},
      {"conv_integer", "conv_integer ",
       [](Maker& m) {
         const ValueId x = m.Input("x", DType::kU8, {kBatch, 6, 20, 24}, 0, 255);
         const ValueId w = m.Constant(DType::kS8, {40, 6, 3, 3}, 0, 255),
                       zero = m.Input("zero", DType::kU8, {}, 0, 255);
         m.Output(m.Node(Op::kConvInteger, {x, w, zero}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}}));
       }},
      {"qlinear_conv", "qlinear_conv ",
       [](Maker& m) {
         const ValueId x = m.Input("x", DType::kU8, {kBatch, 6, 20, 24}, 0, 255),
                       w = m.Constant(DType::kS8, {40, 6, 3, 3}, 0, 255);
         std::vector<ValueId> in = {x, m.Number(0.1f), m.Input("zero", DType::kU8, {}, 0, 255), w};
         m.Codes(in, DType::kS8, 0.01f, 0), m.Codes(in, DType::kU8, 2.0f, 100);
         m.Output(m.Node(Op::kQLinearConv, in, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}}));
       }},
  };
}

std::vector<Family> Attentions() {
  const auto of = [](const Attention& a) { return [a](Maker& m) { Attend(m, a); }; };
  return {
      {"sdpa", "sdpa_f32 ", of({.mask = true})},
      {"sdpa_rank3", "sdpa_f32 ", of({.groups = 2, .rank = 3, .causal = true})},
      {"sdpa_decode", "sdpa_f32 ", of({.groups = 1, .rows = 2, .slopes = true})},
      {"sdpa_window", "sdpa_f32 ", of({.window = true})},
      {"sdpa_flash", "sdpa_f32_flash ", of({.flash = true, .causal = true, .keep = true})},
      {"sdpa_int8", "sdpa_int8 ", of({.q = DType::kS8, .mask = true, .keep = true, .slopes = true})},
      {"sdpa_int8_rank3", "sdpa_int8 ", of({.q = DType::kS8, .groups = 2, .rank = 3, .causal = true})},
      {"sdpa_int8_decode", "sdpa_int8 ", of({.q = DType::kS8, .groups = 1, .rows = 1})},
      {"sdpa_int8_window", "sdpa_int8 ", of({.q = DType::kS8, .window = true})},
      {"sdpa_int8_flash", "sdpa_int8_flash ", of({.q = DType::kS8, .flash = true, .causal = true})},
      {"sdpa_fp8", "sdpa_fp8 ", of({.q = DType::kE4M3FN})},
  };
}

std::vector<Family> Rows() {
  return {
      {"norm_quant", "norm_quant ", NormQuant},
      {"skip_layer_norm", "skip_layer_norm ",
       [](Maker& m) {
         m.Output(m.Node(Op::kSkipLayerNorm, {Floats(m, "x"), Floats(m, "skip"), RowOfX(m, 0.5, 2), RowOfX(m, -1, 1)}));
       }},
      {"layer_norm", "layer_norm ",
       [](Maker& m) {
         const ValueId gamma = m.Input("gamma", DType::kF32, {kK}, 0.5, 2);
         m.Output(m.Node(Op::kLayerNormalization, {Floats(m, "x"), gamma, RowOfX(m, -1, 1)}));
       }},
      {"rms_norm", "rms_norm ",
       [](Maker& m) { m.Output(m.Node(Op::kRMSNormalization, {Floats(m, "x"), RowOfX(m, 0.5, 2)})); }},
      {"softmax", "softmax ", Of(Op::kSoftmax, {{"axis", int64_t{-1}}})},
      {"softmax_by_number", "softmax ", Of(Op::kSoftmax, {{"axis", int64_t{2}}})},
      {"unary", "Tanh ", Of(Op::kTanh)},
      {"binary", "Add ", [](Maker& m) { m.Output(m.Node(Op::kAdd, {Floats(m, "x"), Floats(m, "y")})); }},
      {"binary_row", "Mul ",
       [](Maker& m) {
         const ValueId row = m.Input("row", DType::kF32, {kK}, -1, 1);
         m.Output(m.Node(Op::kMul, {Floats(m, "x"), row}));
       }},
      {"chain", "chain ", Chain},
      {"quantize", "quantize ", [](Maker& m) { Quantize(m, false); }},
      {"dequantize", "dequantize ", [](Maker& m) { Quantize(m, true); }},
      {"lookup", "lookup ",
       [](Maker& m) {
         const ValueId x = m.Input("x", DType::kU8, {kBatch, kRows, kK}, 0, 255);
         m.Output(m.Node(Op::kLookup, {x, m.Constant(DType::kU8, {256}, 0, 255)}));
       }},
      {"transpose", "move Transpose", Of(Op::kTranspose, {{"perm", std::vector<int64_t>{2, 0, 1}}})},
      {"concat", "move Concat",
       [](Maker& m) { m.Output(m.Node(Op::kConcat, {Floats(m, "x"), Floats(m, "y")}, {{"axis", int64_t{1}}})); }},
      {"unfold", "unfold", Windows},
      {"split", "move Split", Split},
      {"slice", "move Slice", Slice},
      {"cache", "cache_write", CacheWrite},
      {"cache_append", "cache_append", CacheAppend},
      {"rotary", "rotary", [](Maker& m) { Rotary(m, true); }},
      {"rotary_columns", "rotary", [](Maker& m) { Rotary(m, false); }},
  };
}

}  // namespace

const std::vector<Family>& Families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> list = Products();
    for (std::vector<Family> more : {Attentions(), Rows()}) std::ranges::move(more, std::back_inserter(list));
    return list;
  }();
  return all;
}

}  // namespace octavo::runtime::testing
