// Which weights get 8 bits where the others get 4, so that a weight has `bits` on the mean.
#ifndef OCTAVO_PASSES_QUANTIZE_MIXED_BITS_H_
#define OCTAVO_PASSES_QUANTIZE_MIXED_BITS_H_

#include <span>
#include <vector>

#include "octavo/passes/quantize/moments.h"

namespace octavo::passes::quantize {

// What 4 bits do to one weight.
struct FourBits {
  ValueId x;  // the activation that it multiplies
  int64_t weights = 0;
  double lost = 0;  // of the power of its products
};
// Indices of those that get 8: Linears of one activation together, so that they can stay one product; those first that lose most for each weight. Codes
// of all have `bits` on the mean at most.
std::vector<size_t> WorthEightBits(std::span<const FourBits> all, double bits);

// sum |x w|^2 over the rows x of the data and the columns w of W [k,n], by 16 of the columns; without data over rows that have nothing in common.
double PowerOfProducts(const ir::Tensor& w, const Compensation* fit);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_MIXED_BITS_H_
