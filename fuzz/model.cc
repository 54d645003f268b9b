#include "octavo/fuzz/targets.h"
#include "octavo/fuzz/way.h"

namespace octavo::fuzz {

void FuzzModel(std::string_view bytes) {
  const Passage passage = Walk(bytes, {});
  for (const Finding& finding : passage.findings) Broken(finding.kind, finding.detail);
}

}  // namespace octavo::fuzz
