// The textual form (.oir): one line per node, deterministic, and a law: Parse(ToText(g)) prints the same text.
#ifndef OCTAVO_IR_TEXT_H_
#define OCTAVO_IR_TEXT_H_

#include <string>
#include <string_view>

#include "octavo/ir/graph.h"

namespace octavo::ir {

struct TextOptions {
  // Constants with more elements than this print as their hash and cannot be parsed back. -1: never elide.
  int64_t elide_constants_above = -1;
  bool types = true;   // of every node output
  bool origin = true;  // provenance
};

std::string ToText(const Graph& graph, const TextOptions& options = {});
// Errors name the line and what was expected there.
Result<Graph> ParseText(std::string_view text);

// Graphviz source: one box per node, edges labelled with the type.
std::string ToDot(const Graph& graph);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_TEXT_H_
