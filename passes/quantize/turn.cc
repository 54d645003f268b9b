#include "octavo/passes/quantize/turn.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace octavo::passes::quantize {

using ir::Tensor;

namespace {

void Scale(double* row, int64_t lanes, double by) {
  for (int64_t l = 0; l < lanes; ++l) row[l] *= by;
}

// I - 2 n n' / (n' n) on each lane.
void Reflect(double* rows, int64_t size, int64_t lanes, const std::vector<double>& normal) {
  double length = 0;
  for (const double n : normal) length += n * n;
  if (length < 1e-20) return;
  std::vector<double> along(static_cast<size_t>(lanes), 0.0);
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t l = 0; l < lanes; ++l)
      along[static_cast<size_t>(l)] += normal[static_cast<size_t>(i)] * rows[i * lanes + l];
  }
  for (int64_t i = 0; i < size; ++i) {
    const double by = 2 * normal[static_cast<size_t>(i)] / length;
    for (int64_t l = 0; l < lanes; ++l) rows[i * lanes + l] -= by * along[static_cast<size_t>(l)];
  }
}

void TurnBothEnds(double* rows, int64_t size, int64_t lanes) {
  const auto part = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size)));
  TurnPowerOf2(rows, part, lanes);
  if (part != size) TurnPowerOf2(rows + (size - part) * lanes, part, lanes);
}

}  // namespace

void TurnPowerOf2(double* rows, int64_t size, int64_t lanes) {
  for (int64_t i = 0; i < size; ++i) {
    const bool minus = std::popcount(static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15u) % 2 != 0;  // a fixed draw
    Scale(rows + i * lanes, lanes, (minus ? -1 : 1) / std::sqrt(static_cast<double>(size)));
  }
  for (int64_t half = 1; half < size; half *= 2) {
    for (int64_t i = 0; i < size; ++i) {
      if ((i & half) != 0) continue;
      double *a = rows + i * lanes, *b = rows + (i + half) * lanes;
      for (int64_t l = 0; l < lanes; ++l) {
        const double sum = a[l] + b[l];
        b[l] = a[l] - b[l], a[l] = sum;
      }
    }
  }
}

void TurnStream(double* rows, int64_t size, int64_t lanes) {
  std::vector<double> normal(static_cast<size_t>(size), 1.0);  // what equal numbers become, less those numbers
  TurnBothEnds(normal.data(), size, 1);
  for (double& n : normal) n -= 1;
  TurnBothEnds(rows, size, lanes);
  Reflect(rows, size, lanes, normal);
}

Tensor Turned(const Tensor& t, int64_t size, int64_t lanes, std::span<const float> by, TurnRows turn,
              const ParallelFor& parallel) {
  constexpr int64_t kLanes = 64;  // of one task: rows of 4096 doubles are 2 MB
  Tensor out = Tensor::Empty(ir::DType::kF32, t.shape());
  const auto from = t.as<float>();
  const auto to = out.mutable_as<float>();
  const int64_t groups = size * lanes == 0 ? 0 : t.size() / (size * lanes), parts = (lanes + kLanes - 1) / kLanes;
  parallel(groups * parts, [&](int64_t task) {
    const int64_t begin = task % parts * kLanes, count = std::min(kLanes, lanes - begin);
    const auto first = static_cast<size_t>(task / parts * size * lanes + begin);
    std::vector<double> rows(static_cast<size_t>(size * count));
    for (int64_t i = 0; i < size; ++i) {
      const double factor = by.empty() ? 1.0 : by[static_cast<size_t>(i)];
      for (int64_t l = 0; l < count; ++l)
        rows[static_cast<size_t>(i * count + l)] = factor * from[first + static_cast<size_t>(i * lanes + l)];
    }
    turn(rows.data(), size, count);
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t l = 0; l < count; ++l)
        to[first + static_cast<size_t>(i * lanes + l)] = static_cast<float>(rows[static_cast<size_t>(i * count + l)]);
    }
  });
  return out;
}

}  // namespace octavo::passes::quantize
