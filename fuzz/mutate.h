// Mutation of an ONNX file by structure: a field, an edge, a type, a shape, an attribute, a tensor's numbers, a subgraph. Many mutants stay
// valid, and octavo must compute the same with and without fusing them; the others must be refused in a sentence.
#ifndef OCTAVO_FUZZ_MUTATE_H_
#define OCTAVO_FUZZ_MUTATE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace octavo::fuzz {

// `model` with one to eight mutations, by `seed` alone. Parts may be taken from `other` where it is a model. Bytes that are no model get
// another byte. Empty: nothing could be made.
std::string MutateBytes(std::string_view model, std::string_view other, uint64_t seed);

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_MUTATE_H_
