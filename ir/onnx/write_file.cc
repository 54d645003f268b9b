// Whole or not at all: files are written beside their target and renamed.
#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <onnx/onnx_pb.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "octavo/ir/onnx/export.h"
#include "octavo/ir/onnx/text_util.h"
#include "octavo/ir/whole_file.h"

namespace octavo::ir::onnx {

namespace fs = std::filesystem;

namespace {

// What fits in one protobuf message, with room for everything that is no constant.
constexpr int64_t kHardLimit = INT_MAX - (int64_t{64} << 20);

// A file under a provisional name; gone unless Commit succeeds.
class TemporaryFile {
 public:
  explicit TemporaryFile(fs::path target) : target_(std::move(target)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (fd_ >= 0) close(fd_);
    if (!name_.empty()) unlink(name_.c_str());
  }

  Status Open() {
    for (int i = 0; i < 100 && fd_ < 0; ++i) {
      name_ = target_;
      name_ += "." + std::to_string(getpid()) + "." + std::to_string(i) + ".tmp";
      fd_ = open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd_ < 0 && errno != EEXIST) break;
    }
    if (fd_ >= 0) return {};
    const int error = errno;
    name_.clear();
    return Fail("{} cannot be written: {}", Quoted(target_.string()), std::strerror(error));
  }
  int fd() const { return fd_; }

  Status Write(const std::byte* data, size_t size) {
    while (size != 0) {
      const ssize_t n = write(fd_, data, size);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Fail("{} cannot be written: {}", Quoted(target_.string()), std::strerror(errno));
      data += n;
      size -= static_cast<size_t>(n);
    }
    return {};
  }
  Status Close() {
    const int fd = fd_;
    fd_ = -1;
    if (close(fd) == 0) return {};
    return Fail("{} cannot be written: {}", Quoted(target_.string()), std::strerror(errno));
  }
  Status Commit() {
    if (rename(name_.c_str(), target_.c_str()) != 0) {
      return Fail("{} cannot be written: {}", Quoted(target_.string()), std::strerror(errno));
    }
    name_.clear();
    return {};
  }

 private:
  fs::path target_, name_;
  int fd_ = -1;
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

Status WriteModel(const pb::ModelProto& model, int fd, const fs::path& path) {
  google::protobuf::io::FileOutputStream stream(fd);
  const bool ok = Serialize(model, &stream) && stream.Flush();
  if (ok) return {};
  return Fail("{} cannot be written: {}", Quoted(path.string()), std::strerror(stream.GetErrno()));
}

Status WriteData(const DataFile& data, TemporaryFile& file) {
  static constexpr std::byte kZeros[4096] = {};
  int64_t at = 0;
  for (const auto& [tensor, offset] : data.pieces()) {
    OCTAVO_TRY_STATUS(file.Write(kZeros, static_cast<size_t>(offset - at)));
    OCTAVO_TRY_STATUS(file.Write(tensor.data(), tensor.byte_size()));
    at = offset + static_cast<int64_t>(tensor.byte_size());
  }
  return {};
}

Status WriteThrough(const pb::ModelProto& model, const fs::path& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return Fail("{} cannot be written: {}", Quoted(path.string()), std::strerror(errno));
  const Status written = WriteModel(model, fd, path);
  close(fd);
  return written;
}

}  // namespace

Result<std::string> WriteBytes(const Graph& graph, const WriteOptions& options) {
  if (options.attention == AttentionForm::kOnnx23) {
    WriteOptions rest = options;
    rest.attention = AttentionForm::kStandard;
    return WriteBytes(WithOnnxAttention(graph), rest);
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

Status WriteFile(const Graph& graph, const fs::path& wish, const WriteOptions& options) {
  if (options.attention == AttentionForm::kOnnx23) {
    WriteOptions rest = options;
    rest.attention = AttentionForm::kStandard;
    return WriteFile(WithOnnxAttention(graph), wish, rest);
  }
  const google::protobuf::LogSilencer silence;
  std::error_code error;
  const auto [path, special] = TargetOf(wish);
  if (path.filename().empty() || fs::is_directory(path, error)) {
    return Fail("{} is a folder; name the file to write", Quoted(wish.string()));
  }
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error)) {
    return Fail("{} cannot be written: the folder {} does not exist", Quoted(wish.string()), Quoted(folder.string()));
  }
  const int64_t limit = options.inline_limit < 0 ? kHardLimit : std::min(options.inline_limit, kHardLimit);
  DataFile data(path.filename().string() + ".data");
  const bool external = !special && ConstantBytes(graph) > limit;
  pb::ModelProto model;
  OCTAVO_TRY_STATUS(Exporter(options, external ? &data : nullptr).Model(graph, &model));
  OCTAVO_TRY_STATUS(CheckSize(model));
  if (special) return WriteThrough(model, path);

  TemporaryFile file(path);
  OCTAVO_TRY_STATUS(file.Open());
  OCTAVO_TRY_STATUS(WriteModel(model, file.fd(), path));
  OCTAVO_TRY_STATUS(file.Close());
  if (data.pieces().empty()) return file.Commit();
  const fs::path data_path = folder / data.location();
  if (fs::is_directory(data_path, error))
    return Fail("{} is a folder, but the weights go there", Quoted(data_path.string()));
  TemporaryFile weights(data_path);
  OCTAVO_TRY_STATUS(weights.Open());
  OCTAVO_TRY_STATUS(WriteData(data, weights));
  OCTAVO_TRY_STATUS(weights.Close());
  OCTAVO_TRY_STATUS(weights.Commit());
  return file.Commit();
}

}  // namespace octavo::ir::onnx
