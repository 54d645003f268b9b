// ONNX Runtime as what runs a graph while data is gathered: it is loaded when asked for, from the shared library that its packages have.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_SESSION_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_SESSION_H_

#include <functional>
#include <string>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"

namespace octavo::integrations::onnxruntime {

// The outputs of one run, in the order of the graph's.
using Run = std::function<ir::Result<std::vector<ir::Tensor>>(const ir::TensorMap& inputs)>;

// library: path of libonnxruntime.so; empty: that which the system's loader finds. threads: 0: all.
// octavo's own ops run there by the bodies of their functions.
ir::Result<Run> OpenSession(const ir::Graph& graph, const std::string& library, int threads);

// What runs graphs by the name of an option: "octavo" (empty: its own runtime does), "onnxruntime", or the path of its library.
inline std::function<ir::Result<Run>(const ir::Graph& graph, int threads)> RuntimeNamed(const std::string& name) {
  if (name == "octavo") return {};
  return [library = name == "onnxruntime" ? std::string() : name](const ir::Graph& graph, int threads) {
    return OpenSession(graph, library, threads);
  };
}

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_SESSION_H_
