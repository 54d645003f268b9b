#include "octavo/kernels/gemm/gemm.h"

#include <algorithm>
#include <format>

#include "octavo/kernels/gemm/segments.h"

namespace octavo::kernels {

namespace {
// What stands before SegmentArgs::wide.
size_t OwnScratch(Arch arch, quant::DType x, int64_t k) {
  return (internal::kGemmForms[arch].scratch(x, k) + 63) / 64 * 64;
}
}  // namespace

size_t GemmScratchBytes(Arch arch, quant::DType x_dtype, int64_t k, bool stepped) {
  const internal::GemmDescriptor& form = internal::kGemmForms[arch];
  return stepped ? OwnScratch(arch, x_dtype, k) + form.wide(k) : form.scratch(x_dtype, k);
}

Tile GemmTile(Arch arch) { return internal::kGemmForms[arch].tile; }

std::string internal::GemmForm(Arch arch) {
  const GemmDescriptor& form = kGemmForms[arch];
  if (form.tile.columns == 1) return std::string(form.name);
  return std::format("{}x{}_{}", form.tile.rows, form.tile.columns, form.name);
}
std::string internal::GemmFewRowsForm(Arch arch) {
  const GemmDescriptor& form = kGemmForms[arch];
  if (form.tile.columns == 1) return std::string(form.few_rows);
  return std::format("m{}_{}", kSmallRows, form.few_rows);
}

void internal::RunBatches(Arch arch, SegmentArgs args) {
  const Range rows = args.rows;
  if (args.count == 0) return;
  args.wide = static_cast<int8_t*>(args.scratch) + OwnScratch(arch, args.x.dtype, args.segments[0].y->w->k());
  int64_t of_batch = rows.end;
  for (int i = 0; i < args.count; ++i) {
    const HeadMajor& h = args.segments[i].y->heads;
    if (h.size != 0 && h.rows >= kRowsOfBatch) of_batch = std::min(of_batch, h.rows);
  }
  for (int64_t first = rows.begin; first < rows.end; first = args.rows.end) {
    args.rows = {first, std::min(rows.end, (first / of_batch + 1) * of_batch)};
    kGemmForms[arch].run(args);
  }
}

void Gemm(Arch arch, const GemmArgs& args, Range rows, Range blocks, void* scratch) {
  const internal::Segment segment{&args.y, blocks};
  internal::RunBatches(arch, {args.x, &segment, 1, rows, scratch, args.tuning});
}

}  // namespace octavo::kernels
