#ifndef OCTAVO_FUZZ_SEEDS_H_
#define OCTAVO_FUZZ_SEEDS_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace octavo::fuzz {

struct Seed {
  std::string name;
  std::string bytes;
};

// The .onnx files of these files and folders, small ones first; those above `most` bytes are left out.
std::vector<Seed> LoadSeeds(const std::vector<std::filesystem::path>& where, size_t most);

// Case `index` of a campaign: a seed, very small and larger ones alike (single ops and whole models), or one in `convolutions` a convolutional
// graph made at random (convolutions.h), mutated; one in four of the latter stays as it is.
std::string MakeCase(const std::vector<Seed>& seeds, uint64_t seed, uint64_t index, int convolutions);

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_SEEDS_H_
