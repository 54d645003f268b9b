// QLinearMatMul as a product of DequantizeLinears (requantized.cc).
#ifndef OCTAVO_PASSES_VENDOR_REQUANTIZED_H_
#define OCTAVO_PASSES_VENDOR_REQUANTIZED_H_

#include <string>

#include "octavo/passes/pass.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::vendor {

// Why the QLinearMatMul cannot become one; empty: it can.
std::string WhyNotDequantized(const Graph& g, const Node& n);
bool DequantizeProduct(Rewriter& rw, NodeId id);

}  // namespace octavo::passes::vendor

#endif  // OCTAVO_PASSES_VENDOR_REQUANTIZED_H_
