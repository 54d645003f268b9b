// Where things lie in the packed K and V of one head and in the scratch of one thread.
//
// A kernel step takes one 32-bit word of a row operand (4 bytes, 2 s16 or 1 float) and 64 bytes of a panel: that word's
// counterpart in 16 columns. K: [k16/16][d_steps][16] words. V: [v16/16][k_steps][16] words.
#ifndef OCTAVO_KERNELS_SDPA_SDPA_LAYOUT_H_
#define OCTAVO_KERNELS_SDPA_SDPA_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "octavo/kernels/sdpa/sdpa.h"

namespace octavo::kernels::internal {

inline constexpr size_t kSdpaRows = 6;  // query rows at a time: 6 x 4 accumulators, and best for the softmax
// Of both products; fewer rows than the share do not pay for waking a thread.
inline constexpr Tile kSdpaYmmTile = {.rows = kSdpaRows, .columns = 16, .share = 12};
inline constexpr Tile kSdpaZmmTile = {.rows = kSdpaRows, .columns = 64, .share = 12};
inline constexpr Tile kSdpaAmxTile = {.rows = 16, .columns = 64, .share = 16};

constexpr size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

struct SdpaLayout {
  size_t k16, v16;          // keys and V columns, padded to 16
  size_t d_steps, k_steps;  // words of a row of Q, of a row of probabilities
  // Packed, in bytes: K, V, then what the zero points add to each column (int32).
  size_t v_at, k_columns_at, v_columns_at, packed_bytes;
  // Scratch, in bytes. Rows are padded by a line, since rows 4096 bytes apart fight for the same set of L1.
  size_t q_stride, score_stride, p_stride, out_stride;
  size_t q_at, scores_at, p_at, out_at, scratch_bytes;
};

// per_word: values in a word, 4 (VNNI), 2 (s16) or 1 (float). rows: query rows at a time. steps_to: steps are padded to
// a multiple of it, with zeros in the panels (AMX: 16, a tile). per_prob_word: of V and the probabilities, if it differs.
inline SdpaLayout MakeSdpaLayout(const SdpaShape& shape, size_t per_word, size_t rows = kSdpaRows, size_t steps_to = 1,
                                 size_t per_prob_word = 0) {
  SdpaLayout l{};
  const auto keys = static_cast<size_t>(shape.k_len);
  l.k16 = RoundUp(keys, 16);
  l.v16 = RoundUp(static_cast<size_t>(shape.v_head_size), 16);
  l.d_steps = RoundUp((static_cast<size_t>(shape.head_size) + per_word - 1) / per_word, steps_to);
  // fma(0, 0, -0) is +0: the float form must not see padding.
  l.k_steps = per_word == 1 ? keys : RoundUp(l.k16 / (per_prob_word == 0 ? per_word : per_prob_word), steps_to);
  l.v_at = l.k16 * l.d_steps * 4;
  l.k_columns_at = l.v_at + l.v16 * l.k_steps * 4;
  l.v_columns_at = l.k_columns_at + l.k16 * 4;
  l.packed_bytes = l.v_columns_at + l.v16 * 4;
  l.q_stride = RoundUp(l.d_steps * 4, 64);
  l.score_stride = l.k16 * 4 + 64;
  l.p_stride = RoundUp(l.k_steps * 4, 64) + 64;
  l.out_stride = l.v16 * 4;
  l.scores_at = l.q_at + rows * l.q_stride;
  l.p_at = l.scores_at + rows * l.score_stride;
  l.out_at = l.p_at + (per_word == 1 ? 0 : rows * l.p_stride);
  l.scratch_bytes = l.out_at + rows * l.out_stride;
  return l;
}

// Whether the codes of any two probabilities of a row sum to at most 256, so that vpmaddubsw of them and s8 values cannot
// saturate: 256 * 128 fits, as -32768. Two probabilities sum to at most 1 + 2.5e-4 (sixteen float sums of up to 65536
// keys), two roundings add at most 1, so 1.00025 / scale + 1 must be below 257: 1/255 fits, 1/256 does not. Relative codes are at
// most 1 / scale each, so those of 1/128 fit. All of a row's may be 128, and each of the two 16-bit sums (PairSums16) holds 511 such
// codes. The first sum takes two codes of every word, so of 1021 keys it takes 511, of 1022 keys one too many.
inline constexpr int64_t kMostPairKeys = 65536, kMostRelativePairKeys = 1021;
inline bool ProbPairsFit(const SdpaInt8Args& args) {
  if (args.p_relative && (args.p_scale < 1 / 128.4f || args.shape.k_len > kMostRelativePairKeys)) return false;
  return args.p_zero_point == (args.p_type == quant::DType::kU8 ? 0 : -128) && args.p_scale >= 1 / 255.5f &&
         args.p_scale <= 0x1p22f && args.shape.k_len <= kMostPairKeys && !args.prob_codes.exist();
}

// Query rows at a time on AMX. The unit sleeps after 2000 cycles without a product and takes 800 to wake (kernels/DESIGN.md): 128 rows,
// as long as their scores leave room in L2. Where those of 16 rows just fit into L1, that is worth more (384 keys: 1.30 cycles a score
// instead of 1.34; 256 keys 1.44 and 1.41). With a window, few rows see nearly the same keys.
inline constexpr size_t kMostAmxRows = 128;
inline constexpr int64_t kManyAmxKeys = 256, kFewAmxRowsKeys = 448;  // between them 16 rows
constexpr size_t AmxRowsAtOnce(int64_t keys, bool has_window) {
  if (keys > kManyAmxKeys && keys <= kFewAmxRowsKeys) return 16;
  const size_t rows = size_t{512} * 1024 / (sizeof(float) * RoundUp(static_cast<size_t>(keys), 16)) / 32 * 32;
  const size_t most = has_window ? 32 : kMostAmxRows;
  return rows < 16 ? 16 : rows > most ? most : rows;
}
// Codes lie over the scores of the rows before them, which are codes already, so that L1 holds more scores: a row of codes is at most as
// long as one of scores, and those of up to kSdpaRows rows are made at once.
inline SdpaLayout MakeAmxLayout(const SdpaShape& shape) {
  const size_t rows = AmxRowsAtOnce(shape.k_len, false);
  SdpaLayout l = MakeSdpaLayout(shape, 4, rows, 16);
  l.p_at = l.scores_at;
  l.scores_at += kSdpaRows * l.p_stride;
  l.out_at = l.scores_at + rows * l.score_stride;
  l.scratch_bytes = l.out_at + rows * l.out_stride;
  return l;
}

inline constexpr int64_t kTwoGroupKeys = 512;  // two groups of 6 rows of scores stay in L1
inline constexpr size_t kPairUnit = 16;        // steps of four keys; a piece of a row in s16 is as many units as fit
inline constexpr size_t kDecodeKeys = 64;      // a span (sdpa_window.h); 4 KB of K at head size 64
inline constexpr size_t kDecodeColumns = 32;   // rows that are not packed are read by as many bytes

// Scratch of few rows, in bytes: rows of all keys, the panels and terms of one tile of keys (or a copy of its rows), sums of a
// tile.
struct SdpaDecodeLayout {
  SdpaLayout rows, tile;
  size_t tile_at, part_at, bytes;
};
inline SdpaDecodeLayout MakeSdpaDecodeLayout(SdpaShape shape, size_t per_word) {
  constexpr auto kRows = static_cast<size_t>(kSdpaDecodeRows);
  const auto wide = [](int64_t n) { return static_cast<int64_t>(RoundUp(static_cast<size_t>(n), kDecodeColumns)); };
  if (per_word == 2) shape.head_size = wide(shape.head_size);
  shape.v_head_size = wide(shape.v_head_size);
  SdpaShape tile = shape;
  tile.k_len = static_cast<int64_t>(kDecodeKeys);
  SdpaDecodeLayout l{MakeSdpaLayout(shape, per_word, kRows), MakeSdpaLayout(tile, per_word, kRows), 0, 0, 0};
  l.tile_at = RoundUp(l.rows.scratch_bytes, 64);
  l.part_at = l.tile_at + RoundUp(l.tile.packed_bytes, 64);
  l.bytes = l.part_at + kRows * l.rows.out_stride;
  return l;
}

// What threads share that split the keys of a row, in bytes: a head for each part, scores, probabilities, sums of each part.
struct SdpaSplitLayout {
  size_t head_stride, scores_at, p_at, sums_at, sums_stride, bytes;
};
inline SdpaSplitLayout MakeSdpaSplitLayout(const SdpaLayout& l, size_t rows, int64_t parts, bool codes) {
  const auto n = static_cast<size_t>(parts);
  SdpaSplitLayout s{};
  s.head_stride = RoundUp(64 + 2 * rows * sizeof(float), 64);
  s.scores_at = n * s.head_stride;
  s.p_at = s.scores_at + RoundUp(rows * l.score_stride, 64);
  s.sums_at = s.p_at + (codes ? RoundUp(rows * l.p_stride, 64) : 0);
  s.sums_stride = codes ? RoundUp(rows * l.out_stride, 64) : 0;
  s.bytes = s.sums_at + n * s.sums_stride;
  return s;
}

inline constexpr int64_t kFlashRows = 384;  // rows that share a packed tile: packing is then 0.02 cycles a score

// Scratch of int8 flash: a packed tile of keys, a block of rows, and what is kept for each of up to kFlashRows rows.
struct SdpaFlashLayout {
  size_t work_at, q_at, o_at, terms_at, max_at, sum_at, bytes;
};
inline SdpaFlashLayout MakeSdpaFlashLayout(SdpaShape shape, size_t per_word, int64_t rows) {
  shape.k_len = kSdpaFlashKeys;
  const SdpaLayout tile = MakeSdpaLayout(shape, per_word);
  const auto n = static_cast<size_t>(rows < kFlashRows ? rows : kFlashRows);
  SdpaFlashLayout l{};
  l.work_at = RoundUp(tile.packed_bytes, 64);
  l.q_at = l.work_at + RoundUp(tile.scratch_bytes, 64);
  l.o_at = l.q_at + n * tile.q_stride;
  l.terms_at = l.o_at + n * tile.out_stride;
  l.max_at = l.terms_at + n * 4;
  l.sum_at = l.max_at + n * 4;
  l.bytes = l.sum_at + n * 4;
  return l;
}

}  // namespace octavo::kernels::internal

#endif  // OCTAVO_KERNELS_SDPA_SDPA_LAYOUT_H_
