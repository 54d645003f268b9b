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

// y[r * y_step + c] = x[r + c * x_step] for rows and columns 0..3.
void Turn4x4(const uint32_t* x, int64_t x_step, uint32_t* y, int64_t y_step) {
  using Four [[gnu::vector_size(16)]] = uint32_t;
  Four a, b, c, d;
  std::memcpy(&a, x, sizeof a), std::memcpy(&b, x + x_step, sizeof b);
  std::memcpy(&c, x + 2 * x_step, sizeof c), std::memcpy(&d, x + 3 * x_step, sizeof d);
  const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  a = __builtin_shufflevector(ab, cd, 0, 1, 4, 5), b = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  c = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5), d = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
  std::memcpy(y, &a, sizeof a), std::memcpy(y + y_step, &b, sizeof b);
  std::memcpy(y + 2 * y_step, &c, sizeof c), std::memcpy(y + 3 * y_step, &d, sizeof d);
}

// A matrix turned, a cache line of each of its columns at a time: element by element, each would read a line for itself.
void TurnPlane(const uint32_t* x, int64_t x_step, uint32_t* y, int64_t y_step, int64_t rows, int64_t cols) {
  constexpr int64_t kLine = 16;
  const int64_t fours = cols / 4 * 4;
  for (int64_t top = 0; top < rows; top += kLine) {
    const int64_t end = std::min(rows, top + kLine), whole = top + (end - top) / 4 * 4;
    for (int64_t c = 0; c < fours; c += 4) {
      for (int64_t r = top; r < whole; r += 4) Turn4x4(x + r + c * x_step, x_step, y + r * y_step + c, y_step);
    }
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t r = c < fours ? whole : top; r < end; ++r) y[r * y_step + c] = x[r + c * x_step];
    }
  }
}

// False: no dim but the innermost reads what lies together, in at least four elements.
bool CopyTurned(const std::byte* src, std::byte* dst, Space<2> s) {
  const int64_t cols = s.dims.back();
  const auto [x_step, one] = s.strides.back();
  const auto row = std::ranges::find_if(s.strides, [](const auto& step) { return step[0] == 1; });
  if (one != 1 || row >= s.strides.end() - 1) return false;
  const auto d = row - s.strides.begin();
  const int64_t rows = s.dims[static_cast<size_t>(d)], y_step = (*row)[1];
  if (rows < 4) return false;
  s.dims.erase(s.dims.begin() + d), s.strides.erase(row);
  s.dims.back() = std::min<int64_t>(cols, 1);
  ForEachRow(s, [=, x_step = x_step](const std::array<int64_t, 2>& at) {
    TurnPlane(reinterpret_cast<const uint32_t*>(src) + at[0], x_step, reinterpret_cast<uint32_t*>(dst) + at[1], y_step,
              rows, cols);
  });
  return true;
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
      if (!CopyTurned(src, dst, s)) CopyRows<uint32_t>(src, dst, s);
      return;
    default:
      return CopyRows<uint64_t>(src, dst, s);
  }
}

}  // namespace octavo::ir::interpret
