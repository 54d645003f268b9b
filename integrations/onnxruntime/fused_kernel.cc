#include "octavo/integrations/onnxruntime/fused_kernel.h"

#include <cstring>
#include <string>
#include <utility>

#include "octavo/runtime/compile.h"

namespace octavo::integrations::onnxruntime {

namespace {

ir::Result<std::string> NameOf(const OrtKernelInfo* info, size_t i,
                               OrtStatus*(ORT_API_CALL* get)(const OrtKernelInfo*, size_t, char*, size_t*)) {
  size_t size = 0;
  OCTAVO_TRY_STATUS(StatusOf(get(info, i, nullptr, &size)));
  std::string name(size, '\0');
  OCTAVO_TRY_STATUS(StatusOf(get(info, i, name.data(), &size)));
  name.resize(size - 1);  // it counts the final zero
  return name;
}

ir::Result<std::string> NodeName(const OrtKernelInfo* info) {
  size_t size = 0;
  OCTAVO_TRY_STATUS(StatusOf(Api().KernelInfo_GetNodeName(info, nullptr, &size)));
  std::string name(size, '\0');
  OCTAVO_TRY_STATUS(StatusOf(Api().KernelInfo_GetNodeName(info, name.data(), &size)));
  name.resize(size - 1);
  return name;
}

// A scalar looks like an unknown rank. Where it matters, the scale and zero point of a Linear's input, it is a scalar.
bool MustBeScalar(ir::Op op, size_t slot) {
  return (op == ir::Op::kQuantizedLinear || op == ir::Op::kQuantizedQkv) && (slot == 1 || slot == 2);
}

ir::Result<Operand> OperandOf(ir::Op op, const OrtKernelInfo* info, size_t i) {
  OCTAVO_TRY(const std::string name, NameOf(info, i, Api().KernelInfo_GetInputName));
  Operand operand;
  if (name.empty()) return operand;
  int constant = 0;
  const OrtValue* value = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().KernelInfoGetConstantInput_tensor(info, i, &constant, &value)));
  if (constant != 0) {
    OCTAVO_TRY(operand.constant, Borrow(value));
    return operand;
  }
  OrtTypeInfo* raw = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().KernelInfo_GetInputTypeInfo(info, i, &raw)));
  const TypeInfo type(raw);
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().CastTypeInfoToTensorInfo(raw, &tensor)));
  if (tensor == nullptr) return ir::Fail("input {} ('{}') is no tensor", i, name);
  OCTAVO_TRY(operand.type, TypeOf(tensor, MustBeScalar(op, i)));
  return operand;
}

class HostCall : public runtime::StepCall {
 public:
  explicit HostCall(OrtKernelContext* context) : context_(context) {}

  ir::Tensor& Allocate(size_t i, ir::DType dtype, ir::Shape shape) override {
    const std::vector<int64_t> dims(shape.begin(), shape.end());
    OrtValue* value = nullptr;
    auto made = StatusOf(Api().KernelContext_GetOutput(context_, i, dims.data(), dims.size(), &value));
    auto tensor = made ? Borrow(value) : ir::Tensor();
    if (!tensor) made = std::unexpected(tensor.error());
    if (made && tensor->defined() && tensor->dtype() != dtype) {
      made = ir::Fail("output {} is {}, ONNX Runtime has made room for {}", i, quant::Name(dtype),
                      quant::Name(tensor->dtype()));
    }
    const bool good = made && tensor->defined();
    if (status) status = std::move(made);  // the first error is the one to tell; the kernel still writes somewhere
    return out[i].tensor = good ? std::move(*tensor) : ir::Tensor::Empty(dtype, std::move(shape));
  }

  std::byte* Scratch(size_t bytes) override {
    scratch_ = ir::Tensor::Empty(ir::DType::kU8, {static_cast<int64_t>(bytes)});
    return scratch_.mutable_data();
  }

  // What the interpreter made in memory of its own.
  ir::Status Deliver(size_t i) {
    const ir::Tensor made = out[i].tensor;
    ir::Tensor& place = Allocate(i, made.dtype(), made.shape());
    if (made.byte_size() > 0) std::memcpy(place.mutable_data(), made.data(), made.byte_size());
    return status;
  }

  ir::Status status;

 private:
  OrtKernelContext* context_;
  ir::Tensor scratch_;
};

}  // namespace

ir::Result<std::unique_ptr<FusedKernel>> FusedKernel::Make(ir::Op op, const OrtKernelInfo* info) {
  size_t inputs = 0, outputs = 0;
  OCTAVO_TRY_STATUS(StatusOf(Api().KernelInfo_GetInputCount(info, &inputs)));
  OCTAVO_TRY_STATUS(StatusOf(Api().KernelInfo_GetOutputCount(info, &outputs)));
  auto made = std::make_unique<FusedKernel>();
  std::vector<Operand> operands;
  for (size_t i = 0; i < inputs; ++i) {
    OCTAVO_TRY(Operand operand, OperandOf(op, info, i));
    made->constants_.push_back({operand.constant, nullptr});
    operands.push_back(std::move(operand));
  }
  for (size_t i = 0; i < outputs; ++i) {
    OCTAVO_TRY(const std::string name, NameOf(info, i, Api().KernelInfo_GetOutputName));
    made->outputs_.push_back(!name.empty());
  }
  OCTAVO_TRY(std::string name, NodeName(info));
  if (const Operand& x = operands.at(0); !x.constant.defined() && !x.type.shape) {
    return ir::Fail(
        "node '{}': the rank of its input is not known, and ONNX Runtime would take that of its output for a scalar's; "
        "give the model's inputs shapes (dims may be names), or run the file without the library",
        name);
  }
  OCTAVO_TRY(made->one_, MakeOneNode(op, AttrsOf(info), operands, made->outputs_, std::move(name)));
  const ir::Graph& graph = made->one_.graph;
  const ir::Node& node = graph.node(made->one_.node);
  std::vector<ir::RtValue> constants(graph.value_capacity());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].valid()) constants[node.inputs[i].index] = made->constants_[i];
  }
  const runtime::CompileContext context{graph, constants, kernels::BestArch()};
  made->kernel_ = runtime::MakeKernel(node, context);
  if (made->kernel_ == nullptr) made->kernel_ = runtime::MakeInterpreted(graph, made->one_.node);
  runtime::Expect(*made->kernel_, context, node.inputs, node.outputs);
  return made;
}

ir::Status FusedKernel::Run(OrtKernelContext* context) const {
  std::vector<ir::RtValue> in = constants_;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i].tensor.defined()) continue;
    const OrtValue* value = nullptr;
    OCTAVO_TRY_STATUS(StatusOf(Api().KernelContext_GetInput(context, i, &value)));
    OCTAVO_TRY(in[i].tensor, Borrow(value));
  }
  const runtime::Threads threads(
      0, [&](int64_t n, const std::function<void(int64_t)>& task) { ForOnSession(context, n, task); });
  HostCall call(context);
  call.in = in;
  call.out.resize(outputs_.size());
  call.threads = &threads;
  if (ir::Status status = kernel_->Run(call); !status) {
    const ir::Node& node = one_.graph.node(one_.node);
    return ir::Fail("node '{}' ({}): {}", DisplayName(node), kernel_->name(), status.error().message);
  }
  if (call.interpreted) {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i]) OCTAVO_TRY_STATUS(call.Deliver(i));
    }
  }
  return call.status;
}

}  // namespace octavo::integrations::onnxruntime
