#include <algorithm>
#include <cstdio>
#include <format>
#include <map>

#include "octavo/api/optimize.h"
#include "octavo/cli/cli.h"
#include "octavo/ir/functions.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/json.h"
#include "octavo/ir/text.h"
#include "octavo/kernels/catalog.h"
#include "octavo/passes/attention.h"
#include "octavo/passes/bodies.h"
#include "octavo/passes/sources.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::cli {

namespace {

struct Flags {
  std::string model;
  bool json = false, cpu = false;
};

using nlohmann::ordered_json;

std::string OpName(const ir::Node& n) {
  if (n.op == ir::Op::kOpaque) return (n.domain.empty() ? "" : n.domain + "::") + n.op_type;
  const ir::OpInfo& info = ir::InfoOf(n.op);
  return (info.domain.empty() ? "" : std::string(info.domain) + "::") + std::string(info.name);
}

ordered_json Ports(const ir::Graph& g) {
  ordered_json ports = {{"inputs", ordered_json::array()}, {"outputs", ordered_json::array()}};
  for (ir::ValueId v : g.inputs())
    ports["inputs"].push_back({{"name", g.value(v).name}, {"type", ToString(g.value(v).type)}});
  for (const ir::GraphOutput& o : g.outputs()) {
    ports["outputs"].push_back({{"name", o.name}, {"type", ToString(g.value(o.value).type)}});
  }
  return ports;
}

// What stands between the product and P beside scale and mask: codes of 8 bits by place, a division.
ordered_json ScoreSteps(const ir::Node& n) {
  ordered_json steps = {{"codes", ordered_json::array()}};
  const std::pair<size_t, const char*> places[] = {{ir::kSdpaProductCodes, "product"},
                                                   {ir::kSdpaScaledCodes, "scaled"},
                                                   {ir::kSdpaMaskedCodes, "masked"},
                                                   {ir::kSdpaProbCodes, "probabilities"}};
  for (const auto& [slot, place] : places) {
    if (n.input(slot).valid()) steps["codes"].push_back(place);
  }
  if (const float divisor = n.attrs.Float("divisor", 0.0f); divisor != 0.0f) steps["divisor"] = divisor;
  return steps;
}

// How scores are changed between the product and the Softmax, as the recognized form says it.
ordered_json Form(const ir::Graph& g, const ir::Node& n) {
  const bool int8 = n.op == ir::Op::kSdpaInt8;
  const ir::ValueId mask = n.input(int8 ? 13 : 3);
  const auto& a = n.attrs;
  ordered_json form = {
      {"heads", a.Int("num_heads", 0)},    {"kv_heads", a.Int("kv_num_heads", a.Int("num_heads", 0))},
      {"head_size", a.Int("head_dim", 0)}, {"v_head_size", a.Int("v_head_dim", a.Int("head_dim", 0))},
      {"scale", a.Float("scale", 1.0f)},   {"mask", mask.valid() ? ToString(g.value(mask).type) : "none"}};
  const int64_t left = a.Int("window_left", -1), right = a.Int("window_right", -1);
  if (left >= 0 || right >= 0) {
    form["window"] = {
        {"left", left}, {"right", right}, {"align", a.Int("bottom_right", 0) != 0 ? "bottom right" : "top left"}};
  }
  if (a.Float("softcap", 0.0f) != 0.0f) form["softcap"] = a.Float("softcap", 0.0f);
  form["quantized"] = int8;
  if (int8 && ir::HasScoreSteps(n)) form["score_steps"] = ScoreSteps(n);
  return form;
}

// The cores of the file; heads, head sizes and masks as the canonical form shows them, where it recognizes the core.
ordered_json Attention(ir::Graph g) {
  passes::TellSourcesApart(g);  // cores are found again by their names
  ordered_json cores = ordered_json::array();
  for (const passes::AttentionCore& core : passes::FindAttentionCores(g)) {
    const ir::Node& n = g.node(core.center);
    cores.push_back({{"node", ir::OriginName(n)},
                     {"op", OpName(n)},
                     {"q", ToString(g.value(core.q).type)},
                     {"projections", passes::LinearsBehind(g, core.q).size() + passes::LinearsBehind(g, core.k).size() +
                                         passes::LinearsBehind(g, core.v).size()},
                     {"form", nullptr}});
  }
  api::OptimizeOptions options;
  options.recipe = passes::vendor::IsQuantized(g) ? "quantized" : "float";
  options.explain = false;
  const auto fused = api::Optimize(g, options);
  if (!fused) return cores;
  for (ir::NodeId id : fused->graph.NodesInOrder()) {
    const ir::Node& n = fused->graph.node(id);
    if (n.op != ir::Op::kSdpa && n.op != ir::Op::kSdpaInt8) continue;
    for (auto& core : cores) {
      const bool same = std::find(n.origin.begin(), n.origin.end(), core["node"].get<std::string>()) != n.origin.end();
      if (same && core["form"].is_null()) core["form"] = Form(fused->graph, n);
    }
  }
  return cores;
}

// "float", or how the file is quantized: counts of what says so.
ordered_json Quantization(const ir::Graph& g) {
  std::map<std::string, int64_t> weights;
  int64_t fixed = 0, rows = 0, dynamic = 0, integer = 0, fused = 0, fused_fp8 = 0;
  for (ir::NodeId id : g.NodesInOrder()) {
    const ir::Node& n = g.node(id);
    const ir::Tensor* w = n.op == ir::Op::kDequantizeLinear ? g.ConstantOf(n.input(0)) : nullptr;
    if (n.op == ir::Op::kLinearBlocked) w = g.ConstantOf(n.input(1)), rows += n.attrs.Int("x_bits", 0) == 8;
    if (w != nullptr && w->rank() >= 2) ++weights[std::string(quant::Name(w->dtype()))];
    fixed += n.op == ir::Op::kQuantizeLinear;
    dynamic += n.op == ir::Op::kDynamicQuantizeLinear;
    integer += n.op == ir::Op::kMatMulInteger || n.op == ir::Op::kQLinearMatMul;
    if (n.op != ir::Op::kLinearInt8 && n.op != ir::Op::kQkvInt8 && n.op != ir::Op::kSdpaInt8) continue;
    ++(quant::IsFp8(g.value(n.input(0)).type.dtype) ? fused_fp8 : fused);  // the ops carry codes of either kind
  }
  const char* state = fused_fp8 > fused  ? "fp8, fused by octavo"
                      : fused > 0        ? "int8, fused by octavo"
                      : dynamic > 0      ? "dynamic int8"
                      : integer > 0      ? "static int8, integer ops"
                      : fixed > 0        ? "static, Q/DQ"
                      : rows > 0         ? "weights in blocks, activations quantized at run time"
                      : !weights.empty() ? "weights only"
                                         : "float";
  return {{"state", state},
          {"dequantized_weights", weights},
          {"quantize_linear", fixed},
          {"dynamic_quantize_linear", dynamic},
          {"integer_products", integer},
          {"fused_int8", fused},
          {"fused_fp8", fused_fp8}};
}

// Ops that octavo's runtime lacks, and how many of each; graphs of If, Loop and Scan too.
std::map<std::string, int64_t> Lacks(const ir::Graph& g) {
  std::map<std::string, int64_t> lacks;
  passes::AnyNode(g, [&lacks](const ir::Node& n) {
    if (!ir::CanEval(n.op)) ++lacks[OpName(n)];
    return false;
  });
  return lacks;
}

ordered_json Describe(const ir::Graph& g, int64_t file_bytes) {
  std::map<std::string, int64_t> ops, constant_bytes;
  int64_t constants = 0, external = 0;
  for (ir::NodeId id : g.NodesInOrder()) {
    const ir::Node& n = g.node(id);
    if (n.op == ir::Op::kConstant) {
      const ir::Tensor& t = *g.ConstantOf(n.output());
      const auto bytes = static_cast<int64_t>(t.byte_size());
      constant_bytes[std::string(quant::Name(t.dtype()))] += bytes;
      if (t.buffer() != nullptr && !t.buffer()->file().empty()) external += bytes;
      ++constants;
      continue;
    }
    ++ops[OpName(n)];
  }
  ordered_json j = {{"schema", 1},
                    {"name", g.name},
                    {"producer", g.info.producer_name + " " + g.info.producer_version},
                    {"ir_version", g.info.ir_version},
                    {"opsets", g.info.opsets}};
  j.update(Ports(g));
  j["nodes"] = g.node_count() - static_cast<size_t>(constants);
  j["ops"] = ops;
  j["lacks"] = Lacks(g);
  j["constants"] = constants;
  j["constant_bytes"] = constant_bytes;
  j["bytes"] = {{"file", file_bytes}, {"external", external}};
  j["quantization"] = Quantization(g);
  j["attention"] = Attention(g);
  j["metadata"] = g.info.metadata;
  return j;
}

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
  rows = {{"attention core", "op", "heads", "kv heads", "head size", "mask", "projections"}};
  for (const auto& c : j["attention"]) {
    const auto& f = c["form"];
    const auto of = [&f](const char* key) { return f.is_null() ? std::string("?") : f[key].dump(); };
    rows.push_back({c["node"].get<std::string>(), c["op"].get<std::string>(), of("heads"), of("kv_heads"),
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
  std::printf("found:    %s\nnot here: %s\npaths:   ", yes.c_str(), no.c_str());
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
  if (auto ok = ir::Inference::Run(*graph); !ok) return Fail(ok.error());
  const ordered_json j = Describe(*graph, FileBytes(flags.model));
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
