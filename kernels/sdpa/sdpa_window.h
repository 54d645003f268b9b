// Which keys a row sees through its window, and which of them a block of rows has to look at.
#ifndef OCTAVO_KERNELS_SDPA_SDPA_WINDOW_H_
#define OCTAVO_KERNELS_SDPA_SDPA_WINDOW_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "octavo/kernels/sdpa/sdpa.h"

namespace octavo::kernels::internal {

inline constexpr int64_t kSpanKeys = 64;  // spans begin and end at multiples: a tile of V, four panels of K

struct KeyRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

inline bool HasWindow(const SdpaWindow& w) { return w.left >= 0 || w.right >= 0; }
// Some keys may be hidden, so their products may be left out.
inline bool Hides(const SdpaVisibility& v) { return HasWindow(v.window) || v.keep.data != nullptr; }

inline int64_t WindowOffset(const SdpaWindow& w, const SdpaShape& s) {
  return w.offset + (w.bottom_right ? s.k_len - s.q_len : 0);
}

// May be empty; never leaves [0, k_len].
inline KeyRange VisibleKeys(const SdpaWindow& w, const SdpaShape& s, int64_t row) {
  const int64_t at = row + WindowOffset(w, s);
  // Widths beyond every key are no bound; compared by subtraction, since at + right could overflow.
  const int64_t begin = w.left < 0 || at <= w.left ? 0 : std::min(at - w.left, s.k_len);
  const int64_t end = w.right < 0 || w.right >= s.k_len - at ? s.k_len : std::max(at + w.right + 1, int64_t{0});
  return {std::min(begin, end), end};
}

// Ranges move to the right with the row: the first row begins it and the last one ends it.
inline KeyRange UnionKeys(const SdpaWindow& w, const SdpaShape& s, int64_t row, int64_t rows) {
  return {VisibleKeys(w, s, row).begin, VisibleKeys(w, s, row + rows - 1).end};
}
inline KeyRange CommonKeys(const SdpaWindow& w, const SdpaShape& s, int64_t row, int64_t rows) {
  return {VisibleKeys(w, s, row + rows - 1).begin, VisibleKeys(w, s, row).end};
}

// The keys that a block of rows multiplies, in whole spans; all of them where the block sees none.
inline KeyRange SpanOf(const SdpaWindow& w, const SdpaShape& s, int64_t row, int64_t rows) {
  const KeyRange all = {0, (s.k_len + kSpanKeys - 1) / kSpanKeys * kSpanKeys};
  if (!HasWindow(w)) return all;
  const KeyRange keys = UnionKeys(w, s, row, rows);
  if (keys.size() <= 0) return all;
  return {keys.begin / kSpanKeys * kSpanKeys, (keys.end + kSpanKeys - 1) / kSpanKeys * kSpanKeys};
}

// The keys that some row of some head of a group sees, in whole spans; the bool mask counts too. All that the window leaves
// where no row sees any.
template <typename Args>
KeyRange SpanOfGroup(const Args& args, int64_t batch, int64_t kv_head) {
  const SdpaShape& s = args.shape;
  const KeyRange in_window = SpanOf(args.visibility.window, s, 0, s.q_len);
  const SdpaBoolMask& keep = args.visibility.keep;
  if (keep.data == nullptr || keep.col == 0) return in_window;
  const int64_t group = s.heads / s.kv_heads, heads = keep.head == 0 ? 1 : group, rows = keep.row == 0 ? 1 : s.q_len;
  int64_t first = s.k_len, end = 0;
  for (int64_t i = 0; i < heads * rows; ++i) {
    const uint8_t* seen =
        keep.data + batch * keep.batch + (kv_head * group + i / rows) * keep.head + i % rows * keep.row;
    int64_t begin = 0, last = s.k_len;
    while (begin < first && seen[begin] == 0) ++begin;
    while (last > end && seen[last - 1] == 0) --last;
    first = begin, end = last;
  }
  const KeyRange kept = {std::max(in_window.begin, first / kSpanKeys * kSpanKeys),
                         std::min(in_window.end, (end + kSpanKeys - 1) / kSpanKeys * kSpanKeys)};
  return kept.size() <= 0 ? in_window : kept;
}

inline const float* Forward(const float* p, int64_t elements) { return p + elements; }
inline const void* Forward(const void* p, int64_t elements) { return static_cast<const uint8_t*>(p) + elements; }

// The attention to `keys` keys from `first` on, of args whose window has its offset in numbers.
template <typename Args>
Args TileOf(const Args& args, int64_t first, int64_t keys) {
  Args tile = args;
  tile.shape.k_len = keys;
  tile.k = Forward(args.k, first * args.k_strides.row);
  tile.v = Forward(args.v, first * args.v_strides.row);
  if (tile.mask.data != nullptr) tile.mask.data += first * args.mask.col;
  SdpaVisibility& see = tile.visibility;
  if (see.keep.data != nullptr) see.keep.data += first * see.keep.col;
  see.window.offset = WindowOffset(args.visibility.window, args.shape) - first;
  see.window.bottom_right = false;
  return tile;
}

// Flash: whether a row is what its sum of exponentials divides. That is 0 where every score was -inf, NaN where one was no number.
inline bool HasMeaning(SdpaGuard guard, float sum) {
  return guard == SdpaGuard::kNone || (guard == SdpaGuard::kMasked ? sum != 0.0f : sum > 0.0f);
}

// No row of the block sees a key of the tile, and hidden keys count for nothing.
template <typename Args>
bool IsIdle(const Args& tile, int64_t row, int64_t rows) {
  const SdpaVisibility& see = tile.visibility;
  return HasWindow(see.window) && std::isinf(see.hidden_value) &&
         UnionKeys(see.window, tile.shape, row, rows).size() <= 0;
}

}  // namespace octavo::kernels::internal

#endif  // OCTAVO_KERNELS_SDPA_SDPA_WINDOW_H_
