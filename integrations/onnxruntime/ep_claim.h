// Which nodes of a graph octavo takes.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_CLAIM_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_CLAIM_H_

#include <set>
#include <vector>

namespace octavo::integrations::onnxruntime {

// Groups of nodes, each of which can run as one: no path leaves a group and comes back. inputs[i]: the nodes whose outputs node i reads, all of
// them smaller than i. Those of `refused` are in no group.
std::vector<std::vector<size_t>> Groups(const std::vector<std::vector<size_t>>& inputs,
                                        const std::set<size_t>& refused);

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_CLAIM_H_
