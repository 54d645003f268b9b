// The face to libFuzzer, and to whatever engine OSS-Fuzz puts in its place. OCTAVO_FUZZ_RUN: the entry function of the target.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "octavo/fuzz/targets.h"
#ifdef OCTAVO_FUZZ_STRUCTURE
#include "octavo/fuzz/mutate.h"
#endif

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  octavo::fuzz::OCTAVO_FUZZ_RUN({reinterpret_cast<const char*>(data), size});
  return 0;
}

#ifdef OCTAVO_FUZZ_STRUCTURE
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned int seed) {
  const std::string mutant = octavo::fuzz::MutateBytes({reinterpret_cast<const char*>(data), size}, /*other=*/{}, seed);
  if (mutant.empty() || mutant.size() > most) return size;
  mutant.copy(reinterpret_cast<char*>(data), mutant.size());
  return mutant.size();
}
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1, const uint8_t* data2, size_t size2,
                                            uint8_t* out, size_t most, unsigned int seed) {
  const std::string mutant = octavo::fuzz::MutateBytes({reinterpret_cast<const char*>(data1), size1},
                                                       {reinterpret_cast<const char*>(data2), size2}, seed);
  if (mutant.size() > most) return 0;
  mutant.copy(reinterpret_cast<char*>(out), mutant.size());
  return mutant.size();
}
#endif
