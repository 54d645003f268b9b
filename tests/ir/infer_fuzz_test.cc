// Inference on senseless nodes: any op with any inputs, sizes and attributes. A sentence or a type, never a crash (the
// sanitizer build is the judge), and a type never contradicts itself in a second run.
#include <gtest/gtest.h>

#include <algorithm>

#include "octavo/ir/infer.h"
#include "octavo/ir/text.h"
#include "octavo/ir/vendor/lower.h"
#include "octavo/ir/verify.h"
#include "octavo/tests/ir/hostile.h"

namespace octavo::ir::testing {
namespace {

ValueId Source(Hostile& h, Graph& g) {
  if (h.OneIn(6)) return {};
  if (h.OneIn(2)) return g.AddConstant(h.Elements());
  Type type;
  static constexpr DType kTypes[] = {DType::kF32, DType::kS64,  DType::kU8,  DType::kS8,
                                     DType::kU4,  DType::kBool, DType::kF16, DType::kString};
  if (!h.OneIn(8)) type.dtype = kTypes[h.Below(h.OneIn(2) ? 2 : std::size(kTypes))];
  if (!h.OneIn(6)) {
    type.shape.emplace();
    for (size_t i = h.OneIn(9) ? 40 : h.Below(6); i > 0; --i) {
      const size_t kind = h.Below(4);
      type.shape->push_back(kind == 0 ? Dim() : kind == 1 ? Dim::Symbol(h.OneIn(2) ? "a" : "b") : Dim(h.Number()));
    }
  }
  const ValueId v = g.AddInput("x", type);
  if (!h.OneIn(3) || type.dtype != DType::kF32) return v;
  return g.node(g.AddNode(Op::kShape, {v}, 1)).outputs[0];
}

// As exporters write it, so that rules get far.
ValueId LikelySource(Hostile& h, Graph& g) {
  if (h.OneIn(5)) return {};
  static const Shape kShapes[] = {{2, 5, 12}, {12, 36}, {12, 12}, {36}, {12}, {1}, {}, {2, 3, 5, 4}, {2, 5}, {4, 1, 8}};
  static constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF32, DType::kU8, DType::kS32, DType::kS64};
  const Shape& shape = kShapes[h.Below(std::size(kShapes))];
  const DType dtype = kTypes[h.Below(std::size(kTypes))];
  if (h.OneIn(2)) return g.AddConstant(Tensor::Zeros(dtype, shape));
  return g.AddInput("x", {dtype, SymShape(shape.begin(), shape.end())});
}

std::vector<ValueId> Sources(Hostile& h, Graph& g, size_t most) {
  std::vector<ValueId> values;
  for (size_t i = h.Below(most); i > 0; --i) values.push_back(Source(h, g));
  return values;
}

// All outputs of the node are outputs of the graph.
Graph Outputs(Graph g, NodeId id) {
  size_t i = 0;
  for (const ValueId v : g.node(id).outputs) g.AddOutput(std::to_string(i++), v);
  return g;
}

void InferTwice(Graph& g, int& fine, int& refused) {
  const auto r = Inference::Run(g);
  if (!r) {
    ++refused;
    EXPECT_FALSE(r.error().message.empty());
    return;
  }
  ++fine;
  const std::string once = ToText(g);
  const auto again = Inference::Run(g);
  ASSERT_TRUE(again.has_value()) << again.error().message << "\n" << once;
  EXPECT_EQ(ToText(g), once);
}

TEST(InferFuzz, SenselessNodesGiveTypesOrSentences) {
  int fine = 0, refused = 0;
  const uint64_t start = FuzzSeed();
  for (size_t op = 0; op < static_cast<size_t>(Op::kOpaque); ++op) {
    const OpInfo& info = InfoOf(static_cast<Op>(op));
    for (uint64_t round = 0; round < FuzzRounds(200); ++round) {
      SCOPED_TRACE(::testing::Message() << info.name << " round " << round);
      Hostile h(start + round * 1000 + op);
      Graph g;
      const std::vector<ValueId> in = Sources(h, g, info.max_inputs < 0 ? 9 : static_cast<size_t>(info.max_inputs) + 3);
      g = Outputs(g, g.AddNode(static_cast<Op>(op), in, h.Below(5), h.AttrsOf(info.domain, info.name)));
      InferTwice(g, fine, refused);
      DropFalseShapes(g);
    }
  }
  EXPECT_GT(fine, 1000);
  EXPECT_GT(refused, 1000);
}

// Every op that ONNX Runtime has of its own, with every input and output that there may be, and more: it becomes standard ops or
// stays, the graph is whole either way.
TEST(InferFuzz, VendorNodesAreLoweredOrStay) {
  static constexpr std::pair<std::string_view, std::string_view> kOps[] = {
#define OCTAVO_ATTRS(domain, op, attrs) {domain, op},
#include "octavo/ir/attrs.def"
#undef OCTAVO_ATTRS
  };
  int fine = 0, refused = 0, lowered = 0;
  const uint64_t start = FuzzSeed();
  for (size_t op = 0; op < std::size(kOps); ++op) {
    const auto& [domain, name] = kOps[op];
    if (OpFromName(domain, name) != Op::kOpaque) continue;
    for (uint64_t round = 0; round < FuzzRounds(domain.empty() ? 30 : 300); ++round) {
      SCOPED_TRACE(::testing::Message() << name << " round " << round);
      Hostile h(start + round * 1000 + op);
      Graph g;
      const bool likely = h.OneIn(2);
      std::vector<ValueId> in = Sources(h, g, likely ? 1 : 12);
      for (size_t i = h.Below(11); likely && i > 0; --i) in.push_back(LikelySource(h, g));
      Attrs attrs = likely && h.OneIn(2) ? Attrs() : h.AttrsOf(domain, name);
      for (const char* heads : {"num_heads", "kv_num_heads"}) {
        const auto* rules = AttrRulesOf(domain, name);
        if (!h.OneIn(3) && std::ranges::contains(*rules, std::string_view(heads), &AttrRule::name)) {
          attrs.Set(heads, int64_t{3});
        }
      }
      const NodeId id = g.AddOpaque(std::string(domain), std::string(name), in, likely ? 1 : h.Below(5), attrs);
      g = Outputs(g, id);
      ASSERT_TRUE(vendor::Lower(g));
      if (g.IsAlive(id)) {
        EXPECT_TRUE(domain.empty() || !vendor::WhyOpaque(g, g.node(id)).empty() || g.node(id).outputs.empty());
      } else {
        ++lowered;
      }
      for (const Violation& v : Verify(g)) EXPECT_TRUE(v.message.starts_with("types contradict")) << v.message;
      InferTwice(g, fine, refused);
    }
  }
  std::printf("%d lowered\n", lowered);
  EXPECT_GT(fine, 1000);
  EXPECT_GT(lowered, 100);
}

}  // namespace
}  // namespace octavo::ir::testing
