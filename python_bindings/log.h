// octavo.set_log.
#ifndef OCTAVO_PYTHON_BINDINGS_LOG_H_
#define OCTAVO_PYTHON_BINDINGS_LOG_H_

#include <pybind11/pybind11.h>

namespace octavo::python {

void BindLog(pybind11::module_& m);

}  // namespace octavo::python

#endif  // OCTAVO_PYTHON_BINDINGS_LOG_H_
