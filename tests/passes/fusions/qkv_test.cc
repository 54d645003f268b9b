// qkv.cc: branches of one attention that read one activation become one op; passes/qkv_packed.cc has packed ones.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;

TEST(QuantizedQkv, BranchesOfOneProductHaveOneZeroPoint) {
  const auto branches = [](int64_t zero_of_k) {
    return [zero_of_k](Graphs& m) {
      const ValueId x = m.Input("x", {2, 5, 16}, DType::kU8), scale = m.Real(0.02f);
      const ValueId q = m.Linear(x, scale, m.Zero(DType::kU8, 100));
      const ValueId k = m.Linear(x, scale, m.Zero(DType::kU8, zero_of_k));
      const ValueId v = m.Linear(x, scale, m.Zero(DType::kU8, 100));
      const ValueId s = m.Node(Op::kMatMul, {q, m.Perm(k, {0, 2, 1})});
      m.g.AddOutput("y", m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}), v}));
    };
  };
  EXPECT_EQ(CountAfter(FuseQuantizedQkv, Op::kQuantizedLinear, branches(100)), 0);
  EXPECT_EQ(CountAfter(FuseQuantizedQkv, Op::kQuantizedLinear, branches(90)), 1);
}

// As a rotary embedding of some columns has it: parts of q and of k are branches already.
TEST(QuantizedQkv, PartsOfAProjectionAreBranches) {
  const auto attention = [](size_t parts) {
    return [parts](Graphs& m) {
      const ValueId x = m.Input("x", {2, 5, 16}, DType::kU8), scale = m.Real(0.02f), zero = m.Zero(DType::kU8, 100);
      const auto taken_apart = [&] {
        std::vector<ValueId> in{x, scale, zero};
        for (size_t i = 0; i < parts; ++i) {
          in.push_back(m.Codes({16, 8}));
          in.push_back(m.Reals({8}));
          if (i + 1 < parts) in.resize(in.size() + 3);
        }
        const NodeId n = m.g.AddNode(Op::kQuantizedQkv, std::move(in), parts);
        return m.Node(Op::kConcat, m.g.node(n).outputs, {{"axis", int64_t{-1}}});
      };
      const ValueId q = taken_apart(), k = taken_apart(), v = m.Linear(x, scale, zero);
      const ValueId s = m.Node(Op::kMatMul, {q, m.Perm(k, {0, 2, 1})});
      m.g.AddOutput("y", m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}), v}));
    };
  };
  EXPECT_EQ(CountAfter(FuseQuantizedQkv, Op::kQuantizedQkv, attention(2)), 1);  // five branches
  EXPECT_EQ(CountAfter(FuseQuantizedQkv, Op::kQuantizedLinear, attention(2)), 0);
  EXPECT_EQ(CountAfter(FuseQuantizedQkv, Op::kQuantizedQkv, attention(4)), 2);  // nine are too many for one op
}

}  // namespace
}  // namespace octavo::passes::fusions
