// Whole or not at all: see NewFile.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <onnx_messages.pb.h>

#include <climits>

#include "octavo/ir/closed.h"
#include "octavo/ir/limits.h"
#include "octavo/ir/names.h"
#include "octavo/ir/onnx/export.h"
#include "octavo/ir/whole_file.h"

namespace octavo::ir::onnx {

namespace fs = std::filesystem;

namespace {

// What fits in one protobuf message, with room for everything that is no constant.
constexpr int64_t kHardLimit = INT_MAX - (int64_t{64} << 20);

// What protobuf writes to.
class Sink : public google::protobuf::io::CopyingOutputStream {
 public:
  explicit Sink(NewFile& file) : file_(file) {}
  bool Write(const void* data, int size) override {
    status_ = file_.Write({static_cast<const char*>(data), static_cast<size_t>(size)});
    return status_.has_value();
  }
  const Status& status() const { return status_; }

 private:
  NewFile& file_;
  Status status_;
};

bool Serialize(const pb::ModelProto& model, google::protobuf::io::ZeroCopyOutputStream* stream) {
  google::protobuf::io::CodedOutputStream out(stream);
  out.SetSerializationDeterministic(true);
  model.SerializeWithCachedSizes(&out);
  return !out.HadError();
}

Status CheckSize(const pb::ModelProto& model) {
  const size_t bytes = model.ByteSizeLong();
  if (bytes < INT_MAX) return {};
  return Fail(
      "the model takes {} bytes, but an ONNX file holds at most 2 GB; lower inline_limit so that its weights go "
      "to a file of their own",
      bytes);
}

Status WriteModel(const pb::ModelProto& model, NewFile& file) {
  Sink sink(file);
  google::protobuf::io::CopyingOutputStreamAdaptor stream(&sink);
  if (Serialize(model, &stream) && stream.Flush()) return {};
  OCTAVO_TRY_STATUS(sink.status());
  return Fail("{} cannot be serialized", Quoted(file.path().string()));
}

std::string_view Chars(const std::byte* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

Status WriteData(const DataFile& data, NewFile& file) {
  static constexpr std::byte kZeros[4096] = {};
  int64_t at = 0;
  for (const auto& [tensor, offset] : data.pieces()) {
    OCTAVO_TRY_STATUS(file.Write(Chars(kZeros, static_cast<size_t>(offset - at))));
    OCTAVO_TRY_STATUS(file.Write(Chars(tensor.data(), tensor.byte_size())));
    at = offset + static_cast<int64_t>(tensor.byte_size());
  }
  return {};
}

Result<std::string> Bytes(const Graph& graph, const WriteOptions& options) {
  if (options.attention == AttentionForm::kOnnx23) {
    WriteOptions rest = options;
    rest.attention = AttentionForm::kStandard;
    return Bytes(WithOnnxAttention(graph), rest);
  }
  const google::protobuf::LogSilencer silence;
  if (ConstantBytes(graph) > kHardLimit) {
    return Fail("the model's weights take {} bytes and do not fit in memory form; write it to a file",
                ConstantBytes(graph));
  }
  pb::ModelProto model;
  OCTAVO_TRY_STATUS(Exporter(options, nullptr).Model(graph, &model));
  OCTAVO_TRY_STATUS(CheckSize(model));
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  if (!Serialize(model, &stream)) return Fail("the model cannot be serialized");
  return bytes;
}

Status Write(const Graph& graph, const fs::path& wish, const WriteOptions& options) {
  if (options.attention == AttentionForm::kOnnx23) {
    WriteOptions rest = options;
    rest.attention = AttentionForm::kStandard;
    return Write(WithOnnxAttention(graph), wish, rest);
  }
  const google::protobuf::LogSilencer silence;
  OCTAVO_TRY(NewFile file, NewFile::Create(wish));
  const int64_t limit = options.inline_limit < 0 ? kHardLimit : std::min(options.inline_limit, kHardLimit);
  DataFile data(file.path().filename().string() + ".data");
  const bool external = !file.through() && ConstantBytes(graph) > limit;
  pb::ModelProto model;
  OCTAVO_TRY_STATUS(Exporter(options, external ? &data : nullptr).Model(graph, &model));
  OCTAVO_TRY_STATUS(CheckSize(model));
  OCTAVO_TRY_STATUS(WriteModel(model, file));
  if (!data.pieces().empty()) {
    auto weights = NewFile::Create(file.path().parent_path() / data.location());
    if (!weights) return Fail("the model's weights: {}", weights.error().message);
    OCTAVO_TRY_STATUS(WriteData(data, *weights));
    OCTAVO_TRY_STATUS(weights->Commit());
  }
  return file.Commit();
}

}  // namespace

Result<std::string> WriteBytes(const Graph& graph, const WriteOptions& options) {
  return Closed("writing a model", MemoryLimit(graph), [&] { return Bytes(graph, options); });
}

Status WriteFile(const Graph& graph, const fs::path& path, const WriteOptions& options) {
  return Closed("writing a model", MemoryLimit(graph), [&] { return Write(graph, path, options); });
}

}  // namespace octavo::ir::onnx
