#include "octavo/kernels/qkv/qkv.h"

#include <algorithm>

#include "octavo/kernels/gemm/segments.h"

namespace octavo::kernels {

int64_t QkvBlocks(const QkvArgs& args) {
  int64_t blocks = 0;
  for (int i = 0; i < args.count; ++i) blocks += ColumnBlocks(args.branch[i].w->n());
  return blocks;
}

void Qkv(Arch arch, const QkvArgs& args, Range rows, Range blocks, void* scratch) {
  internal::Segment segments[kMaxBranches];
  int count = 0;
  int64_t first = 0;  // block at which branch i begins
  for (int i = 0; i < args.count; ++i) {
    const int64_t own = ColumnBlocks(args.branch[i].w->n());
    const Range part{std::max<int64_t>(blocks.begin - first, 0), std::min(blocks.end - first, own)};
    if (part.begin < part.end) segments[count++] = {&args.branch[i], part};
    first += own;
  }
  internal::kRunSegments[arch]({args.x, segments, count, rows, scratch});
}

}  // namespace octavo::kernels
