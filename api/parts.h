// The data in two parts: what calibration and fitting see, and what losses are measured on. For api/ alone.
#ifndef OCTAVO_API_PARTS_H_
#define OCTAVO_API_PARTS_H_

#include <memory>

#include "octavo/api/attempt.h"

namespace octavo::api {

struct Parts {
  std::unique_ptr<quant::DataSource> seen;      // null: all of it
  std::unique_ptr<quant::DataSource> measured;  // samples held out, else the first of those that are seen
};

// Counted in samples, so that these are the same however they come in batches. Tells the evidence how the data falls into samples, where it does not know.
ir::Result<Parts> PartsOf(const ir::Graph& model, const OptimizeOptions& options, Evidence& evidence);

}  // namespace octavo::api

#endif  // OCTAVO_API_PARTS_H_
