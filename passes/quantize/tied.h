// Token tables that are the head, too.
#ifndef OCTAVO_PASSES_QUANTIZE_TIED_H_
#define OCTAVO_PASSES_QUANTIZE_TIED_H_

#include <vector>

#include "octavo/passes/pass.h"

namespace octavo::passes::quantize {

// Lookups in float tables, of those that are given, read the codes of heads in blocks that say them (tied_blocks.cc).
bool TieBlocks(Graph& g, const std::vector<NodeId>& tables);

// Whether w [d,V] is the table [V,d] turned, element for element: matrices of s8 or of f32.
bool AreTurned(const ir::Tensor& table, const ir::Tensor& w);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_TIED_H_
