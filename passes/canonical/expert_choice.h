// Which expert a term of a sum belongs to, as exporters' loops over experts say it. Read-only.
#ifndef OCTAVO_PASSES_CANONICAL_EXPERT_CHOICE_H_
#define OCTAVO_PASSES_CANONICAL_EXPERT_CHOICE_H_

#include <optional>

#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

// The best k experts of each token, out of a TopK: no expert twice.
struct Choice {
  ValueId index, shares;  // [..,k]; shares may be anything of that shape
  int64_t expert = 0;     // the one that is spoken of
  NodeId
      places;  // a NonZero of the places where it was chosen; invalid: the share of each token, 0 where it was not chosen
  bool operator==(const Choice&) const = default;
};

// Experts that the TopK behind index chooses among; 0: index is none of a TopK along the last axis.
int64_t ExpertsOf(const Graph& g, ValueId index);
// Whether every element is 0.
bool IsZeros(const Graph& g, ValueId v);
// What v [..] is a view of where only dims of 1 were added, taken away or moved; v where it is none.
ValueId BehindViews(const Graph& g, ValueId v);
// v is the number of an expert: a constant, or the i-th of as many as were hit, which an exporter counted in a run that hit all `experts`.
std::optional<int64_t> ExpertAt(const Graph& g, ValueId v, int64_t experts);

// v [..,1] is what one expert counts for each token: a column of shares that were scattered, or the sum of those whose index is the expert's.
std::optional<Choice> ShareOfTokens(const Graph& g, ValueId v);
// v [..,E] is what each expert counts for each token.
std::optional<Choice> SharesOfAll(const Graph& g, ValueId v);
// v [n,1] has the shares of the places where one expert was chosen.
std::optional<Choice> ShareOfPlaces(const Graph& g, ValueId v);
// v [n] or [n,1] says which token each of these places belongs to.
bool AreTokensOf(const Graph& g, ValueId v, NodeId places);

}  // namespace octavo::passes::canonical

#endif  // OCTAVO_PASSES_CANONICAL_EXPERT_CHOICE_H_
