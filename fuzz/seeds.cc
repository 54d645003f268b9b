#include "octavo/fuzz/seeds.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "octavo/fuzz/convolutions.h"
#include "octavo/fuzz/mutate.h"
#include "octavo/fuzz/random.h"

namespace octavo::fuzz {

namespace fs = std::filesystem;

std::vector<Seed> LoadSeeds(const std::vector<fs::path>& where, size_t most) {
  std::vector<fs::path> files;
  for (const fs::path& path : where) {
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file() && entry.path().extension() == ".onnx") files.push_back(entry.path());
    }
  }
  std::vector<Seed> seeds;
  for (const fs::path& file : files) {
    if (fs::file_size(file) > most) continue;
    std::ifstream in(file, std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    seeds.push_back({file.string(), bytes.str()});
  }
  std::ranges::sort(seeds, {}, [](const Seed& s) { return std::pair(s.bytes.size(), s.name); });
  return seeds;
}

std::string MakeCase(const std::vector<Seed>& seeds, uint64_t seed, uint64_t index, int convolutions) {
  Random random(SeedOf(seed, index));
  const auto count = static_cast<int64_t>(seeds.size());
  for (int attempt = 0; attempt < 10; ++attempt) {
    const int64_t one = random.Below(count), another = random.Below(count);
    const Seed& first = seeds[static_cast<size_t>(random.OneIn(2) ? std::min(one, another) : std::max(one, another))];
    const Seed& second = random.Of(seeds);
    const bool made = random.OneIn(convolutions);
    const std::string model = made ? RandomConvolutions(random) : first.bytes;
    if (made && random.OneIn(4)) return model;
    std::string mutant = MutateBytes(model, second.bytes, random.Bits());
    if (!mutant.empty()) return mutant;
  }
  return {};
}

}  // namespace octavo::fuzz
