#include "octavo/integrations/onnxruntime/session.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>

#include "octavo/integrations/onnxruntime/fused_op.h"
#include "octavo/integrations/onnxruntime/host.h"
#include "octavo/ir/names.h"
#include "octavo/ir/onnx/onnx.h"

namespace octavo::integrations::onnxruntime {

namespace fs = std::filesystem;

namespace {

using Options = std::unique_ptr<OrtSessionOptions, Releaser<OrtSessionOptions, &OrtApi::ReleaseSessionOptions>>;
using Session = std::unique_ptr<OrtSession, Releaser<OrtSession, &OrtApi::ReleaseSession>>;
using Memory = std::unique_ptr<OrtMemoryInfo, Releaser<OrtMemoryInfo, &OrtApi::ReleaseMemoryInfo>>;
using Value = std::unique_ptr<OrtValue, Releaser<OrtValue, &OrtApi::ReleaseValue>>;

constexpr const char* kWayOut =
    "install it (pip install onnxruntime, or libonnxruntime-dev), or name its libonnxruntime.so";

// Loaded once for the process and never unloaded: ONNX Runtime's threads outlive what asked for it.
ir::Result<OrtEnv*> LoadEnv(const std::string& path) {
  static auto& mutex = *new std::mutex;
  static OrtEnv* env = nullptr;
  const std::scoped_lock lock(mutex);
  void* library = nullptr;
  const std::vector<std::string> names = path.empty()
                                             ? std::vector<std::string>{"libonnxruntime.so.1", "libonnxruntime.so"}
                                             : std::vector<std::string>{path};
  for (const std::string& name : names) {
    if (library == nullptr) library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) return ir::Fail("ONNX Runtime cannot be loaded from {}: {}", ir::Quoted(names[0]), kWayOut);
  const auto base = reinterpret_cast<const OrtApiBase* (*)()>(dlsym(library, "OrtGetApiBase"));
  const OrtApi* api = base == nullptr ? nullptr : base()->GetApi(kApiVersion);
  if (api == nullptr)
    return ir::Fail("{} is no ONNX Runtime of 1.{} or later: {}", ir::Quoted(names[0]), kApiVersion, kWayOut);
  if (!InitApi(api))
    return ir::Fail("another ONNX Runtime than {} is loaded in this process already", ir::Quoted(names[0]));
  // Errors come back as statuses; what it would print is for nobody.
  if (env == nullptr) OCTAVO_TRY_STATUS(StatusOf(api->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "octavo", &env)));
  return env;
}

// Holds the file from which a session is made: a graph with its weights may be larger than the 2 GB that bytes may have.
class Folder {
 public:
  Folder() {
    std::error_code none;
    const fs::path place = fs::temp_directory_path(none);
    std::string name = (place / "octavo-XXXXXX").string();
    if (!place.empty() && mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

ir::Result<OrtSession*> MakeSession(const ir::Graph& graph, OrtEnv* env, int threads) {
  const Folder folder;
  if (folder.path().empty()) return ir::Fail("no folder for a copy of the graph can be made: TMPDIR says where");
  const fs::path file = folder.path() / "model.onnx";
  OCTAVO_TRY_STATUS(ir::onnx::WriteFile(graph, file));
  OrtSessionOptions* raw = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().CreateSessionOptions(&raw)));
  const Options options(raw);
  OCTAVO_TRY_STATUS(StatusOf(Api().SetIntraOpNumThreads(raw, threads)));
  OrtSession* session = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().CreateSession(env, file.c_str(), raw, &session)));
  return session;
}

ir::Result<std::vector<std::string>> NamesOf(OrtSession* session, bool inputs) {
  size_t count = 0;
  OrtAllocator* allocator = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().GetAllocatorWithDefaultOptions(&allocator)));
  OCTAVO_TRY_STATUS(
      StatusOf(inputs ? Api().SessionGetInputCount(session, &count) : Api().SessionGetOutputCount(session, &count)));
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    char* name = nullptr;
    OCTAVO_TRY_STATUS(StatusOf(inputs ? Api().SessionGetInputName(session, i, allocator, &name)
                                      : Api().SessionGetOutputName(session, i, allocator, &name)));
    names.emplace_back(name);
    OCTAVO_TRY_STATUS(StatusOf(Api().AllocatorFree(allocator, name)));
  }
  return names;
}

std::vector<const char*> Pointers(const std::vector<std::string>& names) {
  std::vector<const char*> pointers;
  for (const std::string& name : names) pointers.push_back(name.c_str());
  return pointers;
}

ir::Result<OrtValue*> Lend(const ir::Tensor& tensor, const OrtMemoryInfo* memory) {
  if (tensor.dtype() == ir::DType::kString) return ir::Fail("ONNX Runtime is not given texts while data is gathered");
  OrtValue* value = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().CreateTensorWithDataAsOrtValue(
      memory, const_cast<std::byte*>(reinterpret_cast<const std::byte*>(tensor.data())), tensor.byte_size(),
      tensor.shape().data(), tensor.shape().size(), static_cast<ONNXTensorElementDataType>(tensor.dtype()), &value)));
  return value;
}

ir::Result<ir::Tensor> Copied(const OrtValue* value) {
  OCTAVO_TRY(const ir::Tensor borrowed, Borrow(value));
  ir::Tensor own = ir::Tensor::Empty(borrowed.dtype(), borrowed.shape());
  if (own.byte_size() > 0) std::memcpy(own.mutable_data(), borrowed.data(), own.byte_size());
  return own;
}

class Opened {
 public:
  Opened(Session session, std::vector<std::string> graph_inputs, std::vector<std::string> inputs,
         std::vector<std::string> outputs)
      : session_(std::move(session)),
        graph_inputs_(std::move(graph_inputs)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)) {}

  ir::Result<std::vector<ir::Tensor>> Run(const ir::TensorMap& given) const {
    OrtMemoryInfo* raw = nullptr;
    OCTAVO_TRY_STATUS(StatusOf(Api().CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &raw)));
    const Memory memory(raw);
    std::vector<Value> held;
    std::vector<const OrtValue*> in;
    for (const std::string& name : graph_inputs_) {
      OCTAVO_TRY(OrtValue* const value, Lend(given.at(name), raw));  // a batch has all inputs (quant/dataset.h)
      held.emplace_back(value);
      in.push_back(value);
    }
    std::vector<OrtValue*> out(outputs_.size(), nullptr);
    OCTAVO_TRY_STATUS(StatusOf(Api().Run(session_.get(), nullptr, Pointers(inputs_).data(), in.data(), in.size(),
                                         Pointers(outputs_).data(), outputs_.size(), out.data())));
    for (OrtValue* value : out) held.emplace_back(value);
    std::vector<ir::Tensor> tensors;
    for (const OrtValue* value : out) {
      OCTAVO_TRY(tensors.emplace_back(), Copied(value));
    }
    return tensors;
  }

 private:
  Session session_;
  std::vector<std::string> graph_inputs_, inputs_, outputs_;
};

}  // namespace

ir::Result<Run> OpenSession(const ir::Graph& graph, const std::string& library, int threads) {
  OCTAVO_TRY(OrtEnv* const env, LoadEnv(library));
  OCTAVO_TRY(OrtSession* const raw, MakeSession(graph, env, threads));
  Session session(raw);
  OCTAVO_TRY(std::vector<std::string> inputs, NamesOf(raw, true));
  OCTAVO_TRY(std::vector<std::string> outputs, NamesOf(raw, false));
  std::vector<std::string> own;
  for (const ir::ValueId v : graph.inputs()) own.push_back(graph.value(v).name);
  OCTAVO_CHECK(own.size() == inputs.size() && graph.outputs().size() == outputs.size(),
               "a session has the inputs and outputs of its file");
  const auto opened =
      std::make_shared<Opened>(std::move(session), std::move(own), std::move(inputs), std::move(outputs));
  return Run([opened](const ir::TensorMap& given) { return opened->Run(given); });
}

}  // namespace octavo::integrations::onnxruntime
