// Whether vdpbf16ps adds in the order that the fp8 sums count on.
#ifndef OCTAVO_KERNELS_ARCH_PAIRS_H_
#define OCTAVO_KERNELS_ARCH_PAIRS_H_

namespace octavo::kernels {

// By executing it: the product of the upper halves is added to the sum, then that of the lower ones, each time rounded to
// float32, half to even. The manual's pseudo-code says so, but a CPU that added both products at once, or rounded otherwise, would
// give fp8 sums other bits; it is then treated as one without AVX512_BF16. Needs AVX512_BF16.
bool PairsAreAddedInOrder();

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_ARCH_PAIRS_H_
