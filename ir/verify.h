// The grammar of legal graphs.
#ifndef OCTAVO_IR_VERIFY_H_
#define OCTAVO_IR_VERIFY_H_

#include <string>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::ir {

struct Violation {
  std::string node;     // name of the culprit node, or of the value; empty: the graph as a whole
  std::string message;  // one sentence
};

// All violations, not the first: dangling handles, use lists that disagree, order, arity (ops.def), duplicate names,
// constants without "value" or whose type disagrees, types that contradict inference where both are known, outputs
// that are not bound, subgraph captures. Empty: the graph is legal.
std::vector<Violation> Verify(const Graph& graph);
// As a Status: the first three sentences and how many more there are.
Status VerifyStatus(const Graph& graph);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_VERIFY_H_
