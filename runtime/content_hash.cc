#include "octavo/runtime/content_hash.h"

#define XXH_INLINE_ALL  // its code is compiled in here, so no library is needed where octavo runs
#include <xxhash.h>

namespace octavo::runtime {

ContentHash HashOfContents(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace octavo::runtime
