#include "octavo/integrations/onnxruntime/fused_op.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "octavo/integrations/onnxruntime/fused_kernel.h"

namespace octavo::integrations::onnxruntime {

namespace {

constexpr size_t kMostBranches = 8;  // of QuantizedQkv

const FusedOp& Self(const OrtCustomOp* op) { return *static_cast<const FusedOp*>(op); }

// How many slots ONNX Runtime must know of, where an op takes any number of branches.
size_t Slots(const ir::Operands& o) { return o.once.size() + o.each.size() * kMostBranches; }

// Outputs that every node with so many inputs has. Nothing tells inference how many there are, and hosts before 1.28 end the process when the
// type of one more is set. Those behind them get the right type unasked: one that is f32 is declared so, others have that of the inputs.
size_t CertainOutputs(const FusedOp& self, size_t inputs) {
  const ir::Operands &operands = ir::OperandsOf(self.op), &results = ir::ResultsOf(self.op);
  if (operands.each.empty()) return results.least();
  // The last group may lack what it may leave out.
  const size_t group = operands.each.size(), missing = operands.once.size() + group - operands.least();
  return std::min(kMostBranches, (inputs + missing - operands.once.size()) / group);
}

// ONNX Runtime takes a dim by number or by name; what is not known gets a name of its own.
ir::Status SetOutput(OrtShapeInferContext* context, size_t i, const ir::Type& type) {
  static std::atomic<uint64_t> unknown = 0;
  OrtTensorTypeAndShapeInfo* raw = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().CreateTensorTypeAndShapeInfo(&raw)));
  const ShapeInfo info(raw);
  OCTAVO_TRY_STATUS(StatusOf(Api().SetTensorElementType(raw, static_cast<ONNXTensorElementDataType>(type.dtype))));
  // Without a rank the type alone: taken for a scalar, so the kernel's making refuses the node (fused_kernel.cc).
  if (!type.shape) return StatusOf(Api().ShapeInferContext_SetOutputTypeShape(context, i, raw));
  std::vector<int64_t> dims;
  std::vector<std::string> names;
  for (const ir::Dim& d : *type.shape) {
    dims.push_back(d.is_number() ? d.number() : -1);
    names.push_back(d.is_number() ? "" : d.known() ? d.ToString() : "octavo_unknown_" + std::to_string(unknown++));
  }
  std::vector<const char*> symbols;
  symbols.reserve(names.size());
  for (const std::string& name : names) symbols.push_back(name.c_str());
  OCTAVO_TRY_STATUS(StatusOf(Api().SetDimensions(raw, dims.data(), dims.size())));
  OCTAVO_TRY_STATUS(StatusOf(Api().SetSymbolicDimensions(raw, symbols.data(), symbols.size())));
  return StatusOf(Api().ShapeInferContext_SetOutputTypeShape(context, i, raw));
}

ir::Status Infer(const FusedOp& self, OrtShapeInferContext* context) {
  size_t inputs = 0;
  OCTAVO_TRY_STATUS(StatusOf(Api().ShapeInferContext_GetInputCount(context, &inputs)));
  std::vector<Operand> operands(inputs);
  for (size_t i = 0; i < inputs; ++i) {
    OrtTensorTypeAndShapeInfo* type = nullptr;  // the context's own
    OCTAVO_TRY_STATUS(StatusOf(Api().ShapeInferContext_GetInputTypeShape(context, i, &type)));
    OCTAVO_TRY(operands[i].type, TypeOf(type, false));
  }
  const std::vector<bool> outputs(CertainOutputs(self, inputs), true);
  auto one = MakeOneNode(self.op, AttrsOf(context), operands, outputs, self.name);
  if (!one) {  // ONNX Runtime drops the reason and goes on without types; with them the kernel's making tells it
    for (Operand& operand : operands) operand.type.shape.reset();
    one = MakeOneNode(self.op, AttrsOf(context), operands, outputs, self.name);
    if (!one) return std::unexpected(one.error());
  }
  const ir::Node& node = one->graph.node(one->node);
  for (size_t i = 0; i < outputs.size(); ++i) {
    OCTAVO_TRY_STATUS(SetOutput(context, i, one->graph.value(node.outputs[i]).type));
  }
  return {};
}

}  // namespace

FusedOp::FusedOp(ir::Op fused, std::string spelled) : OrtCustomOp{}, op(fused), name(std::move(spelled)) {
  inputs = Slots(ir::OperandsOf(op));
  outputs = Slots(ir::ResultsOf(op));
  version = kApiVersion;
  GetName = [](const OrtCustomOp* o) { return Self(o).name.c_str(); };
  GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  GetInputTypeCount = [](const OrtCustomOp* o) { return Self(o).inputs; };
  GetOutputTypeCount = [](const OrtCustomOp* o) { return Self(o).outputs; };
  GetInputType = [](const OrtCustomOp*, size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED; };  // any
  GetOutputType = [](const OrtCustomOp* o, size_t i) {
    const ir::Operand* result = ir::ResultsOf(Self(o).op).At(i);
    return result != nullptr && result->is_f32 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT
                                               : ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  };
  GetInputCharacteristic = [](const OrtCustomOp*, size_t) { return INPUT_OUTPUT_OPTIONAL; };
  GetOutputCharacteristic = GetInputCharacteristic;
  GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
  GetVariadicInputMinArity = GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 0; };
  GetVariadicOutputMinArity = GetVariadicOutputHomogeneity = GetVariadicInputMinArity;
  GetStartVersion = [](const OrtCustomOp*) { return 1; };
  GetEndVersion = GetStartVersion;
  InferOutputShapeFn = [](const OrtCustomOp* o, OrtShapeInferContext* context) {
    return Guarded([&] { return Infer(Self(o), context); });
  };
  CreateKernelV2 = [](const OrtCustomOp* o, const OrtApi*, const OrtKernelInfo* info, void** kernel) {
    return Guarded([&]() -> ir::Status {
      OCTAVO_TRY(std::unique_ptr<FusedKernel> made, FusedKernel::Make(Self(o).op, info));
      *kernel = made.release();
      return {};
    });
  };
  KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
    return Guarded([&] { return static_cast<FusedKernel*>(kernel)->Run(context); });
  };
  KernelDestroy = [](void* kernel) { delete static_cast<FusedKernel*>(kernel); };
}

}  // namespace octavo::integrations::onnxruntime
