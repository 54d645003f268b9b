// linear_residual.cc: a residual of every row goes into the Linear; fp8 and quantized sums are in quantized_linear_test.cc.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::SymShape;

TEST(LinearResidualRule, AResidualHasEveryRow) {
  const auto residual = [](SymShape shape) {
    return [shape](Graphs& m) {
      const ValueId y = m.Linear(m.Input("x", {2, 5, 16}, DType::kU8), m.Real(0.02f), m.Zero(DType::kU8, 100));
      m.g.AddOutput("y", m.Node(Op::kAdd, {y, m.Input("residual", shape)}));
    };
  };
  EXPECT_EQ(CountAfter(FuseQuantized, Op::kAdd, residual({2, 5, 8})), 0);
  EXPECT_EQ(CountAfter(FuseQuantized, Op::kAdd, residual({1, 5, 8})), 1);
}

TEST(LinearResidualRule, RefusesWithASentence) {
  Refuses("the Linear's output is quantized already, or has a residual", LinearResidual(false), [](Graphs& m) {
    std::vector<ValueId> in{m.In({2, 16}, DType::kU8), m.Real(0.1f), m.Zero(DType::kU8, 128), m.Codes({16, 8}),
                            m.Real(0.1f)};
    in.resize(10);
    in[9] = m.In({2, 8});
    m.g.AddOutput("y", m.Node(Op::kAdd, {m.Node(Op::kQuantizedLinear, in), m.In({2, 8})}));
  });
}

}  // namespace
}  // namespace octavo::passes::fusions
