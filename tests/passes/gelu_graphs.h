// What GELUs that authors and tools write are made of.
#ifndef OCTAVO_TESTS_PASSES_GELU_GRAPHS_H_
#define OCTAVO_TESTS_PASSES_GELU_GRAPHS_H_

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes {

struct GeluGraphs : Graphs {
  using Graphs::Graphs;
  ValueId x = Input("x", {2, 9});
  ValueId Times(ValueId a, ValueId b) { return Node(Op::kMul, {a, b}); }
  ValueId Plus(ValueId a, ValueId b) { return Node(Op::kAdd, {a, b}); }
  ValueId Erf() { return Node(Op::kErf, {Times(x, Real(0.70710678f))}); }
  ValueId HalfOf(ValueId tanh) { return Times(Times(x, Real(0.5f)), Plus(tanh, Real(1.0f))); }
};

}  // namespace octavo::passes

#endif  // OCTAVO_TESTS_PASSES_GELU_GRAPHS_H_
