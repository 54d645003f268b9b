// Rows of heads, blocks of rows, and the packing of the float form. Per target.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_BLOCKS_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_BLOCKS_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_BLOCKS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_pack-inl.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE int64_t OffsetOf(const SdpaStrides& strides, int64_t batch, int64_t head, int64_t row) {
  return batch * strides.batch + head * strides.head + row * strides.row;
}

template <class T>
HWY_INLINE HeadRows<T> RowsOf(const void* data, const SdpaStrides& strides, int64_t batch, int64_t head, int64_t rows,
                              int64_t width) {
  return {static_cast<const T*>(data) + OffsetOf(strides, batch, head, 0), strides.row, static_cast<size_t>(rows),
          static_cast<size_t>(width)};
}

inline void PackFloat(const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, void* packed) {
  const SdpaShape& s = args.shape;
  const internal::SdpaLayout l = internal::MakeSdpaLayout(s, FloatEngine::kPerWord);
  const auto k = RowsOf<float>(args.k, args.k_strides, batch, kv_head, s.k_len, s.head_size);
  const auto v = RowsOf<float>(args.v, args.v_strides, batch, kv_head, s.k_len, s.v_head_size);
  auto* out = static_cast<uint8_t*>(packed);
  PackRowsAsColumns(l.k16, l.d_steps, [&](size_t row, size_t step) HWY_ATTR { return LoadFloats(k, row, step); }, out);
  PackFloats(v, l.v16, out + l.v_at);
}

// Rows [begin, end) in blocks of 6, the rest as 4, 2, 1. f(kR as a constant, first row).
template <class F>
HWY_INLINE void ForBlocks(int64_t begin, int64_t end, F f) {
  int64_t row = begin;
  for (; row + 6 <= end; row += 6) f(std::integral_constant<size_t, 6>(), row);
  if (row + 4 <= end) {
    f(std::integral_constant<size_t, 4>(), row);
    row += 4;
  }
  if (row + 2 <= end) {
    f(std::integral_constant<size_t, 2>(), row);
    row += 2;
  }
  if (row < end) f(std::integral_constant<size_t, 1>(), row);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
