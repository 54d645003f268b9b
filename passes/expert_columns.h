// Products with the matrices that a Gather takes for each row, as columns out of a product with those of all experts.
// Before: y = MatMul(x [I..,1,K], Gather(W [E,K,N], index [I..]))       or W[index] x for columns x [I..,K,1]; one index for all rows of x
// After:  y = Unsqueeze(GatherND(Reshape(MatMul(x [I..,K], all [K, E N]), [I..,E,N]), index [I..,1]))
// So a recipe quantizes experts as any other Linear, and where octavo runs the file it reads and multiplies the columns of the chosen experts alone
// (runtime/expert_columns.h).
#ifndef OCTAVO_PASSES_EXPERT_COLUMNS_H_
#define OCTAVO_PASSES_EXPERT_COLUMNS_H_

#include <functional>
#include <optional>

#include "octavo/passes/experts.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes {

struct ExpertColumns {
  Experts experts;
  ValueId x, index;
  bool tuples = false;  // indices are [I..,1] (GatherND)
  bool left = false;    // the product has the matrices on its left
  int64_t dims = 0;     // of I
  int64_t x_rank = 0;
  int64_t count = 0, k = 0, n = 0;  // experts, and of each
};

// Where types are inferred. None: views stand between, or x may broadcast.
std::optional<ExpertColumns> ExpertColumnsAt(const Graph& graph, NodeId gather);

// multiply(rows [..,K]) makes the product with all experts' matrices side by side, [..,E N]. The product that was there is gone then, and what it alone read.
void TakeExpertColumns(Rewriter& b, const ExpertColumns& c, const std::function<ValueId(ValueId rows)>& multiply);

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_EXPERT_COLUMNS_H_
