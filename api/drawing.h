// A graph as the report draws it: its nodes without weights, what each reads, and which nodes of the file it came from.
#ifndef OCTAVO_API_DRAWING_H_
#define OCTAVO_API_DRAWING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::api {

struct Drawing {
  enum class Look : uint8_t {
    kFloat,
    kQuantized,
    kFused,
    kCodes,
    kEnd
  };  // kCodes: to and from codes; kEnd: an input or output
  struct Node {
    std::string op, name;
    std::string type;                 // of its first output: "f32[batch,seq,384]"
    std::vector<uint32_t> reads;      // nodes that stand before it
    std::vector<std::string> origin;  // names of nodes of the file
    Look look = Look::kFloat;
  };
  // In the order of the graph; empty where there are more than kMost. Bodies of If, Loop and Scan are not drawn.
  std::vector<Node> nodes;
  size_t count = 0;

  static constexpr size_t kMost = 12'000;
};

Drawing Draw(const ir::Graph& graph);

// Both as JSON, with each text once: {"texts", "before": [[op, name, type, reads, look, origin as nodes of before]], "after"}.
std::string DrawingsJson(const Drawing& before, const Drawing& after);

}  // namespace octavo::api

#endif  // OCTAVO_API_DRAWING_H_
