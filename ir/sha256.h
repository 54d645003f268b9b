// SHA-256 (FIPS 180-4), so that a report can say which files it is about in a form that `sha256sum` checks.
#ifndef OCTAVO_IR_SHA256_H_
#define OCTAVO_IR_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "octavo/ir/status.h"

namespace octavo::ir {

class Sha256 {
 public:
  void Add(std::string_view bytes);
  std::string Hex();  // ends it

 private:
  void Block(const unsigned char* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> rest_ = {};
  uint64_t bytes_ = 0;
};

// Of a file; of a folder: of all files in it, one behind the other in the order of their names, as `find DIR -type f | LC_ALL=C sort | xargs cat | sha256sum`.
Result<std::string> HashOf(const std::filesystem::path& path);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_SHA256_H_
