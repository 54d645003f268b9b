// Batches of rows that stand alone: each gives what it gives in any other batch.
#ifndef OCTAVO_QUANT_ROWS_H_
#define OCTAVO_QUANT_ROWS_H_

#include <cstdint>
#include <functional>
#include <span>

#include "octavo/ir/interpret.h"
#include "octavo/ir/status.h"

namespace octavo::quant {

// Runs the model on one batch and returns at least the values that are asked for by name.
using Runner = std::function<ir::Result<ir::TensorMap>(const ir::TensorMap& inputs)>;

// Whether all tensors have `rows` of them, which can be taken apart.
bool HaveRows(const ir::TensorMap& tensors, int64_t rows);

// Whether the first axis of all tensors is shared by `rows`, as that of [b * h, s, d] is.
bool ConsistOfRows(const ir::TensorMap& tensors, int64_t rows);

// Some rows of tensors that consist of `of` rows.
ir::TensorMap RowsOf(const ir::TensorMap& tensors, int64_t of, std::span<const int64_t> rows);
ir::TensorMap RowsOf(const ir::TensorMap& tensors, int64_t of, int64_t first, int64_t count);

// Whether each of the first two rows of a batch gives alone, bit by bit, what it gives beside the other: what looks like a batch may be one
// sequence. may_share: there may be values that no row has a part in.
bool RowsStandAlone(const ir::TensorMap& inputs, int64_t rows, const Runner& run, bool may_share);

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_ROWS_H_
