#include "octavo/kernels/qkv/qkv.h"

#include <algorithm>

#include "octavo/kernels/gemm/segments.h"

namespace octavo::kernels {

int64_t QkvBlocks(const QkvArgs& args) {
  int64_t blocks = 0;
  for (int i = 0; i < args.count; ++i) blocks += ColumnBlocks(args.branch[i].w->n());
  return blocks;
}

Shares SharesOf(Arch arch, int64_t rows, int64_t blocks, int threads) {
  Shares best;
  if (threads <= 1) return best;
  const Tile tile = GemmTile(arch);
  const auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  // A last tile costs what a whole one does; few rows have tiles of their own height.
  const auto padded = [&](int64_t n) { return n <= internal::kSmallRows ? n : ceil(n, tile.rows) * tile.rows; };
  // Of the slowest thread, in rows x blocks. To read a block of weights takes as long as 8 rows (M = 4 reaches 0.29 of
  // the peak where M = 64 reaches 0.88).
  int64_t least = (padded(rows) + 8) * blocks;
  for (int64_t parts : {int64_t{threads}, int64_t{2} * threads}) {
    for (int64_t by_blocks = std::min(parts, blocks); by_blocks > 0; --by_blocks) {
      const int64_t by_rows = std::min(parts / by_blocks, std::max<int64_t>(rows / tile.share, 1));
      const int64_t turns = ceil(by_rows * by_blocks, threads);
      const int64_t time = turns * (padded(ceil(rows, by_rows)) + 8) * ceil(blocks, by_blocks);
      if (time < least) least = time, best = {by_rows, by_blocks};
    }
  }
  return best;
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
  internal::RunBatches(arch, {args.x, segments, count, rows, scratch, args.tuning});
}

}  // namespace octavo::kernels
