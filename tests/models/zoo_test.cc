// Every exporter-made graph at hand (tests/data always, ../shared/models where it exists) through the whole house: read, run,
// fuse in float, run, write, read, run again. Prints one line per graph that does not make it, with the sentence, and a
// table of shares; asserts the shares that we promise. Counts of attention cores and QKV groups are checked against
// index.json, which knows them by construction.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "octavo/api/optimize.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/runtime/model.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ir::Tensor;

struct Entry {
  fs::path file;
  bool quantized = false;  // outputs were made by a runtime that multiplies dequantized floats: codes may flip
  int cores = -1, groups = -1;
  double tolerance = 0;  // as index.json states it
};

struct Known {
  int cores = -1, groups = -1;
  double tolerance = 0;
};

std::vector<Entry> Entries(const fs::path& root) {
  std::vector<Entry> entries;
  std::map<std::string, Known> known;
  for (const char* index : {"index.json", "extra/index.json"}) {
    std::ifstream in(root / index);
    if (!in) continue;
    nlohmann::json j = nlohmann::json::parse(in);
    const auto take = [&](const nlohmann::json& list) {
      for (const auto& g : list) known[g["name"]] = {g.value("attention_cores", -1), g.value("qkv_groups", -1), g.value("tolerance", 0.0)};
    };
    if (j.is_array()) take(j);
    if (j.is_object()) {
      for (const auto& [key, list] : j.items()) take(list);
    }
  }
  for (const auto& e : fs::recursive_directory_iterator(root)) {
    if (e.path().extension() != ".onnx") continue;
    if (!fs::exists(fs::path(e.path()).replace_extension(".npz"))) continue;
    const std::string stem = e.path().stem().string();
    const bool form = std::count(stem.begin(), stem.end(), '.') > 2 || stem.find(".ort-") != std::string::npos ||
                      stem.find(".nncf") != std::string::npos || stem.find(".fp8") != std::string::npos ||
                      stem.starts_with("qlinear");
    Entry entry{e.path(), form || e.path().string().find("/quantized/") != std::string::npos};
    if (const auto it = known.find(e.path().stem().string()); it != known.end()) {
      entry.cores = it->second.cores;
      entry.groups = it->second.groups;
      entry.tolerance = it->second.tolerance;
    }
    entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.file < b.file; });
  return entries;
}

// Largest difference relative to the largest expected magnitude; infinite where shapes, NaN or infinities disagree.
double Distance(const Tensor& got, const Tensor& want) {
  if (got.shape() != want.shape()) return INFINITY;
  double top = 1e-30;
  double worst = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    const double b = want.GetDouble(i);
    if (std::isfinite(b)) top = std::max(top, std::fabs(b));
  }
  for (int64_t i = 0; i < want.size(); ++i) {
    const double a = got.GetDouble(i);
    const double b = want.GetDouble(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    worst = std::max(worst, std::isfinite(a - b) ? std::fabs(a - b) / top : INFINITY);
  }
  return worst;
}

// The distance over all cases of the .npz, or a sentence.
ir::Result<double> RunCases(const ir::Graph& graph, const ir::TensorMap& arrays) {
  OCTAVO_TRY(const runtime::Model model, runtime::Model::Compile(graph, {.threads = 1}));
  double worst = 0;
  int compared = 0;
  for (int c = 0; c < 2; ++c) {
    ir::TensorMap inputs;
    for (const auto& port : model.inputs()) {
      const auto it = arrays.find(std::to_string(c) + "/in/" + port.name);
      if (it != arrays.end()) inputs[port.name] = it->second;
    }
    if (inputs.empty()) continue;
    OCTAVO_TRY(const std::vector<Tensor> outputs, model.Run(inputs));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto it = arrays.find(std::to_string(c) + "/out/" + model.outputs()[i].name);
      if (it == arrays.end()) continue;
      worst = std::max(worst, Distance(outputs[i], it->second));
      ++compared;
    }
  }
  if (compared == 0) return ir::Fail("no output was compared: a name was lost");
  return worst;
}

// Names, types and dims of inputs and outputs as a user of the file sees them.
std::string Signature(const ir::Graph& g) {
  std::string s;
  for (ir::ValueId v : g.inputs()) s += g.value(v).name + ":" + ToString(g.value(v).type) + " ";
  for (const ir::GraphOutput& o : g.outputs()) s += o.name + ":" + ToString(o.declared) + " ";
  return s;
}

struct Tally {
  int graphs = 0, read = 0, ran = 0, fused_ran = 0, returned = 0;
  int cores = 0, cores_fused = 0, groups = 0, groups_fused = 0;
};

struct Outcome {
  std::string stage, why;
};

// Counts against index.json, and tells the reason of every candidate that was left.
void CountFused(const Entry& e, const passes::Report& report, Tally& t) {
  t.cores += e.cores;
  t.cores_fused += std::min(e.cores, report.attention.done);
  t.groups += std::max(0, e.groups);
  t.groups_fused += std::min(std::max(0, e.groups), report.qkv.done);
  // What is there by construction and no more: a decoy that fuses is worse than a core that does not.
  EXPECT_LE(report.attention.done, e.cores) << e.file;
  if (report.attention.done >= e.cores && report.qkv.done >= e.groups) return;
  std::printf("  %-48s cores %d of %d, groups %d of %d\n", e.file.stem().c_str(), report.attention.done, e.cores, report.qkv.done, e.groups);
  for (const passes::Candidate& c : report.candidates) {
    if (c.kind == "linear" || c.status != "left") continue;
    std::printf("    %s at %s: %s\n", c.kind.c_str(), c.nodes[0].c_str(), c.reason.c_str());
    EXPECT_FALSE(c.reason.empty()) << e.file << ": " << c.nodes[0];
  }
}

// Stages in order; the first that fails ends it.
Outcome Check(const Entry& e, double tolerance, Tally& t) {
  ++t.graphs;
  auto graph = ir::onnx::ReadFile(e.file);
  if (!graph) return {"read", graph.error().message};
  ++t.read;
  auto arrays = ir::ReadNpz(fs::path(e.file).replace_extension(".npz"));
  if (!arrays) return {"data", arrays.error().message};
  const auto check = [&](const ir::Graph& g) -> std::string {
    auto distance = RunCases(g, *arrays);
    if (!distance) return distance.error().message;
    return *distance <= tolerance ? "" : std::format("off by {:.3g} of the largest value", *distance);
  };
  if (std::string why = check(*graph); !why.empty()) return {"run", why};
  ++t.ran;
  api::OptimizeOptions options;
  options.recipe = "float";
  auto fused = api::Optimize(*graph, options);
  if (!fused) return {"fuse", fused.error().message};
  if (std::string why = check(fused->graph); !why.empty()) return {"fused run", why};
  if (Signature(*graph) != Signature(fused->graph)) return {"fused", "was " + Signature(*graph) + ", is " + Signature(fused->graph)};
  ++t.fused_ran;
  if (!e.quantized && e.cores >= 0) CountFused(e, fused->report, t);
  auto bytes = ir::onnx::WriteBytes(fused->graph);
  if (!bytes) return {"write", bytes.error().message};
  auto back = ir::onnx::ReadBytes(*bytes);
  if (!back) return {"read back", back.error().message};
  if (std::string why = check(*back); !why.empty()) return {"run after export", why};
  ++t.returned;
  return {};
}

void RunZoo(const fs::path& root, double least_share, int least_cores_percent) {
  Tally t;
  for (const Entry& e : Entries(root)) {
    // Float: rounding of a few layers. Quantized: a code that flips is 1/255 of a range, through two layers.
    const Outcome o = Check(e, e.quantized ? 5e-2 : std::max(2e-4, e.tolerance), t);
    if (!o.stage.empty()) std::printf("  %-48s %-16s %s\n", e.file.stem().c_str(), o.stage.c_str(), o.why.substr(0, 160).c_str());
  }
  std::printf("%s\n  graphs %d, read %d, run %d, fused and run %d, written, read and run %d\n", root.c_str(), t.graphs, t.read, t.ran,
              t.fused_ran, t.returned);
  std::printf("  float graphs: attention cores fused %d of %d, QKV groups %d of %d\n", t.cores_fused, t.cores, t.groups_fused, t.groups);
  ASSERT_GT(t.graphs, 0);
  EXPECT_GE(t.returned, least_share * t.graphs);
  // Of what is there by construction, counted in whole cores and groups.
  EXPECT_GE(t.cores_fused * 100, least_cores_percent * t.cores);
  EXPECT_EQ(t.groups_fused, t.groups);
}

TEST(Zoo, Committed) { RunZoo(fs::path(OCTAVO_SOURCE_DIR) / "tests/data", 0.85, 96); }  // one core of 27 keeps P

TEST(Zoo, Shared) {
  const fs::path root = fs::path(OCTAVO_SOURCE_DIR) / "../shared/models";
  if (!fs::exists(root)) GTEST_SKIP() << "shared/models is not here; the committed part is tested by Zoo.Committed";
  RunZoo(root, 0.97, 98);
}

}  // namespace
}  // namespace octavo
