// Names of the nodes that a model came with, by which the report and the caller's lists speak of them.
#ifndef OCTAVO_PASSES_SOURCES_H_
#define OCTAVO_PASSES_SOURCES_H_

#include <string>
#include <string_view>

#include "octavo/ir/graph.h"

namespace octavo::passes {

// A file may name two nodes alike, or none of them. Reasons are kept by source names (OriginName), so each node gets one of its own: the second
// "fc" becomes "fc (2)". What the importer made of one node of the file keeps one name, but for what the report counts, products and attention.
// For a graph that no pass has seen; node names stay.
void TellSourcesApart(ir::Graph& graph);
// "fc" for "fc (2)" and "fc (expert 2)"; a name without such a number is its own.
std::string_view GivenName(std::string_view source);
// "encoder.layer.0.query/MatMul", the module's path and the node, for "/encoder/layer.0/query/MatMul" as torch's TorchScript exporter writes it;
// "mlp.0/Gemm" for "/mlp/mlp.0/Gemm" of a Sequential. Nothing for another name.
std::string ByModules(std::string_view source);

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_SOURCES_H_
