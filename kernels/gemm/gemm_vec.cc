#include "octavo/kernels/gemm/segments.h"

namespace octavo::kernels::internal {
namespace {

void Reference(const SegmentArgs& args) {
  for (int i = 0; i < args.count; ++i) {
    GemmReference({args.x, *args.segments[i].y}, args.rows, args.segments[i].blocks);
  }
}

}  // namespace

const PerArch<SegmentsFn> kRunSegments = {&Reference, &Reference, &Reference, &Reference};

}  // namespace octavo::kernels::internal
