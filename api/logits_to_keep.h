// Logits of the last tokens alone. Who generates reads no others of a prompt, and the product that makes them is up to two thirds of a small model's work
// (Gemma 3 270M: 168 M of 268 M multiplications a token).
#ifndef OCTAVO_API_LOGITS_TO_KEEP_H_
#define OCTAVO_API_LOGITS_TO_KEEP_H_

#include <string_view>

#include "octavo/ir/graph.h"
#include "octavo/ir/status.h"

namespace octavo::api {

inline constexpr std::string_view kLogitsToKeep = "logits_to_keep";

// Adds the input `logits_to_keep` (int64, one number of rank 0), called and meant as that of transformers' decoders: the output `logits` [batch, tokens,
// vocabulary], or the only one, has the last so many tokens then, with the bits that it had; 0: all; below 0: all but so many of the first, as transformers
// has it. A model that has such an input, or transformers.js' num_logits_to_keep, stays as it is. Error: so does one whose logits come of no product of each token's state by weights, be it in both branches of an If (optimum's merged decoders). The graph is
// one that FuseToRun made.
ir::Status AddLogitsToKeep(ir::Graph& graph);

}  // namespace octavo::api

#endif  // OCTAVO_API_LOGITS_TO_KEEP_H_
