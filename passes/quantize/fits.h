// Second moments of the activations that enter Linears, gathered as they are needed.
#ifndef OCTAVO_PASSES_QUANTIZE_FITS_H_
#define OCTAVO_PASSES_QUANTIZE_FITS_H_

#include <optional>
#include <vector>

#include "octavo/passes/quantize/moments.h"

namespace octavo::passes::quantize {

struct FitSite {
  NodeId id;
  ValueId x, w;  // [...,k], a constant [k,n]
};

// Sites of one activation come to stand together, in the order of the first.
void GroupByActivation(std::vector<FitSite>& sites);

// What the data says of their activations: run.evidence.moments is asked for 1 GB at a time, or half of what the weights take, or one
// activation.
class Fits {
 public:
  // Linears of one activation stand together. limit: of the codes.
  Fits(const Graph& g, PassRun& run, const std::vector<FitSite>& sites, int limit);

  // Of the activation at hand or the one after it. Null: there is no data, it is zero there, or the Linear is too deep.
  Result<const Compensation*> Of(ValueId x);

  // To be called when all is done.
  void Tell() const;

 private:
  Status Gather();

  const Graph& g_;
  PassRun& run_;
  std::vector<ValueId> values_;
  std::vector<int64_t> depths_;
  int64_t at_once_;  // floats of moments
  std::vector<SecondMoments> group_;
  size_t done_ = 0, next_ = 0;
  ValueId at_;
  std::optional<Compensation> fit_;
  std::vector<ValueId> silent_;
  std::optional<FitSite> too_deep_;  // the first
  // The Linear on which it is tried whether the data is enough: the deepest that does not take long, which wants most.
  std::optional<FitSite> probe_;
  int limit_;
  std::optional<double> lost_;
};

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_FITS_H_
