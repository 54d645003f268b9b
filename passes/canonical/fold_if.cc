// fold, fourth part: If on a constant.
// Before: y = If(Constant true, captures...) then_branch {..} else_branch {..}
// After:  the nodes of then_branch, its inputs bound to the captures
#include <map>

#include "octavo/passes/canonical/fold.h"

namespace octavo::passes::canonical {

bool InlineIf(Rewriter& rw, NodeId id) {
  Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (n.op != Op::kIf) return false;
  const Tensor* condition = g.ConstantOf(n.input(0));
  if (condition == nullptr || condition->size() != 1) return false;
  const ir::GraphRef branch = n.attrs.Subgraph(condition->GetInt(0) != 0 ? "then_branch" : "else_branch");
  const size_t captures = static_cast<size_t>(n.attrs.Int("octavo_captures", 0));
  if (branch == nullptr || branch->inputs().size() != captures || captures + 1 != n.inputs.size()) return false;
  if (branch->outputs().size() < n.outputs.size()) return false;

  std::map<ValueId, ValueId> here;
  for (size_t i = 0; i < captures; ++i) here[branch->inputs()[i]] = n.inputs[1 + i];
  for (NodeId from : branch->NodesInOrder()) {
    const Node& b = branch->node(from);
    std::vector<ValueId> inputs;
    for (ValueId v : b.inputs) inputs.push_back(v.valid() ? here.at(v) : ValueId{});
    NodeId copy;
    if (b.op == Op::kOpaque) {
      copy = g.AddOpaque(b.domain, b.op_type, std::move(inputs), b.outputs.size(), b.attrs, b.name, id);
    } else {
      copy = rw.CreateN(b.op, std::move(inputs), b.outputs.size(), b.attrs, b.name);
    }
    std::vector<std::string> origin = b.origin;
    if (origin.empty() && !b.name.empty()) origin.push_back(b.name);
    origin.push_back("pass:fold");
    g.SetOrigin(copy, std::move(origin));
    for (size_t i = 0; i < b.outputs.size(); ++i) {
      const ValueId made = g.node(copy).outputs[i];
      if (b.outputs[i].valid()) {
        here[b.outputs[i]] = made;
        g.SetType(made, branch->value(b.outputs[i]).type);
        g.SetName(made, branch->value(b.outputs[i]).name);
      } else {
        g.DropOutput(copy, i);
      }
    }
  }
  const std::vector<ValueId> outputs = g.node(id).outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].valid()) rw.Replace(outputs[i], here.at(branch->outputs()[i].value));
  }
  rw.EraseDead(id);
  return true;
}

}  // namespace octavo::passes::canonical
