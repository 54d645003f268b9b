// Objects of Python that __new__ alone has made: pybind11 would hand out memory for them that nobody has written.
#ifndef OCTAVO_PYTHON_BINDINGS_MADE_H_
#define OCTAVO_PYTHON_BINDINGS_MADE_H_

#include <pybind11/pybind11.h>

#include <typeinfo>

namespace octavo::python {

// Raises a TypeError where `source` is of the class of T, or of one that was derived from it, and its constructor has not run.
template <typename T>
void DemandMade(pybind11::handle source) {
  const auto* type = pybind11::detail::get_type_info(typeid(T));
  if (type == nullptr || !source || PyObject_TypeCheck(source.ptr(), type->type) == 0) return;
  auto* object = reinterpret_cast<pybind11::detail::instance*>(source.ptr());
  if (object->get_value_and_holder(type, false).value_ptr() != nullptr) return;
  const std::string name = pybind11::str(pybind11::type::handle_of(source).attr("__name__"));
  PyErr_SetString(PyExc_TypeError,
                  ("this " + name + " is not made yet, its __init__ has not run; call " + name + "(...)").c_str());
  throw pybind11::error_already_set();
}

// What stands for T, or for a pointer to it, among the arguments of a binding.
template <typename T, typename Base>
struct MadeCaster : Base {
  using Base::Base;
  bool load(pybind11::handle source, bool convert) {
    DemandMade<T>(source);
    return Base::load(source, convert);
  }
};

}  // namespace octavo::python

// For each class that has a constructor, behind its definition and in front of its bindings.
#define OCTAVO_MADE(T)                                                                                             \
  template <>                                                                                                      \
  struct pybind11::detail::type_caster<T> : octavo::python::MadeCaster<T, pybind11::detail::type_caster_base<T>> { \
    using MadeCaster::MadeCaster;                                                                                  \
  }

#endif  // OCTAVO_PYTHON_BINDINGS_MADE_H_
