// Analysis: mixtures of experts, as exporters write them. Read-only.
#ifndef OCTAVO_PASSES_EXPERTS_H_
#define OCTAVO_PASSES_EXPERTS_H_

#include <optional>
#include <string>
#include <vector>

#include "octavo/passes/pass.h"

namespace octavo::passes {

// A Linear that chooses experts: its few results go to a TopK, or to an ArgMax whose index is used. A wrong choice costs more than its codes save, so routers stay float.
bool IsRouter(const Graph& graph, NodeId linear);

// The weights of all experts in one constant of floats [E,a,b], of which a Gather or GatherND takes the matrices that tokens were sent to.
struct Experts {
  NodeId gather, product;
  size_t slot = 1;               // of the matrices among the product's operands
  int64_t summed = 1;            // the axis of the constant that the product sums over: 1 or 2
  std::vector<ir::Attrs> flips;  // of the Transposes of the last two dims between Gather and product
  bool direct = true;            // nothing but these; else other views, and which axis is summed is not told
};
std::optional<Experts> ExpertsAt(const Graph& graph, NodeId gather);

// A product with a constant of matrices that is no Linear, nor the product of ExpertsAt or of an attention core: why it is none.
struct OtherProduct {
  NodeId node;
  std::string reason;
};
std::vector<OtherProduct> OtherProducts(const Graph& graph);

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_EXPERTS_H_
