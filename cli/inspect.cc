#include "octavo/api/inspect.h"

#include <cstdio>
#include <format>

#include "octavo/cli/cli.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/json.h"
#include "octavo/ir/text.h"
#include "octavo/kernels/catalog.h"

namespace octavo::cli {

namespace {

struct Flags {
  std::string model;
  bool json = false, cpu = false;
};

using nlohmann::ordered_json;

void PrintTable(const ordered_json& j) {
  const auto text = [](const ordered_json& value) { return ir::Clean(value.get_ref<const std::string&>()); };
  std::printf("%s, made by %s, ir %lld, opsets %s\n", text(j["name"]).c_str(), text(j["producer"]).c_str(),
              j["ir_version"].get<long long>(), ir::Dump(j["opsets"]).c_str());
  for (const char* side : {"inputs", "outputs"}) {
    for (const auto& p : j[side]) {
      std::printf("  %-7s %-28s %s\n", std::string(side).substr(0, std::string(side).size() - 1).c_str(),
                  text(p["name"]).c_str(), text(p["type"]).c_str());
    }
  }
  std::printf("%zu nodes, %lld constants, file %s, external %s, %s\n\n", j["nodes"].get<size_t>(),
              j["constants"].get<long long>(), HumanBytes(j["bytes"]["file"].get<int64_t>()).c_str(),
              HumanBytes(j["bytes"]["external"].get<int64_t>()).c_str(),
              j["quantization"]["state"].get<std::string>().c_str());
  std::vector<std::vector<std::string>> rows{{"op", "count"}};
  for (const auto& [op, count] : j["ops"].items()) rows.push_back({op, count.dump()});
  std::fputs(Table(rows, {1}).c_str(), stdout);
  for (const auto& [op, count] : j["lacks"].items())
    std::printf("octavo cannot run %s; optimize --calibrate-with onnxruntime does without\n", op.c_str());
  rows = {{"constants of", "bytes"}};
  for (const auto& [dtype, bytes] : j["constant_bytes"].items())
    rows.push_back({dtype, HumanBytes(bytes.get<int64_t>())});
  std::printf("\n%s\n", Table(rows, {1}).c_str());
  rows = {{"attention core", "op", "heads", "kv", "size", "mask", "linears"}};
  for (const auto& c : j["attention"]) {
    const auto& f = c["form"];
    const auto of = [&f](const char* key) { return f.is_null() ? std::string("?") : f[key].dump(); };
    const auto op = c["op"].get<std::string>();
    rows.push_back({c["node"].get<std::string>(), op.substr(op.rfind(':') + 1), of("heads"), of("kv_heads"),
                    of("head_size"), f.is_null() ? c["q"].get<std::string>() : f["mask"].get<std::string>(),
                    c["projections"].dump()});
  }
  std::printf("%zu attention cores\n", j["attention"].size());
  if (rows.size() > 1) std::fputs(Table(rows, {2, 3, 4, 6}).c_str(), stdout);
}

// What CPUID, XCR0 and the system said, by the names that people know.
ordered_json Found() {
  const kernels::CpuFeatures& f = kernels::DetectedFeatures();
  return {{"avx2", f.avx2},
          {"avx_vnni", f.avx_vnni},
          {"avx512", f.avx512},
          {"avx512_vnni", f.avx512_vnni},
          {"avx512_ice_lake", f.avx512_ice_lake},
          {"avx512_bf16", f.avx512_bf16},
          {"amx_tile", f.amx_tile},
          {"amx_int8", f.amx_int8},
          {"amx_bf16", f.amx_bf16},
          {"tile_state", f.tile_state},
          {"bf16_pairs", f.bf16_pairs},
          {"four_pipes", f.four_pipes},
          {"zen4", f.zen4}};
}

// The kernel of each class of shapes on an Arch; the sizes only stand for their class.
ordered_json KernelsOf(kernels::Arch arch) {
  using quant::DType;
  kernels::LinearQuery linear{.y = {DType::kU8}, .k = 768, .n = {768}};
  kernels::LinearQuery qkv{.y = {DType::kU8, DType::kU8, DType::kU8}, .k = 768, .n = {768, 768, 768}};
  kernels::SdpaQuery sdpa{.heads = 12, .kv_heads = 12, .head_size = 64, .value_head_size = 64};
  ordered_json j;
  for (const int64_t m : {8, 128}) {
    linear.m = qkv.m = m;
    const std::string rows = m == 8 ? ", 1 to 8 rows" : ", more rows";
    j["int8 linear" + rows] = kernels::ChooseLinear(linear, arch).kernel;
    j["int8 q, k, v" + rows] = kernels::ChooseQkv(qkv, arch).kernel;
  }
  j["int8 attention"] = kernels::ChooseSdpa(sdpa, arch).kernel;
  sdpa.q = sdpa.k = sdpa.v = sdpa.p = sdpa.out = DType::kF32;
  j["float attention"] = kernels::ChooseSdpa(sdpa, arch).kernel;
  linear.x = linear.w = qkv.x = qkv.w = sdpa.q = sdpa.k = sdpa.v = sdpa.p = sdpa.out = DType::kE4M3FN;
  linear.bf16_pairs = qkv.bf16_pairs = sdpa.bf16_pairs = kernels::GainsByBf16Pairs(kernels::DetectedFeatures());
  j["fp8 linear"] = kernels::ChooseLinear(linear, arch).kernel;
  j["fp8 q, k, v"] = kernels::ChooseQkv(qkv, arch).kernel;
  j["fp8 attention"] = kernels::ChooseSdpa(sdpa, arch).kernel;
  return j;
}

int InspectCpu(bool json) {
  ordered_json archs = ordered_json::array();
  for (kernels::Arch a : kernels::SupportedArchs()) archs.push_back(std::string(Name(a)));
  const kernels::Arch best = kernels::BestArch();
  const ordered_json found = Found(), chosen = KernelsOf(best);
  if (json) {
    const ordered_json j = {{"schema", 1},        {"cpu", kernels::CpuDescription()},
                            {"supported", archs}, {"used", std::string(Name(best))},
                            {"found", found},     {"kernels", chosen}};
    std::printf("%s\n", j.dump(1).c_str());
    return kOk;
  }
  std::printf("%s\n", kernels::CpuDescription().c_str());
  std::string yes, no;
  for (const auto& [name, has] : found.items()) (has.get<bool>() ? yes : no) += " " + name;
  constexpr size_t kIndent = 10;
  std::printf("%s\n%s\npaths:   ", Paragraph("found:    " + yes, kIndent).c_str(),
              Paragraph("not here: " + no, kIndent).c_str());
  for (const auto& a : archs) std::printf(" %s", a.get<std::string>().c_str());
  std::printf("\nused:     %s\n\n", std::string(Name(best)).c_str());
  std::vector<std::vector<std::string>> rows{{"work", "kernel"}};
  for (const auto& [work, kernel] : chosen.items()) rows.push_back({work, kernel.get<std::string>()});
  std::fputs(Table(rows).c_str(), stdout);
  return kOk;
}

int Run(const Flags& flags) {
  if (flags.cpu) return InspectCpu(flags.json);
  if (flags.model.empty()) return Fail("inspect needs a model, or --cpu"), kUsage;
  auto graph = ReadModel(flags.model);
  if (!graph) return Fail(graph.error());
  auto described = api::Describe(*std::move(graph), FileBytes(flags.model));
  if (!described) return Fail(described.error());
  const ordered_json& j = *described;
  if (flags.json) {
    std::printf("%s\n", ir::Dump(j, 1).c_str());
  } else {
    PrintTable(j);
  }
  return kOk;
}

struct PrintFlags {
  std::string model;
  int64_t elide = 16;
  bool dot = false, full = false;
};

int RunPrint(const PrintFlags& flags) {
  auto graph = ReadModel(flags.model);
  if (!graph) return Fail(graph.error());
  if (auto ok = ir::Inference::Run(*graph); !ok) return Fail(ok.error());
  const std::string text =
      flags.dot ? ir::ToDot(*graph) : ir::ToText(*graph, {.elide_constants_above = flags.full ? -1 : flags.elide});
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kOk;
}

}  // namespace

void AddInspect(Program& program) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = program.app.add_subcommand("inspect", "what is in a file, or what this CPU can do");
  c->add_option("model", flags->model, "ONNX model")->type_name("MODEL.onnx");
  c->add_flag("--cpu", flags->cpu, "the instruction sets found, instead of a model");
  c->add_flag("--json", flags->json, "for programs");
  c->footer("Example:\n  octavo inspect model.onnx");
  c->callback([&program, flags] { program.run = [flags] { return Run(*flags); }; });
}

void AddPrint(Program& program) {
  auto flags = std::make_shared<PrintFlags>();
  CLI::App* c = program.app.add_subcommand("print", "the graph as text");
  c->add_option("model", flags->model, "ONNX model")->required()->type_name("MODEL.onnx");
  c->add_option("--elide", flags->elide, "constants with more elements print as their hash")->capture_default_str();
  c->add_flag("--full", flags->full, "all constants whole, so that the text can be read back");
  c->add_flag("--dot", flags->dot, "Graphviz source instead");
  c->footer("Example:\n  octavo print model.onnx | less");
  c->callback([&program, flags] { program.run = [flags] { return RunPrint(*flags); }; });
}

}  // namespace octavo::cli
