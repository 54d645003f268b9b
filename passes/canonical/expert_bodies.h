// What each expert computes, found to be the same but for constants, and made once for all that were chosen.
#ifndef OCTAVO_PASSES_CANONICAL_EXPERT_BODIES_H_
#define OCTAVO_PASSES_CANONICAL_EXPERT_BODIES_H_

#include <map>
#include <optional>
#include <vector>

#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

class ExpertBodies {
 public:
  // places: for each expert the NonZero that tells its rows; invalid: it computes all of them. index [..,k].
  ExpertBodies(const Graph& graph, ValueId index, std::vector<NodeId> places)
      : g_(graph), index_(index), places_(std::move(places)) {}

  // ys: the results of all experts. False: they differ in more than constants, or an op is none that rows can be gathered for.
  bool Plan(const std::vector<ValueId>& ys);
  // The results of the chosen, [..,k,1,N].
  ValueId Build(Rewriter& rw) const;

 private:
  using Values = std::vector<ValueId>;  // of each expert
  enum class Kind { kRows, kShared, kOwn, kProduct, kOp };
  struct Step {
    Kind kind;
    Values values;         // kProduct: the matrices
    ValueId source = {};   // kRows: [..,K]; kOwn, kProduct: the one tensor that they are entries of, where there is one
    bool flipped = false;  // kProduct: source is [E,N,K]
    std::vector<size_t> operands = {};  // steps
    NodeId node = {};                   // kOp: of the first expert
    size_t output = 0;
  };

  std::optional<size_t> Find(Values values);
  std::optional<Step> StepOf(const Values& values);
  std::optional<Step> Constants(const Values& values) const;
  std::optional<Step> Rows(const Values& values) const;
  std::optional<Step> Product(const Values& values);
  std::optional<Step> Operation(const Values& values);
  bool AreEntries(Step& step) const;
  bool HaveSameRows(const Node& node, const Step& step) const;
  Tensor Stacked(const Step& step, const ir::Shape& shape) const;
  ValueId Taken(Rewriter& rw, const Step& step, const ir::Shape& shape) const;
  ValueId BuildRows(Rewriter& rw, ValueId x) const;
  ValueId BuildOp(Rewriter& rw, const Step& step, const Values& built) const;
  ValueId Operand(const Values& values, size_t expert, size_t slot) const;

  const Graph& g_;
  ValueId index_;
  std::vector<NodeId> places_;
  std::vector<Step> steps_;
  std::map<Values, size_t> known_;
};

}  // namespace octavo::passes::canonical

#endif  // OCTAVO_PASSES_CANONICAL_EXPERT_BODIES_H_
