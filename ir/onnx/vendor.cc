// ONNX Runtime's ops that have an exact standard form: twins of standard ops, and float ops that are two or three of
// them. The quantized ones: vendor_quant.cc. Every other vendor op stays as it is.
#include "octavo/ir/onnx/import.h"
#include "octavo/ir/onnx/upgrade.h"

namespace octavo::ir::onnx {

namespace {

Status Twin(Draft& d, GraphBuilder&) {
  d.domain.clear();
  return {};
}

void Become(Draft& d, std::string_view op, std::vector<ValueId> inputs, Attrs attrs) {
  d.domain.clear();
  d.op_type = op;
  d.inputs = std::move(inputs);
  d.attrs = std::move(attrs);
}

Status BiasGelu(Draft& d, GraphBuilder& b) {
  if (d.inputs.size() != 2) return Fail("it has {} inputs, not 2", d.inputs.size());
  Become(d, "Gelu", {b.Emit(d, "biased", Op::kAdd, {d.input(0), d.input(1)})}, {});
  return {};
}

Status FastGelu(Draft& d, GraphBuilder& b) {
  const ValueId x = d.input(1).valid() ? b.Emit(d, "biased", Op::kAdd, {d.input(0), d.input(1)}) : d.input(0);
  Become(d, "Gelu", {x}, {{"approximate", std::string("tanh")}});
  return {};
}

// x * sigmoid(alpha * x)
Status QuickGelu(Draft& d, GraphBuilder& b) {
  if (b.DTypeOf(d.input(0)) != DType::kF32 && b.DTypeOf(d.input(0)) != DType::kUndefined) return {};
  const ValueId alpha = b.Constant(d, "alpha", Tensor::ScalarF32(d.attrs.Float("alpha", 1.702f)));
  const ValueId scaled = b.Emit(d, "scaled", Op::kMul, {d.input(0), alpha});
  Become(d, "Mul", {d.input(0), b.Emit(d, "gate", Op::kSigmoid, {scaled})}, {});
  return {};
}

// normalized(x + skip + bias); output 3 is the sum.
Status SkipNorm(Draft& d, GraphBuilder& b) {
  const bool rms = d.op_type == "SkipSimplifiedLayerNormalization";
  if (d.inputs.size() < 3 || !d.input(1).valid() || !d.input(2).valid()) return Fail("it needs three inputs");
  if (rms && (d.wants(1) || d.wants(2))) return {};
  const ValueId bias = d.input(rms ? 3 : 4);
  const ValueId first = bias.valid() ? b.Emit(d, "skip", Op::kAdd, {d.input(0), d.input(1)}) : d.input(0);
  const ValueId sum = b.EmitOutput(d, 3, "sum", Op::kAdd, {first, bias.valid() ? bias : d.input(1)});
  if (d.outputs.size() > 3) d.outputs.resize(3);
  const Attrs attrs = {{"axis", int64_t{-1}}, {"epsilon", d.attrs.Float("epsilon", 1e-12f)}};
  std::vector<ValueId> inputs = {sum, d.input(2)};
  if (!rms && d.input(3).valid()) inputs.push_back(d.input(3));
  if (rms) d.outputs.resize(1);
  Become(d, rms ? "RMSNormalization" : "LayerNormalization", std::move(inputs), attrs);
  return {};
}

struct Entry {
  std::string_view op;
  UpgradeRule rule;
};
constexpr Entry kRules[] = {
    {"BiasGelu", BiasGelu},
    {"DequantizeLinear", Twin},
    {"FastGelu", FastGelu},
    {"GatherND", Twin},
    {"Gelu", Twin},
    {"MatMulNBits", MatMulNBits},
    {"QGemm", QGemm},
    {"QLinearAdd", QLinearBinary},
    {"QLinearConcat", QLinearConcat},
    {"QLinearLeakyRelu", QLinearUnary},
    {"QLinearMul", QLinearBinary},
    {"QLinearSigmoid", QLinearUnary},
    {"QLinearSoftmax", QLinearUnary},
    {"QuantizeLinear", Twin},
    {"Pad", Twin},
    {"QuickGelu", QuickGelu},
    {"SkipLayerNormalization", SkipNorm},
    {"SkipSimplifiedLayerNormalization", SkipNorm},
    {"Trilu", Twin},
};

}  // namespace

// x / sqrt(mean(x^2) + epsilon) * scale: RMSNormalization is the same, without the second output.
Status SimplifiedLayerNorm(Draft& d, GraphBuilder&) {
  if (d.wants(1) || d.inputs.size() != 2) return {};  // stays as it is
  d.op_type = "RMSNormalization";
  d.outputs.resize(1);
  d.attrs.Set("epsilon", d.attrs.Float("epsilon", 1e-5f));
  return {};
}

Status FromVendor(Draft& d, GraphBuilder& b) {
  if (d.domain != "com.microsoft") return {};
  const std::string op = d.op_type;
  for (const Entry& e : kRules) {
    if (e.op == op) return e.rule(d, b);
  }
  return {};
}

}  // namespace octavo::ir::onnx
