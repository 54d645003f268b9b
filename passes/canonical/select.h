// Scores that are chosen by arithmetic.
#ifndef OCTAVO_PASSES_CANONICAL_SELECT_H_
#define OCTAVO_PASSES_CANONICAL_SELECT_H_

#include "octavo/passes/rewriter.h"

namespace octavo::passes::canonical {

// Before: Softmax(Add(Mul(Cast(m), s), Mul(Cast(Not(m)), -2.4e38)))   After: Softmax(Where(m, s, -2.4e38))
// Before: Softmax(Add(Mul(Cast(m), s), Mul(Cast(Not(m)), Sub(s, 1e9))))   After: Softmax(Add(s, Where(m, 0, -1e9)))
// How tf2onnx writes a select, and so Keras' masks. The same bits while s is finite: 0 times a number below 0 is -0, which changes no sum. Part of `scores`;
// true if the node was rewritten.
bool SelectBySum(Rewriter& rw, ir::NodeId node);
// Before: Softmax(Sub(Mul(s, m), Mul(Sub(1, m), 1e4)))   After: Softmax(Where(Cast(m), s, -1e4))   m: 0 or 1 everywhere (GPT-2 until transformers 4.0)
// The same bits while s is finite, and part of `scores`, too.
bool SelectByDifference(Rewriter& rw, ir::NodeId node);

}  // namespace octavo::passes::canonical

#endif  // OCTAVO_PASSES_CANONICAL_SELECT_H_
