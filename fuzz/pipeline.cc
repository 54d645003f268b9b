// Any bytes as a pipeline's JSON. One that parses is the same after printing, and its passes run on a small attention block, in whatever
// order they stand.
#include "octavo/api/options.h"
#include "octavo/fuzz/random.h"
#include "octavo/fuzz/targets.h"
#include "octavo/passes/pipelines.h"
#include "octavo/runtime/model.h"

namespace octavo::fuzz {

namespace {

using ir::Op;
using ir::Tensor;
using ir::ValueId;

constexpr size_t kMostPasses = 30;

// x [2,3,8] -> Q, K, V of two heads -> Sdpa -> projection -> residual and LayerNorm -> GELU.
ir::Graph Block() {
  ir::Graph g;
  Random random(7);
  g.info.opsets[""] = 18;
  const auto weight = [&](ir::Shape shape) {
    Tensor t = Tensor::Zeros(ir::DType::kF32, std::move(shape));
    for (float& x : t.mutable_as<float>()) x = static_cast<float>(random.Below(200) - 100) / 300;
    return g.AddConstant(std::move(t));
  };
  const auto node = [&](Op op, std::vector<ValueId> inputs, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(inputs), 1, std::move(attrs), std::format("n{}", g.node_count()))).output();
  };
  const ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{2, 3, 8}});
  const auto linear = [&](ValueId in) {
    return node(Op::kAdd, {node(Op::kMatMul, {in, weight({8, 8})}), weight({8})});
  };
  const ValueId q = linear(x), k = linear(x), v = linear(x);
  const ValueId core = node(Op::kSdpa, {q, k, v},
                            {{"num_heads", int64_t{2}},
                             {"kv_num_heads", int64_t{2}},
                             {"head_dim", int64_t{4}},
                             {"v_head_dim", int64_t{4}},
                             {"scale", 0.5f}});
  const ValueId sum = node(Op::kAdd, {linear(core), x});
  const ValueId norm = node(Op::kLayerNormalization, {sum, weight({8}), weight({8})});
  g.AddOutput("y", node(Op::kGelu, {norm}));
  return g;
}

ir::TensorMap Inputs() {
  Tensor x = Tensor::Zeros(ir::DType::kF32, {2, 3, 8});
  Random random(11);
  for (float& e : x.mutable_as<float>()) e = static_cast<float>(random.Below(200) - 100) / 50;
  return {{"x", x}};
}

}  // namespace

void FuzzPipeline(std::string_view bytes) {
  const auto pipeline = passes::PipelineFromJson(bytes);
  if (!pipeline) return CheckSentence(pipeline.error().message, bytes);
  const auto again = passes::PipelineFromJson(passes::PipelineToJson(*pipeline));
  if (!again) Broken("a printed pipeline parses", again.error().message);
  if (!(*again == *pipeline)) Broken("a printed pipeline is the same", passes::PipelineToJson(*pipeline));
  std::vector<ir::Result<passes::Pipeline>> wider{passes::WithFloat(*pipeline, {"*"}),
                                                  passes::WithDynamic(*pipeline, {"n*"})};
  for (const api::Option& option : api::Options()) {
    if (!option.adds.pass.empty()) wider.push_back(passes::WithPass(*pipeline, option.adds));
  }
  for (const auto& more : wider) {
    if (!more) CheckSentence(more.error().message, bytes);
  }
  if (pipeline->passes.size() > kMostPasses) return;
  ir::Graph graph = Block();
  passes::RecordPipeline(*pipeline, graph);
  const ir::TensorMap inputs = Inputs();
  const auto data = quant::InMemoryData({inputs}, quant::InputsOf(graph));
  api::OptimizeOptions options;
  options.pipeline = *pipeline, options.data = data.get(), options.threads = 1;
  const auto result = api::Optimize(std::move(graph), options);
  if (!result) return CheckSentence(result.error().message, bytes);
  const auto model = runtime::Model::Compile(result->graph, {.threads = 1});
  if (!model) return CheckSentence(model.error().message, bytes);
  if (const auto outputs = model->Run(inputs); !outputs) CheckSentence(outputs.error().message, bytes);
}

}  // namespace octavo::fuzz
