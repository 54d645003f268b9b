// com.microsoft MatMulNBits beyond the common 4-bit form (ir/onnx/vendor_quant.cc): 2 and 8 bits, and zero points in
// float. The weight [N, blocks, block * bits / 8] becomes a blocked DequantizeLinear (opset 21) of [N, K], transposed.
// With float zero points there is no such form, and the weight becomes float.
#include "octavo/ir/vendor/packed.h"
#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

struct Packed {
  int64_t n, k, block, bits, blocks;
};

Tensor FloatWeight(const Packed& p, const Tensor& w, const Tensor& scales, const Tensor& zeros) {
  Tensor out = Tensor::Empty(DType::kF32, {p.n, p.k});
  for (int64_t row = 0; row < p.n; ++row) {
    for (int64_t i = 0; i < p.k; ++i) {
      const int64_t b = row * p.blocks + i / p.block;
      const int code = CodeAt(w.as<uint8_t>().data() + row * p.blocks * p.block * p.bits / 8, i, p.bits);
      out.mutable_as<float>()[static_cast<size_t>(row * p.k + i)] =
          (static_cast<float>(code) - zeros.as<float>()[static_cast<size_t>(b)]) *
          scales.as<float>()[static_cast<size_t>(b)];
    }
  }
  return out;
}

Result<Packed> Read(const Site& s) {
  Packed p{s.attrs().Int("N", 0), s.attrs().Int("K", 0), s.attrs().Int("block_size", 0), s.attrs().Int("bits", 4), 0};
  if (p.bits != 2 && p.bits != 4 && p.bits != 8) return s.Refuse("bits is {}; octavo takes 2, 4 and 8", p.bits);
  if (s.Has(4)) return s.Refuse("it has the input g_idx (reordered groups); quantize without act_order");
  if (s.attrs().Int("weight_prepacked", 0) != 0)
    return s.Refuse("weight_prepacked is set, the layout of one GPU; export without it");
  constexpr int64_t kMax = int64_t{1} << 28;  // products of the sizes below do not overflow
  if (p.n <= 0 || p.k <= 0 || p.n > kMax || p.k > kMax || p.block < 16 || p.block > (1 << 20) || p.block % 16 != 0) {
    return s.Refuse("N {}, K {} and block_size {} do not make sense", p.n, p.k, p.block);
  }
  p.blocks = (p.k + p.block - 1) / p.block;
  const Tensor* w = s.Const(s.In(1));
  const Tensor* scales = s.Const(s.In(2));
  const Tensor* zeros = s.Const(s.In(3));
  if (w == nullptr || scales == nullptr || (s.Has(3) && zeros == nullptr)) {
    return s.Refuse("its weights, scales or zero points are no constants");
  }
  const bool float_zeros = zeros != nullptr && IsOfScales(zeros->dtype());
  const int64_t zero_size = float_zeros ? p.blocks : BytesOfCodes(p.blocks, p.bits);
  if (w->dtype() != DType::kU8 || w->size() != p.n * p.blocks * p.block * p.bits / 8 || !IsOfScales(scales->dtype()) ||
      scales->size() != p.n * p.blocks || (zeros != nullptr && zeros->size() != p.n * zero_size) ||
      (zeros != nullptr && !float_zeros && zeros->dtype() != DType::kU8)) {
    return s.Refuse(
        "its weights, scales or zero points do not have the types and sizes that N, K, bits and block_size ask for");
  }
  return p;
}

}  // namespace

Status MatMulNBits(Site& s) {
  OCTAVO_TRY(const Packed p, Read(s));
  const Tensor &w = *s.Const(s.In(1)), scales = InFloats(*s.Const(s.In(2)));
  const Tensor* zeros = s.Const(s.In(3));
  const DType type = s.Const(s.In(2))->dtype();  // of x, too; products of 16 bits are those of floats between Casts
  const auto in_floats = [&](ValueId v) { return type == DType::kF32 ? v : s.Cast(v, DType::kF32); };
  const auto give = [&](ValueId y) { s.Return(0, type == DType::kF32 ? y : s.Cast(y, type)); };
  const ValueId x = in_floats(s.In(0)), bias = s.Has(5) ? in_floats(s.In(5)) : ValueId{};
  ValueId wide;
  if (zeros != nullptr && IsOfScales(zeros->dtype())) {
    wide = s.Constant(FloatWeight(p, w, scales, InFloats(*zeros)));
  } else {
    const ValueId codes = s.Constant(UnpackCodes(w, p.n, p.k, p.bits));
    const ValueId points =
        s.Constant(zeros != nullptr ? UnpackCodes(*zeros, p.n, p.blocks, p.bits) : MidCodes(p.n, p.blocks, p.bits));
    if (s.attrs().Int("accuracy_level", 0) == 4 && p.block <= 512) {  // as in ir/onnx/vendor_quant.cc
      std::vector<ValueId> in = {x, codes, s.Constant(scales.Reshaped({p.n, p.blocks})), points};
      if (bias.valid()) in.push_back(bias);
      give(s.Make(Op::kLinearBlocked, std::move(in),
                  {{"block_size", p.block}, {"transposed", int64_t{1}}, {"x_bits", int64_t{8}}}));
      return {};
    }
    wide = s.Make(Op::kDequantizeLinear, {codes, s.Constant(scales.Reshaped({p.n, p.blocks})), points},
                  {{"axis", int64_t{1}}, {"block_size", p.block}});
  }
  const ValueId y = s.Make(Op::kMatMul, {x, s.Transpose(wide, {1, 0})});
  give(bias.valid() ? s.Make(Op::kAdd, {y, bias}) : y);
  return {};
}

}  // namespace octavo::ir::vendor
