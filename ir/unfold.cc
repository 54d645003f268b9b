#include "octavo/ir/unfold.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

namespace octavo::ir {

namespace {

using Ints = std::vector<int64_t>;

constexpr size_t kMostPositions = 1024;
constexpr int64_t kMostReach = int64_t{1} << 31;  // of numbers in a graph, so that no sum or product of sizes overflows

std::optional<Ints> IntsOf(const Graph& g, ValueId v) {
  const Tensor* t = v.valid() ? g.ConstantOf(v) : nullptr;
  if (t == nullptr || t->rank() != 1 || (t->dtype() != DType::kS64 && t->dtype() != DType::kS32)) return {};
  return t->ToInts();
}

// By spatial axis; an axis that no Slice names is whole.
struct Cut {
  Ints starts, ends, steps;
};

std::optional<Cut> CutOf(const Graph& g, const Node& slice, size_t rank) {
  const auto starts = IntsOf(g, slice.input(1)), ends = IntsOf(g, slice.input(2)), axes = IntsOf(g, slice.input(3));
  if (!starts || !ends || !axes || starts->size() != axes->size() || ends->size() != axes->size()) return {};
  Ints steps(axes->size(), 1);
  if (slice.input(4).valid()) {
    const auto given = IntsOf(g, slice.input(4));
    if (!given || given->size() != axes->size()) return {};
    steps = *given;
  }
  const size_t dims = rank - 2;
  Cut cut{Ints(dims, 0), Ints(dims, kToTheEnd), Ints(dims, 1)};
  for (size_t i = 0; i < axes->size(); ++i) {
    const int64_t axis = (*axes)[i] + ((*axes)[i] < 0 ? static_cast<int64_t>(rank) : 0) - 1;
    if (axis < 0 || axis >= static_cast<int64_t>(dims)) return {};
    if (steps[i] < 1 || steps[i] > kMostReach || (*starts)[i] < 0 || (*starts)[i] > kMostReach) return {};
    const auto d = static_cast<size_t>(axis);
    cut.starts[d] = (*starts)[i], cut.ends[d] = (*ends)[i], cut.steps[d] = steps[i];
  }
  return cut;
}

// The kernel and the dilations that have such first elements.
bool ReadKernel(const std::vector<Cut>& cuts, Windows* w) {
  const size_t dims = cuts[0].starts.size();
  for (size_t d = 0; d < dims; ++d) {
    std::set<int64_t> starts;
    for (const Cut& cut : cuts) starts.insert(cut.starts[d]);
    w->kernel.push_back(static_cast<int64_t>(starts.size()));
    w->dilations.push_back(starts.size() < 2 ? 1 : *std::next(starts.begin()) - *starts.begin());
    w->strides.push_back(cuts[0].steps[d]);
  }
  if (w->positions() != static_cast<int64_t>(cuts.size())) return false;
  for (size_t i = 0; i < cuts.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i);
    for (size_t d = dims; d-- > 0; rest /= w->kernel[d]) {
      const int64_t at = rest % w->kernel[d];
      if (cuts[i].starts[d] != SliceStart(at, w->dilations[d]) || cuts[i].steps[d] != w->strides[d] ||
          cuts[i].ends[d] != SliceEnd(at, w->kernel[d], w->dilations[d]))
        return false;
    }
  }
  return true;
}

// Zeros or another constant around the spatial axes, made for these windows alone.
bool ReadPad(const Graph& g, NodeId pad, size_t rank, size_t readers, Unfold* u) {
  if (!pad.valid()) return false;
  const Node& n = g.node(pad);
  if (n.op != Op::kPad || n.attrs.Str("mode", "constant") != "constant" || n.input(3).valid()) return false;
  const auto pads = IntsOf(g, n.input(1));
  if (!pads || pads->size() != 2 * rank ||
      std::ranges::any_of(*pads, [](int64_t p) { return p < 0 || p > kMostReach; }))
    return false;
  if ((*pads)[0] != 0 || (*pads)[rank - 1] != 0 || (*pads)[rank] != 0 || pads->back() != 0) return false;
  if (g.value(n.output()).uses.size() != readers || g.IsGraphOutput(n.output())) return false;
  u->x = n.input(0), u->padding = n.input(2);
  for (size_t d = 1; d + 1 < rank; ++d)
    u->windows.before[d - 1] = (*pads)[d], u->windows.after[d - 1] = (*pads)[rank + d];
  return true;
}

}  // namespace

int64_t Windows::positions() const {
  return std::accumulate(kernel.begin(), kernel.end(), int64_t{1}, std::multiplies<>());
}
bool Windows::padded() const {
  const auto some = [](int64_t p) { return p != 0; };
  return std::ranges::any_of(before, some) || std::ranges::any_of(after, some);
}

std::optional<Unfold> UnfoldAt(const Graph& g, ValueId v) {
  const NodeId id = v.valid() ? g.value(v).producer : NodeId{};
  if (!id.valid() || g.node(id).op != Op::kConcat) return {};
  const Node& concat = g.node(id);
  if (concat.inputs.size() < 2 || concat.inputs.size() > kMostPositions) return {};
  Unfold u;
  std::vector<Cut> cuts;
  size_t rank = 0;
  for (const ValueId part : concat.inputs) {
    const NodeId slice = part.valid() ? g.value(part).producer : NodeId{};
    if (!slice.valid() || g.node(slice).op != Op::kSlice || !g.HasOneUse(part)) return {};
    const ValueId x = g.node(slice).input(0);
    if (cuts.empty()) {
      const auto& shape = g.value(x).type.shape;
      if (!shape || shape->size() < 3) return {};
      u.x = x, rank = shape->size();
    }
    const auto cut = x == u.x ? CutOf(g, g.node(slice), rank) : std::nullopt;
    if (!cut) return {};
    cuts.push_back(*cut), u.nodes.push_back(slice);
  }
  const int64_t axis = concat.attrs.Int("axis", 0);
  if ((axis != -1 && axis + 1 != static_cast<int64_t>(rank)) || !ReadKernel(cuts, &u.windows)) return {};
  u.windows.before.assign(rank - 2, 0), u.windows.after.assign(rank - 2, 0);
  const NodeId pad = g.value(u.x).producer;
  if (ReadPad(g, pad, rank, cuts.size(), &u)) u.nodes.insert(u.nodes.begin(), pad);
  u.nodes.push_back(id);
  return u;
}

}  // namespace octavo::ir
