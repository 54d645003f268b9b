// The option `steps` of dynamic_blocks: weights that arrive in blocks of 4 bits with float scales are rounded once more, to whole steps of one scale a
// column (steps.h).
// Before: y = LinearBlocked(x, w, scales, [zeros], [bias])
// After:  q, s, z = QuantizeTokens(x)   y = QuantizedLinear(q, s, z, w', scale, [bias]; step, zero; per_token = 1)
// Blocks with scales of their own end in floats each; steps add up in integers over all of k, as weights of 8 bits do. What a second rounding loses:
// docs/lab/blocked-weights.md.
#include "octavo/passes/quantize/steps_of_blocks.h"

#include <map>

#include "octavo/ir/mapped.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/round_weights.h"
#include "octavo/passes/quantize/rounding.h"
#include "octavo/passes/quantize/steps.h"
#include "octavo/passes/quantize/token_linears.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

constexpr size_t kBias = 5, kStep = 10, kZero = 11;  // operands of QuantizedLinear

// The weight of a LinearBlocked as floats [K,N].
Tensor FloatsOf(const Graph& g, const Node& n, const ParallelFor& parallel) {
  const Tensor &codes = *g.ConstantOf(n.input(1)), &scales = *g.ConstantOf(n.input(2));
  const Tensor* zeros = n.input(3).valid() ? g.ConstantOf(n.input(3)) : nullptr;
  const bool transposed = n.attrs.Int("transposed", 0) == 1;
  const int64_t block = n.attrs.Int("block_size", 0), k = codes.shape()[transposed ? 1 : 0];
  const int64_t columns = codes.shape()[transposed ? 0 : 1], blocks = (k + block - 1) / block;
  Tensor w = Tensor::Empty(DType::kF32, {k, columns});
  float* to = w.mutable_as<float>().data();
  parallel(k, [&](int64_t i) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t at = transposed ? c * blocks + i / block : i / block * columns + c;
      const int64_t zero = zeros == nullptr ? 0 : zeros->GetInt(at);
      const int64_t code = codes.GetInt(transposed ? c * k + i : i * columns + c);
      to[i * columns + c] = static_cast<float>(code - zero) * scales.as<float>()[static_cast<size_t>(at)];
    }
  });
  ir::ForgetPages(codes);
  return w;
}

bool AreBlocksOf4Bits(const Graph& g, const Node& n) {
  if (n.op != Op::kLinearBlocked) return false;
  const Tensor *codes = g.ConstantOf(n.input(1)), *scales = g.ConstantOf(n.input(2));
  const bool constant = codes != nullptr && scales != nullptr && scales->dtype() == DType::kF32 &&
                        (!n.input(3).valid() || g.ConstantOf(n.input(3)) != nullptr);
  return constant && codes->rank() == 2 && (codes->dtype() == DType::kU4 || codes->dtype() == DType::kS4);
}

}  // namespace

Result<bool> StepsOfBlocks(Graph& graph, PassRun& run) {
  Rewriter b(graph, "dynamic_blocks");
  std::map<ValueId, NodeId> tokens;  // of an activation: its codes
  for (const NodeId id : graph.NodesInOrder()) {
    const Node n = graph.node(id);
    if (!AreBlocksOf4Bits(graph, n) || IsNamed(run.keep_float, n)) continue;
    const Tensor w = FloatsOf(graph, n, run.parallel);
    std::string why = WhyInFloat(w);
    if (why.empty()) why = WhyNoTokens(w.shape());
    if (!why.empty()) {
      run.Leave("dynamic_blocks", n, "keeps its blocks: " + why);
      continue;
    }
    OCTAVO_TRY(Stepped q, RoundInSteps(w, nullptr, run.parallel));
    b.At(id, {id});
    const std::string name = graph.value(n.input(1)).name;
    const auto [at, fresh] = tokens.try_emplace(n.input(0));
    if (fresh) at->second = b.CreateN(Op::kQuantizeTokens, {n.input(0)}, 3);
    std::vector<ValueId> in = graph.node(at->second).outputs;
    in.push_back(b.Constant(std::move(q.codes), name + "_codes"));
    in.push_back(b.Constant(std::move(q.scale), name + "_column_scale"));
    in.resize(kZero + 1);
    if (n.input(4).valid()) in[kBias] = n.input(4);
    in[kStep] = b.Constant(std::move(q.step), name + "_step"),
    in[kZero] = b.Constant(std::move(q.zero), name + "_zero");
    b.Replace(n.output(),
              b.Create(Op::kQuantizedLinear, std::move(in), {{"activation", "none"}, {"per_token", int64_t{1}}}));
    b.EraseDead(id);
  }
  if (!b.changed()) return false;
  if (!graph.SortTopologically()) return ir::Fail("dynamic_blocks made a cycle");
  OCTAVO_TRY([[maybe_unused]] const bool merged, pattern::ApplyRules(fusions::EpilogueRules(), graph, run));
  return true;
}

}  // namespace octavo::passes::quantize
