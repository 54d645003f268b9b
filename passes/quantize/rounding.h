// From a float matrix [k,n] to codes: each the nearest, or, with what data says of the products (moments.h), such that they make up for
// each other's errors.
#ifndef OCTAVO_PASSES_QUANTIZE_ROUNDING_H_
#define OCTAVO_PASSES_QUANTIZE_ROUNDING_H_

#include <span>

#include "octavo/ir/tensor.h"
#include "octavo/passes/quantize/moments.h"

namespace octavo::passes::quantize {

// Rows of a block share a scale a column. u4, s4 or s8; at most 64 rows.
struct BlockFormat {
  ir::DType dtype;
  int64_t block;
};
struct Blocked {
  ir::Tensor codes, scale, zero;  // [k,n], [ceil(k / block),n] twice
  double error = 0;  // of the products with the data's rows, squared (moments.h); without data of the weights
};
// 4 bits: of 8 ranges around that of the block the one whose codes c are nearest to w, that is with the largest (w c)^2 / (c c), and
// then the scale of least squares, (w c) / (c c). A tenth less squared error than the range itself. fit: null where there is no data.
Result<Blocked> RoundInBlocks(const ir::Tensor& w, BlockFormat format, const Compensation* fit,
                              const ParallelFor& parallel);

// Why a matrix of floats stays one; empty: it has blocks. weights.cc
std::string WhyInFloat(const ir::Tensor& w);

// Codes [k,n] with these scales of the columns: s8, -limit to limit, or fp8, which knows no limit.
struct ColumnFormat {
  ir::DType dtype;
  int limit;
};
Result<ir::Tensor> RoundColumns(const ir::Tensor& w, std::span<const float> scales, ColumnFormat format,
                                const Compensation& fit, const ParallelFor& parallel);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_ROUNDING_H_
