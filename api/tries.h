// One model optimized again and again, for a search among ways to do it: what one attempt learns of the model (ranges, fitted weights, what floats make
// of the held-out samples) serves the next.
#ifndef OCTAVO_API_TRIES_H_
#define OCTAVO_API_TRIES_H_

#include <memory>
#include <string>
#include <vector>

#include "octavo/api/optimize.h"

namespace octavo::api {

struct Evidence;

class Tries {
 public:
  // data: not owned, outlives this.
  Tries(ir::Graph model, quant::DataSource& data);
  ~Tries();
  Tries(const Tries&) = delete;
  Tries& operator=(const Tries&) = delete;

  const ir::Graph& model() const { return model_; }
  // With the data, whatever options.data is. refine: weights that no attempt has fitted yet are fitted now, in a run of the data; else they get the
  // codes nearest to them, and no data runs where the ranges are known.
  ir::Result<Optimized> Optimize(OptimizeOptions options, bool refine);
  // What the recipe int8 quantizes, no losses yet. An Optimize by that recipe comes first.
  ir::Result<std::vector<LayerLoss>> Layers(OptimizeOptions options);
  // Where these nodes alone are as int8 has them, all others in floats: what MostLost (lost.h) says on the first four rows of the first batch. dynamic: the Linears among them with a scale a row.
  ir::Result<double> NoiseOf(const std::vector<std::string>& nodes, bool dynamic, OptimizeOptions options);

 private:
  ir::Graph model_;
  quant::DataSource& data_;
  std::unique_ptr<Evidence> evidence_;
  passes::Report report_;  // of the last attempt by recipe int8
  std::vector<LayerLoss> layers_;
  std::vector<Sample> few_;  // what NoiseOf measures on
};

}  // namespace octavo::api

#endif  // OCTAVO_API_TRIES_H_
