// The weights of all Linears in codes of 4 or 8 bits, one after the other: what passes that differ in the form of codes have in common.
#ifndef OCTAVO_PASSES_QUANTIZE_ROUND_WEIGHTS_H_
#define OCTAVO_PASSES_QUANTIZE_ROUND_WEIGHTS_H_

#include <map>
#include <string>
#include <vector>

#include "octavo/passes/pass.h"
#include "octavo/passes/quantize/fits.h"

namespace octavo::passes::quantize {

// What a pass makes of a weight, by the value that it is.
class Codes {
 public:
  virtual ~Codes() = default;
  // fit: null where there is no data. Returns the error (Blocked::error).
  virtual Result<double> Round(ValueId w, const ir::Tensor& values, const Compensation* fit) = 0;
  // 8 bits in place of 4, the nearest codes: what a fit still mends there is a hundredth of what 4 bits lose.
  virtual Status Widen(ValueId w, const ir::Tensor& values) = 0;
};

// fits: weights are fitted to what data there is. bits: of a weight on the mean; beyond 4 those that lose most get 8 (mixed_bits.h).
struct HowToRound {
  bool fits = false;
  double bits = 4;
};

struct Rounded {
  std::vector<FitSite> linears;         // those of one activation together, in the order of the first
  std::map<ValueId, std::string> left;  // why a weight stays float
};
// Shared weights are rounded once, and no two are in memory at a time where they are read from a file.
Result<Rounded> RoundWeights(const Graph& graph, PassRun& run, HowToRound how, Codes& codes);

// The option `bits` of a pass, checked.
Result<double> BitsOf(PassRun& run);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_ROUND_WEIGHTS_H_
