// Products by constant weights whose columns are put side by side or taken apart.
#ifndef OCTAVO_PASSES_FUSIONS_PROJECTIONS_H_
#define OCTAVO_PASSES_FUSIONS_PROJECTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "octavo/passes/attention.h"
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

struct Projection {
  NodeId product;
  ValueId result;  // after the bias where there is one
  const ir::Tensor* w;
  const ir::Tensor* bias;  // null: none

  int64_t columns() const { return w->shape()[1]; }
};
// nullopt: no MatMul by a constant matrix of floats, or one with a bias of another type.
std::optional<Projection> ProjectionAt(const Graph& g, NodeId product);

// Empty, with the parts of the product that these Linears are; or why they are none.
std::string WhyNotOneProduct(const Graph& g, const ProjectionGroup& group, std::vector<Projection>* parts);

// Row by row the columns of all parts: of their weights [K,N], or of their biases [N]. A part without a bias has zeros.
ir::Tensor WeightsOf(const std::vector<Projection>& parts);
ir::Tensor BiasesOf(const std::vector<Projection>& parts);

// Columns [first, first + count) of a constant [K,N] or [N]; one number is that of every column, and what is absent stays so.
ValueId Columns(Rewriter& b, ValueId v, int64_t first, int64_t count);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_PROJECTIONS_H_
