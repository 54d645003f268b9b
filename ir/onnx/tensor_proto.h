// TensorProto to Tensor and back. Sizes are checked against the data before anything is allocated.
#ifndef OCTAVO_IR_ONNX_TENSOR_PROTO_H_
#define OCTAVO_IR_ONNX_TENSOR_PROTO_H_

#include <string>
#include <string_view>

#include "octavo/ir/onnx/external.h"
#include "octavo/ir/tensor.h"

namespace octavo_onnx {
class TensorProto;
}

namespace octavo::ir::onnx {

// As numpy: beyond it a type costs more than the nodes that have it.
inline constexpr int kMaxRank = 64;

// True for the ONNX data types that octavo has.
bool IsKnownDType(int32_t data_type);

// Errors do not name the tensor; the caller does.
Result<Tensor> ReadTensor(const ::octavo_onnx::TensorProto& proto, ExternalFiles& files);
// As ReadTensor, but takes raw_data out of the proto instead of copying it.
Result<Tensor> TakeTensor(::octavo_onnx::TensorProto& proto, ExternalFiles& files);

// Fills everything but name and data: dims and type.
void WriteHeader(const Tensor& tensor, ::octavo_onnx::TensorProto* proto);
// Header and data, inline.
void WriteTensor(const Tensor& tensor, ::octavo_onnx::TensorProto* proto);

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_TENSOR_PROTO_H_
