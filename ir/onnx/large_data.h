// Large data of initializers that stays where a mapped model file has it. Protobuf would copy it: of a model of 731 MB that is most of the time of opening.
#ifndef OCTAVO_IR_ONNX_LARGE_DATA_H_
#define OCTAVO_IR_ONNX_LARGE_DATA_H_

#include <optional>
#include <string>
#include <string_view>

namespace octavo::ir::onnx {

// The model's message with initializers of 64 KB and more as external data of the file `location`, which is the one that `bytes` are of. None where there are
// none of them, or where the message is not what ONNX writes: then protobuf reads all of it, and says what is wrong.
std::optional<std::string> WithoutLargeData(std::string_view bytes, const std::string& location);

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_LARGE_DATA_H_
