// Graphs, values and nodes as Python sees them.
#ifndef OCTAVO_PYTHON_BINDINGS_GRAPH_H_
#define OCTAVO_PYTHON_BINDINGS_GRAPH_H_

#include <memory>
#include <string>
#include <vector>

#include "octavo/passes/rewriter.h"
#include "octavo/python_bindings/convert.h"
#include "octavo/python_bindings/made.h"

namespace octavo::python {

// A graph of Python's own, or one that a rule is shown while it is called; it is gone (null) when the call is over.
struct GraphRef {
  std::unique_ptr<ir::Graph> own;
  ir::Graph* graph = nullptr;
};
using Shared = std::shared_ptr<GraphRef>;

struct PyValue {
  Shared graph;
  ir::ValueId id;
};
struct PyNode {
  Shared graph;
  ir::NodeId id;
};
// What makes nodes: op.Gelu(x, approximate="tanh"). Numbers and arrays among the operands become constants, of the type of the first tensor operand.
struct PyRewriter {
  Shared graph;
  std::shared_ptr<passes::Rewriter> own;
  passes::Rewriter* rewriter = nullptr;  // null: the call that it was made for is over
};

// The graph, or an OctavoError where it is gone.
ir::Graph& Of(const Shared& graph);
const ir::Value& Of(const PyValue& value);
ir::Attr AttrOf(const std::string& name, const py::handle& value);
// Whole numbers become what the op has there; raises where it has no such attribute, or one of another kind. place: "op.Gelu".
void FitAttrs(std::string_view place, std::string_view domain, std::string_view op, ir::Attrs& attrs);

void BindGraph(py::module_& m);
void BindRules(py::module_& m);

}  // namespace octavo::python

OCTAVO_MADE(octavo::python::GraphRef);
template <>
struct pybind11::detail::type_caster<octavo::python::Shared>
    : octavo::python::MadeCaster<octavo::python::GraphRef, pybind11::detail::copyable_holder_caster<
                                                               octavo::python::GraphRef, octavo::python::Shared>> {
  using MadeCaster::MadeCaster;
};

#endif  // OCTAVO_PYTHON_BINDINGS_GRAPH_H_
