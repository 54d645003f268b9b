// Inside of Gemm and Qkv: runs of column blocks of several outputs over the same rows of one input.
#ifndef OCTAVO_KERNELS_GEMM_SEGMENTS_H_
#define OCTAVO_KERNELS_GEMM_SEGMENTS_H_

#include <algorithm>
#include <cstdint>

#include "octavo/kernels/gemm/gemm.h"
#include "octavo/kernels/simd/dispatch.h"

namespace octavo::kernels::internal {

struct Segment {
  const GemmOutput* y = nullptr;
  Range blocks;
};

struct SegmentArgs {
  GemmInput x;
  const Segment* segments = nullptr;  // all with the same k
  int count = 0;
  Range rows;
  void* scratch = nullptr;
};

using SegmentsFn = void(const SegmentArgs& args);
extern const PerArch<SegmentsFn> kRunSegments;

// Rows that are worked through together: their packed form (2 bytes an element for the s16 form, else 1) stays within
// 192 KB, so that it lives in L2 beside the weights of one column block. A multiple of 6, the height of a tile.
inline int64_t RowsAtOnce(int64_t k, int64_t bytes_per_element) {
  const int64_t row_bytes = (k + 3) / 4 * 4 * bytes_per_element;
  return std::clamp<int64_t>(192 * 1024 / row_bytes / 6 * 6, 6, 96);
}

}  // namespace octavo::kernels::internal

#endif  // OCTAVO_KERNELS_GEMM_SEGMENTS_H_
