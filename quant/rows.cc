#include "octavo/quant/rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

namespace octavo::quant {

namespace {

bool CanBeCut(const ir::Tensor& t) { return t.rank() > 0 && BitsOf(t.dtype()) >= 8 && t.dtype() != DType::kString; }

// One of `both` rows, or what no row has a part in.
bool IsRowOf(const ir::Tensor& both, const ir::Tensor& one, int64_t row, bool may_share) {
  const size_t bytes = one.byte_size();
  const bool shared = both.byte_size() == bytes && may_share;
  if (!shared && (!CanBeCut(both) || !CanBeCut(one) || both.shape()[0] != 2 * one.shape()[0])) return false;
  if (!shared && both.byte_size() != 2 * bytes) return false;
  const size_t at = shared ? 0 : static_cast<size_t>(row) * bytes;
  return bytes == 0 || std::memcmp(both.data() + at, one.data(), bytes) == 0;
}

}  // namespace

bool HaveRows(const ir::TensorMap& tensors, int64_t rows) {
  return std::ranges::all_of(tensors,
                             [rows](const auto& t) { return CanBeCut(t.second) && t.second.shape()[0] == rows; });
}

bool ConsistOfRows(const ir::TensorMap& tensors, int64_t rows) {
  return rows > 0 && std::ranges::all_of(tensors, [rows](const auto& t) {
           return CanBeCut(t.second) && t.second.shape()[0] % rows == 0;
         });
}

ir::TensorMap RowsOf(const ir::TensorMap& tensors, int64_t of, std::span<const int64_t> rows) {
  OCTAVO_CHECK(ConsistOfRows(tensors, of), "tensors are no {} rows", of);
  ir::TensorMap some;
  for (const auto& [name, t] : tensors) {
    ir::Shape shape = t.shape();
    shape[0] = shape[0] / of * std::ssize(rows);
    const size_t row = t.byte_size() / static_cast<size_t>(of);
    ir::Tensor part = ir::Tensor::Empty(t.dtype(), std::move(shape));
    for (size_t i = 0; row > 0 && i < rows.size(); ++i)
      std::memcpy(part.mutable_data() + i * row, t.data() + static_cast<size_t>(rows[i]) * row, row);
    some[name] = std::move(part);
  }
  return some;
}

ir::TensorMap RowsOf(const ir::TensorMap& tensors, int64_t of, int64_t first, int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  return RowsOf(tensors, of, rows);
}

bool RowsStandAlone(const ir::TensorMap& inputs, int64_t rows, const Runner& run, bool may_share) {
  const auto both = run(RowsOf(inputs, rows, 0, 2));
  for (int64_t row = 0; both && row < 2; ++row) {
    const auto alone = run(RowsOf(inputs, rows, row, 1));
    const bool is_same = alone && std::ranges::all_of(*both, [&](const auto& value) {
                           const auto one = alone->find(value.first);
                           return one != alone->end() && IsRowOf(value.second, one->second, row, may_share);
                         });
    if (!is_same) return false;
  }
  return both.has_value();
}

}  // namespace octavo::quant
