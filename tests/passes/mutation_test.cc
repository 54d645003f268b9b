// Rules survive what exporters vary (issue 4): random edits that keep the meaning keep the counts of fused cores and groups.
// Every mutant is first interpreted against the original, so that the edits are known to keep the meaning.
// OCTAVO_MUTATION_SEED replays a run, OCTAVO_MUTANTS says how many mutants each graph gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/verify.h"
#include "octavo/passes/pipelines.h"
#include "octavo/passes/report.h"
#include "octavo/tests/passes/mutate.h"
#include "octavo/tests/unpacked.h"

namespace octavo::passes {
namespace {

namespace fs = std::filesystem;

uint32_t FromEnvironment(const char* name, uint32_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? static_cast<uint32_t>(std::strtoul(text, nullptr, 10)) : fallback;
}

// Float graphs: quantized ones keep their bits, and not every edit does.
std::vector<fs::path> FloatModels() {
  std::vector<fs::path> models;
  for (const char* folder : {"float", "extra"}) {
    for (const auto& entry : fs::directory_iterator(tests::Unpacked() / "zoo" / folder)) {
      const std::string name = entry.path().filename().string();
      const bool quantized = name.find(".ort-") != std::string::npos || name.find(".nncf") != std::string::npos ||
                             name.find(".fp8") != std::string::npos;
      if (entry.path().extension() == ".onnx" && !quantized) models.push_back(entry.path());
    }
  }
  std::sort(models.begin(), models.end());
  return models;
}

bool IsQuantized(const Graph& g) {
  const std::vector<NodeId> nodes = g.NodesInOrder();
  return std::any_of(nodes.begin(), nodes.end(), [&](NodeId id) {
    const Op op = g.node(id).op;
    return op == Op::kDequantizeLinear || op == Op::kDynamicQuantizeLinear || op == Op::kMatMulInteger ||
           op == Op::kQLinearMatMul;
  });
}

struct Counts {
  int cores = -1, groups = -1;
  std::string problem;
  auto operator<=>(const Counts&) const = default;
};

Counts CountsOf(Graph graph) {
  PassRun context;
  std::vector<NearMiss> misses;
  context.misses = &misses;
  if (Status s = RunPasses({"canonical"}, graph, context); !s) return {.problem = s.error().message};
  Report report = TakeInventory(graph);
  if (Status s = RunPasses({"fuse_float", "qkv_float", "canonical"}, graph, context); !s)
    return {.problem = s.error().message};
  Judge(graph, context, report);
  std::string left;
  for (const Candidate& c : report.candidates) {
    if (c.kind != "linear" && c.status == "left") left += c.kind + " at " + c.nodes[0] + ": " + c.reason + "; ";
  }
  return {report.attention.done, report.qkv.done, left};
}

ir::TensorMap Case(const ir::TensorMap& arrays) {
  ir::TensorMap inputs;
  for (const auto& [name, tensor] : arrays) {
    if (name.starts_with("0/in/")) inputs[name.substr(5)] = tensor;
  }
  return inputs;
}

// Empty: the outputs of `original` have the same bits in `mutant`.
std::string Differs(const Graph& original, const Graph& mutant, const ir::TensorMap& inputs) {
  const auto want = ir::Interpret(original, inputs), got = ir::Interpret(mutant, inputs);
  if (!want) return "";
  if (!got) return got.error().message;
  for (size_t i = 0; i < want->size(); ++i) {
    if (!(*want)[i].SameBits((*got)[i])) return "output " + original.outputs()[i].name + " has other bits";
  }
  return "";
}

TEST(Mutation, EditsThatKeepTheMeaningKeepTheCounts) {
  const uint32_t seed = FromEnvironment("OCTAVO_MUTATION_SEED", std::random_device{}());
  const uint32_t mutants = FromEnvironment("OCTAVO_MUTANTS", 1);
  std::printf("OCTAVO_MUTATION_SEED=%u\n", seed);
  const std::vector<fs::path> models = FloatModels();
  int tried = 0, cores = 0, groups = 0;
  std::map<std::string, int> edits;
  for (const fs::path& model : models) {
    auto graph = ir::onnx::ReadFile(model);
    if (!graph || !ir::Inference::Run(*graph) || IsQuantized(*graph)) continue;  // the importer's tests say why
    const auto arrays = ir::ReadNpz(fs::path(model).replace_extension(".npz"));
    const Counts want = CountsOf(*graph);
    ASSERT_GE(want.cores, 0) << model << ": " << want.problem;
    for (uint32_t m = 0; m < mutants; ++m) {
      std::seed_seq mix{seed, m, static_cast<uint32_t>(std::hash<std::string>{}(model.filename().string()))};
      std::mt19937 rng(mix);
      Graph mutant = *graph;
      const std::vector<std::string> done = Mutate(mutant, 24, rng);
      std::string list;
      for (const std::string& e : done) {
        list += e + "; ";
        ++edits[e.substr(0, e.find(' '))];
      }
      const Status legal = ir::VerifyStatus(mutant);
      ASSERT_TRUE(legal) << model << ": " << legal.error().message;
      const std::string other = arrays ? Differs(*graph, mutant, Case(*arrays)) : "";
      ASSERT_EQ(other, "") << model << ": the edits changed the meaning: " << list;
      const Counts got = CountsOf(std::move(mutant));
      EXPECT_EQ(std::pair(got.cores, got.groups), std::pair(want.cores, want.groups))
          << model.filename() << " mutant " << m << ": " << got.problem << "\n  edits: " << list;
      ++tried;
      cores += want.cores;
      groups += want.groups;
    }
  }
  std::printf("%d mutants of %zu graphs, %d cores and %d groups;", tried, models.size(), cores, groups);
  for (const auto& [what, count] : edits) std::printf(" %s %d", what.c_str(), count);
  std::printf("\n");
  EXPECT_EQ(tried, static_cast<int>(models.size() * mutants)) << "graphs that were left out";
  EXPECT_EQ(cores, 455 * static_cast<int>(mutants));
  EXPECT_EQ(groups, 426 * static_cast<int>(mutants));
  EXPECT_GE(edits.size(), 8u);  // every kind of edit was made
}

}  // namespace
}  // namespace octavo::passes
