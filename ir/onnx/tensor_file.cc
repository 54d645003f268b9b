#include "octavo/ir/onnx/tensor_file.h"

#include <onnx_messages.pb.h>

#include <climits>

#include "octavo/ir/closed.h"
#include "octavo/ir/limits.h"
#include "octavo/ir/mapped.h"
#include "octavo/ir/names.h"
#include "octavo/ir/onnx/cost.h"
#include "octavo/ir/onnx/external.h"
#include "octavo/ir/onnx/tensor_proto.h"

namespace octavo::ir::onnx {

namespace {

using NamedTensor = std::pair<std::string, Tensor>;

Result<NamedTensor> Parse(std::string_view bytes, const std::filesystem::path& folder, const Limits& limits) {
  ExternalFiles files(folder);
  const auto parsed = static_cast<size_t>(ParsedBytesOfTensor(bytes));
  const MemoryScope scope(MemoryLimit(limits, static_cast<int64_t>(bytes.size())));
  const MemoryCharge message(parsed);
  ::octavo_onnx::TensorProto proto;
  if (bytes.size() > INT_MAX || !proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return Fail("it is no ONNX tensor file, or it is cut off");
  std::string name = proto.name();
  OCTAVO_TRY(Tensor tensor, TakeTensor(proto, files));
  return NamedTensor(std::move(name), std::move(tensor));
}

}  // namespace

Result<NamedTensor> ReadTensorFile(const std::filesystem::path& path, const Limits& limits) {
  return Closed("reading a tensor", [&]() -> Result<NamedTensor> {
    const std::string place = Quoted(path.string());
    std::error_code ec;
    if (!std::filesystem::is_regular_file(path, ec)) return Fail("{}: there is no such file", place);
    // An empty file is an empty message, that is a tensor of no type; it also cannot be mapped.
    if (std::filesystem::file_size(path, ec) == 0 || ec) return Fail("{} is empty", place);
    OCTAVO_TRY(const auto file, MapFile(path, path.filename().string()));
    const std::string_view bytes(reinterpret_cast<const char*>(file->data()), file->size());
    auto tensor = Parse(bytes, path.has_parent_path() ? path.parent_path() : std::filesystem::path("."), limits);
    if (!tensor) return Fail("{}: {}", place, tensor.error().message);
    return tensor;
  });
}

}  // namespace octavo::ir::onnx
