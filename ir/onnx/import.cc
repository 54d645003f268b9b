// Files and models; graphs are built in import_graph.cc.
#include "octavo/ir/onnx/import.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <onnx_messages.pb.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <format>

#include "octavo/ir/closed.h"
#include "octavo/ir/decided.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/mapped.h"
#include "octavo/ir/names.h"
#include "octavo/ir/onnx/cost.h"
#include "octavo/ir/onnx/fp8_views.h"
#include "octavo/ir/onnx/large_data.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/onnx/opset.h"
#include "octavo/ir/onnx/tensor_proto.h"

namespace octavo::ir::onnx {

namespace {

Result<Opsets> ReadOpsets(const auto& imports, std::string_view what) {
  Opsets opsets;
  for (const auto& entry : imports) {
    opsets[entry.domain() == "ai.onnx" ? std::string() : entry.domain()] = entry.version();
  }
  const auto it = opsets.find("");
  if (it != opsets.end() && (it->second < kOldestOpset || it->second > kMaxOpset)) {
    return Fail("{} uses ONNX opset {}; octavo reads {} to {}, so export it again with one of these", what, it->second,
                kOldestOpset, kMaxOpset);
  }
  // A process that has the library for ONNX Runtime open is told 1000 for a domain that no node of the model is of.
  constexpr int64_t kOfAnyModel = 1000;
  if (const auto own = opsets.find("octavo");
      own != opsets.end() && own->second > kOctavoVersion && own->second != kOfAnyModel) {
    return Fail("{} has octavo's ops of version {}, and this octavo knows them up to version {}: take a newer octavo",
                what, own->second, kOctavoVersion);
  }
  return opsets;
}

Status ReadFunctions(const pb::ModelProto& model, FileContext& file) {
  for (const pb::FunctionProto& f : model.functions()) {
    const std::string domain = f.domain() == "ai.onnx" ? "" : f.domain();
    OCTAVO_TRY(Opsets opsets, ReadOpsets(f.opset_import(), "the function " + Quoted(f.name())));
    Function function{&f, std::move(opsets), CostOf(f)};
    if (!file.functions.emplace(std::tuple(domain, f.name(), f.overload()), std::move(function)).second) {
      return Fail("the function {} of domain {} is defined twice", Quoted(f.name()), Quoted(f.domain()));
    }
  }
  return {};
}

void ReadInfo(const pb::ModelProto& model, const Opsets& opsets, Graph& g) {
  g.name = model.graph().name();
  g.doc = model.graph().doc_string();
  g.info.ir_version = model.ir_version();
  g.info.opsets = {opsets.begin(), opsets.end()};
  g.info.producer_name = model.producer_name();
  g.info.producer_version = model.producer_version();
  g.info.domain = model.domain();
  g.info.doc = model.doc_string();
  g.info.model_version = model.model_version();
  for (const auto& entry : model.metadata_props()) g.info.metadata[entry.key()] = entry.value();
  // The graph is in the form of ops.def now, whatever opset the file had.
  const Needs needs = NeedsOf(g);
  int64_t& onnx = g.info.opsets[""];
  onnx = std::max(onnx, needs.opset);
  g.info.ir_version = std::max(g.info.ir_version, needs.ir_version);
}

// "2.9.1+cpu" is before {2, 13}.
bool IsBefore(const std::string& version, int major, int minor) {
  int have_major = 0, have_minor = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &have_major, &have_minor) != 2) return false;
  return have_major != major ? have_major < major : have_minor < minor;
}

bool MeansAttentionBefore122(const pb::ModelProto& model, AttentionOrder order) {
  if (order != AttentionOrder::kByProducer) return order == AttentionOrder::kOnnx118;
  for (const auto& entry : model.metadata_props()) {
    if (entry.key() == kAttentionOrderKey) return false;
  }
  return model.producer_name() == "pytorch" && IsBefore(model.producer_version(), 2, 13);
}

// False shapes as one note: an edited model can have hundreds.
void MendShapes(Graph& g) {
  const std::vector<std::string> found = DropFalseShapes(g);
  if (found.empty()) return;
  const std::string more = found.size() == 1 ? "" : std::format(" (and {} more like it)", found.size() - 1);
  g.info.notes.push_back(std::format("{}{}; octavo goes by the nodes", Cleaned({found[0]}).message, more));
}

Result<Graph> ReadModel(pb::ModelProto& model, ExternalFiles external, int64_t bytes, const ReadOptions& options) {
  if (!model.has_graph()) return Fail("it holds no graph; it is not an ONNX model");
  FileContext file(std::move(external), NodeLimit(options.limits, bytes));
  std::map<std::string, std::string> metadata;
  for (const auto& entry : model.metadata_props()) metadata[entry.key()] = entry.value();
  file.modules = Modules(metadata);
  file.attention_before_122 = MeansAttentionBefore122(model, options.attention_order);
  OCTAVO_TRY(Opsets opsets, ReadOpsets(model.opset_import(), "the model"));
  if (model.opset_import().empty()) return Fail("it does not say which opset it uses; it is older than ONNX 1.0");
  OCTAVO_TRY_STATUS(ReadFunctions(model, file));
  pb::GraphProto& graph = *model.mutable_graph();
  file.symbols.Reserve(graph);
  std::vector<Tensor> constants;
  constants.reserve(static_cast<size_t>(graph.initializer_size()));
  for (pb::TensorProto& proto : *graph.mutable_initializer()) {
    auto tensor = TakeTensor(proto, file.files);
    if (!tensor) return Fail("initializer {}: {}", Quoted(proto.name()), tensor.error().message);
    constants.push_back(std::move(*tensor));
  }
  OCTAVO_TRY(Graph g, GraphBuilder(file).Build(graph, std::move(constants), opsets, nullptr, {}, true));
  ReadInfo(model, opsets, g);
  file.modules.Keep(g.info.metadata);
  if (UsesOctavo(g)) g.info.opsets["octavo"] = kOctavoVersion;  // what some vendor ops become
  g.info.limits = options.limits;
  g.info.bytes = bytes;
  const auto is_attention = [&g](NodeId id) { return g.node(id).op == Op::kAttention; };
  if (file.attention_before_122 && std::ranges::any_of(g.NodesInOrder(), is_attention)) {
    g.info.metadata[kAttentionOrderKey] = "1.22";  // what the nodes mean from here on
  }
  MendShapes(g);
  DropDecidedShapes(g);
  UncastMovedFp8(g);
  return g;
}

// `mapped`: the bytes are its, and large data may stay there; null: it is copied.
Result<Graph> Parse(std::string_view bytes, const std::shared_ptr<const Buffer>& mapped,
                    const std::filesystem::path& folder, const ReadOptions& options) {
  if (bytes.size() >= INT_MAX) {
    return Fail("it has {} bytes, but an ONNX file holds at most 2 GB; store its weights as external data",
                bytes.size());
  }
  const google::protobuf::LogSilencer silence;  // its message names neither file nor way out
  const auto own = static_cast<int64_t>(bytes.size());
  ExternalFiles external(folder);
  const std::string place("\0the model", 10);  // no file has such a name
  std::optional<std::string> without;
  if (mapped != nullptr) without = WithoutLargeData(bytes, place);
  if (without) external.Add(place, mapped), bytes = *without;
  const auto parsed = static_cast<size_t>(ParsedBytes(bytes));
  {
    const MemoryScope scope(MemoryLimit(options.limits, own));
    const MemoryCharge enough(parsed);
  }
  pb::ModelProto model;
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream input(&array);
  input.SetTotalBytesLimit(INT_MAX);
  if (bytes.empty()) return Fail("it is empty");
  if (!model.ParseFromCodedStream(&input) || !input.ConsumedEntireMessage()) {
    return Fail("it is truncated or not an ONNX file; get it again");
  }
  const int64_t all = own + ExternalBytes(model, external);
  if (options.files != nullptr) *options.files = external.Paths();
  const MemoryScope scope(MemoryLimit(options.limits, all));
  const MemoryCharge message(parsed);
  return ReadModel(model, std::move(external), all, options);
}

// What is wrong with a model, with the place.
Result<Graph> At(const std::string& place, std::string_view bytes, const std::shared_ptr<const Buffer>& mapped,
                 const std::filesystem::path& folder, const ReadOptions& options) {
  return Closed(place, [&]() -> Result<Graph> {
    auto graph = Parse(bytes, mapped, folder, options);
    if (!graph) return Fail("{}: {}", place, graph.error().message);
    return graph;
  });
}

}  // namespace

Result<Graph> ReadBytes(std::string_view bytes, const ReadOptions& options) {
  return At("the model", bytes, nullptr, options.external_dir, options);
}

Result<Graph> ReadFile(const std::filesystem::path& path, const ReadOptions& options) {
  return Closed("reading a model", [&]() -> Result<Graph> {
    const std::string name = Quoted(path.string());
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return Fail("{}: there is no such file", name);
    if (std::filesystem::is_directory(path, error)) return Fail("{} is a folder; name the .onnx file in it", name);
    OCTAVO_TRY(auto file, MapFile(path, options.map_data ? std::string() : path.filename().string()));
    std::filesystem::path folder = options.external_dir;
    if (folder.empty()) folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    return At(name, {reinterpret_cast<const char*>(file->data()), file->size()}, options.map_data ? file : nullptr,
              folder, options);
  });
}

}  // namespace octavo::ir::onnx
