// Loops over n-dimensional index spaces with precomputed strides: broadcasting and strided copies.
#ifndef OCTAVO_IR_INTERPRET_STRIDED_H_
#define OCTAVO_IR_INTERPRET_STRIDED_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "octavo/ir/status.h"
#include "octavo/ir/tensor.h"

namespace octavo::ir::interpret {

// An index space shared by N operands, neighbouring dims merged where every operand allows it. The last dim is the
// inner loop.
template <size_t N>
struct Space {
  std::vector<int64_t> dims;                    // at least one
  std::vector<std::array<int64_t, N>> strides;  // per dim, in elements
};

// Merges what can be merged and drops dims of size 1. `strides` is given per operand.
template <size_t N>
Space<N> MakeSpace(std::span<const int64_t> shape, const std::array<std::vector<int64_t>, N>& strides) {
  Space<N> s;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    std::array<int64_t, N> step;
    for (size_t i = 0; i < N; ++i) step[i] = strides[i][d];
    if (!s.dims.empty()) {
      bool mergeable = true;
      for (size_t i = 0; i < N; ++i) mergeable &= s.strides.back()[i] == step[i] * shape[d];
      if (mergeable) {
        s.dims.back() *= shape[d];
        s.strides.back() = step;
        continue;
      }
    }
    s.dims.push_back(shape[d]);
    s.strides.push_back(step);
  }
  if (s.dims.empty()) {
    s.dims.push_back(1);
    s.strides.push_back({});
  }
  return s;
}

// f(offsets) at the start of every inner row, in row-major order. Nothing if a dim is 0.
template <size_t N, typename F>
void ForEachRow(const Space<N>& s, F&& f) {
  for (int64_t d : s.dims) {
    if (d == 0) return;
  }
  const size_t outer = s.dims.size() - 1;
  std::vector<int64_t> index(outer, 0);
  std::array<int64_t, N> at{};
  while (true) {
    f(at);
    size_t d = outer;
    while (d > 0) {
      --d;
      for (size_t i = 0; i < N; ++i) at[i] += s.strides[d][i];
      if (++index[d] < s.dims[d]) break;
      for (size_t i = 0; i < N; ++i) at[i] -= s.strides[d][i] * s.dims[d];
      index[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}

// NumPy's rule. Fails with both shapes when they do not fit.
Result<Shape> BroadcastShapes(std::span<const int64_t> a, std::span<const int64_t> b);
// Strides of an operand of shape `from` over the broadcast shape `to` (0 where it repeats).
std::vector<int64_t> BroadcastStrides(std::span<const int64_t> from, std::span<const int64_t> to);

// dst[sum i*dst_strides] = src[sum i*src_strides] for all i in shape; strides in elements of `element` bytes (1, 2, 4,
// 8).
void CopyStrided(const std::byte* src, std::span<const int64_t> src_strides, std::byte* dst,
                 std::span<const int64_t> dst_strides, std::span<const int64_t> shape, size_t element);

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_STRIDED_H_
