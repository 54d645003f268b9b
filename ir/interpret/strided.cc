#include "octavo/ir/interpret/strided.h"

#include <algorithm>
#include <cstring>

namespace octavo::ir::interpret {

Result<Shape> BroadcastShapes(std::span<const int64_t> a, std::span<const int64_t> b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape out(rank);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t x = i + a.size() < rank ? 1 : a[i + a.size() - rank];
    const int64_t y = i + b.size() < rank ? 1 : b[i + b.size() - rank];
    if (x != y && x != 1 && y != 1) return Fail("shapes {} and {} do not broadcast", ToString(a), ToString(b));
    out[i] = x == 1 ? y : x;
  }
  return out;
}

std::vector<int64_t> BroadcastStrides(std::span<const int64_t> from, std::span<const int64_t> to) {
  std::vector<int64_t> strides(to.size(), 0);
  int64_t step = 1;
  for (size_t i = from.size(); i-- > 0;) {
    const size_t d = i + to.size() - from.size();
    strides[d] = from[i] == 1 ? 0 : step;
    step *= from[i];
  }
  return strides;
}

namespace {

template <typename T>
void CopyRows(const std::byte* src_bytes, std::byte* dst_bytes, const Space<2>& s) {
  const auto* src = reinterpret_cast<const T*>(src_bytes);
  auto* dst = reinterpret_cast<T*>(dst_bytes);
  const int64_t n = s.dims.back();
  const auto [from, to] = s.strides.back();
  ForEachRow(s, [=](const std::array<int64_t, 2>& at) {
    const T* x = src + at[0];
    T* y = dst + at[1];
    if (from == 1 && to == 1) {
      std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
    } else if (from == 0 && to == 1) {
      std::fill_n(y, n, *x);
    } else {
      for (int64_t i = 0; i < n; ++i) y[i * to] = x[i * from];
    }
  });
}

}  // namespace

void CopyStrided(const std::byte* src, std::span<const int64_t> src_strides, std::byte* dst,
                 std::span<const int64_t> dst_strides, std::span<const int64_t> shape, size_t element) {
  const auto s = MakeSpace<2>(shape, {std::vector<int64_t>(src_strides.begin(), src_strides.end()),
                                      std::vector<int64_t>(dst_strides.begin(), dst_strides.end())});
  switch (element) {
    case 1:
      return CopyRows<uint8_t>(src, dst, s);
    case 2:
      return CopyRows<uint16_t>(src, dst, s);
    case 4:
      return CopyRows<uint32_t>(src, dst, s);
    default:
      return CopyRows<uint64_t>(src, dst, s);
  }
}

}  // namespace octavo::ir::interpret
