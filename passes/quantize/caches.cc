#include "octavo/passes/quantize/caches.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <format>
#include <optional>

#include "octavo/ir/json.h"
#include "octavo/passes/attention.h"
#include "octavo/passes/rewriter.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

constexpr const char* kKey = "octavo.caches";

uint8_t CodeOf(float x, const quant::QParams& p) {
  return quant::IsFp8(p.dtype) ? quant::QuantizeFp8One(x, p.scale, p.dtype)
                               : static_cast<uint8_t>(quant::QuantizeTo(x, p));
}
float ValueOf(uint8_t code, const quant::QParams& p) {
  if (quant::IsFp8(p.dtype)) return quant::Fp8ToF32(code, p.dtype) * p.scale;
  const int32_t q = p.dtype == DType::kS8 ? static_cast<int8_t>(code) : code;
  return quant::DequantizeOne(q, p.scale, p.zero_point);
}

// Appends its second operand to the first.
bool Appends(const Node& n) { return (n.op == Op::kConcat && n.inputs.size() == 2) || n.op == Op::kTensorScatter; }

// past -> append -> present, which leaves the graph, mostly once.
struct Cache {
  ValueId past;
  NodeId append;
  std::vector<size_t> outputs;
};
std::optional<Cache> CacheOf(const Graph& g, ValueId input) {
  if (g.value(input).type.dtype != DType::kF32) return std::nullopt;
  for (const ir::Use& use : g.value(input).uses) {
    const Node& n = g.node(use.node);
    if (use.slot != 0 || !Appends(n)) continue;
    Cache cache{input, use.node, {}};
    for (size_t i = 0; i < g.outputs().size(); ++i) {
      if (g.outputs()[i].value == n.output()) cache.outputs.push_back(i);
    }
    if (!cache.outputs.empty()) return cache;
  }
  return std::nullopt;
}

bool SameConstant(const Graph& g, ValueId a, ValueId b) {
  const Tensor *x = g.ConstantOf(a), *y = g.ConstantOf(b);
  return a == b || (x != nullptr && y != nullptr && x->dtype() == y->dtype() && x->shape() == y->shape() &&
                    std::memcmp(x->data(), y->data(), x->byte_size()) == 0);
}

// Every QuantizeLinear that reads the cache, all with one scale and zero point; or what is in the way.
Result<std::vector<NodeId>> Readers(const Graph& g, const Cache& cache) {
  if (g.IsGraphOutput(cache.past)) return ir::Fail("the past itself leaves the graph as floats");
  for (const ir::Use& use : g.value(cache.past).uses) {
    const Node& n = g.node(use.node);
    if (use.node != cache.append && n.op != Op::kShape && n.op != Op::kSize)
      return ir::Fail("'{}' reads the past as floats", OriginName(n));
  }
  std::vector<NodeId> readers;
  for (const ir::Use& use : g.value(g.node(cache.append).output()).uses) {
    const Node& n = g.node(use.node);
    if (n.op == Op::kShape || n.op == Op::kSize) continue;
    if (n.op != Op::kQuantizeLinear)
      return ir::Fail("'{}' reads it as floats; caches become codes where attention that reads them is quantized",
                      OriginName(n));
    const Tensor *scale = g.ConstantOf(n.input(1)), *zero = g.ConstantOf(n.input(2));
    if (scale == nullptr || zero == nullptr || scale->size() != 1 || scale->dtype() != DType::kF32)
      return ir::Fail("'{}' quantizes it by something else than one constant scale and zero point", OriginName(n));
    if (!readers.empty() && !(SameConstant(g, n.input(1), g.node(readers[0]).input(1)) &&
                              SameConstant(g, n.input(2), g.node(readers[0]).input(2))))
      return ir::Fail("'{}' and '{}' quantize it by different scales", OriginName(g.node(readers[0])), OriginName(n));
    readers.push_back(use.node);
  }
  if (readers.empty()) return ir::Fail("nothing quantizes it, because the attention that reads it stayed in float");
  return readers;
}

quant::QParams ParamsOf(const Graph& g, const Node& quantize) {
  const Tensor& zero = *g.ConstantOf(quantize.input(2));
  const uint8_t byte = zero.as<uint8_t>()[0];
  const int32_t z = zero.dtype() == DType::kS8 ? static_cast<int8_t>(byte) : byte;  // fp8 has the code 0
  return {zero.dtype(), g.ConstantOf(quantize.input(1))->as<float>()[0], z};
}

// The new rows are quantized, the append moves codes, and who read codes of all reads the append.
void Rewrite(Graph& g, const Cache& cache, const std::vector<NodeId>& readers, DType dtype, Rewriter& b) {
  const Node quantize = g.node(readers[0]);
  b.At(cache.append, {readers[0], cache.append});
  const ValueId scale = b.Constant(*g.ConstantOf(quantize.input(1)));
  const ValueId zero = b.Constant(*g.ConstantOf(quantize.input(2)));
  b.SetInput(cache.append, 1, b.Create(Op::kQuantizeLinear, {g.node(cache.append).input(1), scale, zero}));
  const ValueId present = g.node(cache.append).output();
  for (const ValueId v : {cache.past, present}) g.SetType(v, {dtype, g.value(v).type.shape});
  for (const size_t i : cache.outputs) g.DeclareOutput(i, {dtype, g.outputs()[i].declared.shape});
  for (const NodeId reader : readers) {
    const ValueId codes = g.node(reader).output();
    b.Replace(codes, present);
    b.EraseDead(reader);
  }
}

}  // namespace

Result<bool> QuantizeCaches(Graph& graph, PassRun& run) {
  Rewriter b(graph, "quantize_caches");
  nlohmann::ordered_json coded = nlohmann::ordered_json::array();
  for (const ValueId input : std::vector<ValueId>(graph.inputs())) {
    const std::optional<Cache> cache = CacheOf(graph, input);
    if (!cache) continue;
    const std::string name = graph.value(input).name, output = graph.outputs()[cache->outputs[0]].name;
    Candidate candidate{"cache", {name, output}, "left", {}, {}};
    if (const auto readers = Readers(graph, *cache); !readers) {
      candidate.reason = std::format("'{}' stays float: {}", output, readers.error().message);
    } else {
      const quant::QParams p = ParamsOf(graph, graph.node(readers->front()));
      Rewrite(graph, *cache, *readers, p.dtype, b);
      coded.push_back({{"input", name},
                       {"output", output},
                       {"dtype", quant::Name(p.dtype)},
                       {"scale", p.scale},
                       {"zero_point", p.zero_point}});
      candidate.status = "quantized", candidate.rule = "quantize_caches";
      candidate.reason = std::format("{}, scale {}, zero point {}", quant::Name(p.dtype), p.scale, p.zero_point);
    }
    run.candidates.push_back(std::move(candidate));
  }
  if (!coded.empty()) graph.info.metadata[kKey] = ir::Dump(coded);
  if (b.changed() && !graph.SortTopologically()) return ir::Fail("quantize_caches made a cycle");
  return b.changed();
}

std::vector<CodedCache> CodedCaches(const Graph& graph) {
  std::vector<CodedCache> caches;
  const auto it = graph.info.metadata.find(kKey);
  if (it == graph.info.metadata.end()) return caches;
  const auto json = ir::ParseJson(it->second, "the list of caches");
  if (!json || !json->is_array()) return caches;
  for (const ir::Json& entry : *json) {
    // Metadata is text that anyone may write.
    const auto given_scale = ir::Get<double>(entry, "scale");
    const auto zero = ir::Get<int64_t>(entry, "zero_point");
    const auto input = ir::Get<std::string>(entry, "input"), output = ir::Get<std::string>(entry, "output");
    if (!given_scale || !zero || !input || !output) continue;
    const auto in = std::ranges::find_if(graph.inputs(), [&](ValueId v) { return graph.value(v).name == *input; });
    const auto out = std::ranges::find(graph.outputs(), *output, &ir::GraphOutput::name);
    if (in == graph.inputs().end() || out == graph.outputs().end()) continue;
    const DType dtype = graph.value(*in).type.dtype;
    const auto scale = static_cast<float>(*given_scale);
    if (!quant::IsCode8(dtype) || !(scale > 0) || std::isinf(scale)) continue;
    if (quant::IsFp8(dtype) ? *zero != 0 : *zero < quant::RangeOf(dtype).lo || *zero > quant::RangeOf(dtype).hi)
      continue;
    caches.push_back({*input, *output, {dtype, scale, static_cast<int32_t>(*zero)}});
  }
  return caches;
}

void EncodeCaches(const std::vector<CodedCache>& caches, ir::TensorMap& inputs) {
  for (const CodedCache& cache : caches) {
    const auto it = inputs.find(cache.input);
    if (it == inputs.end() || it->second.dtype() != DType::kF32) continue;
    Tensor codes = Tensor::Empty(cache.params.dtype, it->second.shape());
    std::ranges::transform(it->second.as<float>(), codes.mutable_as<uint8_t>().begin(),
                           [&](float x) { return CodeOf(x, cache.params); });
    it->second = std::move(codes);
  }
}

void DecodeCaches(const std::vector<CodedCache>& caches, ir::TensorMap& outputs) {
  for (const CodedCache& cache : caches) {
    const auto it = outputs.find(cache.output);
    if (it == outputs.end() || it->second.dtype() != cache.params.dtype) continue;
    Tensor floats = Tensor::Empty(DType::kF32, it->second.shape());
    std::ranges::transform(it->second.as<uint8_t>(), floats.mutable_as<float>().begin(),
                           [&](uint8_t code) { return ValueOf(code, cache.params); });
    it->second = std::move(floats);
  }
}

}  // namespace octavo::passes::quantize
