// ONNX Runtime's ops rewritten into standard ones: the interpreter must give what ONNX Runtime gave for the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "octavo/ir/interpret.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/tests/ir_onnx/make_model.h"
#include "octavo/tests/unpacked.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

// Signal to difference in dB over all outputs of case `c`; negative: the graph did not run.
double Agreement(const ir::Graph& g, const ir::TensorMap& arrays, const std::string& c, std::string& why) {
  ir::TensorMap inputs;
  for (ir::ValueId v : g.inputs()) {
    const auto it = arrays.find(c + "/in/" + g.value(v).name);
    if (it == arrays.end()) return why = "no array for " + g.value(v).name, -1;
    inputs[g.value(v).name] = it->second;
  }
  const auto outputs = ir::Interpret(g, inputs);
  if (!outputs) return why = outputs.error().message, -1;
  double signal = 0, noise = 0;
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const auto it = arrays.find(c + "/out/" + g.outputs()[i].name);
    if (it == arrays.end()) return why = "no expected " + g.outputs()[i].name, -1;
    if (it->second.shape() != outputs->at(i).shape()) return why = "shape of " + g.outputs()[i].name, -1;
    const auto want = it->second.ToFloats(), have = outputs->at(i).ToFloats();
    for (size_t j = 0; j < want.size(); ++j) {
      signal += static_cast<double>(want[j]) * want[j];
      noise += std::pow(static_cast<double>(want[j]) - have[j], 2);
    }
  }
  if (signal == 0) return why = "the expected outputs are zero", -1;
  return noise == 0 ? 200 : 10 * std::log10(signal / noise);
}

void CompareAll(const fs::path& folder, int at_least) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".onnx") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  int compared = 0;
  for (const fs::path& path : paths) {
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromString(ReadWhole(path)));
    bool vendor = false;
    for (const auto& n : model.graph().node()) {
      vendor = vendor || n.domain() == "com.microsoft" || n.op_type() == "SimplifiedLayerNormalization";
    }
    if (!vendor) continue;
    const auto g = ir::onnx::ReadFile(path);
    ASSERT_TRUE(g) << g.error().message;
    std::string opaque;
    for (ir::NodeId id : g->NodesInOrder()) {
      if (g->node(id).op == ir::Op::kOpaque) opaque = g->node(id).op_type;
    }
    const auto arrays = ir::ReadNpz(fs::path(path).replace_extension(".npz"));
    ASSERT_TRUE(arrays) << arrays.error().message;
    std::string why;
    const double db = opaque.empty() ? Agreement(*g, *arrays, "0", why) : -1;
    std::printf("%-62s %s\n", path.filename().c_str(),
                !opaque.empty() ? ("keeps " + opaque).c_str() : (std::to_string(db) + " dB " + why).c_str());
    if (!opaque.empty()) continue;
    ++compared;
    // ONNX Runtime's 8-bit kernels may differ from their own definition by one step here and there.
    const bool steps = path.filename().string().find("qoperator") != std::string::npos ||
                       path.filename().string().find("dynamic") != std::string::npos ||
                       path.filename().string().find("qdq") != std::string::npos;
    EXPECT_GT(db, steps ? 40 : 100) << path.filename() << ": " << why;
  }
  EXPECT_GE(compared, at_least);
}

TEST(Vendor, QuantizedAgree) { CompareAll(Unpacked() / "zoo/quantized", 52); }
TEST(Vendor, ExtraAgree) { CompareAll(Unpacked() / "zoo/extra", 7); }

}  // namespace
}  // namespace octavo::tests
