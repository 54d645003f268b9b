#include "octavo/passes/canonical/sizes.h"

#include <algorithm>
#include <optional>

#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

struct Place {
  ValueId input;
  int64_t axis;
};

std::optional<Place> PlaceOf(const Graph& g, const Dim& d) {
  for (const ValueId input : g.inputs()) {
    const SymShape* shape = ShapeOf(g, input);
    for (size_t i = 0; shape != nullptr && i < shape->size(); ++i) {
      if (ProvablyEqual((*shape)[i], d)) return Place{input, static_cast<int64_t>(i)};
    }
  }
  return {};
}

// Null: cannot be told by inputs.
const SymShape* DimsOf(const Graph& g, NodeId shape) {
  const Node& n = g.node(shape);
  const SymShape* dims = ShapeOf(g, n.input(0));
  if (dims == nullptr || n.attrs.Has("start") || n.attrs.Has("end")) return nullptr;
  return std::ranges::all_of(*dims, [&g](const Dim& d) { return d.is_number() || PlaceOf(g, d); }) ? dims : nullptr;
}

void ReadSizesOf(Rewriter& rw, NodeId shape, const SymShape& dims) {
  const Graph& g = rw.graph();
  rw.At(shape, {shape});
  std::vector<ValueId> sizes;
  for (const Dim& d : dims) {
    if (d.is_number()) {
      sizes.push_back(MakeInts(rw, {d.number()}));
      continue;
    }
    const Place place = *PlaceOf(g, d);
    const Type all{DType::kS64, SymShape{static_cast<int64_t>(ShapeOf(g, place.input)->size())}};
    const ValueId of_input = Make(rw, Op::kShape, {place.input}, {}, all);
    sizes.push_back(Make(rw, Op::kGather, {of_input, MakeInts(rw, {place.axis})}, {{"axis", int64_t{0}}},
                         Type{DType::kS64, SymShape{1}}));
  }
  const Type type = TypeOf(g, g.node(shape).output());
  ReplaceNode(rw, shape, Make(rw, Op::kConcat, std::move(sizes), {{"axis", int64_t{0}}}, type));
}

}  // namespace

bool ReadSizesOfInputs(Rewriter& rw, std::span<const NodeId> shapes) {
  if (!std::ranges::all_of(shapes, [&rw](NodeId shape) { return DimsOf(rw.graph(), shape) != nullptr; })) return false;
  for (const NodeId shape : shapes) {
    if (rw.graph().IsAlive(shape)) ReadSizesOf(rw, shape, SymShape(*DimsOf(rw.graph(), shape)));
  }
  return true;
}

}  // namespace octavo::passes::canonical
