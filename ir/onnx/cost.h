// What a file will cost, told from its bytes before it is paid: two bytes can declare a node of two hundred, and a function can be called
// without end.
#ifndef OCTAVO_IR_ONNX_COST_H_
#define OCTAVO_IR_ONNX_COST_H_

#include <cstdint>
#include <string_view>

namespace octavo_onnx {
class FunctionProto;
class ModelProto;
}  // namespace octavo_onnx

namespace octavo::ir::onnx {

class ExternalFiles;

// Memory of a serialized ModelProto, or TensorProto, once it is parsed. Damaged bytes: what comes before the damage.
int64_t ParsedBytes(std::string_view model);
int64_t ParsedBytesOfTensor(std::string_view tensor);

// One call of the function, without what the functions cost that it calls. The unit is a plain node.
int64_t CostOf(const ::octavo_onnx::FunctionProto& function);

// Bytes of all files that tensors of the model name and that are there.
int64_t ExternalBytes(const ::octavo_onnx::ModelProto& model, ExternalFiles& files);

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_COST_H_
