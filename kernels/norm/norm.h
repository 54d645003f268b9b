// LayerNorm and RMSNorm over rows, with what stands around them in a transformer done in the same pass: the residual
// sum before, the quantization after. Bit for bit x + skip, quant::LayerNormRow / RmsNormRow, quant::QuantizeOne or
// QuantizeFp8One on every Arch.
#ifndef OCTAVO_KERNELS_NORM_NORM_H_
#define OCTAVO_KERNELS_NORM_NORM_H_

#include <cstddef>
#include <cstdint>

#include "octavo/kernels/arch/arch.h"
#include "octavo/quant/numeric/dtype.h"

namespace octavo::kernels {

// Strides are in elements from row to row; 0 broadcasts a row. Null pointers: absent.
struct NormArgs {
  int64_t n = 0;  // elements of a row
  const float* x = nullptr;
  int64_t x_stride = 0;
  const float* skip = nullptr;
  int64_t skip_stride = 0;
  const float* gamma = nullptr;    // [n]
  const float* beta = nullptr;     // [n], LayerNorm only
  const float* q_gamma = nullptr;  // [n], gamma and beta of q where they are not those of y
  const float* q_beta = nullptr;   // [n], LayerNorm only; read only with q_gamma
  float epsilon = 1e-5f;
  bool rms = false;  // RMSNorm: no mean, no beta

  // Results, each optional. y and sum may be x (same stride), but not each other.
  float* sum = nullptr;  // x + skip
  int64_t sum_stride = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  void* q = nullptr;  // the codes of y
  int64_t q_stride = 0;
  // Channels whose codes stand behind those of the row once more: q has n + q_more columns, q_stride is at least that.
  const int64_t* q_again = nullptr;
  int64_t q_more = 0;
  quant::DType q_type = quant::DType::kU8;  // kU8, kS8, kE4M3FN or kE5M2; fp8 has no zero point
  float q_scale = 1.0f;
  int32_t q_zero_point = 0;
};

// Floats of scratch that one call needs.
inline size_t NormScratchFloats(const NormArgs& args) { return 3 * static_cast<size_t>(args.n); }

// Rows [begin, end).
void NormRows(Arch arch, const NormArgs& args, int64_t begin, int64_t end, float* scratch);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_NORM_NORM_H_
