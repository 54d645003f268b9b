// Which values are functions of one tensor of codes of 8 bits, and their tables.
#ifndef OCTAVO_PASSES_FUSIONS_FUNCTIONS_OF_CODES_H_
#define OCTAVO_PASSES_FUSIONS_FUNCTIONS_OF_CODES_H_

#include <map>
#include <optional>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

// Quantize- or DequantizeLinear between f32 and u8 or s8 with constant numbers.
bool IsCoding(const Graph& g, const Node& n, Op op);

// The codes that each value is a function of.
class CodeSources {
 public:
  explicit CodeSources(const Graph& g) : g_(g) {}

  // Invalid: there is no such tensor, or more than one.
  ValueId Of(ValueId v, int depth = 0) {
    const auto [it, fresh] = known_.try_emplace(v, ValueId{});
    if (!fresh) return it->second;
    const ValueId source = Find(v, depth + 1);
    return known_[v] = source;
  }

 private:
  ValueId Find(ValueId v, int depth);

  const Graph& g_;
  std::map<ValueId, ValueId> known_;
};

// What `quantize` gives for each of the 256 codes of `source`; nullopt where the interpreter refuses.
std::optional<ir::Tensor> TableOf(const Graph& g, const Node& quantize, ValueId source);

}  // namespace octavo::passes::fusions

#endif  // OCTAVO_PASSES_FUSIONS_FUNCTIONS_OF_CODES_H_
