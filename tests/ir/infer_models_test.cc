// Inference over real exports: the zoo and MiniLM.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"
#include "octavo/tests/unpacked.h"

namespace octavo::ir {
namespace {

namespace fs = std::filesystem;

const fs::path kZoo = tests::Unpacked() / "zoo";

std::vector<fs::path> Graphs(const fs::path& folder) {
  std::vector<fs::path> out;
  if (!fs::exists(folder)) return out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".onnx") out.push_back(entry.path());
  }
  std::ranges::sort(out);
  return out;
}

struct Share {
  int values = 0, known_dims = 0, known_rank = 0, graphs = 0;
};

// True where everything is known.
bool Count(const Graph& g, Share& share, std::string& first_unknown) {
  bool all = true;
  for (const NodeId id : g.NodesInOrder()) {
    for (const ValueId v : g.node(id).outputs) {
      if (!v.valid()) continue;
      const Type& type = g.value(v).type;
      ++share.values;
      share.known_rank += type.shape ? 1 : 0;
      const bool known = type.shape && std::ranges::all_of(*type.shape, [](const Dim& d) { return d.known(); });
      share.known_dims += known ? 1 : 0;
      if (!known && all) {
        first_unknown = g.value(v).name + " = " + std::string(InfoOf(g.node(id).op).name) + " : " + ToString(type);
      }
      all = all && known;
    }
  }
  return all;
}

TEST(InferModels, Zoo) {
  std::map<std::string, Share> shares;
  for (const char* folder : {"float", "quantized", "extra"}) {
    for (const fs::path& path : Graphs(kZoo / folder)) {
      SCOPED_TRACE(path.filename());
      auto g = onnx::ReadFile(path);
      ASSERT_TRUE(g.has_value()) << g.error().message;
      const auto inference = Inference::Run(*g);
      EXPECT_TRUE(inference.has_value()) << inference.error().message;
      const Status legal = VerifyStatus(*g);
      EXPECT_TRUE(legal.has_value()) << legal.error().message;
      Share& share = shares[folder];
      ++share.graphs;
      std::string unknown;
      if (!Count(*g, share, unknown)) std::printf("%s: %s\n", path.filename().c_str(), unknown.c_str());
      const std::string text = ToText(*g);
      const auto again = ParseText(text);
      ASSERT_TRUE(again.has_value()) << again.error().message;
      EXPECT_EQ(ToText(*again), text);
    }
  }
  for (const auto& [folder, s] : shares) {
    ASSERT_GT(s.values, 0);
    std::printf("%-10s %3d graphs, %6d values: rank known of %5.1f %%, all dims known of %5.1f %%\n", folder.c_str(),
                s.graphs, s.values, 100.0 * s.known_rank / s.values, 100.0 * s.known_dims / s.values);
    EXPECT_GE(s.known_rank, s.values * 0.99) << folder;
    EXPECT_GE(s.known_dims, s.values * 0.98) << folder;
  }
}

// What inference claims of one graph, against what a run gives.
class Claims {
 public:
  Claims(const Graph& g, const Inference& inference) : g_(g), inference_(inference) {
    for (const NodeId id : g.NodesInOrder()) own_.insert(&g.node(id));
  }

  void Bind(ValueId input, const Tensor& t) {
    const auto& shape = g_.value(input).type.shape;
    for (size_t i = 0; shape && i < shape->size(); ++i) {
      if (const std::string symbol = (*shape)[i].symbol(); !symbol.empty()) sizes_.emplace(symbol, t.shape()[i]);
    }
  }

  void Check(const Node& n, std::span<const RtValue> outputs) {
    if (!own_.contains(&n)) return;  // of a subgraph
    for (size_t i = 0; i < outputs.size() && i < n.outputs.size(); ++i) {
      if (n.outputs[i].valid() && outputs[i].tensor.defined()) CheckValue(n.outputs[i], outputs[i].tensor);
    }
  }

  int dims = 0, elements = 0;

 private:
  void CheckValue(ValueId v, const Tensor& t) {
    const Type& type = g_.value(v).type;
    const std::string& name = g_.value(v).name;
    EXPECT_EQ(quant::Name(type.dtype), quant::Name(t.dtype())) << name;
    if (!type.shape) return;
    ASSERT_EQ(type.shape->size(), t.shape().size()) << name << " " << ToString(type) << " " << ToString(t.shape());
    for (size_t i = 0; i < type.shape->size(); ++i) {
      const auto size = Value((*type.shape)[i]);
      if (!size) continue;
      ++dims;
      EXPECT_EQ(*size, t.shape()[i]) << name << " " << ToString(type) << " " << ToString(t.shape());
    }
    const SymContents* contents = inference_.Contents(v);
    if (contents == nullptr) return;
    ASSERT_EQ(static_cast<int64_t>(contents->size()), t.size()) << name;
    for (size_t i = 0; i < contents->size(); ++i) {
      const auto element = Value((*contents)[i]);
      if (!element) continue;
      ++elements;
      EXPECT_EQ(*element, t.GetInt(static_cast<int64_t>(i))) << name << " " << ToString(*contents);
    }
  }

  // Symbols that no input binds (the exporter's own) say nothing here.
  std::optional<int64_t> Value(const Dim& d) const {
    return d.Evaluate([this](std::string_view symbol) -> std::optional<int64_t> {
      const auto it = sizes_.find(symbol);
      return it == sizes_.end() ? std::nullopt : std::optional(it->second);
    });
  }

  const Graph& g_;
  const Inference& inference_;
  std::set<const Node*> own_;
  std::map<std::string, int64_t, std::less<>> sizes_;
};

TEST(InferModels, ClaimsHoldInARun) {
  int dims = 0;
  int elements = 0;
  for (const char* folder : {"float", "quantized", "extra"}) {
    for (const fs::path& path : Graphs(kZoo / folder)) {
      SCOPED_TRACE(path.filename());
      auto g = onnx::ReadFile(path);
      fs::path data = path;
      const auto arrays = ReadNpz(data.replace_extension(".npz"));
      ASSERT_TRUE(g.has_value() && arrays.has_value());
      const auto inference = Inference::Run(*g);
      ASSERT_TRUE(inference.has_value()) << inference.error().message;
      for (const char* run : {"0/in/", "1/in/"}) {
        Claims claims(*g, *inference);
        TensorMap inputs;
        for (const ValueId id : g->inputs()) {
          const auto it = arrays->find(run + g->value(id).name);
          if (it == arrays->end()) continue;
          claims.Bind(id, it->second);
          inputs[g->value(id).name] = it->second;
        }
        if (inputs.empty()) continue;
        // Opaque nodes end a run early; what ran until then counts.
        (void)Interpret(*g, inputs, {.on_node = [&](const Node& n, std::span<const RtValue> outputs) {
          claims.Check(n, outputs);
        }});
        dims += claims.dims;
        elements += claims.elements;
      }
    }
  }
  std::printf("%d dims and %d elements of shape tensors as inferred\n", dims, elements);
  EXPECT_GT(dims, 100000);
  EXPECT_GT(elements, 10000);
}

// The weights lie in a file that need not be here: a hole of its size serves, because shapes do not ask for weights.
class MiniLm : public testing::TestWithParam<const char*> {};

TEST_P(MiniLm, EveryReshapeIsKnown) {
  const fs::path source = fs::path(OCTAVO_SOURCE_DIR) / "tests/data/minilm" / GetParam();
  const fs::path folder = fs::path(testing::TempDir()) / (std::string("octavo_minilm_") + GetParam());
  fs::create_directories(folder);
  fs::copy_file(source, folder / "model.onnx", fs::copy_options::overwrite_existing);
  std::ofstream(folder / "model.safetensors").put(0);
  fs::resize_file(folder / "model.safetensors", 90868376);
  auto g = onnx::ReadFile(folder / "model.onnx");
  ASSERT_TRUE(g.has_value()) << g.error().message;
  const auto inference = Inference::Run(*g);
  ASSERT_TRUE(inference.has_value()) << inference.error().message;
  std::map<std::string, int> reshapes;
  int softmaxes = 0;
  for (const NodeId id : g->NodesInOrder()) {
    const Node& n = g->node(id);
    if (n.op == Op::kReshape) ++reshapes[ToString(g->value(n.output()).type)];
    if (n.op == Op::kSoftmax) {
      ++softmaxes;
      EXPECT_EQ(ToString(g->value(n.output()).type), "f32[batch,12,sequence,sequence]");
    }
  }
  EXPECT_EQ(softmaxes, 6);
  for (const auto& [type, count] : reshapes) std::printf("%3d x %s\n", count, type.c_str());
  // Q, K and V of six layers, and the six merges.
  EXPECT_EQ(reshapes["f32[batch,sequence,12,32]"], 18);
  EXPECT_EQ(reshapes["f32[batch,sequence,384]"], 6);
  for (const auto& [type, count] : reshapes) EXPECT_EQ(type.find('?'), std::string::npos) << type;
  Share share;
  std::string unknown;
  EXPECT_TRUE(Count(*g, share, unknown)) << unknown;
  std::printf("%d values, all dims known of %d\n", share.values, share.known_dims);
  EXPECT_TRUE(VerifyStatus(*g).has_value()) << VerifyStatus(*g).error().message;
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Exports, MiniLm,
                         testing::Values("legacy-eager-opset17.onnx", "legacy-sdpa-opset17.onnx",
                                         "dynamo-sdpa-opset18.onnx"),
                         [](const auto& p) {
                           std::string name = p.param;
                           name = name.substr(0, name.find('.'));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace octavo::ir
