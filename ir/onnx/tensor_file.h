// One tensor in a file of its own, as ONNX's test_data_set_* folders hold them (input_0.pb, output_0.pb).
#ifndef OCTAVO_IR_ONNX_TENSOR_FILE_H_
#define OCTAVO_IR_ONNX_TENSOR_FILE_H_

#include <filesystem>
#include <string>
#include <utility>

#include "octavo/ir/limits.h"
#include "octavo/ir/tensor.h"

namespace octavo::ir::onnx {

// Name (often empty) and contents of a serialized TensorProto. Errors name the file.
Result<std::pair<std::string, Tensor>> ReadTensorFile(const std::filesystem::path& path, const Limits& limits = {});

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_TENSOR_FILE_H_
