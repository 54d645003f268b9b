#include "octavo/python_bindings/data.h"

#include <stdexcept>

#include "octavo/ir/onnx/tensor_file.h"

namespace octavo::python {

std::unique_ptr<quant::DataSource> OpenData(const py::object& data, const ir::Graph& graph, Passes passes) {
  const std::optional<std::string> path = PathOf(data);
  if (!path) return DataFromIterable(data, quant::InputsOf(graph), passes);
  quant::DataOptions options;
  options.read_tensor_file = ir::onnx::ReadTensorFile;
  options.random.limits = quant::IdLimits(graph);
  options.limits = graph.info.limits;
  return Unwrap(quant::OpenData(*path, quant::InputsOf(graph), options));
}

void Step(const std::optional<ProgressFn>& progress, std::string_view stage, int64_t done, int64_t total) {
  {
    const py::gil_scoped_acquire lock;
    try {
      if (progress && PyErr_Occurred() == nullptr) (*progress)(std::string(stage), done, total);
    } catch (py::error_already_set& e) {
      e.restore();
    }
    if (PyErr_Occurred() == nullptr && PyErr_CheckSignals() == 0) return;
  }
  throw std::runtime_error("interrupted");
}

}  // namespace octavo::python
