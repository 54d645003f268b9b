// Which layers an optimization loses most by, and which types a number of decibels allows them. For api/ alone.
#ifndef OCTAVO_API_LAYERS_H_
#define OCTAVO_API_LAYERS_H_

#include <vector>

#include "octavo/api/attempt.h"

namespace octavo::api {

// What the recipe quantizes in `model`, named as in the report where that has a name for it, no losses yet.
ir::Result<std::vector<LayerLoss>> LayersOf(const ir::Graph& model, const passes::Report& report,
                                            const OptimizeOptions& options);

// Each of `measured` once, all others of `all` in float: fills in the losses, most first. 4-bit weights are not fitted to data.
ir::Status QuantizeAlone(const ir::Graph& model, const std::vector<LayerLoss>& all, std::vector<LayerLoss>& measured,
                         const OptimizeOptions& options, Evidence& evidence);

// options.min_db: adds names to options.dynamic and options.keep_float until it is kept, and tells the layers their types. An error where floats do not keep it.
ir::Status ChooseTypes(const ir::Graph& model, std::vector<LayerLoss>& layers, OptimizeOptions& options,
                       Evidence& evidence);

}  // namespace octavo::api

#endif  // OCTAVO_API_LAYERS_H_
