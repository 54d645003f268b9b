// Kernel 1: 2..8 projections of one activation in one pass over it. Every branch keeps its own width, column scales,
// bias, output dtype, scale and zero point, so the result is that of separate Gemm calls, bit for
// bit.
#ifndef OCTAVO_KERNELS_QKV_QKV_H_
#define OCTAVO_KERNELS_QKV_QKV_H_

#include "octavo/kernels/gemm/gemm.h"

namespace octavo::kernels {

inline constexpr int kMaxBranches = 8;

struct QkvArgs {
  GemmInput x;
  int count = 0;  // 1..kMaxBranches; all branches have the same k
  GemmOutput branch[kMaxBranches];
  Tuning tuning = DetectedTuning();
};

// Column blocks of all branches together: each branch is rounded up to whole blocks. The unit for splitting.
int64_t QkvBlocks(const QkvArgs& args);

// How `threads` share a product: parts of the rows (in tiles of GemmTile) and parts of the column blocks.
struct Shares {
  int64_t rows = 1;
  int64_t blocks = 1;
};
// Columns first: a thread that takes half of the columns reads half of the weights, one that takes half of the rows
// reads them all.
Shares SharesOf(Arch arch, int64_t rows, int64_t blocks, int threads);

// As Gemm; `blocks` counts through the branches in order. Scratch: GemmScratchBytes.
void Qkv(Arch arch, const QkvArgs& args, Range rows, Range blocks, void* scratch);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_QKV_QKV_H_
