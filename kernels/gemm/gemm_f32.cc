#include "octavo/kernels/gemm/gemm_f32.h"

#include <algorithm>
#include <format>

#include "octavo/kernels/gemm/panels_f32.h"
#include "octavo/kernels/simd/aligned.h"

namespace octavo::kernels {
namespace {

// Copies of a thread's operands, which keep their room.
float* Room(AlignedArray<float>& array, int64_t count) {
  if (array.size() < static_cast<size_t>(count)) array = AlignedArray<float>(static_cast<size_t>(count));
  return array.data();
}

// Rows of a whose elements do not follow each other, one behind the other.
const float* RowsOf(const MatMulF32Args& args, const float* a) {
  static thread_local AlignedArray<float> room;
  float* const copy = Room(room, args.m * args.k);
  for (int64_t l = 0; l < args.k; ++l) {
    for (int64_t i = 0; i < args.m; ++i) copy[i * args.k + l] = a[i * args.a_row + l * args.a_column];
  }
  return copy;
}

void Multiply(const MatMulF32Args& args, int64_t batch) {
  static thread_local AlignedArray<float> room;
  const auto multiply = kPanelsF32Of[BestArch()];
  const float *a = args.a + batch * args.a_batch, *b = args.b + batch * args.b_batch;
  const bool lies = args.a_column == 1;
  PanelsF32Args product{.m = args.m,
                        .k = args.k,
                        .n = args.n,
                        .x = lies ? a : RowsOf(args, a),
                        .x_stride = lies ? args.a_row : args.k,
                        .y = args.c + batch * args.c_batch,
                        .y_stride = args.c_row};
  int64_t j = 0;
  if (args.b_column == 1 && (args.m <= kPanelUncopiedRows || args.n <= kPanelUncopiedColumns)) {
    product.n = j = args.n / kPanelColumns * kPanelColumns;
    product.rows = b, product.rows_stride = args.b_row;
    multiply(product);
    product.y += j;
  }
  // Some columns after the other, so that the copy stays in L2.
  const int64_t some = std::max<int64_t>(kPanelsCopy / std::max<int64_t>(args.k, 1) / kPanelColumns, 4) * kPanelColumns;
  for (; j < args.n; j += some, product.y += some) {
    product.n = std::min(some, args.n - j);
    float* const copy = Room(room, PanelsF32Size(args.k, product.n));
    product.panels = copy;
    PackPanelsF32(b + j * args.b_column, args.k, product.n, args.b_row, args.b_column, copy);
    multiply(product);
  }
}

}  // namespace

std::expected<PackedF32, std::string> PackWeightsF32(const float* w, int64_t k, int64_t n, bool transposed,
                                                     int64_t stride) {
  if (w == nullptr || k <= 0 || n <= 0)
    return std::unexpected(std::format("weights of shape [{}, {}] have no elements to pack", k, n));
  if (stride == 0) stride = transposed ? k : n;
  PackedF32 packed;
  packed.k_ = k, packed.n_ = n;
  packed.panels_ = WeightArray<float>(static_cast<size_t>(PanelsF32Size(k, n)));
  PackPanelsF32(w, k, n, transposed ? 1 : stride, transposed ? stride : 1, packed.panels_.data());
  return packed;
}

void GemmF32(const GemmF32Args& args, Range rows) {
  if (rows.begin >= rows.end) return;
  kPanelsF32Of[BestArch()]({.m = rows.end - rows.begin,
                            .k = args.w->k(),
                            .n = args.w->n(),
                            .x = args.x + rows.begin * args.x_stride,
                            .x_stride = args.x_stride,
                            .panels = args.w->panels(),
                            .bias = args.bias,
                            .y = args.y + rows.begin * args.y_stride,
                            .y_stride = args.y_stride});
}

void MatMulF32(const MatMulF32Args& args, Range batches) {
  if (args.m <= 0 || args.n <= 0) return;
  for (int64_t i = batches.begin; i < batches.end; ++i) Multiply(args, i);
}

}  // namespace octavo::kernels
