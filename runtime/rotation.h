// Rotary embeddings of lines: what RotaryEmbedding does, and what exporters write for it, with their bits.
#ifndef OCTAVO_RUNTIME_ROTATION_H_
#define OCTAVO_RUNTIME_ROTATION_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "octavo/runtime/step.h"

namespace octavo::runtime {

struct Rotation {
  int64_t columns = 0;       // that are turned in pairs, from the first on; 0: none. Those behind them stay
  bool interleaved = false;  // a pair lies side by side, not half of the columns apart
  bool by_pair = false;      // tables have an angle for each pair, not for each column

  int64_t table() const { return by_pair ? columns / 2 : columns; }  // columns of the tables
};

// One line of `size` columns.
void Rotate(const Rotation& r, const float* x, const float* cos, const float* sin, int64_t size, float* y);

// Where the angles of row `row` of batch entry `batch` lie.
struct Angles {
  const float *cos = nullptr, *sin = nullptr;
  int64_t rows = 0;                          // of one batch entry
  std::vector<int64_t> cos_at, sin_at = {};  // by batch entry and row; no sin_at: as cos_at

  const float* Cos(int64_t batch, int64_t row) const { return cos + cos_at[Index(batch, row)]; }
  const float* Sin(int64_t batch, int64_t row) const {
    return sin + (sin_at.empty() ? cos_at : sin_at)[Index(batch, row)];
  }

 private:
  size_t Index(int64_t batch, int64_t row) const { return static_cast<size_t>(batch * rows + row); }
};

// Of tables that broadcast to [batch, 1, rows, columns] or [batch, rows, 1, columns].
Angles AnglesOfTables(const Tensor& cos, const Tensor& sin, int64_t batch, int64_t rows);
// Of RotaryEmbedding: tables [most, half] and positions, or [batch or 1, rows, half]. Fails with the op's sentences.
Result<Angles> AnglesOfOp(const Tensor& cos, const Tensor& sin, const Tensor* positions, int64_t batch, int64_t rows,
                          int64_t half);

// In elements, of a table of up to four dims by the first three of four.
std::array<int64_t, 3> TableStrides(const Tensor& table);

// The rotation of a RotaryEmbedding over floats, and its heads where x is [B,S,heads * size], else 0. None: no kernel serves it.
struct RotaryOp {
  Rotation rotation;
  int64_t heads = 0, size = 0;
};
std::optional<RotaryOp> RotaryOpOf(const Node& node, const CompileContext& c);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_ROTATION_H_
