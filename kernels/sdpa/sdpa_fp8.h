// The fp8 form behind sdpa.h, which has the contract: what its functions for SdpaInt8Args do where the operands are fp8.
#ifndef OCTAVO_KERNELS_SDPA_SDPA_FP8_H_
#define OCTAVO_KERNELS_SDPA_SDPA_FP8_H_

#include "octavo/kernels/sdpa/sdpa.h"

namespace octavo::kernels::internal {

Tile SdpaFp8Tile(Arch arch, const SdpaInt8Args& args);
size_t SdpaFp8PackedBytes(Arch arch, const SdpaInt8Args& args);
size_t SdpaFp8ScratchBytes(Arch arch, const SdpaInt8Args& args);
void SdpaFp8Pack(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* packed);
void SdpaFp8Rows(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
                 const void* packed, void* scratch);

}  // namespace octavo::kernels::internal

#endif  // OCTAVO_KERNELS_SDPA_SDPA_FP8_H_
