#include "octavo/kernels/sdpa/sdpa_ref.h"

namespace octavo::kernels {

size_t SdpaPackedBytes(Arch, const SdpaFloatArgs&) { return 0; }
size_t SdpaPackedBytes(Arch, const SdpaInt8Args&) { return 0; }
size_t SdpaScratchBytes(Arch, const SdpaFloatArgs& args) { return static_cast<size_t>(args.shape.k_len) * sizeof(float); }
size_t SdpaScratchBytes(Arch, const SdpaInt8Args& args) { return static_cast<size_t>(args.shape.k_len) * sizeof(float); }
void SdpaPack(Arch, const SdpaFloatArgs&, int64_t, int64_t, void*) {}
void SdpaPack(Arch, const SdpaInt8Args&, int64_t, int64_t, void*) {}
void SdpaRows(Arch, const SdpaFloatArgs& args, int64_t batch, int64_t head, int64_t begin, int64_t end, const void*,
              void* scratch) {
  internal::SdpaReference(args, batch, head, begin, end, static_cast<float*>(scratch));
}
void SdpaRows(Arch, const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, const void*,
              void* scratch) {
  internal::SdpaReference(args, batch, head, begin, end, static_cast<float*>(scratch));
}

}  // namespace octavo::kernels
