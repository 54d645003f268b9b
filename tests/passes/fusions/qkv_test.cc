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

}  // namespace
}  // namespace octavo::passes::fusions
