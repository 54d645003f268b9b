// Chains of element-wise nodes as one step: a tile at a time goes through all of them while it is in L1. The kernels and so the
// bits are those of the single nodes; what goes is a pass over memory for each.
#ifndef OCTAVO_RUNTIME_CHAIN_H_
#define OCTAVO_RUNTIME_CHAIN_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/kernels/gemm/gemm.h"
#include "octavo/runtime/rotation.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

// Nodes in the graph's order; the last one has the output, whose shape all values between them have. Nobody else reads what
// the others write.
struct Chain {
  std::vector<ir::NodeId> nodes;
  std::vector<ValueId> inputs;         // of the step: what is no constant and comes from outside
  Rotation rotation = {};              // of a rotary embedding (rotary_chain.h), which movements belong to
  std::optional<size_t> experts_slot;  // the operand of a product that experts' weights are (expert_products.h)
  bool takes_columns = false;          // of the experts that rows were sent to (expert_columns.h)
  bool writes = false;                 // rows into a cache (write_rows.h)

  bool is_element_wise() const { return rotation.columns == 0 && !experts_slot && !takes_columns && !writes; }
};

// Two or more nodes of those that MakeElementwise, MakeQuantize and MakeLookup serve, each node in at most one chain. Operands
// have the shape of the output, or are constants: one number, or one for each column.
std::vector<Chain> FindChains(const CompileContext& c);

KernelPtr MakeChain(const Chain& chain, const CompileContext& c);

// The node alone as a chain of element-wise nodes; none: it is no such node.
std::optional<Chain> ChainOf(const CompileContext& c, ir::NodeId id);

// A chain of element-wise nodes as the end of another step (tail.h), for pieces that this step has just made.
class Tail {
 public:
  virtual ~Tail() = default;
  virtual const std::string& name() const = 0;
  virtual DType output() const = 0;
  // These rows and columns of matrices of n columns each; `in` by Chain::inputs.
  virtual void RunPiece(std::span<const std::byte* const> in, int64_t n, kernels::Range rows, kernels::Range columns,
                        std::byte* out) const = 0;
};
std::unique_ptr<Tail> MakeTail(const Chain& chain, const CompileContext& c);

// The node of this kind that makes v for one reader alone, which joins `nodes`; null: there is none.
const Node* OnlyMaker(const CompileContext& c, ValueId v, Op op, std::vector<ir::NodeId>& nodes);

// The nodes one after the other by the interpreter, for operands that a chain's kernel does not take.
KernelPtr MakeNodes(const Chain& chain, const CompileContext& c, std::string name);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_CHAIN_H_
