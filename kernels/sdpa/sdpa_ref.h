// The truth of sdpa.h in plain loops; reads q, k and v where they lie. `row`: k_len floats of scratch.
#ifndef OCTAVO_KERNELS_SDPA_SDPA_REF_H_
#define OCTAVO_KERNELS_SDPA_SDPA_REF_H_

#include "octavo/kernels/sdpa/sdpa.h"

namespace octavo::kernels::internal {

void SdpaReference(const SdpaFloatArgs& args, int64_t batch, int64_t head, int64_t begin, int64_t end, float* row);
void SdpaReference(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, float* row);
// From products of one row to probabilities, in place.
void SdpaProbabilities(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t row, float* s);
// sdpa_fp8_ref.cc
void SdpaFp8Reference(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, float* row);
// `scratch`: kSdpaFlashKeys floats and as many as a row of V has.
void SdpaFlashReference(const SdpaFloatArgs& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
                        float* scratch);
void SdpaFlashReference(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
                        float* scratch);

}  // namespace octavo::kernels::internal

#endif  // OCTAVO_KERNELS_SDPA_SDPA_REF_H_
