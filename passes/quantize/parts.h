// How rounding.cc goes through a matrix, for forms of codes that choose their scales in another way (steps.cc).
#ifndef OCTAVO_PASSES_QUANTIZE_PARTS_H_
#define OCTAVO_PASSES_QUANTIZE_PARTS_H_

#include <functional>

#include "octavo/ir/tensor.h"
#include "octavo/passes/quantize/moments.h"

namespace octavo::passes::quantize {

// Columns that go together, so that a loop over them is vectors, and the most rows of a block.
inline constexpr int64_t kColumns = 16, kLongestBlock = 64;

// A block of a few columns, 0 where the matrix has ended: weights, with what they make up for.
struct Part {
  int64_t block, first, count;  // of the matrix: columns first to first + count - 1
  int64_t rows;
  float w[kLongestBlock][kColumns] = {};
  float weight[kLongestBlock];  // of the squared error of a row
  float scale[kColumns];
  int32_t zero[kColumns];
};

// Codes of these rows a block, lowest to highest.
struct PartFormat {
  ir::DType dtype;
  int64_t block;
  int32_t lowest, highest;
};
// Fills scale and zero of all columns of a part; several at a time run in several threads.
using ChooseScales = std::function<void(Part&)>;

struct RoundedParts {
  ir::Tensor codes;  // [k,n]
  double error = 0;  // as Blocked::error
};
// Blocks from the last to the first, in them rows from the last to the first; without `fit` each weight is on its own.
RoundedParts RoundInParts(const ir::Tensor& w, PartFormat format, const ChooseScales& choose, const Compensation* fit,
                          const ParallelFor& parallel);

// Tasks for `parallel` over n columns of 4 or 8 bits: cut by shape, not by threads, so that products of floats have the same bits for any number; and
// no two of them write to one byte.
int64_t ColumnsAtOnce(ir::DType dtype, int64_t n);

// The code at i of a tensor of zeros.
void Put(ir::Tensor& t, int64_t i, int32_t code);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_PARTS_H_
