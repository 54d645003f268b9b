// What the rules of norms share.
#ifndef OCTAVO_PASSES_FUSIONS_NORM_PARTS_H_
#define OCTAVO_PASSES_FUSIONS_NORM_PARTS_H_

#include <initializer_list>
#include <string>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

// Why a ReduceMean is not one over the last axis that keeps it; empty: it is.
std::string MeanOfLast(const Graph& g, const Node& n);

// Gamma and beta of a norm must be vectors of the rows of x, and so not widen them. `strict`: by their dims, and a constant may have dims of 1 in front (FlatVector); else where the norm is an op, whose
// definition lets them be shorter only as one element.
pattern::Verdict CheckVectors(const Graph& g, ValueId x, std::initializer_list<ValueId> vectors, bool strict);

// A constant vector without dims of 1 in front.
ValueId FlatVector(Rewriter& b, ValueId v);

// The last dimension of x must be a number, where a norm without gamma gets one of ones.
pattern::Verdict CheckCounted(const Graph& g, ValueId x);
ValueId Ones(Rewriter& b, ValueId x);

// ReduceMean(x^2 or x * x) over the last axis.
pattern::Var MeanOfSquare(pattern::RuleBuilder& r, pattern::Var x);
// Sqrt(x + epsilon) or its power 0.5; and one over it, as Reciprocal, as Div or as the power -0.5 (Gemma 3n and later).
struct StableRoot {
  pattern::Var epsilon, root, inverse;
};
StableRoot RootOf(pattern::RuleBuilder& r, pattern::Var x);
// x over its deviation, times gamma where there is one, in each association that authors write: gamma may meet x or the inverse first.
pattern::Var Normalized(pattern::RuleBuilder& r, pattern::Var x, const StableRoot& by, pattern::Var gamma);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_NORM_PARTS_H_
