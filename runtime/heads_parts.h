// What stands behind a product by heads and can be the end of its step (heads_tail.h): a norm of each head, a rotary embedding, codes, the
// place in a cache.
#ifndef OCTAVO_RUNTIME_HEADS_PARTS_H_
#define OCTAVO_RUNTIME_HEADS_PARTS_H_

#include <vector>

#include "octavo/runtime/tail.h"

namespace octavo::runtime {

// Heads side by side in a product, and what stands behind them.
struct HeadsPart {
  int64_t heads = 0, size = 0;
  bool rows = false;                   // leaves as [B,S,n], not as [B,H,S,size]
  std::vector<ir::NodeId> nodes = {};  // which the step serves
  const Node* norm = nullptr;          // RMSNormalization of each head
  Rotation rotation = {};
  ValueId cos = {}, sin = {}, positions = {};  // of the rotation; by_pair: of a RotaryEmbedding
  bool rows_first = false;                     // tables broadcast to [B,S,1,columns]
  const Node* codes = nullptr;                 // QuantizeLinear
  const Node* append = nullptr;                // Concat, CacheAppend, TensorScatter or ScatterND
  ValueId past = {};                           // its cache
  ValueId out = {};

  bool is_more() const {  // than heads
    return norm != nullptr || rotation.columns > 0 || codes != nullptr || append != nullptr;
  }
  int64_t columns() const { return heads * size; }
};

// Of a value [B,S,n] that a product makes, the parts of a Split each; empty where something is read otherwise, comes behind `product` or is
// plain heads (by_heads.h).
std::vector<HeadsPart> FindHeadsParts(const CompileContext& c, ir::NodeId product, ValueId y,
                                      const ChainsByNode& chains);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_HEADS_PARTS_H_
