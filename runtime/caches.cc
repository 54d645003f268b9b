#include "octavo/runtime/caches.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace octavo::runtime {

namespace {

using ir::Graph;
using ir::Node;
using ir::Op;
using ir::ValueId;

std::optional<size_t> InputIndex(const Graph& g, ValueId v) {
  const auto it = std::ranges::find(g.inputs(), v);
  return it == g.inputs().end() ? std::nullopt : std::optional(static_cast<size_t>(it - g.inputs().begin()));
}

bool HasNumber(const Graph& g, ValueId v, int64_t axis) {
  const auto& shape = g.value(v).type.shape;
  return shape && axis >= 0 && axis < static_cast<int64_t>(shape->size()) &&
         (*shape)[static_cast<size_t>(axis)].is_number();
}
int64_t Rank(const Graph& g, ValueId v) {
  const auto& shape = g.value(v).type.shape;
  return shape ? static_cast<int64_t>(shape->size()) : -1;
}

bool HasShapeOf(const Graph& g, ValueId a, ValueId b) {
  const auto &x = g.value(a).type.shape, &y = g.value(b).type.shape;
  return x && y && x->size() == y->size() && ir::ProvablyEqual(*x, *y);
}

// The input that `v` is with rows appended or written into. Rows that are written may be turned to the front for it, and back.
std::optional<CachePort> CacheBehind(const Graph& g, ValueId v) {
  CachePort found;
  const ValueId output = v;
  bool turned = false;
  constexpr int kMostSteps = 16;
  for (int i = 0; i < kMostSteps; ++i) {
    if (const auto input = InputIndex(g, v)) {
      found.input = *input;
      const bool same = !turned || (found.axis < 0 && HasShapeOf(g, v, output));
      return i > 0 && same ? std::optional(found) : std::nullopt;
    }
    const Node* n = g.Producer(v);
    if (n == nullptr || !n->input(0).valid()) return {};
    const int64_t rank = Rank(g, n->input(0));
    switch (n->op) {
      case Op::kConcat: {
        const int64_t axis = n->attrs.Int("axis", 0);
        if (n->inputs.size() != 2 || rank < 2 || found.axis >= 0) return {};
        found.axis = axis < 0 ? axis + rank : axis;
        found.in_room = true;
        break;
      }
      case Op::kCacheAppend:
        if (rank != 4 || found.axis >= 0) return {};
        if (!HasNumber(g, n->input(0), 2)) found.axis = 2, found.in_room = true;
        break;
      case Op::kTensorScatter:
      case Op::kScatterND:
      case Op::kScatterElements:
      case Op::kIdentity:
        break;
      case Op::kTranspose:
        turned = true;
        break;
      default:
        return {};
    }
    v = n->input(0);
    if (found.axis >= 0 && HasNumber(g, v, found.axis)) return {};  // a run gives what the next one does not take
  }
  return {};
}

// "past_key_values.0.key" and "present.0.key" are both ".0.key".
std::string_view Rest(std::string_view name, std::initializer_list<std::string_view> stems) {
  for (const std::string_view stem : stems) {
    if (name.starts_with(stem)) return name.substr(stem.size());
  }
  return {};
}

std::optional<CachePort> CacheByName(const Graph& g, std::string_view output, ValueId v) {
  const std::string_view rest = Rest(output, {"present_key_values", "present_key_value", "present"});
  for (size_t i = 0; !rest.empty() && i < g.inputs().size(); ++i) {
    const ValueId input = g.inputs()[i];
    if (Rest(g.value(input).name, {"past_key_values", "past_key_value", "past"}) != rest) continue;
    const ir::Type &from = g.value(input).type, &to = g.value(v).type;
    if (from.dtype != to.dtype || Rank(g, input) < 3 || Rank(g, input) != Rank(g, v)) continue;
    for (int64_t axis = Rank(g, input) - 1; axis > 0; --axis) {
      if (!HasNumber(g, input, axis)) return CachePort{.input = i, .axis = axis};
    }
  }
  return {};
}

}  // namespace

std::vector<CachePort> FindCaches(const Graph& graph) {
  std::vector<CachePort> found;
  std::set<size_t> taken;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const auto& output = graph.outputs()[i];
    std::optional<CachePort> port = CacheBehind(graph, output.value);
    if (!port) port = CacheByName(graph, output.name, output.value);
    if (!port || !taken.insert(port->input).second) continue;
    port->output = i;
    found.push_back(*port);
  }
  return found;
}

}  // namespace octavo::runtime
