// attention_op.cc: what of ONNX Attention has no counterpart in Sdpa is refused with a sentence; masked_guard_test.cc and near_miss_test.cc have
// what fuses.
#include <gtest/gtest.h>

#include <limits>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;

TEST(AttentionOpRule, RefusesWithASentence) {
  const auto op = [](Graphs& m, std::vector<ValueId> in, size_t outputs, ir::Attrs attrs = {}) {
    const NodeId id = m.g.AddNode(Op::kAttention, std::move(in), outputs, std::move(attrs), "attention");
    for (size_t i = 0; i < outputs; ++i) m.g.AddOutput("y" + std::to_string(i), m.g.node(id).output(i));
  };
  const auto qkv = [](Graphs& m) {
    return std::vector<ValueId>{m.In({1, 2, 5, 4}), m.In({1, 2, 5, 4}), m.In({1, 2, 5, 4})};
  };
  Refuses("it has a past of only one of K and V", AttentionOp(), [&](Graphs& m) {
    auto in = qkv(m);
    in.resize(5);
    in[4] = m.In({1, 2, 3, 4});
    op(m, in, 1);
  });
  Refuses("it has a past and nonpad_kv_seqlen, which ONNX does not allow together", AttentionOp(), [&](Graphs& m) {
    auto in = qkv(m);
    in.resize(4);
    for (int i = 0; i < 2; ++i) in.push_back(m.In({1, 2, 3, 4}));
    in.push_back(m.In({1}, DType::kS64));
    op(m, in, 1);
  });
  Refuses("its nonpad_kv_seqlen is s64[1,1], not one number for each batch", AttentionOp(), [&](Graphs& m) {
    auto in = qkv(m);
    in.resize(6);
    in.push_back(m.In({1, 1}, DType::kS64));
    op(m, in, 1);
  });
  for (const float cap : {-1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    Refuses("its softcap is negative or NaN", AttentionOp(), [&](Graphs& m) { op(m, qkv(m), 1, {{"softcap", cap}}); });
  }
  Refuses("its scale is negative, and it multiplies by the square root of it", AttentionOp(),
          [&](Graphs& m) { op(m, qkv(m), 1, {{"scale", -1.0f}}); });
  Refuses("its mask has type f64[5,5]", AttentionOp(), [&](Graphs& m) {
    auto in = qkv(m);
    in.push_back(m.In({5, 5}, DType::kF64));
    op(m, in, 1);
  });
  Refuses("its mask covers 3 of 5 keys", AttentionOp(), [&](Graphs& m) {
    auto in = qkv(m);
    in.push_back(m.In({5, 3}));
    op(m, in, 1);
  });
}

TEST(AttentionOpRule, LeavesHeadsWithoutColumns) {
  for (const int64_t columns : {0, 4}) {
    const auto attention = [columns](Graphs& m) {
      const std::vector<ValueId> in{m.In({1, 2, 5, 4}), m.In({1, 2, 5, 4}), m.In({1, 2, 5, columns})};
      m.g.AddOutput("y", m.g.node(m.g.AddNode(Op::kAttention, in, 1, {}, "attention")).output());
    };
    EXPECT_EQ(CountAfter(FuseFloat, Op::kSdpa, attention), columns == 0 ? 0 : 1);
  }
}

}  // namespace
}  // namespace octavo::passes::fusions
