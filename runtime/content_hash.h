// A fast hash of contents (XXH3, 128 bits): whether bytes are those of an earlier time. Nothing that resists who wants two to be alike; for that there is sha256.h.
#ifndef OCTAVO_RUNTIME_CONTENT_HASH_H_
#define OCTAVO_RUNTIME_CONTENT_HASH_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace octavo::runtime {

struct ContentHash {
  uint64_t low = 0, high = 0;
  friend auto operator<=>(const ContentHash&, const ContentHash&) = default;
};

ContentHash HashOfContents(std::span<const std::byte> bytes);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_CONTENT_HASH_H_
