#include "octavo/integrations/onnxruntime/ep_context.h"

#include <algorithm>
#include <array>
#include <vector>

#include "octavo/integrations/onnxruntime/ep_model.h"
#include "octavo/integrations/onnxruntime/ep_provider.h"
#include "octavo/ir/names.h"
#include "octavo/ir/whole_file.h"
#include "octavo/version.h"

namespace octavo::integrations::onnxruntime {

namespace {

using ir::Result;
using ir::Status;

const abi::Tail& Tail() { return abi::TailOf(Api()); }

constexpr const char* kOp = "EPContext";
// What a model may have as a file; octavo's part is all of it but names.
constexpr size_t kMostBytes = 2'000'000'000;

Result<std::string> TextOf(const OrtOpAttr* attr) {
  const auto kind = static_cast<OrtOpAttrType>(abi::kString);
  size_t bytes = 0;
  std::string text(1, '\0');
  if (StatusOf(Api().ReadOpAttr(attr, kind, text.data(), text.size(), &bytes))) {
    text.resize(bytes);
    return text;
  }
  text.resize(bytes);  // it failed for want of room, and says how much it takes
  if (bytes > 0) OCTAVO_TRY_STATUS(StatusOf(Api().ReadOpAttr(attr, kind, text.data(), text.size(), &bytes)));
  return text;
}

// Null: there is none of that name.
Result<const OrtOpAttr*> AttrOf(const abi::Node* node, std::string_view wanted) {
  size_t count = 0;
  OCTAVO_TRY_STATUS(StatusOf(Tail().Node_GetNumAttributes(node, &count)));
  std::vector<const OrtOpAttr*> attrs(count);
  if (count > 0) OCTAVO_TRY_STATUS(StatusOf(Tail().Node_GetAttributes(node, attrs.data(), count)));
  for (const OrtOpAttr* attr : attrs) {
    const char* name = nullptr;
    OCTAVO_TRY_STATUS(StatusOf(Tail().OpAttr_GetName(attr, &name)));
    if (name != nullptr && wanted == name) return attr;
  }
  return nullptr;
}

Result<std::string> TextAttrOf(const abi::Node* node, std::string_view wanted) {
  OCTAVO_TRY(const OrtOpAttr* attr, AttrOf(node, wanted));
  return attr == nullptr ? std::string() : TextOf(attr);
}

// What is told in the node, as ONNX Runtime's own providers do, unless it says otherwise.
Result<bool> IsBeside(const abi::Node* node) {
  OCTAVO_TRY(const OrtOpAttr* attr, AttrOf(node, "embed_mode"));
  int64_t mode = 1;
  size_t bytes = 0;
  if (attr == nullptr) return false;
  const auto kind = static_cast<OrtOpAttrType>(abi::kInt);
  OCTAVO_TRY_STATUS(StatusOf(Api().ReadOpAttr(attr, kind, &mode, sizeof(mode), &bytes)));
  return mode == 0;
}

Result<std::string> ReadBeside(const std::filesystem::path& file, const std::filesystem::path& folder) {
  const bool leaves = file.is_absolute() || std::ranges::contains(file, std::filesystem::path(".."));
  if (file.empty() || leaves)
    return ir::Fail("an EPContext node names {}, which is no file in the folder of its model",
                    ir::Quoted(file.string()));
  if (folder.empty()) {
    return ir::Fail(
        "the model was given as bytes, and its compiled part lies in {}: set ep.context_file_path to the path that the "
        "model had",
        ir::Quoted(file.string()));
  }
  return ir::ReadWholeFile(folder / file);
}

// Of a part in a file of its own: that of the model with the name that ONNX Runtime gave the part.
std::filesystem::path FileOf(const std::filesystem::path& model, std::string part) {
  std::ranges::replace_if(
      part, [](unsigned char c) { return std::isalnum(c) == 0 && c != '_' && c != '-' && c != '.'; }, '_');
  return model.parent_path() / (model.stem().string() + "_" + part + ".onnx");
}

Result<std::vector<std::string>> NamesOf(const std::vector<const abi::ValueInfo*>& values) {
  std::vector<std::string> names;
  for (const abi::ValueInfo* v : values) {
    OCTAVO_TRY(std::string name, NameOf(v));
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<const char*> Pointers(const std::vector<std::string>& names) {
  std::vector<const char*> pointers;
  for (const std::string& name : names) pointers.push_back(name.c_str());
  return pointers;
}

// Of one node; ONNX Runtime copies what it takes.
class Attributes {
 public:
  Attributes() = default;
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ~Attributes() {
    for (OrtOpAttr* attr : made_) Api().ReleaseOpAttr(attr);
  }
  Status Add(const char* name, std::string_view text) { return Add(name, text.data(), text.size(), abi::kString); }
  Status Add(const char* name, int64_t number) { return Add(name, &number, 1, abi::kInt); }
  std::vector<OrtOpAttr*>& all() { return made_; }

 private:
  Status Add(const char* name, const void* data, size_t size, abi::AttrType type) {
    OrtOpAttr* attr = nullptr;
    OCTAVO_TRY_STATUS(
        StatusOf(Api().CreateOpAttr(name, data, static_cast<int>(size), static_cast<OrtOpAttrType>(type), &attr)));
    made_.push_back(attr);
    return {};
  }
  std::vector<OrtOpAttr*> made_;
};

}  // namespace

Result<bool> IsContext(const abi::Node* node) {
  OCTAVO_TRY(const std::string type, TypeOf(node));
  if (type != kOp) return false;
  OCTAVO_TRY(const std::string source, TextAttrOf(node, "source"));
  return source == abi::kProviderName;
}

Result<std::optional<std::string>> ContextOf(const abi::Node* node, const std::filesystem::path& folder) {
  OCTAVO_TRY(const bool is, IsContext(node));
  if (!is) return std::nullopt;
  OCTAVO_TRY(std::string model, TextAttrOf(node, "ep_cache_context"));
  OCTAVO_TRY(const bool beside, IsBeside(node));
  if (!beside) return model;
  return ReadBeside(model, folder);
}

Result<abi::Node*> ContextNode(const abi::Node* fused, std::string_view model, const std::filesystem::path& beside) {
  if (model.size() > kMostBytes) {
    return ir::Fail(
        "a compiled part has {} bytes, more than an EPContext node may carry ({}): leave ep.context_enable out",
        model.size(), kMostBytes);
  }
  const char* name = "";
  OCTAVO_TRY_STATUS(StatusOf(Tail().Node_GetName(fused, &name)));
  OCTAVO_TRY(const auto input_ports, InputsOf(fused));
  OCTAVO_TRY(const auto output_ports, OutputsOf(fused));
  OCTAVO_TRY(const auto inputs, NamesOf(input_ports));
  OCTAVO_TRY(const auto outputs, NamesOf(output_ports));
  std::string told;
  if (!beside.empty()) {
    const std::filesystem::path file = FileOf(beside, name);
    OCTAVO_TRY_STATUS(ir::WriteWholeFile(file, model));
    told = file.filename().string();
  }
  Attributes attrs;
  OCTAVO_TRY_STATUS(attrs.Add("main_context", int64_t{1}));
  OCTAVO_TRY_STATUS(attrs.Add("embed_mode", int64_t{beside.empty()}));
  OCTAVO_TRY_STATUS(attrs.Add("ep_cache_context", beside.empty() ? model : told));
  OCTAVO_TRY_STATUS(attrs.Add("ep_sdk_version", OCTAVO_VERSION));
  OCTAVO_TRY_STATUS(attrs.Add("partition_name", name));
  OCTAVO_TRY_STATUS(attrs.Add("source", abi::kProviderName));
  const auto in = Pointers(inputs), out = Pointers(outputs);
  abi::Node* node = nullptr;
  OCTAVO_TRY_STATUS(
      StatusOf(Tail().GetModelEditorApi()->CreateNode(kOp, "com.microsoft", name, in.data(), in.size(), out.data(),
                                                      out.size(), attrs.all().data(), attrs.all().size(), &node)));
  return node;
}

}  // namespace octavo::integrations::onnxruntime
