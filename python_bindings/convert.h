// numpy arrays and octavo tensors, without copying where the memory allows it.
#ifndef OCTAVO_PYTHON_BINDINGS_CONVERT_H_
#define OCTAVO_PYTHON_BINDINGS_CONVERT_H_

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/interpret.h"
#include "octavo/ir/limits.h"
#include "octavo/ir/tensor.h"
#include "octavo/quant/dataset.h"

namespace octavo::python {

namespace py = pybind11;

// Text out of a file, which need not be UTF-8: other bytes are lone surrogates in Python, as in names of files, and come back as they were.
struct Name {
  std::string bytes;
};

// Raises OctavoError with the sentence, or OctavoMemoryError, which is a MemoryError too.
[[noreturn]] void Raise(const ir::Error& error);
// The exception of Python that is pending (Ctrl-C, what a callback raised), else what the result holds.
template <typename T>
T Unwrap(ir::Result<T> result) {
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (!result) Raise(result.error());
  return std::move(*result);
}
inline void Unwrap(ir::Status status) {
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (!status) Raise(status.error());
}
// Whether Ctrl-C was pressed or an exception is pending; the exception stays so until Unwrap. Asked without Python's lock.
bool Interrupted();
bool OnMainThread();

// The bytes of a path; nothing for what is none.
std::optional<std::string> PathOf(const py::object& o);
// For sentences: the type of an object.
std::string TypeOf(const py::handle& o);
ir::Limits LimitsOf(std::optional<int64_t> max_memory, std::optional<int64_t> max_nodes);

// The tensor refers to the array's memory where it is C-contiguous and aligned, and keeps the array alive. donated: a run
// may overwrite it.
ir::Tensor FromNumpy(const std::string& name, const py::array& array, bool donated = false);
// The array is the caller's to write: it refers to the tensor's memory where nobody else holds that, to a copy otherwise. bf16, fp8 and 4-bit tensors are widened: numpy has no such types.
py::array ToNumpy(ir::Tensor tensor);
// The dtype of the arrays that ToNumpy gives; None where the type is not known.
py::object NumpyTypeOf(ir::DType dtype);
// Numbers, names of symbols, None for a size without a name; None where the rank is not known.
py::object ShapeToPython(const ir::Type& type);
// `donate`: names of arrays that may be overwritten; none of them may share memory with another one.
ir::TensorMap FromDict(const py::object& arrays, std::string_view place, const std::vector<Name>& donate = {});

// A UserWarning for each.
void Warn(const std::vector<std::string>& sentences);

// A path, a Graph, or the bytes of a model: bytes, what has them as a buffer, an onnx.ModelProto or an open file. bytes: gets these, if there are any.
// map_data: as of ir::onnx::ReadOptions, of a path.
ir::Graph ReadModel(const py::object& model, const ir::Limits& limits, py::object* bytes = nullptr,
                    bool map_data = false);

// Batches from a Python iterable of dicts, pulled one at a time. What an iterator yields comes once: it is kept where it shall come again,
// else the data can be read once only and takes the memory of a batch.
enum class Passes { kOne, kMany };
std::unique_ptr<quant::DataSource> DataFromIterable(py::object iterable, std::vector<quant::InputSpec> inputs,
                                                    Passes passes);

void BindMeasure(py::module_& m);
void BindOptimize(py::module_& m);
void BindSession(py::module_& m);

}  // namespace octavo::python

template <>
struct pybind11::detail::type_caster<octavo::python::Name> {
  PYBIND11_TYPE_CASTER(octavo::python::Name, const_name("str"));

  bool load(handle source, bool) {
    if (!PyUnicode_Check(source.ptr())) return false;
    const auto encoded = reinterpret_steal<bytes>(PyUnicode_AsEncodedString(source.ptr(), "utf-8", "surrogateescape"));
    if (!encoded) {
      PyErr_Clear();
      return false;
    }
    value.bytes = std::string(encoded);
    return true;
  }
  static handle cast(const octavo::python::Name& name, return_value_policy, handle) {
    const std::string& bytes = name.bytes;
    return PyUnicode_DecodeUTF8(bytes.data(), static_cast<ssize_t>(bytes.size()), "surrogateescape");
  }
};

#endif  // OCTAVO_PYTHON_BINDINGS_CONVERT_H_
