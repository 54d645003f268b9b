// What is known of index tensors: values that are affine in their own position, and comparisons that always hold.
#ifndef OCTAVO_PASSES_CANONICAL_MASK_INDICES_H_
#define OCTAVO_PASSES_CANONICAL_MASK_INDICES_H_

#include <map>
#include <optional>
#include <vector>

#include "octavo/ir/infer.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

// value[i0, i1, ...] = offset + sum over axes of step[a] * i_a; step 0 on axes of size 1.
struct Affine {
  Dim offset;
  std::vector<Dim> step;
};

enum class Truth { kUnknown, kTrue, kFalse };

// Answers for one state of the graph; make a new one after changing it.
class IndexFacts {
 public:
  IndexFacts(const Graph& graph, const ir::Inference& inference) : g_(graph), inference_(inference) {}

  // Integer tensors of any rank; null: not affine as far as we see.
  const Affine* AffineOf(ValueId v) { return AffineAt(v, 0); }
  // Whether every element of a bool (or mask-like) tensor is true (not zero), or every one false.
  Truth TruthOf(ValueId v) { return TruthAt(v, 0); }

 private:
  const Affine* AffineAt(ValueId v, int depth);
  std::optional<Affine> ComputeAffine(ValueId v, int depth);
  std::optional<Affine> Uniform(ValueId v);
  std::optional<Affine> Progression(const Tensor& t);
  std::optional<Affine> Broadcasted(const Affine& a, ValueId of, ValueId to);
  std::optional<Affine> ThroughView(const Node& n, int depth);
  Truth TruthAt(ValueId v, int depth);
  Truth ComputeTruth(ValueId v, int depth);
  Truth Comparison(const Node& n, int depth);

  const Graph& g_;
  const ir::Inference& inference_;
  std::map<ValueId, std::optional<Affine>> affine_;
  std::map<ValueId, Truth> truth_;
};

// Before: GatherND(mask [B,S], (b, s) for all b and s)   After: Unsqueeze(mask) to [B,1,1,S]
// Before: Gather(Flatten(mask), b*S + s)                 After: the same
// Before: ScatterND(x, every position of x in order, u)  After: u
// True if the node was rewritten.
bool IndexedWhole(Rewriter& rw, NodeId node, IndexFacts& facts);

}  // namespace octavo::passes::canonical

#endif  // OCTAVO_PASSES_CANONICAL_MASK_INDICES_H_
