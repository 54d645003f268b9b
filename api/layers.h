// Which layers an optimization loses most by, and which types a goal allows them. For api/ alone.
#ifndef OCTAVO_API_LAYERS_H_
#define OCTAVO_API_LAYERS_H_

#include <optional>
#include <vector>

#include "octavo/api/attempt.h"
#include "octavo/api/lost.h"

namespace octavo::api {

// What the recipe quantizes in `model`, named as in the report where that has a name for it, no losses yet.
ir::Result<std::vector<LayerLoss>> LayersOf(const ir::Graph& model, const passes::Report& report,
                                            const OptimizeOptions& options);

// The first four rows, or the first batch: a run then takes a fraction of the time.
std::vector<Sample> FewOf(const std::vector<Sample>& samples);

// Each of `measured` once, all others of `all` in float: fills in the losses, most first. 4-bit weights are not fitted to data.
ir::Status QuantizeAlone(const ir::Graph& model, const std::vector<LayerLoss>& all, std::vector<LayerLoss>& measured,
                         const OptimizeOptions& options, Evidence& evidence);

// As far as an order needs it: on four rows, and Linears that read one activation together, whose loss each of them then has.
ir::Status QuantizeGroups(const ir::Graph& model, const std::vector<LayerLoss>& all, std::vector<LayerLoss>& measured,
                          const OptimizeOptions& options, Evidence& evidence);

// spent: with none named. Adds names to options.dynamic and options.keep_float until the goal of the options is kept, and tells the layers their types. An error where floats do not keep it.
// The model that they give, where the search has made it; the caller's after_pass was left out.
ir::Result<std::optional<Optimized>> ChooseTypes(const ir::Graph& model, std::vector<LayerLoss>& layers,
                                                 OptimizeOptions& options, Evidence& evidence, Spent spent);

}  // namespace octavo::api

#endif  // OCTAVO_API_LAYERS_H_
