// The zoo through the whole house: read, run, fuse in float, run, write, read, run again, quantize to int8, run. Prints
// one line a graph, and asserts the shares that we promise. Counts of attention cores and QKV groups are checked against
// index.json, which knows them by construction. support_table.py compares the table of docs/families.md with the figures.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "octavo/api/optimize.h"
#include "octavo/ir/functions.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/quant/error.h"
#include "octavo/runtime/model.h"
#include "octavo/tests/unpacked.h"

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
    if (!in) continue;  // tests/data/vendor has none
    nlohmann::json j = nlohmann::json::parse(in);
    const auto take = [&](const nlohmann::json& list) {
      for (const auto& g : list)
        known[g["name"]] = {g.value("attention_cores", -1), g.value("qkv_groups", -1), g.value("tolerance", 0.0)};
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

// The inputs of the cases that the .npz has.
std::vector<ir::TensorMap> CasesOf(const ir::Graph& graph, const ir::TensorMap& arrays) {
  std::vector<ir::TensorMap> cases;
  for (int c = 0; c < 2; ++c) {
    ir::TensorMap inputs;
    for (ir::ValueId v : graph.inputs()) {
      const auto it = arrays.find(std::to_string(c) + "/in/" + graph.value(v).name);
      if (it != arrays.end()) inputs[graph.value(v).name] = it->second;
    }
    if (!inputs.empty()) cases.push_back(std::move(inputs));
  }
  return cases;
}

// The distance over all cases of the .npz, or a sentence.
ir::Result<double> RunCases(const ir::Graph& graph, const ir::TensorMap& arrays) {
  OCTAVO_TRY(const runtime::Model model, runtime::Model::Compile(graph, {.threads = 1}));
  double worst = 0;
  int compared = 0;
  const std::vector<ir::TensorMap> cases = CasesOf(graph, arrays);
  for (size_t c = 0; c < cases.size(); ++c) {
    OCTAVO_TRY(const std::vector<Tensor> outputs, model.Run(cases[c]));
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

// One line of the table.
struct Row {
  std::string name, family;
  bool quantized = false;
  std::string failed, why;      // the stage that failed and its sentence; empty: none
  int cores = -1, groups = -1;  // by construction; -1: unknown
  int cores_fused = 0, groups_fused = 0;
  double before = -1, after = -1;          // distance from the expected outputs, before and after float fusion
  int int8_cores = -1, int8_linears = -1;  // of a float graph that was quantized
  double sqnr = 0;                         // of its outputs, dB, the worst output
  std::vector<std::string> left;           // candidates that were not fused, with reasons
};

void CountFused(const passes::Report& report, Row& row) {
  row.cores_fused = report.attention.done;
  row.groups_fused = report.qkv.done;
  if (row.cores_fused >= row.cores && row.groups_fused >= row.groups) return;
  for (const passes::Candidate& c : report.candidates) {
    if (c.kind == "linear" || c.status != "left") continue;
    row.left.push_back(std::format("{} at {}: {}", c.kind, c.nodes[0], c.reason));
    EXPECT_FALSE(c.reason.empty()) << row.name << ": " << c.nodes[0];
  }
}

// A host that asks for attributes by name would miss another one without a word.
void ExpectListedAttrs(const ir::Graph& g, const Row& row) {
  for (const ir::NodeId id : g.NodesInOrder()) {
    const ir::Node& n = g.node(id);
    if (!ir::HasBody(n.op)) continue;
    for (const auto& [name, attr] : n.attrs.entries()) {
      const bool listed = std::ranges::any_of(ir::FusedAttrs(), [&](const ir::FusedAttr& known) {
        const bool kind = std::visit([&]<typename T>(const T&) { return std::holds_alternative<T>(attr); }, known.kind);
        return name == known.name && kind;
      });
      EXPECT_TRUE(listed) << row.name << ": " << ir::InfoOf(n.op).name << " has '" << name << "', ir::FusedAttrs not";
    }
  }
}

// The int8 form, calibrated with the cases themselves: it must run, give the bits of its Q/DQ graph, and stay near the float outputs.
ir::Status CheckInt8(const ir::Graph& graph, const ir::TensorMap& arrays, Row& row) {
  const std::vector<ir::TensorMap> cases = CasesOf(graph, arrays);
  const auto data = quant::InMemoryData(cases, quant::InputsOf(graph));
  api::OptimizeOptions options;
  options.data = data.get();
  options.explain = false;
  OCTAVO_TRY(const api::Optimized int8, api::Optimize(graph, options));
  row.int8_cores = int8.report.attention.done;
  row.int8_linears = int8.report.linear.done;
  ExpectListedAttrs(int8.graph, row);
  OCTAVO_TRY(const runtime::Model fused, runtime::Model::Compile(int8.graph, {.threads = 1}));
  OCTAVO_TRY(const runtime::Model unfused, runtime::Model::Compile(int8.unfused, {.threads = 1}));
  OCTAVO_TRY(const runtime::Model wanted, runtime::Model::Compile(graph, {.threads = 1}));
  std::map<size_t, quant::ErrorStats> stats;
  for (const ir::TensorMap& inputs : cases) {
    OCTAVO_TRY(const std::vector<Tensor> got, fused.Run(inputs));
    OCTAVO_TRY(const std::vector<Tensor> same, unfused.Run(inputs));
    OCTAVO_TRY(const std::vector<Tensor> want, wanted.Run(inputs));
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(got[i].SameBits(same[i])) << row.name << ": int8 output " << i << " is not that of its Q/DQ graph";
      if (quant::IsInteger(want[i].dtype()) || want[i].dtype() == ir::DType::kBool) continue;
      ir::TensorMap a{{"y", want[i]}}, b{{"y", got[i]}};  // without padding, which calibration leaves out too
      api::LeaveOutPadding(inputs, a);
      api::LeaveOutPadding(inputs, b);
      OCTAVO_TRY_STATUS(stats[i].Add(a["y"], b["y"]));
    }
  }
  row.sqnr = INFINITY;
  for (const auto& [i, s] : stats) row.sqnr = std::min(row.sqnr, s.mismatches() > 0 ? -INFINITY : s.SqnrDb());
  return {};
}

// Stages in order; the first that fails ends it.
void Check(const Entry& e, double tolerance, Row& row) {
  const auto fail = [&row](std::string stage, std::string why) {
    row.failed = std::move(stage), row.why = std::move(why);
  };
  auto graph = ir::onnx::ReadFile(e.file);
  if (!graph) return fail("read", graph.error().message);
  auto arrays = ir::ReadNpz(fs::path(e.file).replace_extension(".npz"));
  if (!arrays) return fail("data", arrays.error().message);
  const auto check = [&](const ir::Graph& g, double* distance) -> std::string {
    auto d = RunCases(g, *arrays);
    if (!d) return d.error().message;
    *distance = *d;
    return *d <= tolerance ? "" : std::format("off by {:.3g} of the largest value", *d);
  };
  if (std::string why = check(*graph, &row.before); !why.empty()) return fail("run", why);
  api::OptimizeOptions options;
  options.recipe = "float";
  auto fused = api::Optimize(*graph, options);
  if (!fused) return fail("fuse", fused.error().message);
  if (std::string why = check(fused->graph, &row.after); !why.empty()) return fail("fused run", why);
  if (Signature(*graph) != Signature(fused->graph)) {
    return fail("fused", "was " + Signature(*graph) + ", is " + Signature(fused->graph));
  }
  if (!e.quantized && e.cores >= 0) CountFused(fused->report, row);
  auto bytes = ir::onnx::WriteBytes(fused->graph);
  if (!bytes) return fail("write", bytes.error().message);
  auto back = ir::onnx::ReadBytes(*bytes);
  if (!back) return fail("read back", back.error().message);
  double returned = 0;
  if (std::string why = check(*back, &returned); !why.empty()) return fail("run after export", why);
  if (e.quantized || e.cores < 0) return;
  if (auto ok = CheckInt8(*graph, *arrays, row); !ok) fail("int8", ok.error().message);
}

Row RowOf(const Entry& e) {
  Row row;
  row.name = e.file.stem().string();
  row.family = row.name.substr(0, row.name.find('.'));
  row.quantized = e.quantized, row.cores = e.cores, row.groups = e.groups;
  // Float: rounding of a few layers. Quantized: a code that flips is 1/255 of a range, through two layers; of E4M3FN 1/14. The fp8
  // files have one scale, 4/448, for all activations, so that sums of products fall exactly between two codes, where rounding decides.
  const bool fp8 = row.name.find(".fp8") != std::string::npos;
  Check(e, fp8 ? 1.5e-1 : e.quantized ? 5e-2 : std::max(2e-4, e.tolerance), row);
  return row;
}

void Print(const Row& r) {
  const auto of = [](int done, int all) { return all < 0 ? std::string("-") : std::format("{}/{}", done, all); };
  const auto number = [](double d, const char* none) { return d < 0 ? std::string(none) : std::format("{:.1e}", d); };
  std::printf(
      "  %-56s %7s %7s %9s %9s %9s  %s %s\n", r.name.c_str(), r.quantized ? "-" : of(r.cores_fused, r.cores).c_str(),
      r.quantized ? "-" : of(r.groups_fused, r.groups).c_str(), number(r.before, "-").c_str(),
      number(r.after, "-").c_str(), r.int8_cores < 0 ? "-" : std::format("{} {:.1f}dB", r.int8_cores, r.sqnr).c_str(),
      r.failed.c_str(), r.why.substr(0, 160).c_str());
  for (const std::string& left : r.left) std::printf("    %s\n", left.c_str());
}

// For tests/models/support_table.py, which makes the table of docs/families.md of it and compares it with the one that stands there.
void WriteJson(const std::vector<Row>& rows, const char* path) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& r : rows) {
    list.push_back({{"name", r.name},
                    {"family", r.family},
                    {"quantized", r.quantized},
                    {"failed", r.failed},
                    {"cores", r.cores},
                    {"cores_fused", r.cores_fused},
                    {"groups", r.groups},
                    {"groups_fused", r.groups_fused},
                    {"int8_cores", r.int8_cores},
                    {"int8_linears", r.int8_linears},
                    {"sqnr_db", std::isfinite(r.sqnr) ? r.sqnr : 0}});
  }
  std::ofstream(path) << list.dump(1) << "\n";
}

// Each graph goes all the way.
std::vector<Row> RunAll(const fs::path& root) {
  std::printf("%s\n  %-56s %7s %7s %9s %9s %9s\n", root.c_str(), "graph", "cores", "groups", "run", "fused", "int8");
  std::vector<Row> rows;
  for (const Entry& e : Entries(root)) {
    rows.push_back(RowOf(e));
    Print(rows.back());
    EXPECT_EQ(rows.back().failed, "") << rows.back().name << ": " << rows.back().why;
  }
  return rows;
}

// Every core and group fuses, in float and in int8.
void ExpectShares(const std::vector<Row>& rows) {
  int good = 0, int8_cores = 0, cores = 0, cores_fused = 0, groups = 0, groups_fused = 0;
  std::vector<double> sqnr;
  for (const Row& r : rows) {
    good += r.failed.empty();
    if (r.int8_cores > 0) sqnr.push_back(r.sqnr);
    if (r.quantized || r.cores < 0) continue;
    // What is there by construction and no more: a decoy that fuses is worse than a core that does not.
    EXPECT_LE(r.cores_fused, r.cores) << r.name;
    int8_cores += std::min(r.cores, std::max(0, r.int8_cores));
    cores += r.cores, cores_fused += std::min(r.cores, r.cores_fused);
    groups += std::max(0, r.groups), groups_fused += std::min(std::max(0, r.groups), r.groups_fused);
  }
  ASSERT_FALSE(sqnr.empty());
  std::sort(sqnr.begin(), sqnr.end());
  std::printf("  graphs %zu: read, run, fused, written and read again %d\n", rows.size(), good);
  std::printf("  float graphs: attention cores fused %d of %d, QKV groups %d of %d\n", cores_fused, cores, groups_fused,
              groups);
  std::printf("  int8, %zu graphs with fused attention: worst output %.1f dB at least, %.1f dB in the middle\n",
              sqnr.size(), sqnr[0], sqnr[sqnr.size() / 2]);
  EXPECT_EQ(cores_fused, cores);
  EXPECT_EQ(groups_fused, groups);
  EXPECT_EQ(int8_cores, cores);
  EXPECT_GT(sqnr[0], 20);      // random weights, two batches: 26 to 54 dB were seen
  EXPECT_LT(sqnr.back(), 80);  // more would be no quantization
}

TEST(Zoo, AllGraphs) {
  const std::vector<Row> rows = RunAll(tests::Unpacked() / "zoo");
  EXPECT_EQ(rows.size(), 412u);
  ExpectShares(rows);
  if (const char* path = std::getenv("OCTAVO_ZOO_JSON")) WriteJson(rows, path);
}

// com.microsoft's ops one by one: what they become runs, fused and written too.
TEST(Zoo, VendorOps) {
  const std::vector<Row> rows = RunAll(fs::path(OCTAVO_SOURCE_DIR) / "tests/data/vendor");
  EXPECT_GT(rows.size(), 50u);
}

}  // namespace
}  // namespace octavo
