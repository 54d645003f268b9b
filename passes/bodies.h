// The graphs inside of If, Loop and Scan as models of their own, which passes know how to treat: taken out with what is known of their inputs, put back.
#ifndef OCTAVO_PASSES_BODIES_H_
#define OCTAVO_PASSES_BODIES_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::passes {

struct Body {
  ir::NodeId node;
  std::string attr;   // "then_branch"
  std::string place;  // "then_branch of If 'choose'"
};

// Graphs that may hold something to fuse or to quantize, at any depth.
std::vector<Body> BodiesOf(const ir::Graph& graph);
// Whether `wanted` holds for a node of the graph or of one within.
bool AnyNode(const ir::Graph& graph, const std::function<bool(const ir::Node&)>& wanted);

// Constants that the node's graphs capture become constants in them. The node is replaced; returns the new one.
ir::NodeId SinkConstants(ir::Graph& graph, ir::NodeId node);
// A copy of the graph with the types of what it is given. `graph` has been through inference.
ir::Graph AsModel(const ir::Graph& graph, const Body& body);
void PutBack(ir::Graph& graph, const Body& body, ir::Graph model);
// What graphs of one node have in common of 1 KB or more, or have in common with `graph`, is captured by them: a file holds it once.
// Block-wise weights alone stay where they are.
void ShareConstants(ir::Graph& graph);

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_BODIES_H_
