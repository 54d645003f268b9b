// Shapes that a file declares and that hold for one run alone.
#ifndef OCTAVO_IR_DECIDED_H_
#define OCTAVO_IR_DECIDED_H_

#include "octavo/ir/graph.h"

namespace octavo::ir {

// Drops the shapes that a file declares where elements of an input decide them (a Reshape to a shape that is given, a Slice up to such an end, what an If
// gives on a condition that is given), and those of what is made of that, in graphs of nodes too and for outputs: they are those of one run, and whoever
// fused by them would compute others in silence. Symbols stay in the results of If, Loop and Scan and in outputs: exporters give them for all runs.
void DropDecidedShapes(Graph& graph);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_DECIDED_H_
