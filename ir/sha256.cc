#include "octavo/ir/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <format>
#include <fstream>
#include <system_error>
#include <vector>

#include "octavo/ir/names.h"

namespace octavo::ir {

namespace {

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

Status AddFile(const std::filesystem::path& path, Sha256& hash) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> part(size_t{1} << 20);
  while (in) {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    hash.Add({part.data(), static_cast<size_t>(in.gcount())});
  }
  if (!in.eof()) return Fail("{} cannot be read; look whether it is there", Quoted(path.string()));
  return {};
}

}  // namespace

void Sha256::Block(const unsigned char* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) {
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 | uint32_t{block[4 * i + 2]} << 8 |
           uint32_t{block[4 * i + 3]};
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t t1 =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> more = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += more[i];
}

void Sha256::Add(std::string_view bytes) {
  size_t held = bytes_ % 64;
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (held == 0 && bytes.size() >= 64) {
      Block(reinterpret_cast<const unsigned char*>(bytes.data()));
      bytes.remove_prefix(64);
      continue;
    }
    const size_t n = std::min(bytes.size(), 64 - held);
    std::memcpy(rest_.data() + held, bytes.data(), n);
    bytes.remove_prefix(n);
    held += n;
    if (held == 64) Block(rest_.data()), held = 0;
  }
}

std::string Sha256::Hex() {
  const uint64_t bits = bytes_ * 8;
  Add({"\x80", 1});
  while (bytes_ % 64 != 56) Add({"", 1});
  std::array<char, 8> length;
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(bits >> (56 - 8 * i));
  Add({length.data(), length.size()});
  std::string hex;
  for (const uint32_t word : state_) hex += std::format("{:08x}", word);
  return hex;
}

Result<std::string> HashOf(const std::filesystem::path& path) {
  Sha256 hash;
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    OCTAVO_TRY_STATUS(AddFile(path, hash));
    return hash.Hex();
  }
  std::vector<std::string> files;
  for (std::filesystem::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->is_regular_file(error) && !it->is_symlink(error)) files.push_back(it->path().string());
  }
  if (error) return Fail("the folder {} cannot be read ({})", Quoted(path.string()), error.message());
  std::ranges::sort(files);
  for (const std::string& file : files) OCTAVO_TRY_STATUS(AddFile(file, hash));
  return hash.Hex();
}

}  // namespace octavo::ir
