// ONNX Runtime's quantized ops as what they mean: DequantizeLinear of the operands, the float op, QuantizeLinear.
#include <algorithm>
#include <cstring>

#include "octavo/ir/onnx/import.h"
#include "octavo/ir/onnx/upgrade.h"
#include "octavo/ir/vendor/packed.h"

namespace octavo::ir::onnx {

namespace {

// Scales and zero points may be vectors of one element there; here one element is a scalar.
ValueId Scalar(const Draft& d, GraphBuilder& b, std::string_view hint, ValueId v) {
  const Tensor* t = v.valid() ? b.graph().ConstantOf(v) : nullptr;
  if (t == nullptr || t->rank() == 0 || t->size() != 1) return v;
  return b.Constant(d, std::string(hint) + "_scalar", t->Reshaped({}));
}

// Operand at slots i, i+1, i+2.
ValueId Dequantized(const Draft& d, GraphBuilder& b, std::string_view hint, size_t i, int64_t axis = 1) {
  const ValueId scale = Scalar(d, b, std::string(hint) + "_scale", d.input(i + 1));
  const ValueId zero = Scalar(d, b, std::string(hint) + "_zp", d.input(i + 2));
  return b.Emit(d, hint, Op::kDequantizeLinear, {d.input(i), scale, zero}, {{"axis", axis}});
}

// The draft becomes the QuantizeLinear of `y` with scale and zero point from slots i, i+1.
void Requantize(Draft& d, GraphBuilder& b, ValueId y, size_t i) {
  const ValueId scale = Scalar(d, b, "y_scale", d.input(i));
  const ValueId zero = Scalar(d, b, "y_zp", d.input(i + 1));
  d.domain.clear();
  d.op_type = "QuantizeLinear";
  d.inputs = {y, scale, zero};
  d.attrs = {};
}

Status NeedInputs(const Draft& d, size_t count) {
  if (d.inputs.size() < count || !d.input(0).valid()) return Fail("it has {} inputs, not {}", d.inputs.size(), count);
  return {};
}

// One nibble per element, k fastest: B [n, blocks, block / 2] holds ceil(k / block) blocks, the last one padded.
Tensor Unpadded(const Tensor& packed, int64_t n, int64_t k, int64_t padded) {
  Tensor t = Tensor::Zeros(DType::kU4, {n, k});
  const auto* from = packed.as<uint8_t>().data();
  auto to = t.mutable_as<uint8_t>();
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t source = row * padded + i;
      const int64_t target = row * k + i;
      const int nibble = (from[source / 2] >> (source % 2 * 4)) & 15;
      to[static_cast<size_t>(target / 2)] |= static_cast<uint8_t>(nibble << (target % 2 * 4));
    }
  }
  return t;
}

}  // namespace

Status QLinearBinary(Draft& d, GraphBuilder& b) {
  OCTAVO_TRY_STATUS(NeedInputs(d, 7));
  const Op op = d.op_type == "QLinearAdd" ? Op::kAdd : Op::kMul;
  const ValueId left = Dequantized(d, b, "a", 0);
  const ValueId right = Dequantized(d, b, "b", 3);
  Requantize(d, b, b.Emit(d, "float", op, {left, right}), 6);
  return {};
}

Status QLinearUnary(Draft& d, GraphBuilder& b) {
  OCTAVO_TRY_STATUS(NeedInputs(d, 4));
  Op op = Op::kSigmoid;
  Attrs attrs;
  if (d.op_type == "QLinearLeakyRelu") {
    op = Op::kLeakyRelu;
    attrs.Set("alpha", d.attrs.Float("alpha", 0.01f));
  } else if (d.op_type == "QLinearSoftmax") {
    op = Op::kSoftmax;
    attrs.Set("axis", d.attrs.Int("axis", -1));
    if (d.attrs.Int("opset", 13) < 13) attrs.Set(kFlattenSoftmax, int64_t{1});
  }
  const ValueId x = Dequantized(d, b, "x", 0);
  Requantize(d, b, b.Emit(d, "float", op, {x}, std::move(attrs)), 3);
  return {};
}

Status QLinearConcat(Draft& d, GraphBuilder& b) {
  if (d.inputs.size() < 5 || (d.inputs.size() - 2) % 3 != 0) return Fail("it has {} inputs", d.inputs.size());
  std::vector<ValueId> parts;
  for (size_t i = 2; i < d.inputs.size(); i += 3) parts.push_back(Dequantized(d, b, "x" + std::to_string(i / 3), i));
  const ValueId y = b.Emit(d, "float", Op::kConcat, std::move(parts), {{"axis", d.attrs.Int("axis", 0)}});
  Requantize(d, b, y, 0);
  return {};
}

// alpha * A B + C, where the s32 vector C counts in units of alpha * a_scale * b_scale.
Status QGemm(Draft& d, GraphBuilder& b) {
  OCTAVO_TRY_STATUS(NeedInputs(d, 6));
  const int64_t columns = d.attrs.Int("transB", 0) != 0 ? 0 : 1;
  const float alpha = d.attrs.Float("alpha", 1.0f);
  std::vector<ValueId> operands = {Dequantized(d, b, "a", 0), Dequantized(d, b, "b", 3, columns)};
  if (d.input(6).valid()) {
    ValueId scale =
        b.Emit(d, "c_scale", Op::kMul, {Scalar(d, b, "a_scale2", d.input(1)), Scalar(d, b, "b_scale2", d.input(4))});
    if (alpha != 1.0f) {
      scale = b.Emit(d, "c_alpha", Op::kMul, {scale, b.Constant(d, "alpha", Tensor::ScalarF32(alpha))});
    }
    operands.push_back(b.Emit(d, "c", Op::kDequantizeLinear, {d.input(6), scale}, {{"axis", int64_t{0}}}));
  }
  const Attrs attrs = {
      {"alpha", alpha}, {"beta", 1.0f}, {"transA", d.attrs.Int("transA", 0)}, {"transB", d.attrs.Int("transB", 0)}};
  if (d.input(7).valid()) {
    Requantize(d, b, b.Emit(d, "float", Op::kGemm, std::move(operands), attrs), 7);
    return {};
  }
  d.domain.clear();
  d.op_type = "Gemm";
  d.inputs = std::move(operands);
  d.attrs = attrs;
  return {};
}

bool IsHalf(DType t) { return t == DType::kF16 || t == DType::kBF16; }

// The draft becomes the Cast of a product of floats.
void BackTo(Draft& d, DType type, ValueId product) {
  d.domain.clear();
  d.op_type = "Cast";
  d.inputs = {product};
  d.attrs = {{"to", static_cast<int64_t>(type)}};
}

// 4-bit weights in blocks along K: a blocked DequantizeLinear (opset 21) of the [N, K] weight, transposed. With operands of 16 bits between Casts:
// the product is one of floats in ONNX Runtime, too.
Status MatMulNBits(Draft& d, GraphBuilder& b) {
  const int64_t n = d.attrs.Int("N", 0), k = d.attrs.Int("K", 0);
  const int64_t block = d.attrs.Int("block_size", 0);
  const Tensor* weight = d.input(1).valid() ? b.graph().ConstantOf(d.input(1)) : nullptr;
  const Tensor* scales = d.input(2).valid() ? b.graph().ConstantOf(d.input(2)) : nullptr;
  const Tensor* zeros = d.input(3).valid() ? b.graph().ConstantOf(d.input(3)) : nullptr;
  // Other widths, reordered groups and float zero points stay as they are.
  if (d.attrs.Int("bits", 4) != 4 || d.input(4).valid() || weight == nullptr || scales == nullptr) return {};
  if (d.input(3).valid() && (zeros == nullptr || zeros->dtype() != DType::kU8)) return {};
  constexpr int64_t kMax = int64_t{1} << 31;
  if (n <= 0 || k <= 0 || n > kMax || k > kMax || block < 16 || block % 2 != 0 || block > (1 << 20))
    return Fail("its N, K or block_size is wrong");
  const int64_t blocks = (k + block - 1) / block;
  const int64_t zero_row = (blocks + 1) / 2 * 2;  // rows of zero points begin on a byte
  if (weight->dtype() != DType::kU8 || weight->size() % n != 0 || weight->size() / n != blocks * block / 2 ||
      scales->size() % n != 0 || scales->size() / n != blocks ||
      (scales->dtype() != DType::kF32 && !IsHalf(scales->dtype())) ||
      (zeros != nullptr && (zeros->size() % n != 0 || zeros->size() / n != zero_row / 2))) {
    return Fail("its weights or scales do not have the sizes that N, K and block_size ask for");
  }
  Tensor points = Tensor::Zeros(DType::kU4, {n, blocks});
  if (zeros != nullptr) {
    points = Unpadded(*zeros, n, blocks, zero_row);
  } else {
    std::ranges::fill(points.mutable_as<uint8_t>(), uint8_t{0x88});
    if (n * blocks % 2 != 0) points.mutable_as<uint8_t>().back() = 0x08;
  }
  const ValueId w = b.Constant(d, "w", Unpadded(*weight, n, k, blocks * block));
  const DType type = scales->dtype();
  const auto in_floats = [&](ValueId v, const char* name) {
    const Attrs to{{"to", static_cast<int64_t>(DType::kF32)}};
    return IsHalf(type) && v.valid() ? b.Emit(d, name, Op::kCast, {v}, to) : v;
  };
  const ValueId x = in_floats(d.input(0), "x"), bias = in_floats(d.input(5), "bias");
  const ValueId s = b.Constant(d, "scales", vendor::InFloats(*scales).Reshaped({n, blocks}));
  const ValueId z = b.Constant(d, "zero_points", std::move(points));
  // Level 4 asks for products of int8, and ONNX Runtime quantizes x in blocks too.
  if (d.attrs.Int("accuracy_level", 0) == 4 && block % 16 == 0 && block <= 512) {
    std::vector<ValueId> inputs = {x, w, s, z};
    if (bias.valid()) inputs.push_back(bias);
    const Attrs attrs{{"block_size", block}, {"transposed", int64_t{1}}, {"x_bits", int64_t{8}}};
    if (IsHalf(type)) {
      BackTo(d, type, b.Emit(d, "product", Op::kLinearBlocked, std::move(inputs), attrs));
      return {};
    }
    d.domain = "octavo";
    d.op_type = "LinearBlocked";
    d.inputs = std::move(inputs);
    d.attrs = attrs;
    return {};
  }
  const ValueId wide =
      b.Emit(d, "dequantized", Op::kDequantizeLinear, {w, s, z}, {{"axis", int64_t{1}}, {"block_size", block}});
  const ValueId turned = b.Emit(d, "transposed", Op::kTranspose, {wide}, {{"perm", std::vector<int64_t>{1, 0}}});
  const bool more = bias.valid() || IsHalf(type);  // behind the product
  const ValueId product = more ? b.Emit(d, "product", Op::kMatMul, {x, turned}) : ValueId{};
  if (IsHalf(type)) {
    BackTo(d, type, bias.valid() ? b.Emit(d, "sum", Op::kAdd, {product, bias}) : product);
    return {};
  }
  d.domain.clear();
  d.op_type = bias.valid() ? "Add" : "MatMul";
  d.inputs = bias.valid() ? std::vector<ValueId>{product, bias} : std::vector<ValueId>{x, turned};
  d.attrs = {};
  return {};
}

}  // namespace octavo::ir::onnx
