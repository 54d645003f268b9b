#include "octavo/api/logits_to_keep.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "octavo/ir/closed.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/names.h"
#include "octavo/passes/bodies.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::api {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::ValueId;

namespace {

using Values = std::set<ValueId>;

// Values that are not the same in each run, of a graph some of whose inputs are not.
Values VaryingWith(const Graph& g, Values varying) {
  for (const NodeId id : g.NodesInOrder()) {
    const Node& n = g.node(id);
    const bool varies = std::ranges::any_of(n.inputs, [&](ValueId v) { return varying.contains(v); });
    const bool may = varies || n.op == Op::kOpaque || n.op == Op::kIf || n.op == Op::kLoop || n.op == Op::kScan;
    if (may) varying.insert(n.outputs.begin(), n.outputs.end());
  }
  return varying;
}

int64_t RankOf(const Graph& g, ValueId v) {
  const auto& shape = g.value(v).type.shape;
  return shape ? static_cast<int64_t>(shape->size()) : -1;
}

bool IsOne(const ir::Dim& d) { return d.is_number() && d.number() == 1; }

// Whether an operand that is a constant does the same to all tokens of [batch, tokens, channels].
bool SameForAllTokens(const Graph& g, Op op, ValueId v) {
  const auto& shape = g.value(v).type.shape;
  if (!shape) return false;
  if (op == Op::kQuantizeLinear || op == Op::kDequantizeLinear) return std::ranges::all_of(*shape, IsOne);
  return shape->size() < 2 || IsOne((*shape)[shape->size() - 2]);
}

// From the logits back to the states of tokens that one product makes them of, through ops that know no neighbours.
struct Road {
  NodeId from;                  // what reads the states, or the If whose branches do
  std::vector<ValueId> values;  // that have fewer tokens then, the logits first
};

std::optional<Road> RoadTo(const Graph& g, ValueId logits, const Values& varying) {
  Road road;
  for (ValueId at = logits;;) {
    const Node* n = g.Producer(at);
    const bool alone = g.value(at).uses.size() + (g.IsGraphOutput(at) ? 1 : 0) == 1;
    if (n == nullptr || !alone || RankOf(g, at) != 3) return {};
    road.values.push_back(at);
    road.from = g.value(at).producer;
    if (n->op == Op::kIf) return road;
    std::vector<ValueId> read;  // that vary
    std::ranges::copy_if(n->inputs, std::back_inserter(read), [&](ValueId v) { return varying.contains(v); });
    if (read.empty()) return {};
    switch (n->op) {
      case Op::kMatMul:
      case Op::kLinearBlocked:
      case Op::kQuantizedLinear: {
        const bool coded = read.size() == 3 && g.IsFrom(read[0], Op::kQuantizeTokens) &&
                           g.Producer(read[0]) == g.Producer(read[1]) && g.Producer(read[0]) == g.Producer(read[2]);
        if (read[0] != n->input(0) || (read.size() != 1 && !coded) || RankOf(g, read[0]) != 3) return {};
        return road;
      }
      default:
        const bool same = std::ranges::all_of(
            n->inputs, [&](ValueId v) { return !v.valid() || v == read[0] || SameForAllTokens(g, n->op, v); });
        const bool knows_no_neighbours = passes::canonical::IsElementwise(n->op) || n->op == Op::kLookup ||
                                         n->op == Op::kQuantizeLinear || n->op == Op::kDequantizeLinear;
        if (read.size() != 1 || !knows_no_neighbours || !same) return {};
        at = read[0];
    }
  }
}

// The last `keep` of the tokens of v, where it is read by the node alone.
ValueId LastTokens(Graph& g, ValueId v, ValueId keep, NodeId before) {
  const auto made = [&](Op op, std::vector<ValueId> inputs) {
    return g.node(g.AddNode(op, std::move(inputs), 1, {}, std::string(kLogitsToKeep), before)).output();
  };
  const auto number = [&](int64_t n) { return g.AddConstant(ir::Tensor::S64({1}, {n}), {}, before); };
  const ValueId first = made(Op::kNeg, {made(Op::kReshape, {keep, number(1)})});
  return made(Op::kSlice, {v, first, number(std::numeric_limits<int64_t>::max()), number(1)});
}

// The product of the states reads the last tokens alone. Others that read the codes of the states go on with those of all tokens.
void ShortenProduct(Graph& g, NodeId product, ValueId keep) {
  NodeId reader = product;
  if (const ValueId read = g.node(reader).input(0); g.IsFrom(read, Op::kQuantizeTokens)) {
    const NodeId codes = g.value(read).producer;
    const Node& n = g.node(codes);
    const NodeId again = g.AddNode(n.op, n.inputs, n.outputs.size(), n.attrs, std::string(kLogitsToKeep), reader);
    for (size_t slot = 0; slot < 3; ++slot)
      g.SetInput(reader, slot, g.node(again).output(g.value(g.node(reader).input(slot)).output_index));
    if (std::ranges::none_of(n.outputs, [&](ValueId v) { return passes::canonical::HasUses(g, v); })) g.Erase(codes);
    reader = again;
  }
  g.SetInput(reader, 0, LastTokens(g, g.node(reader).input(0), keep, reader));
}

bool Shorten(Graph& g, size_t output, ValueId keep, const Values& varying);

// The same in both branches, to which the number is given.
bool ShortenBranches(Graph& g, NodeId node, size_t output, ValueId keep, const Values& varying) {
  const std::vector<ValueId> given = g.node(node).inputs;
  for (const char* attr : {"then_branch", "else_branch"}) {
    const passes::Body branch{node, attr, {}};
    Graph model = passes::AsModel(g, branch);
    if (!ir::Inference::Run(model)) return false;
    Values own;
    for (size_t i = 0; i < model.inputs().size(); ++i) {
      if (varying.contains(given[i + 1])) own.insert(model.inputs()[i]);
    }
    const ValueId inside = model.AddInput(model.UniqueName(kLogitsToKeep), g.value(keep).type);
    if (!Shorten(model, output, inside, VaryingWith(model, std::move(own)))) return false;
    passes::PutBack(g, branch, std::move(model));
  }
  g.SetInput(node, given.size(), keep);
  g.SetAttr(node, "octavo_captures", static_cast<int64_t>(given.size()));  // all but the condition, and the number
  return true;
}

// Whether the output could be made to have the last `keep` tokens.
bool Shorten(Graph& g, size_t output, ValueId keep, const Values& varying) {
  const ValueId logits = g.outputs()[output].value;
  const auto road = RoadTo(g, logits, varying);
  if (!road) return false;
  if (g.node(road->from).op == Op::kIf) {
    if (!ShortenBranches(g, road->from, g.value(road->values.back()).output_index, keep, varying)) return false;
  } else {
    ShortenProduct(g, road->from, keep);
  }
  for (const ValueId v : road->values) {
    ir::Type type = g.value(v).type;
    (*type.shape)[1] = ir::Dim::Unknown();
    g.SetType(v, type);
  }
  g.DeclareOutput(output, g.value(logits).type);
  return true;
}

ir::Status Add(Graph& graph) {
  for (const ValueId v : graph.inputs()) {
    const std::string& name = graph.value(v).name;
    if (name == kLogitsToKeep || name == "num_logits_to_keep") return {};
  }
  const auto& outputs = graph.outputs();
  auto output = std::ranges::find(outputs, "logits", &ir::GraphOutput::name);
  if (output == outputs.end() && outputs.size() == 1) output = outputs.begin();
  if (output == outputs.end()) {
    return ir::Fail(
        "logits_to_keep: the model has {} outputs, none of them called 'logits'; leave the option out, and all tokens "
        "have logits",
        outputs.size());
  }
  Graph g = graph;
  if (const ValueId taken = g.FindValue(kLogitsToKeep); taken.valid()) g.SetName(taken, "octavo_renamed");
  const Values varying = VaryingWith(g, Values(g.inputs().begin(), g.inputs().end()));
  const ValueId keep = g.AddInput(std::string(kLogitsToKeep), {ir::DType::kS64, ir::SymShape()});
  if (!Shorten(g, static_cast<size_t>(output - outputs.begin()), keep, varying)) {
    return ir::Fail(
        "logits_to_keep: output {} comes of no product of each token's state [batch, tokens, channels] by weights; "
        "leave the option out, and all tokens have logits",
        ir::Quoted(output->name));
  }
  OCTAVO_TRY_STATUS(ir::Inference::Run(g).transform([](const auto&) {}));
  graph = std::move(g);
  return {};
}

}  // namespace

ir::Status AddLogitsToKeep(Graph& graph) {
  return ir::Closed("adding logits_to_keep", [&] { return Add(graph); });
}

}  // namespace octavo::api
