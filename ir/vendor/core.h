// What all attention ops of the vendor share: head splits, masks and the core between them.
#ifndef OCTAVO_IR_VENDOR_CORE_H_
#define OCTAVO_IR_VENDOR_CORE_H_

#include "octavo/ir/vendor/site.h"

namespace octavo::ir::vendor {

// Numbers of a file below these do not overflow where they are added and multiplied.
inline constexpr int64_t kMostHeads = int64_t{1} << 20, kMostColumns = int64_t{1} << 40;

struct Core {
  ValueId q = {}, k = {}, v = {};  // [B, heads, S, D], [B, kv_heads, T, D], [B, kv_heads, T, Dv]
  int64_t heads = 0, kv_heads = 0;
  int64_t dim = -1;         // D; -1: known at run time only
  float scale = 0;          // 0: 1 / sqrt(D)
  float softcap = 0;        // 0: none; stands before the mask
  ValueId mask = {};        // added to the scores; broadcastable to [B, heads, S, T]; invalid: none
  bool mask_first = false;  // the mask is added before the soft cap: ONNX Attention before 1.22
  ValueId sink = {};        // [1, heads, 1, 1] or one element: a score beyond all keys that takes part in the sum only
};

// What stands between scores and output, for those who need more than the output.
struct Trace {
  ValueId scaled = {}, masked = {}, capped = {}, probabilities = {};  // [B, heads, S, T]
  ValueId heads = {};                                                 // [B, heads, S, Dv]
};

// [B, S, heads * Dv].
ValueId Attend(Site& s, const Core& core, Trace* trace = nullptr);

// [B, S, heads * D] -> [B, heads, S, D].
ValueId SplitHeads(Site& s, ValueId x, int64_t heads);
// D of [B, S, heads * D] or [B, heads, S, D]; -1: not known.
int64_t HeadSize(const Site& s, ValueId x, int64_t heads);

// Past and new rows of K or V, [B, heads, *, D].
ValueId Appended(Site& s, ValueId past, ValueId now);

// The additive mask [B, 1, 1 or S, T] of ONNX Runtime's mask inputs: rank 1 says how many keys count (and, with 2 B
// elements, where they begin), rank 2 and 3 say 0 for "masked". Masked scores get `filter` added.
Result<ValueId> PaddingMask(Site& s, ValueId mask, ValueId q, ValueId keys, float filter);
// Keys that come after a query get the lowest float instead of `mask` (invalid: zero). `past`: scalar, keys before the
// block.
ValueId Causal(Site& s, ValueId mask, ValueId queries, ValueId keys, ValueId past);
// Either may be invalid.
ValueId Sum(Site& s, ValueId a, ValueId b);

}  // namespace octavo::ir::vendor

#endif  // OCTAVO_IR_VENDOR_CORE_H_
