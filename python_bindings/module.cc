#include <pybind11/pybind11.h>

#include "octavo/ir/closed.h"
#include "octavo/kernels/arch/arch.h"
#include "octavo/python_bindings/graph.h"
#include "octavo/python_bindings/log.h"
#include "octavo/version.h"

namespace {

namespace py = pybind11;

// What a binding throws beside Python's own exceptions: memory that lacks, another library's, ours.
void Translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const py::error_already_set&) {
    throw;
  } catch (const py::stop_iteration&) {
    throw;
  } catch (...) {
    PyErr_Clear();  // a failed conversion leaves what it met
    try {
      octavo::python::Raise(octavo::ir::ErrorOf(std::current_exception(), "octavo"));
    } catch (py::error_already_set& e) {
      e.restore();
    }
  }
}

// Classes that are local to this copy of the module have an attribute by which another copy could take their objects. Ours share none,
// and the name of the attribute is the compiler's.
void HideLocals(const py::module_& m) {
  for (const auto& [name, value] : m.attr("__dict__").cast<py::dict>()) {
    if (PyType_Check(value.ptr()) && value.attr("__dict__").contains(PYBIND11_MODULE_LOCAL_ID))
      py::delattr(value, PYBIND11_MODULE_LOCAL_ID);
  }
}

}  // namespace

PYBIND11_MODULE(_octavo, m) {
  m.doc() = "octavo: fused int8 transformers for x86 CPUs";
  m.attr("__version__") = OCTAVO_VERSION;
  const py::object error = py::reinterpret_steal<py::object>(
      PyErr_NewExceptionWithDoc("octavo._octavo.OctavoError",
                                "Something outside was wrong: one sentence with the place, the reason and the way out.",
                                PyExc_RuntimeError, nullptr));
  m.attr("OctavoError") = error;
  const py::tuple bases = py::make_tuple(error, py::reinterpret_borrow<py::object>(PyExc_MemoryError));
  m.attr("OctavoMemoryError") = py::reinterpret_steal<py::object>(PyErr_NewExceptionWithDoc(
      "octavo._octavo.OctavoMemoryError", "Memory lacks, or a model declares more than max_memory allows.", bases.ptr(),
      nullptr));
  py::register_local_exception_translator(Translate);
  octavo::python::BindLog(m);
  octavo::python::BindGraph(m);
  octavo::python::BindRules(m);
  octavo::python::BindOptimize(m);
  octavo::python::BindMeasure(m);
  octavo::python::BindSession(m);
  HideLocals(m);
  m.def("cpu", &octavo::kernels::CpuDescription, "Model name and the instruction set in use.");
}
