// What is in a model, as `octavo inspect --json` prints it (cli/JSON.md).
#ifndef OCTAVO_API_INSPECT_H_
#define OCTAVO_API_INSPECT_H_

#include "octavo/ir/graph.h"
#include "octavo/ir/json.h"

namespace octavo::api {

// file_bytes: of the file that the graph was read from.
ir::Result<nlohmann::ordered_json> Describe(ir::Graph graph, int64_t file_bytes);

}  // namespace octavo::api

#endif  // OCTAVO_API_INSPECT_H_
