#include <pybind11/pybind11.h>

#include "octavo/kernels/arch/arch.h"
#include "octavo/python_bindings/convert.h"

PYBIND11_MODULE(_octavo, m) {
  namespace py = pybind11;
  m.doc() = "octavo: fused int8 transformers for x86 CPUs";
  m.attr("__version__") = "0.1.0";
  py::exception<std::runtime_error>(m, "OctavoError", PyExc_RuntimeError);
  octavo::python::BindOptimize(m);
  octavo::python::BindSession(m);
  m.def("cpu", &octavo::kernels::CpuDescription, "Model name and the instruction set in use.");
}
