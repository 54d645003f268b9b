// Rules that bring one op to the form of ops.def.
#ifndef OCTAVO_IR_ONNX_UPGRADE_H_
#define OCTAVO_IR_ONNX_UPGRADE_H_

#include "octavo/ir/onnx/import.h"

namespace octavo::ir::onnx {

using UpgradeRule = Status (*)(Draft& draft, GraphBuilder& builder);

// upgrade_before7.cc: an op of opset 1 to 6 in the form of opset 7.
Status FromBefore7(Draft& d, GraphBuilder& b);

// upgrade_scan.cc
Status ScanFrom8(Draft& d, GraphBuilder& b);

// upgrade_vision.cc
Status ResizeFrom10(Draft& d, GraphBuilder& b);
Status ResizeFrom11(Draft& d, GraphBuilder& b);
Status UpsampleToResize(Draft& d, GraphBuilder& b);

// vendor.cc: ONNX Runtime writes this op into ONNX's own domain.
Status SimplifiedLayerNorm(Draft& d, GraphBuilder& b);

// vendor_quant.cc
Status MatMulNBits(Draft& d, GraphBuilder& b);
Status QGemm(Draft& d, GraphBuilder& b);
Status QLinearBinary(Draft& d, GraphBuilder& b);
Status QLinearConcat(Draft& d, GraphBuilder& b);
Status QLinearUnary(Draft& d, GraphBuilder& b);

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_UPGRADE_H_
