#include "octavo/runtime/rotary_chain.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace octavo::runtime {

namespace {

using ir::NodeId;

bool IsOne(const CompileContext& c, ValueId v, std::initializer_list<int64_t> allowed) {
  const Tensor* t = c.Constant(v);
  return t != nullptr && t->size() == 1 && (t->dtype() == DType::kS64 || t->dtype() == DType::kS32) &&
         std::ranges::find(allowed, t->GetInt(0)) != allowed.end();
}

// Of rank 4; 0: not known.
int64_t LastDim(const CompileContext& c, ValueId v) {
  const auto& type = c.graph.value(v).type;
  const bool known =
      type.dtype == DType::kF32 && type.shape && type.shape->size() == 4 && type.shape->back().is_number();
  return known ? type.shape->back().number() : 0;
}

// The Slice is x[..., begin::step] of `columns` columns.
bool IsColumns(const CompileContext& c, const Node* slice, ValueId x, int64_t begin, int64_t step, int64_t columns) {
  return slice != nullptr && slice->input(0) == x && IsOne(c, slice->input(1), {begin}) &&
         LastDim(c, slice->output()) == columns && IsOne(c, slice->input(3), {3, -1}) &&
         (slice->input(4) ? IsOne(c, slice->input(4), {step}) : step == 1);
}

bool IsTable(const CompileContext& c, ValueId v, int64_t dim) {
  const auto& type = c.graph.value(v).type;
  return type.dtype == DType::kF32 && type.shape && !type.shape->empty() && type.shape->size() <= 4 &&
         type.shape->back().is_number() && type.shape->back().number() == dim;
}

// What v is without the dim of 1 behind it; invalid: it has none.
ValueId InFrontOfUnsqueeze(const CompileContext& c, ValueId v, std::vector<NodeId>& nodes) {
  const Node* n = OnlyMaker(c, v, Op::kUnsqueeze, nodes);
  if (n == nullptr) n = OnlyMaker(c, v, Op::kReshape, nodes);
  if (n == nullptr) return {};
  const auto &from = c.graph.value(n->input(0)).type.shape, &to = c.graph.value(v).type.shape;
  if (!from || !to || to->size() != 5 || from->size() != 4) return {};
  ir::SymShape wanted = *from;
  wanted.emplace_back(1);
  return ProvablyEqual(wanted, *to) ? n->input(0) : ValueId{};
}

// A Concat of two along the last axis, which is `axis`.
const Node* ConcatOfTwo(const CompileContext& c, ValueId v, int64_t axis, std::vector<NodeId>& nodes) {
  const Node* n = OnlyMaker(c, v, Op::kConcat, nodes);
  const int64_t own = n == nullptr ? 0 : n->attrs.Int("axis", 0);
  return n != nullptr && n->inputs.size() == 2 && (own == axis || own == -1) ? n : nullptr;
}

// v = Concat(-x[half:], x[:half]), or, interleaved, -x[1::2] and x[::2] side by side.
bool IsTurned(const CompileContext& c, ValueId v, ValueId x, bool interleaved, std::vector<NodeId>& nodes) {
  const int64_t half = LastDim(c, x) / 2;
  ValueId first, second;
  if (interleaved) {
    const Node* flat = OnlyMaker(c, v, Op::kReshape, nodes);
    if (flat == nullptr || LastDim(c, v) != 2 * half) return false;
    if (!ProvablyEqual(*c.graph.value(v).type.shape, *c.graph.value(x).type.shape)) return false;
    const Node* pairs = ConcatOfTwo(c, flat->input(0), 4, nodes);
    if (pairs == nullptr) return false;
    first = InFrontOfUnsqueeze(c, pairs->input(0), nodes), second = InFrontOfUnsqueeze(c, pairs->input(1), nodes);
  } else {
    const Node* halves = ConcatOfTwo(c, v, 3, nodes);
    if (halves == nullptr) return false;
    first = halves->input(0), second = halves->input(1);
  }
  const Node* negated = OnlyMaker(c, first, Op::kNeg, nodes);
  if (negated == nullptr) return false;
  const Node *high = OnlyMaker(c, negated->input(0), Op::kSlice, nodes), *low = OnlyMaker(c, second, Op::kSlice, nodes);
  return interleaved ? IsColumns(c, high, x, 1, 2, half) && IsColumns(c, low, x, 0, 2, half)
                     : IsColumns(c, high, x, half, 1, half) && IsColumns(c, low, x, 0, 1, half);
}

// Which operands of a sum of products are which.
struct Order {
  size_t plain, a, b;  // x is factor `a` of operand `plain`, x turned is factor `b` of the other
  bool interleaved;
};

std::optional<Chain> Match(const CompileContext& c, NodeId root, const Order& order) {
  Chain chain;
  chain.nodes = {root};
  const Node& add = c.graph.node(root);
  const Node* straight = OnlyMaker(c, add.input(order.plain), Op::kMul, chain.nodes);
  const Node* crossed = OnlyMaker(c, add.input(1 - order.plain), Op::kMul, chain.nodes);
  if (straight == nullptr || crossed == nullptr) return {};
  const ValueId x = straight->input(order.a), cos = straight->input(1 - order.a), sin = crossed->input(1 - order.b);
  const int64_t dim = LastDim(c, x);
  if (dim < 2 || dim % 2 != 0 || !IsTable(c, cos, dim) || !IsTable(c, sin, dim)) return {};
  if (!IsTurned(c, crossed->input(order.b), x, order.interleaved, chain.nodes)) return {};
  chain.inputs = {x, cos, sin};
  chain.rotation = {.columns = dim, .interleaved = order.interleaved};
  return chain;
}

// Concat(what the chain turns, x[..., columns:]) of x[..., :columns], all of which nobody else reads, joins the chain.
void TakeRest(const CompileContext& c, Chain& chain) {
  const Graph& g = c.graph;
  const ValueId turned = g.node(chain.nodes[0]).output(), part = chain.inputs[0];
  const ir::NodeId cut = g.value(part).producer;
  if (g.value(turned).uses.size() != 1 || g.IsGraphOutput(turned) || g.IsGraphOutput(part) || !cut.valid()) return;
  const ir::Use use = g.value(turned).uses[0];
  const Node& concat = g.node(use.node);
  const int64_t axis = concat.attrs.Int("axis", 0);
  if (concat.op != Op::kConcat || concat.inputs.size() != 2 || use.slot != 0 || (axis != 3 && axis != -1)) return;
  const auto is_inside = [&](const ir::Use& other) { return std::ranges::contains(chain.nodes, other.node); };
  if (g.node(cut).op != Op::kSlice || !std::ranges::all_of(g.value(part).uses, is_inside)) return;
  const ValueId x = g.node(cut).input(0);
  const int64_t columns = chain.rotation.columns, rest = LastDim(c, x) - columns;
  std::vector<NodeId> nodes{cut, use.node};
  const Node* behind = OnlyMaker(c, concat.input(1), Op::kSlice, nodes);
  if (rest <= 0 || !IsColumns(c, &g.node(cut), x, 0, 1, columns) || !IsColumns(c, behind, x, columns, 1, rest)) return;
  chain.nodes.insert(chain.nodes.end(), nodes.begin(), nodes.end());
  chain.inputs[0] = x;
}

class RotaryChainKernel : public Kernel {
 public:
  RotaryChainKernel(const Rotation& rotation, int64_t size) : rotation_(rotation), size_(size) {
    const auto batch = Needs::Size::Same(0), heads = Needs::Size::Same(1), rows = Needs::Size::Same(2);
    needs.Exactly(0, DType::kF32, {batch, heads, rows, size});
    for (const size_t slot : {1, 2}) {
      needs.BroadcastsTo(slot, DType::kF32, {batch, heads, rows, rotation.columns});
      needs.EndsIn(slot, DType::kF32, {rotation.columns});
    }
  }
  std::string name() const override { return "rotary"; }
  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    const Shape& s = x.shape();
    const auto cos_strides = TableStrides(call.T(1)), sin_strides = TableStrides(call.T(2));
    const auto *cos = call.T(1).as<float>().data(), *sin = call.T(2).as<float>().data(), *in = x.as<float>().data();
    float* out = call.Allocate(0, DType::kF32, s).mutable_as<float>().data();
    const int64_t lines = s[0] * s[1] * s[2];
    const int64_t parts = PartsOf(lines, std::max(int64_t{1}, kElementGrain / size_), call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part part = PartOf(lines, parts, i, 1);
      for (int64_t line = part.begin; line < part.end; ++line) {
        const std::array<int64_t, 3> at = {line / (s[1] * s[2]), line / s[2] % s[1], line % s[2]};
        const auto row = [&](const std::array<int64_t, 3>& strides) {
          return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2];
        };
        Rotate(rotation_, in + line * size_, cos + row(cos_strides), sin + row(sin_strides), size_, out + line * size_);
      }
    });
    return {};
  }

 private:
  Rotation rotation_;
  int64_t size_;
};

}  // namespace

std::vector<Chain> FindRotaryChains(const CompileContext& c) {
  std::vector<Chain> found;
  const std::vector<NodeId> order = c.graph.NodesInOrder();
  for (const NodeId id : order) {
    if (c.graph.node(id).op != Op::kAdd || c.Constant(c.graph.node(id).output()) != nullptr) continue;
    std::optional<Chain> chain;
    for (size_t i = 0; i < 16 && !chain; ++i) chain = Match(c, id, {i & 1, i >> 1 & 1, i >> 2 & 1, i >= 8});
    if (!chain) continue;
    TakeRest(c, *chain);
    std::ranges::sort(chain->nodes, [&c](NodeId a, NodeId b) { return c.graph.Before(a, b); });
    found.push_back(std::move(*chain));
  }
  return found;
}

KernelPtr MakeRotaryChain(const Chain& chain, const CompileContext& c) {
  auto kernel = std::make_unique<RotaryChainKernel>(chain.rotation, LastDim(c, chain.inputs[0]));
  kernel->otherwise = MakeNodes(chain, c, "rotary of single nodes");
  return kernel;
}

}  // namespace octavo::runtime
