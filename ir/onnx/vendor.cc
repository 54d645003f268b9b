// ONNX Runtime's ops that have an exact standard form.
#include "octavo/ir/onnx/import.h"
#include "octavo/ir/onnx/upgrade.h"

namespace octavo::ir::onnx {

namespace {

Status Standard(Draft& d, GraphBuilder&) {
  d.domain.clear();
  return {};
}

}  // namespace

// x / sqrt(mean(x^2) + epsilon) * scale; RMSNormalization is the same, without the second output.
Status SimplifiedLayerNorm(Draft& d, GraphBuilder&) {
  if (d.wants(1) || d.inputs.size() != 2) return {};  // stays as it is
  d.op_type = "RMSNormalization";
  if (d.attrs.Has("epsilon")) return {};
  d.attrs.Set("epsilon", 1e-5f);
  return {};
}

Status FromVendor(Draft& d, GraphBuilder& b) {
  if (d.domain != "com.microsoft") return {};
  if (d.op_type == "QuantizeLinear" || d.op_type == "DequantizeLinear") return Standard(d, b);
  if (d.op_type == "Gelu") return Standard(d, b);
  return {};
}

}  // namespace octavo::ir::onnx
