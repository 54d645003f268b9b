#include "octavo/kernels/gemm/gemm.h"

#include <algorithm>

#include "octavo/kernels/gemm/segments.h"

namespace octavo::kernels {

size_t GemmScratchBytes(Arch arch, quant::DType x_dtype, int64_t k) {
  if (arch == Arch::kScalar) return 0;
  if (arch == Arch::kAmx) return static_cast<size_t>(internal::TileRowsAtOnce(k) * internal::TileStride(k));
  const bool vnni = arch == Arch::kAvx512Vnni || arch == Arch::kAvxVnni;
  if (vnni && x_dtype == quant::DType::kU8 && k % 4 == 0) return 0;  // read where it lies
  const int64_t k4 = (k + 3) / 4 * 4;
  if (vnni) return static_cast<size_t>(internal::MostRowsAtOnce(k, 1) * k4);
  // As s16, behind them as u8 for the certified panels, and a decoded block of weights.
  const int64_t decoded = k4 <= internal::kMostDecodedK ? kColumnBlock * k4 : 0;
  return static_cast<size_t>(internal::WideElements(k) + decoded) * sizeof(int16_t);
}

void internal::RunBatches(Arch arch, SegmentArgs args) {
  const Range rows = args.rows;
  int64_t of_batch = rows.end;
  for (int i = 0; i < args.count; ++i) {
    const HeadMajor& h = args.segments[i].y->heads;
    if (h.size != 0 && h.rows >= kRowsOfBatch) of_batch = std::min(of_batch, h.rows);
  }
  for (int64_t first = rows.begin; first < rows.end; first = args.rows.end) {
    args.rows = {first, std::min(rows.end, (first / of_batch + 1) * of_batch)};
    kRunSegments[arch](args);
  }
}

void Gemm(Arch arch, const GemmArgs& args, Range rows, Range blocks, void* scratch) {
  const internal::Segment segment{&args.y, blocks};
  internal::RunBatches(arch, {args.x, &segment, 1, rows, scratch, args.tuning});
}

}  // namespace octavo::kernels
