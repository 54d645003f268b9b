#include "octavo/integrations/onnxruntime/ep_claim.h"

#include <algorithm>

namespace octavo::integrations::onnxruntime {

std::vector<std::vector<size_t>> Groups(const std::vector<std::vector<size_t>>& inputs,
                                        const std::set<size_t>& refused) {
  // The number of a node's group: how often the path to it that changes most goes from a refused node to one of ours. Whoever comes after a
  // refused node that reads group g is in group g + 1 or later, so no path comes back to g.
  std::vector<size_t> group(inputs.size());
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool ours = !refused.contains(i);
    for (const size_t from : inputs[i]) group[i] = std::max(group[i], group[from] + (ours && refused.contains(from)));
    if (!ours) continue;
    if (groups.size() <= group[i]) groups.resize(group[i] + 1);
    groups[group[i]].push_back(i);
  }
  std::erase_if(groups, [](const auto& one) { return one.empty(); });
  return groups;
}

}  // namespace octavo::integrations::onnxruntime
