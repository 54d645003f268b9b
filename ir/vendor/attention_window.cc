// ONNX Attention with a window (opset 25) as one whose mask holds the window: query i stands at p = keys before the block + i and sees
// the keys p - left_window_size to p + right_window_size. What optimizes and runs attention then needs to know masks only.
#include <limits>

#include "octavo/ir/typed.h"
#include "octavo/ir/vendor/core.h"
#include "octavo/ir/vendor/lower.h"

namespace octavo::ir::vendor {

namespace {

constexpr size_t kMask = 3, kPastKey = 4, kValid = 6;
constexpr std::string_view kLeft = "left_window_size", kRight = "right_window_size";

bool HasWindow(const Node& n) {
  return n.op == Op::kAttention && (n.attrs.Int(kLeft, -1) >= 0 || n.attrs.Int(kRight, -1) >= 0);
}

// [S, T], or [B, 1, S, T] where batch entries have their own numbers of keys.
ValueId Seen(Site& s, ValueId keys, ValueId queries) {
  ValueId own = s.Unsqueeze(s.Count(queries), {1});
  if (s.Has(kPastKey)) {
    own = s.Make(Op::kAdd, {own, s.DimScalar(s.In(kPastKey), 2)});
  } else if (s.Has(kValid)) {
    own = s.Make(Op::kAdd, {own, s.Unsqueeze(s.Make(Op::kSub, {s.In(kValid), queries}), {1, 2, 3})});
  }
  const ValueId at = s.Count(keys);
  ValueId seen;
  if (const int64_t left = s.attrs().Int(kLeft, -1); left >= 0)
    seen = s.Make(Op::kGreaterOrEqual, {at, s.Make(Op::kSub, {own, s.Int(left)})});
  if (const int64_t right = s.attrs().Int(kRight, -1); right >= 0) {
    const ValueId before = s.Make(Op::kLessOrEqual, {at, s.Make(Op::kAdd, {own, s.Int(right)})});
    seen = seen.valid() ? s.Make(Op::kAnd, {seen, before}) : before;
  }
  return seen;
}

Status ToMask(Site& s) {
  constexpr int64_t kMost = int64_t{1} << 40;  // positions and windows are added
  const int64_t rank = s.Rank(s.In(0));
  if (rank != 3 && rank != 4) return s.Refuse("it has a window, and its operands are of a rank that is not known");
  if (s.attrs().Int(kLeft, -1) > kMost || s.attrs().Int(kRight, -1) > kMost) return s.Refuse("its window is too large");
  const int64_t rows = rank == 4 ? 2 : 1;
  ValueId keys = s.DimScalar(s.In(1), rows);
  if (s.Has(kPastKey)) keys = s.Make(Op::kAdd, {keys, s.DimScalar(s.In(kPastKey), 2)});
  ValueId mask = s.In(kMask);
  if (mask.valid()) {  // one column stands for all keys; a mask with fewer than all masks the others
    const ValueId columns = s.Make(Op::kSqueeze, {s.Make(Op::kShape, {mask}, {{"start", int64_t{-1}}}), s.Ints({0})});
    keys = s.Make(Op::kWhere, {s.Make(Op::kEqual, {columns, s.Int(1)}), keys, columns});
  }
  ValueId seen = Seen(s, keys, s.DimScalar(s.In(0), rows));
  if (!mask.valid()) {
    mask = seen;
  } else if (s.DTypeOf(mask) == DType::kBool) {
    mask = s.Make(Op::kAnd, {mask, seen});
  } else {
    const ValueId minus = s.Make(Op::kCastLike, {s.Float(-std::numeric_limits<float>::infinity()), mask});
    mask = s.Make(Op::kWhere, {seen, mask, minus});
  }
  std::vector<ValueId> in;
  for (size_t i = 0; i <= kValid; ++i) in.push_back(i == kMask ? mask : s.In(i));
  Attrs attrs = s.attrs();
  attrs.Erase(kLeft);
  attrs.Erase(kRight);
  size_t outputs = 1;
  for (size_t i = 1; i < 4; ++i) outputs = s.Wants(i) ? i + 1 : outputs;
  const auto made = s.MakeN(Op::kAttention, std::move(in), outputs, std::move(attrs));
  for (size_t i = 0; i < outputs; ++i) s.Return(i, made[i]);
  return {};
}

}  // namespace

void AttentionWindows(Graph& graph) {
  Graph plain = graph;  // inference knows no windows
  bool any = false;
  for (NodeId id : graph.NodesInOrder()) {
    if (!HasWindow(graph.node(id))) continue;
    any = true;
    plain.EraseAttr(id, kLeft);
    plain.EraseAttr(id, kRight);
  }
  if (!any) return;
  const Graph typed = Typed(plain);
  for (NodeId id : graph.NodesInOrder()) {
    if (!HasWindow(graph.node(id))) continue;
    Site site(graph, typed, id);
    if (ToMask(site)) {
      site.Commit();
    } else {
      site.Undo();
    }
  }
}

}  // namespace octavo::ir::vendor
