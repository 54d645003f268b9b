// Weights of 8 bits around any zero point as s8 around 0, which the kernels take (centered.cc).
#ifndef OCTAVO_PASSES_VENDOR_CENTERED_H_
#define OCTAVO_PASSES_VENDOR_CENTERED_H_

#include "octavo/passes/pass.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::vendor {

void CenterWeights(Rewriter& rw);

}  // namespace octavo::passes::vendor

#endif  // OCTAVO_PASSES_VENDOR_CENTERED_H_
