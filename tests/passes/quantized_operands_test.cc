// What `quantize` makes of an operand of attention is dequantized by the numbers it was quantized with.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "maker.h"
#include "octavo/ir/infer.h"
#include "octavo/passes/quantize/quantize.h"

namespace octavo::passes::quantize {
namespace {

using ir::DType;
using ir::Tensor;

bool SameNumbers(const Graph& g, const Node& a, const Node& b) {
  for (const size_t slot : {1u, 2u}) {
    if (!g.ConstantOf(a.input(slot))->SameBits(*g.ConstantOf(b.input(slot)))) return false;
  }
  return true;
}

TEST(QuantizedOperands, AreDequantizedByTheirOwnNumbers) {
  Maker m(1);
  std::vector<ValueId> in;
  for (const char* name : {"q", "k", "v"}) in.push_back(m.g.AddInput(name, {DType::kF32, ir::SymShape{1, 2, 5, 8}}));
  const ValueId y = m.Node(Op::kSdpa, in, {{"num_heads", int64_t{2}}, {"head_dim", int64_t{8}}});
  m.g.SetName(y, "y");
  m.g.AddOutput("out", m.Node(Op::kNeg, {y}));
  ASSERT_TRUE(ir::Inference::Run(m.g).has_value());
  const std::map<std::string, quant::QParams, std::less<>> params = {{"q", {DType::kU8, 0.01f, 90}},
                                                                     {"k", {DType::kU8, 0.02f, 110}},
                                                                     {"v", {DType::kU8, 0.03f, 130}},
                                                                     {"y", {DType::kU8, 0.04f, 150}}};
  PassRun context;
  context.evidence.qparams = [&](std::string_view name) {
    const auto it = params.find(name);
    return it == params.end() ? nullptr : &it->second;
  };
  const auto changed = Quantize(m.g, context);
  ASSERT_TRUE(changed.has_value()) << changed.error().message;
  std::map<std::string, float> scales;  // by the value that is quantized
  int probabilities = 0;
  for (const NodeId id : m.g.NodesInOrder()) {
    const Node& n = m.g.node(id);
    if (n.op != Op::kDequantizeLinear) continue;
    const Node* q = m.g.Producer(n.input(0));
    while (q != nullptr && q->op != Op::kQuantizeLinear) q = m.g.Producer(q->input(0));  // through views
    ASSERT_NE(q, nullptr);
    EXPECT_TRUE(SameNumbers(m.g, n, *q)) << m.g.value(q->input(0)).name;
    const auto it = params.find(m.g.value(q->input(0)).name);
    if (it == params.end()) {
      ++probabilities;
      continue;
    }
    EXPECT_EQ(m.g.ConstantOf(n.input(1))->GetDouble(0), double{it->second.scale});
    EXPECT_EQ(m.g.ConstantOf(n.input(2))->GetInt(0), it->second.zero_point);
    scales[it->first] = it->second.scale;
  }
  EXPECT_EQ(scales.size(), 3u);  // q, k, v; the output has another name by now
  EXPECT_EQ(probabilities, 2);   // and the output
}

}  // namespace
}  // namespace octavo::passes::quantize
