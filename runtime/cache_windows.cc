#include "octavo/runtime/cache_windows.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "octavo/kernels/sdpa/sdpa.h"
#include "octavo/runtime/room.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

using ir::Dim;
using ir::Graph;
using ir::Node;
using ir::Op;
using ir::Use;
using ir::ValueId;

constexpr int64_t kUnit = 64;  // the exact forms add in lanes of 16 keys
constexpr int64_t kWidest = int64_t{1} << 24;

Dim SizeOf(const Graph& g, ValueId v, size_t axis) {
  const auto& shape = g.value(v).type.shape;
  return shape && axis < shape->size() ? (*shape)[axis] : Dim();
}

// How many rows in front of its queries attention sees, whose queries are the rows of this run; -1: no window.
int64_t LeftOf(const Graph& g, const Node& n, const Dim& before) {
  if (n.attrs.Int("bottom_right", 0) == 0 || n.attrs.Int("k_rank", 4) != 4 || n.attrs.Int("v_rank", 4) != 4) return -1;
  const Dim queries = SizeOf(g, n.input(0), n.attrs.Int("q_rank", 4) == 3 ? 1 : 2), keys = SizeOf(g, n.input(1), 2);
  const bool last = queries.known() && keys.known() && before.known() && ProvablyEqual(keys - queries, before);
  const int64_t left = last ? n.attrs.Int("window_left", -1) : -1;
  return left <= kWidest ? left : -1;
}

class Finder {
 public:
  explicit Finder(const Graph& g) : g_(g) {}

  std::vector<CacheWindow> Find(const std::vector<CachePort>& caches) {
    std::vector<CacheWindow> windows(caches.size());
    for (size_t i = 0; i < caches.size(); ++i) {
      port_ = &caches[i], window_ = &windows[i];
      const bool seen = port_->in_room && port_->axis == 2 && AreRead(g_.inputs()[port_->input]);
      if (!seen) window_->stay = 0;
    }
    // K and V are read with the same rows gone, or none; other caches may be read beside each.
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [attention, operands] : readers_) changed |= MakeAlike(operands);
    }
    return windows;
  }

 private:
  // Whether nothing but attention with a window reads elements of the cache `v`, or of what rows are appended to it.
  bool AreRead(ValueId v) {
    return std::ranges::all_of(g_.value(v).uses, [&](const Use& use) { return IsRead(use); });
  }

  bool IsRead(const Use& use) {
    const Node& n = g_.node(use.node);
    switch (n.op) {
      case Op::kShape:
        return true;
      case Op::kConcat:
      case Op::kCacheAppend:
      case Op::kIdentity:
        return use.slot == 0 && IsOutput(n.output()) && AreRead(n.output());
      case Op::kQuantizeLinear:
        return use.slot == 0 && !g_.IsGraphOutput(n.output()) && AreRead(n.output());
      case Op::kSdpa:
      case Op::kQuantizedSdpa: {
        const int64_t left = LeftOf(g_, n, SizeOf(g_, g_.inputs()[port_->input], 2));
        if (left < 0 || (use.slot != 1 && use.slot != 2)) return false;
        window_->stay = std::max(window_->stay, left + kMayBeCut);
        window_->unit = std::max(window_->unit, n.attrs.Int("flash", 0) != 0 ? kernels::kSdpaFlashKeys : kUnit);
        readers_[use.node.index].push_back(window_);
        return true;
      }
      default:
        return false;
    }
  }

  // Of the graph: none, or that which carries on the cache.
  bool IsOutput(ValueId v) const {
    for (size_t i = 0; i < g_.outputs().size(); ++i) {
      if (g_.outputs()[i].value == v && i != port_->output) return false;
    }
    return true;
  }

  static bool MakeAlike(const std::vector<CacheWindow*>& operands) {
    const auto is_whole = [](const CacheWindow* w) { return w->stay == 0; };
    CacheWindow both;
    if (operands.size() == 2 && std::ranges::none_of(operands, is_whole)) {
      both = {std::max(operands[0]->stay, operands[1]->stay), std::max(operands[0]->unit, operands[1]->unit)};
    }
    bool changed = false;
    for (CacheWindow* w : operands) {
      changed |= w->stay != both.stay || w->unit != both.unit;
      *w = both;
    }
    return changed;
  }

  const Graph& g_;
  const CachePort* port_ = nullptr;
  CacheWindow* window_ = nullptr;                          // of port_
  std::map<uint32_t, std::vector<CacheWindow*>> readers_;  // of each attention: the caches of K and V
};

// The mask's columns from `first` on, of keys; one column stands for all.
Tensor ColumnsFrom(const Tensor& mask, int64_t first) {
  const int64_t columns = mask.shape().empty() ? 1 : mask.shape().back();
  if (columns == 1) return mask;
  Shape shape = mask.shape();
  shape.back() = columns - first;
  Tensor rest = Tensor::Empty(mask.dtype(), std::move(shape));
  const auto bytes = [&](int64_t n) { return quant::BytesOf(mask.dtype(), static_cast<size_t>(n)); };
  for (int64_t row = 0; row < mask.size() / columns; ++row) {
    std::memcpy(rest.mutable_data() + bytes(row * (columns - first)), mask.data() + bytes(row * columns + first),
                bytes(columns - first));
  }
  return rest;
}

}  // namespace

std::vector<CacheWindow> FindWindows(const Graph& graph, const std::vector<CachePort>& caches) {
  return Finder(graph).Find(caches);
}

void SkipGone(StepCall& call, size_t masks) {
  const int64_t gone = call.rooms ? GoneFrom(call.T(1)) : 0;
  if (gone == 0 || gone != GoneFrom(call.T(2))) return;
  for (size_t i = masks; i < std::min(masks + 2, call.in.size()); ++i) {
    if (call.Has(i)) call.in[i].tensor = ColumnsFrom(Dense(call.T(i)), gone);
  }
  for (const size_t i : {1, 2}) call.in[i].tensor = WithoutGone(call.T(i));
}

}  // namespace octavo::runtime
