// How far outputs may be apart, by measurement: the truth is computed again with every float value a little off, and what moves the
// outputs so far may move them in a fused graph too, whose sums are rounded in another order.
#ifndef OCTAVO_FUZZ_COMPARE_H_
#define OCTAVO_FUZZ_COMPARE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::fuzz {

using Tensors = std::vector<ir::Tensor>;

bool SameBits(const Tensors& a, const Tensors& b);

// The graph with noise: each float32 input and each result that is rounded is multiplied by 1 + d, where d differs from element to element
// and is at most kNoise.
constexpr float kNoise = 0x1p-16f;
ir::Result<ir::Graph> WithNoise(const ir::Graph& graph);

enum class Verdict : uint8_t { kEqual, kWithin, kUnstable, kApart };
// kUnstable: the noise changes shapes, integers, or which values are finite, or moves an output by more than a hundredth of its largest
// value: nothing can be said. `noisy` is asked for only where it matters; `half`: values of 16 bits are in the graph.
Verdict Compare(const Tensors& truth, const Tensors& got, bool half, const std::function<ir::Result<Tensors>()>& noisy,
                std::string* detail);

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_COMPARE_H_
