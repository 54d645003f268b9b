// com.microsoft GatherBlockQuantized: rows of a quantized table. The rows are gathered as codes, then dequantized, so that the table stays
// as small as it is. Codes that are packed into bytes are gathered as bytes.
#include "octavo/ir/vendor/packed.h"
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

struct Lookup {
  const Tensor *data = nullptr, *scales = nullptr, *zeros = nullptr;
  int64_t bits = 4, block = 128, gather = 0, along = 1;
  int64_t index_rank = 0, columns = 0, blocks = 0;  // columns and blocks of the quantized axis, which is the last one
};

Result<Lookup> Read(const Site& s) {
  Lookup p{s.Const(s.In(0)), s.Const(s.In(2)), s.Const(s.In(3))};
  p.bits = s.attrs().Int("bits", 4);
  p.block = s.attrs().Int("block_size", 128);
  p.index_rank = s.Rank(s.In(1));
  if (p.data == nullptr || p.scales == nullptr || (s.Has(3) && p.zeros == nullptr))
    return s.Refuse("its table, scales or zero points are no constants");
  const int64_t rank = p.data->rank();
  p.gather = s.attrs().Int("gather_axis", 0), p.along = s.attrs().Int("quantize_axis", 1);
  p.gather += p.gather < 0 ? rank : 0;
  p.along += p.along < 0 ? rank : 0;
  if (rank < 2 || p.gather != 0 || p.along != rank - 1)
    return s.Refuse("octavo gathers on the first axis what is quantized along the last");
  if (p.index_rank < 0) return s.Refuse("its indices are of a rank that the file does not tell");
  const DType t = p.data->dtype();
  if (t != DType::kU8 && t != DType::kU4 && t != DType::kS4)
    return s.Refuse("its table is {}; octavo takes u8, u4 and s4", quant::Name(t));
  if (t != DType::kU8) p.bits = 8;  // one element a byte, once unpacked
  if (p.bits != 2 && p.bits != 4 && p.bits != 8) return s.Refuse("bits is {}; octavo takes 2, 4 and 8", p.bits);
  if (p.block < 16 || p.block > (1 << 20)) return s.Refuse("block_size {} does not make sense", p.block);
  p.columns = p.data->shape().back() * (8 / p.bits);
  p.blocks = (p.columns + p.block - 1) / p.block;
  Shape scales = p.data->shape();
  scales.back() = p.blocks;
  const int64_t zero_bytes = BytesOfCodes(p.blocks, p.bits);
  const bool fits = p.scales->shape() == scales && IsOfScales(p.scales->dtype());
  if (!fits || (p.zeros != nullptr &&
                (p.zeros->dtype() != t || p.zeros->shape().empty() || p.zeros->shape().back() != zero_bytes)))
    return s.Refuse("its scales or zero points do not have the types and sizes that bits and block_size ask for");
  return p;
}

// Bytes [..., n] of several codes each as codes [..., n * codes in a byte].
ValueId Spread(Site& s, ValueId bytes, int64_t bits, int64_t rank) {
  const auto byte = [&](int64_t v) {
    return s.Constant(Tensor::Of<uint8_t>(DType::kU8, {}, std::vector<uint8_t>{static_cast<uint8_t>(v)}));
  };
  std::vector<ValueId> parts;
  for (int64_t at = 0; at < 8; at += bits) {
    const ValueId shifted =
        at == 0 ? bytes : s.Make(Op::kBitShift, {bytes, byte(at)}, {{"direction", std::string("RIGHT")}});
    parts.push_back(s.Unsqueeze(s.Make(Op::kBitwiseAnd, {shifted, byte((1 << bits) - 1)}), {-1}));
  }
  std::vector<int64_t> target;
  for (int64_t d = 0; d + 1 < rank; ++d) target.push_back(0);
  target.push_back(-1);
  return s.Reshape(s.Make(Op::kConcat, parts, {{"axis", int64_t{-1}}}), target);
}

// One code a byte, u8 or s8.
Tensor AsBytes(const Tensor& t) {
  if (t.dtype() == DType::kU8) return t;
  const bool is_signed = t.dtype() == DType::kS4;
  Tensor out = Tensor::Empty(is_signed ? DType::kS8 : DType::kU8, t.shape());
  for (int64_t i = 0; i < t.size(); ++i)
    out.mutable_as<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(t.GetInt(i));
  return out;
}

}  // namespace

Status GatherBlockQuantized(Site& s) {
  OCTAVO_TRY(const Lookup p, Read(s));
  const int64_t rank = p.data->rank() - 1 + p.index_rank;
  const auto rows = [&](const Tensor& t) {
    return s.Make(Op::kGather, {s.Constant(t), s.In(1)}, {{"axis", int64_t{0}}});
  };
  ValueId codes = rows(AsBytes(*p.data)), zeros;
  if (p.bits < 8) codes = Spread(s, codes, p.bits, rank);
  if (p.zeros != nullptr) {
    zeros = rows(AsBytes(*p.zeros));
    if (p.bits < 8)
      zeros = s.Make(Op::kSlice, {Spread(s, zeros, p.bits, rank), s.Ints({0}), s.Ints({p.blocks}), s.Ints({-1})});
  } else if (p.data->dtype() == DType::kU8) {
    Tensor middle = Tensor::Empty(DType::kU8, p.scales->shape());
    std::ranges::fill(middle.mutable_as<uint8_t>(), static_cast<uint8_t>(1 << (p.bits - 1)));
    zeros = rows(middle);
  }
  const ValueId y = s.Make(Op::kDequantizeLinear, {codes, rows(InFloats(*p.scales)), zeros},
                           {{"axis", rank - 1}, {"block_size", p.block}});
  const DType type = p.scales->dtype();  // of the rows, too
  s.Return(0, type == DType::kF32 ? y : s.Cast(y, type));
  return {};
}

// com.microsoft MatMulBnb4: x times a weight [N, K] whose 4-bit codes name 16 floats, scaled by block of the flat weight. No standard op
// has such codes, so the weight becomes float.
Status MatMulBnb4(Site& s) {
  static constexpr float kFp4[16] = {
      0.0f,  5.208333333e-03f,  0.66666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
      -0.0f, -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
  static constexpr float kNf4[16] = {-1.0f,
                                     -0.6961928009986877f,
                                     -0.5250730514526367f,
                                     -0.39491748809814453f,
                                     -0.28444138169288635f,
                                     -0.18477343022823334f,
                                     -0.09105003625154495f,
                                     0.0f,
                                     0.07958029955625534f,
                                     0.16093020141124725f,
                                     0.24611230194568634f,
                                     0.33791524171829224f,
                                     0.44070982933044434f,
                                     0.5626170039176941f,
                                     0.7229568362236023f,
                                     1.0f};
  constexpr int64_t kMax = int64_t{1} << 28;
  const int64_t n = s.attrs().Int("N", 0), k = s.attrs().Int("K", 0), block = s.attrs().Int("block_size", 0);
  const int64_t type = s.attrs().Int("quant_type", 0);
  if (n < 1 || k < 1 || n > kMax || k > kMax || block < 16 || block > kMax || type < 0 || type > 1)
    return s.Refuse("N {}, K {}, block_size {} and quant_type {} do not make sense", n, k, block, type);
  if (s.attrs().Int("training_mode", 0) != 0) return s.Refuse("training_mode is set; export for inference");
  const Tensor *w = s.Const(s.In(1)), *top = s.Const(s.In(2));
  if (w == nullptr || top == nullptr || w->dtype() != DType::kU8 || w->size() != (n * k + 1) / 2 ||
      !IsOfScales(top->dtype()) || top->size() != (n * k + block - 1) / block) {
    return s.Refuse("its weights or absmax are no constants of the types and sizes that N, K and block_size ask for");
  }
  const Tensor scales = InFloats(*top);
  Tensor wide = Tensor::Empty(DType::kF32, {n, k});
  for (int64_t i = 0; i < n * k; ++i) {  // the high bits come first
    const int code = w->as<uint8_t>()[static_cast<size_t>(i / 2)] >> (i % 2 == 0 ? 4 : 0) & 15;
    wide.mutable_as<float>()[static_cast<size_t>(i)] =
        (type == 0 ? kFp4 : kNf4)[code] * scales.as<float>()[static_cast<size_t>(i / block)];
  }
  const ValueId weight = s.Constant(std::move(wide));
  const DType of_x = top->dtype();
  const ValueId x = of_x == DType::kF32 ? s.In(0) : s.Cast(s.In(0), DType::kF32);
  const ValueId y = s.Make(Op::kMatMul, {x, s.attrs().Int("transB", 1) != 0 ? s.Transpose(weight, {1, 0}) : weight});
  s.Return(0, of_x == DType::kF32 ? y : s.Cast(y, of_x));
  return {};
}

}  // namespace octavo::ir::vendor
