// The only way a pass changes a graph: every new node gets provenance (the source nodes it stands for, and the pass).
#ifndef OCTAVO_PASSES_REWRITER_H_
#define OCTAVO_PASSES_REWRITER_H_

#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::passes {

class Rewriter {
 public:
  // `pass` is written into the origin of new nodes as "pass:NAME".
  Rewriter(ir::Graph& graph, std::string_view pass) : graph_(graph), pass_(pass) {}

  ir::Graph& graph() { return graph_; }
  bool changed() const { return changed_; }

  // New nodes stand before `anchor` and inherit the origins of `sources` until the next call.
  void At(ir::NodeId anchor, std::vector<ir::NodeId> sources);

  // One output: returns it. The name is derived from the anchor's unless given.
  ir::ValueId Create(ir::Op op, std::vector<ir::ValueId> inputs, ir::Attrs attrs = {}, std::string name = {});
  ir::NodeId CreateN(ir::Op op, std::vector<ir::ValueId> inputs, size_t outputs, ir::Attrs attrs = {},
                     std::string name = {});
  // An op that octavo does not know.
  ir::NodeId CreateOpaque(std::string domain, std::string op_type, std::vector<ir::ValueId> inputs, size_t outputs,
                          ir::Attrs attrs = {});
  ir::ValueId Constant(ir::Tensor tensor, std::string name = {});

  // `to` takes over all uses, and the type where its own is not known. It must not have another (guard.h).
  void Replace(ir::ValueId from, ir::ValueId to);
  void SetInput(ir::NodeId node, size_t slot, ir::ValueId value);
  void SetAttr(ir::NodeId node, std::string_view name, ir::Attr value);
  // Erases the node and then, transitively, producers whose outputs nobody uses any more.
  void EraseDead(ir::NodeId node);

 private:
  ir::Graph& graph_;
  std::string pass_;
  ir::NodeId anchor_;
  std::vector<std::string> origin_;
  bool changed_ = false;
};

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_REWRITER_H_
