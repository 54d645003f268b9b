#include <optional>

#include "octavo/ir/log.h"
#include "octavo/ir/names.h"
#include "octavo/python_bindings/convert.h"
#include "octavo/python_bindings/log.h"

namespace octavo::python {

namespace {

// What a function of Python raises is shown as Python shows what nobody can catch; Ctrl-C inside of it comes again where somebody asks.
void Call(const py::object& function, ir::LogLevel level, std::string_view text) {
  const py::gil_scoped_acquire lock;
  const py::error_scope pending;  // an exception on its way stays
  try {
    function(ir::Name(level), text);
  } catch (py::error_already_set& e) {
    if (e.matches(PyExc_KeyboardInterrupt)) return PyErr_SetInterrupt();
    e.discard_as_unraisable("octavo.set_log");
  }
}

// Lines end with Python: a thread that is in a run may outlive it.
void SetLog(std::string_view name, py::object function) {
  const std::optional<ir::LogLevel> level = ir::LogLevelOf(name);
  if (!level) Raise({"level is 'off', 'warning', 'info' or 'debug', not " + ir::Quoted(name)});
  if (*level == ir::LogLevel::kOff) return ir::SetLog(*level);
  const std::shared_ptr<py::object> kept(new py::object(std::move(function)), [](py::object* last) {
    const py::gil_scoped_acquire lock;  // whichever thread has it last
    delete last;
  });
  ir::SetLog(*level, [kept](ir::LogLevel of, std::string_view text) { Call(*kept, of, text); });
}

}  // namespace

void BindLog(py::module_& m) {
  m.def("_set_log", &SetLog, py::arg("level"), py::arg("function"));
  py::module_::import("atexit").attr("register")(py::cpp_function([] { ir::SetLog(ir::LogLevel::kOff); }));
}

}  // namespace octavo::python
