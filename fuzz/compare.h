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

bool SameBits(const Tensors& a, const Tensors& b);  // but for those of NaN

// The graph with noise: each float input and each result that is rounded is multiplied by 1 + sign * d, where d differs from element to
// element and is at most kNoise. Both signs are tried: a value on the edge between two codes falls over in one of them.
constexpr float kNoise = 0x1p-16f;
constexpr float kNoiseF16 = 0x1p-10f;  // twice the rounding of one operation, which a fused graph leaves out
constexpr float kNoiseBF16 = 0x1p-8f;  // the same
ir::Result<ir::Graph> WithNoise(const ir::Graph& graph, float sign);

// The graph whose float constants, attributes and results have no number beyond a limit: such a one, and an infinity, becomes the limit itself
// or an infinity; an infinite quotient the limit or NaN, since what is divided by 0 is NaN where it cancels to 0. Everything else, NaN too, keeps
// its bits, but a NaN in weights of a Conv that pads: it may become 0, since it may meet zeros alone.
constexpr float kHuge = 0x1p63f;     // float32: its square is infinite
constexpr float kHugeF16 = 0x1p14f;  // float16, which a fused graph widens to float32: four of them are infinite
enum class Beyond : uint8_t { kHuge, kInfinite };
ir::Result<ir::Graph> WithLimit(const ir::Graph& graph, Beyond beyond);

// kUnstable: nothing can be said, since the noise changes shapes, integers, or which values are finite, or moves an output by more than a
// hundredth of its largest value; or since what is apart hangs on huge numbers, and all else is within the bound.
// The rule for huge numbers: where a graph computes with numbers beyond its limit, or with weights that are infinite, another order of its
// operations may overflow and this one not, which is as legal as another order of a sum. An output element hangs on them where it is not
// the same with Beyond::kHuge and with Beyond::kInfinite. A mask of -3.4e38 before a Softmax changes nothing by this measure, so what is
// masked is compared, as is every element beside one that overflows. NaN in a weight excuses nothing.
enum class Verdict : uint8_t { kEqual, kWithin, kUnstable, kApart };
// `got` is what a graph that should mean the same as `graph` gave, `truth` what `graph` gave. `run` runs a graph on the same inputs, and
// is called only where it matters; `half`: values of 16 bits are in the graph.
using RunGraph = std::function<ir::Result<Tensors>(const ir::Graph&)>;
Verdict Compare(const ir::Graph& graph, const Tensors& truth, const Tensors& got, bool half, const RunGraph& run,
                std::string* detail);

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_COMPARE_H_
