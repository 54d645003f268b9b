// Before: Pow(x, 2);  Pow(x, 3);  Pow(x, 0.5)
// After:  Mul(x, x);  Mul(Mul(x, x), x);  Sqrt(x)
// Squared ReLUs (Primer, Nemotron) and what norms and GELUs leave: products join chains, a Pow is computed element by element.
// Within 2 ulp of the power, as ONNX Runtime computes it. Sqrt(-0) is -0 and Sqrt(-inf) NaN, where the power is 0 and inf.
// Refuses: other exponents, roots of what may be below 0, and powers in a graph with codes, which keeps its bits.
#include <algorithm>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;

namespace {

// Squares, their means and sums, and what is at least a number above 0.
bool IsNeverNegative(const Graph& g, ValueId v, int depth = 4) {
  const Node* n = g.Producer(v);
  if (n == nullptr || depth == 0) return false;
  switch (n->op) {
    case Op::kAbs:
    case Op::kExp:
    case Op::kSigmoid:
    case Op::kReduceL2:
    case Op::kReduceSumSquare:
      return true;
    case Op::kMul:
      return n->input(0) == n->input(1);
    case Op::kReduceMean:
    case Op::kReduceSum:
      return IsNeverNegative(g, n->input(0), depth - 1);
    case Op::kAdd: {
      const ir::Tensor* t = g.ConstantOf(n->input(1));
      return t != nullptr && t->size() == 1 && t->GetDouble(0) >= 0 && IsNeverNegative(g, n->input(0), depth - 1);
    }
    default:
      return false;
  }
}

bool HasCodes(const Graph& g) {
  return std::ranges::any_of(g.NodesInOrder(), [&](ir::NodeId id) {
    return g.node(id).op == Op::kQuantizeLinear || g.node(id).op == Op::kDequantizeLinear;
  });
}

}  // namespace

Rule Power(double exponent) {
  RuleBuilder r(exponent == 2 ? "square" : exponent == 3 ? "cube" : "root", "Pow by 2, 3 or 1/2 -> products or Sqrt");
  const Var x = r.Input("x", {.dtypes = {ir::DType::kF32}});
  const Var root = r.Op("power", Op::kPow, {x, r.Scalar("exponent", exponent)});
  r.Root(root);
  r.Guard([=](const Match& m) {
    if (HasCodes(m.graph())) return Illegal("a graph with codes keeps its bits");
    if (exponent == 0.5 && !IsNeverNegative(m.graph(), m[x]))
      return Illegal("the power 1/2 of -inf is inf, and x is not known to be above 0");
    return Ok();
  });
  r.Build([=](Rewriter& b, const Match& m) {
    if (exponent == 0.5) return b.Create(Op::kSqrt, {m[x]});
    const ValueId square = b.Create(Op::kMul, {m[x], m[x]});
    return exponent == 2 ? square : b.Create(Op::kMul, {square, m[x]});
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
