#include "octavo/ir/decided.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "octavo/ir/infer_rules.h"
#include "octavo/ir/subgraph.h"

namespace octavo::ir {

namespace {

// The operands whose elements say the sizes of the results, and not only which elements they have; a bit for each.
uint32_t SayingSizes(Op op) {
  if (ReduceRule(op) != nullptr) return 0b10;  // its axes; ArgMax has none of such operands
  switch (op) {
    case Op::kCompress:
    case Op::kExpand:
    case Op::kOneHot:
    case Op::kReshape:
    case Op::kSplit:
    case Op::kTile:
    case Op::kTopK:
    case Op::kCenterCropPad:
    case Op::kAffineGrid:
    case Op::kSqueeze:
    case Op::kUnsqueeze:
      return 0b10;
    case Op::kBlackmanWindow:
    case Op::kConstantOfShape:
    case Op::kHammingWindow:
    case Op::kHannWindow:
    case Op::kIf:
    case Op::kNonZero:
    case Op::kStringNormalizer:
    case Op::kStringSplit:
    case Op::kUnique:
      return 0b1;
    case Op::kLoop:
    case Op::kMelWeightMatrix:
      return 0b11;
    case Op::kMaxUnpool:
      return 0b100;
    case Op::kCol2Im:
    case Op::kDFT:
      return 0b110;
    case Op::kRange:
      return 0b111;
    case Op::kPad:
    case Op::kSTFT:
      return 0b1010;
    case Op::kResize:
      return 0b1110;
    case Op::kSlice:
      return 0b11110;
    case Op::kNonMaxSuppression:
      return 0b11111;
    default:
      return 0;
  }
}

using Values = std::set<ValueId>;
bool IsIn(const Values& values, ValueId v) { return v.valid() && values.contains(v); }

Type WithoutNumbers(Type type, bool keeps_symbols) {
  const auto is_symbol = [](const Dim& d) { return d.known() && !d.is_number(); };
  if (!type.shape || !keeps_symbols || !std::ranges::any_of(*type.shape, is_symbol)) return {type.dtype, {}};
  for (Dim& d : *type.shape) d = is_symbol(d) ? d : Dim();
  return type;
}

// One graph, and those of its nodes.
class Walk {
 public:
  Walk(Graph& graph, size_t depth) : graph_(graph), depth_(depth) {}

  void Given(ValueId input, bool elements, bool decided) {
    if (elements) elements_.insert(input);
    if (!decided) return;
    decided_.insert(input);
    Drop(input, /*keeps_symbols=*/false);
  }

  void Go() {
    for (const NodeId id : graph_.NodesInOrder()) Visit(id);
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const GraphOutput& output = graph_.outputs()[i];
      if (!IsIn(decided_, output.value) || !output.declared.shape) continue;
      graph_.DeclareOutput(i, WithoutNumbers(output.declared, /*keeps_symbols=*/true));
      changed_ = true;
    }
  }

  // Whether elements decide the sizes of an output; whether a shape was dropped.
  bool decides() const {
    return std::ranges::any_of(graph_.outputs(), [&](const GraphOutput& o) { return IsIn(decided_, o.value); });
  }
  bool changed() const { return changed_; }

 private:
  void Visit(NodeId id) {
    const Node& n = graph_.node(id);
    const auto reads = [&](const Values& values) {
      return std::ranges::any_of(n.inputs, [&](ValueId v) { return IsIn(values, v); });
    };
    if (n.op == Op::kShape || n.op == Op::kSize) {
      if (reads(decided_)) elements_.insert(n.outputs.begin(), n.outputs.end());
      return;
    }
    if (reads(elements_)) elements_.insert(n.outputs.begin(), n.outputs.end());
    bool decides = Bodies(id);
    for (size_t i = 0; i < n.inputs.size() && i < 32; ++i)
      decides |= (SayingSizes(n.op) >> i & 1) != 0 && IsIn(elements_, n.inputs[i]);
    if (!decides && !reads(decided_)) return;
    decided_.insert(n.outputs.begin(), n.outputs.end());
    if (n.op == Op::kOpaque) return;  // nothing else tells what it gives
    const bool control = n.op == Op::kIf || n.op == Op::kLoop || n.op == Op::kScan;
    for (const ValueId v : std::vector<ValueId>(n.outputs)) Drop(v, control);
  }

  // Whether a graph of the node gives what elements decide.
  bool Bodies(NodeId id) {
    bool decides = false;
    std::vector<std::pair<std::string, GraphRef>> bodies;
    for (const auto& [name, attr] : graph_.node(id).attrs.entries()) {
      if (const auto* body = std::get_if<GraphRef>(&attr)) bodies.emplace_back(name, *body);
    }
    for (const auto& [name, body] : bodies) {
      // What is decided in one iteration is so for the next. Deep inside it is so at once, for a second look would double the time of each depth.
      const bool repeats = graph_.node(id).op == Op::kLoop || graph_.node(id).op == Op::kScan;
      const bool inner = Body(id, name, *body, repeats && depth_ >= kMostTwice);
      if (inner && repeats && depth_ < kMostTwice) Body(id, name, *graph_.node(id).attrs.Subgraph(name), true);
      decides |= inner;
    }
    return decides;
  }

  bool Body(NodeId id, const std::string& name, const Graph& body, bool all_decided) {
    Graph copy = body;
    Walk walk(copy, depth_ + 1);
    const Node& n = graph_.node(id);
    const size_t captures = CapturesOf(n), inputs = copy.inputs().size();
    for (size_t i = 0; i < inputs; ++i) {
      const bool captured = inputs - i <= captures && inputs - i <= n.inputs.size();
      const ValueId given = captured                     ? n.inputs[n.inputs.size() - (inputs - i)]
                            : n.op == Op::kFlexAttention ? ValueId()
                                                         : n.input(i);
      walk.Given(copy.inputs()[i], !captured || IsIn(elements_, given),
                 IsIn(decided_, given) || (all_decided && !captured));
    }
    walk.Go();
    const bool decides = walk.decides();  // before the graph moves
    if (walk.changed()) graph_.SetAttr(id, name, std::make_shared<const Graph>(std::move(copy)));
    return decides;
  }

  void Drop(ValueId v, bool keeps_symbols) {
    if (!v.valid() || !graph_.value(v).type.shape) return;
    graph_.SetType(v, WithoutNumbers(graph_.value(v).type, keeps_symbols));
    changed_ = true;
  }

  static constexpr size_t kMostTwice = 3;
  Graph& graph_;
  const size_t depth_;
  Values elements_;  // made of elements of inputs
  Values decided_;   // whose sizes such elements decide
  bool changed_ = false;
};

}  // namespace

void DropDecidedShapes(Graph& graph) {
  Walk walk(graph, 0);
  for (const ValueId v : graph.inputs()) walk.Given(v, /*elements=*/true, /*decided=*/false);
  walk.Go();
}

}  // namespace octavo::ir
