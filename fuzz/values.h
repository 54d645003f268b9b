// Numbers, names and bytes that break things.
#ifndef OCTAVO_FUZZ_VALUES_H_
#define OCTAVO_FUZZ_VALUES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "octavo/fuzz/random.h"

namespace octavo::fuzz {

// `now`: neighbours of it are likely too.
int64_t SomeInt(Random& random, int64_t now);
float SomeFloat(Random& random, float now);
// Small, as sizes of tensors that can be made.
int64_t SomeSize(Random& random);
// `now` with a character changed, or something else that no exporter writes.
std::string SomeString(Random& random, std::string_view now);
// `bytes` as the raw data of a tensor: cut, longer, overwritten.
void SpoilBytes(Random& random, std::string& bytes);

struct OpName {
  std::string_view domain, name;
  int inputs;  // at least; -1: any number
};
// Ops that octavo knows, its own and those of ONNX Runtime among them.
std::span<const OpName> KnownOps();
std::span<const std::string_view> KnownAttributes();

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_VALUES_H_
