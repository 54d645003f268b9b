// Where an optimized model may lose more than a hundredth of what it is for: what else would keep, measured. For api/ alone.
#ifndef OCTAVO_API_ALTERNATIVES_H_
#define OCTAVO_API_ALTERNATIVES_H_

#include "octavo/api/attempt.h"
#include "octavo/api/lost.h"

namespace octavo::api {

// Where result lost more on held-out samples than lost.h says, int8 takes the ranges of another calibrator if these leave 0.8 of it or less. Then int8 and
// fp8 take what leaves 0.6 or less at a price in time: a scale for each row (int8), attention in floats, floats for convolutions of kernel 1 beside
// depthwise ones (int8). Those of 4 bits (dynamic4, weights4) that lose more than is theirs give the Linears that lose most 8 bits, up to a mean of 6. A note
// says so. What still loses more gets a note of other ways, each tried once on the same samples with weights that no data is run for, best first. Nothing is
// tried where less was lost, none was held out, a goal steers already, or a pipeline of one's own says what is done.
ir::Status NoteAlternatives(const ir::Graph& model, const OptimizeOptions& options, Evidence& evidence,
                            Optimized& result);

}  // namespace octavo::api

#endif  // OCTAVO_API_ALTERNATIVES_H_
