#include "octavo/runtime/rotation.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace octavo::runtime {

void Rotate(const Rotation& r, const float* x, const float* cos, const float* sin, int64_t size, float* y) {
  const int64_t half = r.columns / 2;
  if (r.interleaved) {
    const int64_t step = r.by_pair ? 1 : 2, other = r.by_pair ? 0 : 1;
    for (int64_t i = 0; i < half; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      y[2 * i] = a * cos[step * i] + -b * sin[step * i];
      y[2 * i + 1] = b * cos[step * i + other] + a * sin[step * i + other];
    }
  } else {
    const int64_t other = r.by_pair ? 0 : half;
    for (int64_t i = 0; i < half; ++i) {
      const float a = x[i], b = x[i + half];
      y[i] = a * cos[i] + -b * sin[i];
      y[i + half] = b * cos[i + other] + a * sin[i + other];
    }
  }
  std::copy(x + r.columns, x + size, y + r.columns);
}

std::array<int64_t, 3> TableStrides(const Tensor& table) {
  std::array<int64_t, 3> strides{};
  int64_t step = table.shape().back();
  for (int64_t d = table.rank() - 2; d >= 0; --d) {
    const int64_t size = table.shape()[static_cast<size_t>(d)];
    strides[static_cast<size_t>(d + 4 - table.rank())] = size == 1 ? 0 : step;
    step *= size;
  }
  return strides;
}

Angles AnglesOfTables(const Tensor& cos, const Tensor& sin, int64_t batch, int64_t rows) {
  const auto places = [&](const Tensor& table) {
    const std::array<int64_t, 3> strides = TableStrides(table);
    const int64_t of_row = strides[1] + strides[2];  // one of them is of the heads, 0
    std::vector<int64_t> at;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t row = 0; row < rows; ++row) at.push_back(b * strides[0] + row * of_row);
    }
    return at;
  };
  return {cos.as<float>().data(), sin.as<float>().data(), rows, places(cos), places(sin)};
}

Result<Angles> AnglesOfOp(const Tensor& cos, const Tensor& sin, const Tensor* positions, int64_t batch, int64_t rows,
                          int64_t half) {
  if (cos.shape() != sin.shape()) return ir::Fail("the caches of cos and sin must have equal shapes");
  const int64_t rank = positions != nullptr ? 2 : 3;
  if (cos.rank() != rank || cos.shape().back() != half)
    return ir::Fail("the caches must have rank {} and {} columns", rank, half);
  Angles angles{cos.as<float>().data(), sin.as<float>().data(), rows, {}, {}};
  const int64_t of_tables = cos.shape()[0];
  if (positions == nullptr) {
    if ((of_tables != batch && of_tables != 1) || cos.shape()[1] != rows)
      return ir::Fail("the caches must be [{} or 1,{},{}]", batch, rows, half);
    for (int64_t i = 0; i < batch * rows; ++i) angles.cos_at.push_back(i % (of_tables * rows) * half);
    return angles;
  }
  const Shape& s = positions->shape();
  if (s.size() != 2 || (s[0] != batch && s[0] != 1) || s[1] != rows)
    return ir::Fail("the positions must be [{},{}]", batch, rows);
  const auto at = positions->as<int64_t>();
  for (size_t i = 0; i < static_cast<size_t>(batch * rows); ++i) {
    const int64_t row = at[i % at.size()];
    if (row < 0 || row >= of_tables) return ir::Fail("position {} is outside of caches of {} rows", row, of_tables);
    angles.cos_at.push_back(row * half);
  }
  return angles;
}

std::optional<RotaryOp> RotaryOpOf(const Node& node, const CompileContext& c) {
  const auto& shape = c.graph.value(node.input(0)).type.shape;
  for (size_t i = 0; i < 3; ++i) {
    if (!node.input(i).valid() || !c.Is(node.input(i), DType::kF32)) return {};
  }
  if (!c.Is(node.input(3), DType::kS64)) return {};
  if (!shape || (shape->size() != 3 && shape->size() != 4) || !shape->back().is_number()) return {};
  const int64_t columns = shape->back().number();
  const int64_t heads = shape->size() == 3 ? node.attrs.Int("num_heads", 0) : 0;
  if (shape->size() == 3 && (heads < 1 || columns % heads != 0)) return {};
  const int64_t size = heads > 0 ? columns / heads : columns, wanted = node.attrs.Int("rotary_embedding_dim", 0);
  const int64_t rotated = wanted == 0 ? size : wanted;
  if (size < 1 || rotated < 1 || rotated > size || rotated % 2 != 0) return {};
  return RotaryOp{{rotated, node.attrs.Int("interleaved", 0) != 0, true}, heads, size};
}

}  // namespace octavo::runtime
