// Shape and type inference over symbolic dims, with propagation of the contents of small integer tensors, so that a
// Reshape whose target is computed by Shape/Gather/Concat/Mul chains gets the dims it really has.
#ifndef OCTAVO_IR_INFER_H_
#define OCTAVO_IR_INFER_H_

#include <optional>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::ir {

// What is known of the elements of an integer tensor of rank 0 or 1 (at most 64 elements), in order.
using SymContents = std::vector<Dim>;

class Inference {
 public:
  // Infers over the whole graph. Graph inputs keep their declared types; what inference finds for other values replaces
  // vaguer knowledge and never contradicts silently: a contradiction is an error that names the node.
  static Result<Inference> Run(Graph& graph);

  // Symbolic contents of `v`; nullptr: nothing known. Single elements may be unknown.
  const SymContents* Contents(ValueId v) const {
    return v.index < contents_.size() && contents_[v.index] ? &*contents_[v.index] : nullptr;
  }

 private:
  friend class Inferrer;
  std::vector<std::optional<SymContents>> contents_;  // by value index
};

// Takes away declared shapes that contradict what the nodes compute, as a file has them whose inputs were edited and whose
// value_info was not; one sentence for each. ONNX Runtime warns of them and goes by the nodes. Those in graphs of If, Loop and Scan too.
std::vector<std::string> DropFalseShapes(Graph& graph);

// Both shapes are known, and provably the same.
bool SameShape(const Graph& graph, ValueId a, ValueId b);

// Broadcast of two dims: equal dims, or 1 against anything. Unknown where it cannot be told.
Dim BroadcastDim(const Dim& a, const Dim& b);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_INFER_H_
