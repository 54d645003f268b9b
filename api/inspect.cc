#include "octavo/api/inspect.h"

#include <algorithm>
#include <map>

#include "octavo/api/optimize.h"
#include "octavo/ir/functions.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/passes/attention.h"
#include "octavo/passes/bodies.h"
#include "octavo/passes/sources.h"
#include "octavo/passes/vendor/vendor.h"

namespace octavo::api {

using nlohmann::ordered_json;

namespace {

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
  const bool int8 = n.op == ir::Op::kQuantizedSdpa;
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

// The node that a core is known by: its Softmax, also where a fused node carries the names of many.
std::string CoreName(const ir::Node& n) {
  const auto softmax = std::ranges::find_if(n.origin, [](const std::string& o) { return o.contains("oftmax"); });
  return softmax == n.origin.end() ? ir::OriginName(n) : *softmax;
}

// The cores of the file; heads, head sizes and masks as the canonical form shows them, where it recognizes the core.
ordered_json Attention(ir::Graph g) {
  passes::TellSourcesApart(g);  // cores are found again by their names
  ordered_json cores = ordered_json::array();
  for (const passes::AttentionCore& core : passes::FindAttentionCores(g)) {
    const ir::Node& n = g.node(core.center);
    cores.push_back({{"node", CoreName(n)},
                     {"op", OpName(n)},
                     {"q", ToString(g.value(core.q).type)},
                     {"projections", passes::LinearsBehind(g, core.q).size() + passes::LinearsBehind(g, core.k).size() +
                                         passes::LinearsBehind(g, core.v).size()},
                     {"form", nullptr}});
  }
  OptimizeOptions options;
  options.recipe = passes::vendor::IsQuantized(g) ? "quantized" : "float";
  options.explain = false;
  const auto fused = Optimize(g, options);
  if (!fused) return cores;
  for (ir::NodeId id : fused->graph.NodesInOrder()) {
    const ir::Node& n = fused->graph.node(id);
    if (n.op != ir::Op::kSdpa && n.op != ir::Op::kQuantizedSdpa) continue;
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
    if (n.op != ir::Op::kQuantizedLinear && n.op != ir::Op::kQuantizedQkv && n.op != ir::Op::kQuantizedSdpa) continue;
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

}  // namespace

ir::Result<ordered_json> Describe(ir::Graph g, int64_t file_bytes) {
  OCTAVO_TRY_STATUS(ir::Inference::Run(g).transform([](const auto&) {}));
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

}  // namespace octavo::api
