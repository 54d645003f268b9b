#include "octavo/ir/onnx/tensor_file.h"

#include <onnx/onnx_pb.h>

#include <climits>

#include "octavo/ir/onnx/external.h"
#include "octavo/ir/onnx/tensor_proto.h"
#include "octavo/ir/onnx/text_util.h"

namespace octavo::ir::onnx {

Result<std::pair<std::string, Tensor>> ReadTensorFile(const std::filesystem::path& path) {
  const std::string place = Quoted(path.string());
  std::error_code ec;
  if (!std::filesystem::is_regular_file(path, ec)) return Fail("{}: there is no such file", place);
  // An empty file is an empty message, that is a tensor of no type; it also cannot be mapped.
  if (std::filesystem::file_size(path, ec) == 0 || ec) return Fail("{} is empty", place);
  OCTAVO_TRY(const auto file, MapFile(path, path.filename().string()));
  ::onnx::TensorProto proto;
  if (file->size() > INT_MAX || !proto.ParseFromArray(file->data(), static_cast<int>(file->size()))) {
    return Fail("{} is no ONNX tensor file, or it is cut off", place);
  }
  ExternalFiles files(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
  std::string name = proto.name();
  auto tensor = TakeTensor(proto, files);
  if (!tensor) return Fail("{}: {}", place, tensor.error().message);
  return std::pair(std::move(name), std::move(*tensor));
}

}  // namespace octavo::ir::onnx
