// TensorScatter (ONNX opset 24): new rows written into a cache of fixed length, each batch at a position of its own. Shared by
// the interpreter, which copies the cache first, and the runtime, which writes where the cache lies if it may.
#ifndef OCTAVO_IR_INTERPRET_CACHE_WRITE_H_
#define OCTAVO_IR_INTERPRET_CACHE_WRITE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/tensor.h"

namespace octavo::ir::interpret {

// The cache seen as [outer][rows] rows of row_bytes; outer is a multiple of the batch.
struct CacheWrite {
  int64_t outer = 0, rows = 0, new_rows = 0;
  size_t row_bytes = 0;
  std::vector<int64_t> start;  // one a batch; new row i goes to (start + i) modulo rows
};

// `at`: [batch] positions, null: 0. Fails on shapes, dtypes and positions that do not fit, before anything is written.
// The update is known by its type alone, whose shape is numbers.
Result<CacheWrite> PlanCacheWrite(const Node& node, const Tensor& cache, const Type& update, const Tensor* at);
inline Type TypeOf(const Tensor& t) { return {t.dtype(), SymShape(t.shape().begin(), t.shape().end())}; }
void WriteCache(const CacheWrite& write, const Tensor& update, Tensor& cache);

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_CACHE_WRITE_H_
