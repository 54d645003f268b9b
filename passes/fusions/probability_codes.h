// Where the quantizer has put codes behind the probabilities of attention.
#ifndef OCTAVO_PASSES_FUSIONS_PROBABILITY_CODES_H_
#define OCTAVO_PASSES_FUSIONS_PROBABILITY_CODES_H_

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

// The Softmax over the last axis behind P, looking through the guard against NaN; invalid: none.
NodeId SoftmaxOf(const Graph& g, ValueId p);
// u8 codes of 1/255 from 0 on, to the bit: what the quantizer gives probabilities.
bool HasPlainCodes(const Graph& g, const Node& q);
// The product behind Q(P), through its DequantizeLinear; invalid: it is something else.
NodeId ProductOf(const Graph& g, const Node& q);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_PROBABILITY_CODES_H_
