// What a model lost in the figure that its task asks for, and what may be lost: by these choose whatever tries several ways. For api/ and the program.
#ifndef OCTAVO_API_LOST_H_
#define OCTAVO_API_LOST_H_

#include <optional>
#include <string>

#include "octavo/api/optimize.h"

namespace octavo::api {

// Logits and probabilities: a Kullback-Leibler divergence of 0.01 is a hundredth of a perplexity. Other outputs: what
// sentence encoders and vision transformers had lost when neighbours began to differ (docs/lab/quantization.md).
constexpr double kMostKl = 0.01, kMostTurn = 0.0015;  // of 1 - cosine
// Of 4 bits beyond what 8 bits lose, which with activations in codes is no less: of Gemma 3 270M's perplexity 5.9 % at a divergence of 0.021
// more, 2.2 % at 0.009 more (recipe dynamic4 with 4 and 5 bits; 8 bits lose 1.0 % at 0.019); MiniLM half a hundredth of its recall at 0.01 of 1 - cosine.
constexpr double kMostKlOfFour = 0.01, kMostTurnOfFour = 0.014;

// One figure of an output, less of which is better: the KL divergence of its classes, else 1 - cosine of its rows. Those of layers that are
// quantized alone add up to about that of the model, as powers of errors do, since both grow by the square of an error.
struct Lost {
  std::string output = {};  // empty: there is none
  bool is_kl = false;
  double value = 0;       // infinite where a number is not finite
  bool is_score = false;  // one number a row, whose 1 - R^2 is twice the value

  bool too_much() const { return value > (is_kl ? kMostKl : kMostTurn); }
  // Of 4 bits, which are chosen for their bytes, beyond what 8 bits lose.
  double MostOfFour() const { return is_kl ? kMostKlOfFour : kMostTurnOfFour; }
  // The same figure of the same output.
  double In(const Optimized& other) const;
};

// Of the output that lost most; where one has classes, only such count, since caches beside it are turned without harm.
Lost MostLost(const Optimized& result);

// How much of what options.min_db, min_cosine and max_kl allow is lost where it is most: up to 1 they are kept. Without any: what MostLost says.
struct Spent {
  double lost = 0;
  std::string output = {};
  std::string_view goal = {};  // "min_db"; empty: none
  double asked = 0, has = 0;   // of the goal
};
bool HasGoal(const OptimizeOptions& options);
// Nothing: no output is measured, or none that the goal is about.
std::optional<Spent> SpentOf(const Optimized& result, const OptimizeOptions& options);

}  // namespace octavo::api

#endif  // OCTAVO_API_LOST_H_
