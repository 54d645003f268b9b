// Weights of a GGUF file in a model that came as ONNX.
#ifndef OCTAVO_API_WEIGHTS_H_
#define OCTAVO_API_WEIGHTS_H_

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/gguf/gguf.h"
#include "octavo/ir/graph.h"

namespace octavo::api {

struct Taken {
  int64_t tensors = 0;
  std::vector<std::string> notes;  // sentences
};

// Puts the file's tensors in the place of the model's weights, in the codes that they have: matrices become blocked DequantizeLinear, tables are gathered as
// codes, what has no codes becomes floats. One tensor that stands in two places (tied embeddings) is one constant. Places are found by the names of modules and
// checked by shape; a weight that an exporter left without a name is found by its values. An error, and the graph as it was, where a tensor has no place.
ir::Result<Taken> TakeWeights(ir::Graph& graph, const std::filesystem::path& gguf);
ir::Result<Taken> TakeWeights(ir::Graph& graph, const ir::gguf::File& file);

// What a tensor may be called that belongs to a module, from the likeliest on: "/model/layers.3/mlp/c_fc/MatMul" is "blk.3.ffn_up". `path`: of a node or an
// initializer. `product`: a table that is multiplied with. Empty: no module that llama.cpp has a name for.
std::vector<std::string> TensorsOfModule(std::string_view path, bool product);

}  // namespace octavo::api

#endif  // OCTAVO_API_WEIGHTS_H_
