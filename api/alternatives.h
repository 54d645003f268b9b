// Where an optimized model may lose more than a hundredth of what it is for: what else would keep, measured. For api/ alone.
#ifndef OCTAVO_API_ALTERNATIVES_H_
#define OCTAVO_API_ALTERNATIVES_H_

#include "octavo/api/attempt.h"

namespace octavo::api {

// Held-out batches alone speak. Logits and probabilities: a Kullback-Leibler divergence of 0.01 is a hundredth of a perplexity. Other outputs: what
// sentence encoders and vision transformers had lost when neighbours began to differ (docs/lab/quantization.md).
constexpr double kMostKl = 0.01, kMostTurn = 0.0015;  // of 1 - cosine
// Of 4 bits beyond what 8 bits lose, which with activations in codes is no less: of Gemma 3 270M's perplexity 5.9 % at a divergence of 0.021
// more, 2.2 % at 0.009 more (recipe dynamic4 with 4 and 5 bits; 8 bits lose 1.0 % at 0.019); MiniLM half a hundredth of its recall at 0.01 of 1 - cosine.
constexpr double kMostKlOfFour = 0.01, kMostTurnOfFour = 0.014;

// Where result lost more, int8 takes the ranges of another calibrator if these leave 0.8 of it or less. Then int8 and fp8 take what leaves 0.6 or less at
// a price in time: a scale for each row (int8), attention in floats, floats for convolutions of kernel 1 beside depthwise ones (int8). Those of 4 bits
// (dynamic4, weights4) that lose more than is theirs give the Linears that lose most 8 bits, up to a mean of 6. A note says so. What still loses more gets a
// note of other ways, each tried once on the same batches with weights that no data is run for, best first. Nothing is tried where less was lost, no batch
// was held out, min_db steers already, or a pipeline of one's own says what is done.
ir::Status NoteAlternatives(const ir::Graph& model, const OptimizeOptions& options, Evidence& evidence,
                            Optimized& result);

}  // namespace octavo::api

#endif  // OCTAVO_API_ALTERNATIVES_H_
