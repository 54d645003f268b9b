// Attention in double: what a peer must have computed before its time counts.
#ifndef OCTAVO_KERNELS_BENCH_ATTENTION_TRUTH_H_
#define OCTAVO_KERNELS_BENCH_ATTENTION_TRUTH_H_

#include "octavo/kernels/sdpa/sdpa.h"

namespace octavo::kernels::bench {

// The greatest distance of `o`, laid out by o_strides, from attention in double over the first, the middle and the last
// row of every head of the first batch; infinite where `o` has a NaN. Operands u8, no window, cap or ALiBi.
// kU8: probabilities are rounded to u8 as args say, distance in codes of the output, 0.5 where all is exact.
double AttentionErrorU8(const SdpaInt8Args& args, const void* o);
// float: attention of the dequantized operands with real probabilities, output and distance as they are.
double AttentionErrorF32(const SdpaInt8Args& args, const void* o);

// Half a code for rounding the output and two probabilities on the other side of a tie: with |v| <= 2.62 and the same scales
// as in the benchmark half a code each.
inline constexpr double kMostErrorU8 = 1.6;
// Scores up to 53 in float: 53 * 2^-24 * a few roundings of each, times |v|.
inline constexpr double kMostErrorF32 = 1e-3;

}  // namespace octavo::kernels::bench

#endif  // OCTAVO_KERNELS_BENCH_ATTENTION_TRUTH_H_
