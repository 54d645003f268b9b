#include "octavo/tests/ir/node_case.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <format>
#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

#include "octavo/ir/decided.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/tensor_file.h"

namespace octavo::ir {

namespace {

namespace fs = std::filesystem;

// ONNX's own runner: 1e-3, for bf16 two of its steps. Two steps of f16 too: twins of several ops round after each of them.
double ToleranceOf(DType t) {
  if (!quant::IsFloat(t)) return 0;
  return t == DType::kBF16 ? 0x1p-6 : t == DType::kF16 ? 0x1p-9 : 1e-3;
}

// Empty: equal within the tolerance (and 1e-6 absolute); integers and strings exactly.
std::string Difference(const Tensor& got, const Tensor& want) {
  if (got.dtype() != want.dtype()) {
    return std::string(quant::Name(got.dtype())) + " instead of " + std::string(quant::Name(want.dtype()));
  }
  if (got.shape() != want.shape()) return ToString(got.shape()) + " instead of " + ToString(want.shape());
  if (got.dtype() == DType::kString) return got.strings() == want.strings() ? "" : "strings differ";
  const double tolerance = ToleranceOf(got.dtype());
  for (int64_t i = 0; i < got.size(); ++i) {
    const double a = got.GetDouble(i), b = want.GetDouble(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (a == b || (quant::IsFloat(got.dtype()) && std::fabs(a - b) <= 1e-6 + tolerance * std::fabs(b))) continue;
    return std::format("element {} is {} instead of {}", i, a, b);
  }
  return "";
}

// NumPy has no bfloat16: the data files hold its bits as uint16.
void AsBFloat(DType declared, Tensor& t) {
  if (declared != DType::kBF16 || t.dtype() != DType::kU16) return;
  t = Tensor::View(DType::kBF16, t.shape(), t.buffer(), static_cast<size_t>(t.data() - t.buffer()->data()));
}

// A data file of the case, of whichever folder has it.
struct Place {
  fs::path folder, more;
  fs::path File(const std::string& name) const { return fs::exists(folder / name) ? folder / name : more / name; }
};

// The sentence without the quoted path in front of it.
std::string Sentence(const Error& error) {
  const size_t end = error.message.starts_with("'") ? error.message.find("': ") : std::string::npos;
  return end == std::string::npos ? error.message : error.message.substr(end + 3);
}

// An OptionalProto: name (1), kind (2) and the tensor (3), which is read from a file of its own. Absent: there is none in it.
Result<std::optional<std::pair<std::string, Tensor>>> ReadOptional(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  size_t at = 0;
  while (at + 1 < bytes.size()) {
    const int tag = bytes[at], length = bytes[at + 1];  // all shorter than 128
    if (tag == 0x1a) {
      const fs::path alone = fs::temp_directory_path() / std::format("octavo_node_case_{}.pb", getpid());
      std::ofstream(alone, std::ios::binary) << bytes.substr(at + 2, static_cast<size_t>(length));
      auto t = onnx::ReadTensorFile(alone);
      fs::remove(alone);
      if (!t) return std::unexpected(t.error());
      return std::optional(std::move(*t));
    }
    if (tag != 0x0a && tag != 0x10) return Fail("it is no optional");
    at += 2 + (tag == 0x0a ? static_cast<size_t>(length) : 0);
  }
  return std::optional<std::pair<std::string, Tensor>>();
}

Result<TensorMap> InputsOf(const Graph& g, const Place& data) {
  TensorMap inputs;
  for (size_t i = 0; i < g.inputs().size(); ++i) {
    const Value& value = g.value(g.inputs()[i]);
    const fs::path file = data.File(std::format("input_{}.pb", i));
    auto t = onnx::ReadTensorFile(file);
    if (!t) {
      auto optional = ReadOptional(file);
      if (!optional) return std::unexpected(t.error());
      if (!*optional) continue;
      t = std::move(**optional);
    }
    AsBFloat(value.type.dtype, t->second);
    inputs[value.name] = std::move(t->second);
  }
  return inputs;
}

void ForgetTypes(Graph& g) {
  for (const NodeId id : g.NodesInOrder()) {
    for (const ValueId v : std::vector<ValueId>(g.node(id).outputs)) {
      if (v.valid()) g.SetType(v, {g.value(v).type.dtype, {}});
    }
  }
  for (size_t i = 0; i < g.outputs().size(); ++i) g.DeclareOutput(i, {g.outputs()[i].declared.dtype, {}});
}

// The value, other than an input, with sizes that inference knows by elements of inputs alone and that are believed as they are declared.
std::string BelievedAlthoughDecided(const Graph& g, const TensorMap& inputs) {
  Graph plain = g;
  ForgetTypes(plain);
  Graph with_elements = plain;
  for (const ValueId v : std::vector<ValueId>(g.inputs())) {
    const auto given = inputs.find(g.value(v).name);
    if (given == inputs.end()) return "";  // an optional that is absent
    SymShape sizes(given->second.shape().begin(), given->second.shape().end());
    plain.SetType(v, {given->second.dtype(), std::move(sizes)});
    with_elements.ReplaceAllUses(v, with_elements.AddConstant(given->second, {}, with_elements.first()));
  }
  Graph with_sizes = plain;
  if (!Inference::Run(with_sizes) || !Inference::Run(with_elements)) return "";
  for (const NodeId id : plain.NodesInOrder()) {
    for (const ValueId v : plain.node(id).outputs) {
      if (!v.valid() || !with_elements.value(v).type.shape) continue;
      const SymShape& decided = *with_elements.value(v).type.shape;
      const auto& known = with_sizes.value(v).type.shape;
      const auto is_number = [](const Dim& d) { return d.is_number(); };
      if (!std::ranges::all_of(decided, is_number) || decided.empty()) continue;
      if (known && std::ranges::all_of(*known, is_number)) continue;
      Graph declared = plain;
      declared.SetType(v, with_elements.value(v).type);
      DropDecidedShapes(declared);
      if (declared.value(v).type.shape) return declared.value(v).name;
    }
  }
  return "";
}

Verdict RunData(const Graph& g, const Place& data) {
  const auto inputs = InputsOf(g, data);
  if (!inputs) return {Outcome::kFailed, inputs.error().message};
  if (const std::string value = BelievedAlthoughDecided(g, *inputs); !value.empty()) {
    return {Outcome::kFailed,
            std::format("elements of inputs decide the sizes of '{}', and a declared shape is believed", value)};
  }
  auto outputs = Interpret(g, *inputs);
  if (!outputs) return {Outcome::kRefused, outputs.error().message};
  for (size_t i = 0; i < outputs->size(); ++i) {
    const Type& type = g.value(g.outputs()[i].value).type;  // element type and rank were compared by the run
    const Shape& shape = (*outputs)[i].shape();
    for (size_t d = 0; type.shape && d < shape.size(); ++d) {
      const Dim& dim = (*type.shape)[d];
      if (dim.is_number() && dim.number() != shape[d]) {
        return {Outcome::kFailed, std::format("inference says {}, the result is {}", ToString(type), ToString(shape))};
      }
    }
    auto want = onnx::ReadTensorFile(data.File(std::format("output_{}.pb", i)));
    if (!want) return {Outcome::kFailed, want.error().message};
    AsBFloat((*outputs)[i].dtype(), want->second);
    const std::string difference = Difference((*outputs)[i], want->second);
    if (!difference.empty()) return {Outcome::kFailed, std::format("output {}: {}", i, difference)};
  }
  return outputs->empty() ? Verdict{Outcome::kFailed, "no outputs"} : Verdict{Outcome::kPassed, ""};
}

}  // namespace

Verdict RunNodeCase(const fs::path& folder, const fs::path& more, onnx::AttentionOrder order) {
  auto g = onnx::ReadFile(folder / "model.onnx", {.attention_order = order});
  if (!g) return {Outcome::kRefused, Sentence(g.error())};
  if (const auto types = Inference::Run(*g); !types) return {Outcome::kRefused, types.error().message};
  Verdict v{Outcome::kFailed, "no data"};
  for (int i = 0;; ++i) {
    const std::string set = std::format("test_data_set_{}", i);
    const Place data{folder / set, more / folder.filename() / set};
    if (!fs::exists(data.folder) && (more.empty() || !fs::exists(data.more))) return v;
    v = RunData(*g, data);
    if (v.outcome != Outcome::kPassed) return v;
  }
}

}  // namespace octavo::ir
