// numpy arrays and octavo tensors, without copying where the memory allows it.
#ifndef OCTAVO_PYTHON_BINDINGS_CONVERT_H_
#define OCTAVO_PYTHON_BINDINGS_CONVERT_H_

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "octavo/ir/interpret.h"
#include "octavo/ir/tensor.h"
#include "octavo/quant/dataset.h"

namespace octavo::python {

namespace py = pybind11;

// Raises OctavoError with the sentence.
[[noreturn]] void Raise(const ir::Error& error);
template <typename T>
T Unwrap(ir::Result<T> result) {
  if (!result) Raise(result.error());
  return std::move(*result);
}
inline void Unwrap(ir::Status status) {
  if (!status) Raise(status.error());
}

// The tensor refers to the array's memory where it is C-contiguous and aligned, and keeps the array alive. donated: a run
// may overwrite it.
ir::Tensor FromNumpy(const std::string& name, const py::array& array, bool donated = false);
// The array is the caller's to write: it refers to the tensor's memory where nobody else holds that, to a copy otherwise. bf16, fp8 and 4-bit tensors are widened: numpy has no such types.
py::array ToNumpy(ir::Tensor tensor);
// `donate`: names of arrays that may be overwritten.
ir::TensorMap FromDict(const py::dict& arrays, const std::vector<std::string>& donate = {});

// A UserWarning for each.
void Warn(const std::vector<std::string>& sentences);

// A path or the bytes of a model.
ir::Graph ReadModel(const py::object& model);

// Batches from a Python iterable of dicts, pulled one at a time. What an iterator yields comes once: it is kept where it shall come again,
// else the data can be read once only and takes the memory of a batch.
enum class Passes { kOne, kMany };
std::unique_ptr<quant::DataSource> DataFromIterable(py::object iterable, std::vector<quant::InputSpec> inputs,
                                                    Passes passes);

void BindOptimize(py::module_& m);
void BindSession(py::module_& m);

}  // namespace octavo::python

#endif  // OCTAVO_PYTHON_BINDINGS_CONVERT_H_
