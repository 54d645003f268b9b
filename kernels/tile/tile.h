// The sizes that a form of a product works in. They stand in its descriptor (kernels/forms.h), from which names, shares of threads and
// tests take them.
#ifndef OCTAVO_KERNELS_TILE_TILE_H_
#define OCTAVO_KERNELS_TILE_TILE_H_

#include <cstdint>

namespace octavo::kernels {

// `rows` x `columns` sums stay in registers while `depth` of k pass (0: all of it); elsewhere these are called MR, NR and KC. Threads
// split rows in whole tiles, since each would fill up its last one, and only where each then has `share`: fewer do not pay for packing or
// decoding the other operand once more.
struct Tile {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t depth = 0;
  int64_t share = 1;
};

// Rows of the next tile where `left` rows are left, at most `most`: never leaves one or two, whose few chains cannot hide the latency of
// a product, if it can be helped.
constexpr int64_t RowsOfTile(int64_t left, int64_t most) {
  return left > most + most / 2 ? most : left > most ? (left + 1) / 2 : left;
}

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_TILE_TILE_H_
