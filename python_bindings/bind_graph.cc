#include <pybind11/stl.h>

#include <format>

#include "octavo/ir/attr_table.h"
#include "octavo/ir/closed.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/interpret/call.h"
#include "octavo/ir/names.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"
#include "octavo/ir/whole_file.h"
#include "octavo/python_bindings/graph.h"
#include "octavo/quant/dataset.h"
#include "octavo/quant/numeric/dtype.h"

namespace octavo::python {

ir::Graph& Of(const Shared& graph) {
  if (graph == nullptr) {  // None fits every argument that is shared
    PyErr_SetString(PyExc_TypeError, "a Graph is wanted here, not None");
    throw py::error_already_set();
  }
  if (graph->graph == nullptr)
    Raise({"this graph is gone: what a rule is given is valid until its check or rewrite returns"});
  return *graph->graph;
}
const ir::Value& Of(const PyValue& value) {
  const ir::Graph& g = Of(value.graph);
  if (!g.IsAlive(value.id)) Raise({"this value has been erased from its graph"});
  return g.value(value.id);
}

namespace {

const ir::Node& Of(const PyNode& node) {
  const ir::Graph& g = Of(node.graph);
  if (!g.IsAlive(node.id)) Raise({"this node has been erased from its graph"});
  return g.node(node.id);
}

py::object ValueOrNone(const Shared& g, ir::ValueId v) { return v.valid() ? py::cast(PyValue{g, v}) : py::none(); }

py::list Values(const Shared& g, const std::vector<ir::ValueId>& ids) {
  py::list list;
  for (const ir::ValueId v : ids) list.append(ValueOrNone(g, v));
  return list;
}

Name OpOf(const ir::Node& n) { return {n.op == ir::Op::kOpaque ? n.op_type : std::string(ir::InfoOf(n.op).name)}; }
Name DomainOf(const ir::Node& n) { return {n.op == ir::Op::kOpaque ? n.domain : std::string(ir::InfoOf(n.op).domain)}; }

py::object AttrToPython(const ir::Attr& attr) {
  if (const auto* tensor = std::get_if<ir::Tensor>(&attr)) return ToNumpy(*tensor);
  if (const auto* text = std::get_if<std::string>(&attr)) return py::cast(Name{*text});
  if (const auto* texts = std::get_if<std::vector<std::string>>(&attr)) {
    py::list list;
    for (const std::string& text : *texts) list.append(Name{text});
    return list;
  }
  if (const auto* i = std::get_if<int64_t>(&attr)) return py::cast(*i);
  if (const auto* f = std::get_if<float>(&attr)) return py::cast(*f);
  if (const auto* is = std::get_if<std::vector<int64_t>>(&attr)) return py::cast(*is);
  if (const auto* fs = std::get_if<std::vector<float>>(&attr)) return py::cast(*fs);
  if (const auto* graph = std::get_if<ir::GraphRef>(&attr)) {
    auto body = std::make_shared<GraphRef>();
    body->own = std::make_unique<ir::Graph>(**graph);
    body->graph = body->own.get();
    return py::cast(body);
  }
  return py::none();
}

py::dict AttrsToPython(const ir::Attrs& attrs) {
  py::dict all;
  for (const auto& [name, value] : attrs.entries()) all[py::cast(Name{name})] = AttrToPython(value);
  return all;
}

Shared Read(const py::object& model, std::optional<int64_t> max_memory, std::optional<int64_t> max_nodes) {
  auto g = std::make_shared<GraphRef>();
  g->own = std::make_unique<ir::Graph>(ReadModel(model, LimitsOf(max_memory, max_nodes)));
  g->graph = g->own.get();
  Unwrap(ir::Closed("inferring types", [&] { return ir::Inference::Run(*g->graph).transform([](const auto&) {}); }));
  return g;
}

// The dtype that a number beside these operands has: that of the first of them that is known.
ir::DType TypeBeside(const Shared& g, const py::args& operands) {
  for (const py::handle& o : operands) {
    if (!py::isinstance<PyValue>(o)) continue;
    const ir::DType t = Of(g).value(o.cast<PyValue>().id).type.dtype;
    if (t != ir::DType::kUndefined) return t;
  }
  return ir::DType::kUndefined;
}

ir::ValueId OperandOf(PyRewriter& rw, const py::handle& o, ir::DType beside) {
  if (o.is_none()) return {};
  if (py::isinstance<PyValue>(o)) {
    const auto value = o.cast<PyValue>();
    if (value.graph != rw.graph) Raise({"an operand is a value of another graph"});
    Of(value);
    return value.id;
  }
  const auto array = py::array::ensure(py::reinterpret_borrow<py::object>(o));
  if (!array) Raise({std::format("an operand is a value, a number or an array, not {}", TypeOf(o))});
  const ir::Tensor t = FromNumpy("operand", array);
  const bool is_number = !py::isinstance<py::array>(o);
  if (!is_number || beside == ir::DType::kUndefined || t.dtype() == beside) return rw.rewriter->Constant(t);
  return rw.rewriter->Constant(Unwrap(ir::interpret::CastTo(t, beside)));
}

py::object Create(PyRewriter& rw, const std::string& op_type, const py::args& operands, const py::kwargs& kwargs) {
  if (rw.rewriter == nullptr) Raise({"this rewriter is gone: it is valid until the rule's rewrite returns"});
  size_t outputs = 1;
  std::string domain;
  ir::Attrs attrs;
  for (const auto& [key, value] : kwargs) {
    const auto name = key.cast<std::string>();
    if (name == "_outputs") {
      outputs = value.cast<size_t>();
    } else if (name == "_domain") {
      domain = value.cast<std::string>();
    } else if (name.starts_with('_') && !name.starts_with("__")) {
      Raise({std::format("op.{}: there is no {}; what begins with _ is _outputs or _domain", op_type, name)});
    } else {
      attrs.Set(name, AttrOf(name, value));
    }
  }
  ir::Op op = ir::OpFromName(domain, op_type);
  if (op == ir::Op::kOpaque && domain.empty()) op = ir::OpFromName("octavo", op_type);
  if (op == ir::Op::kOpaque && domain.empty())
    Raise({std::format("octavo knows no op {} of ONNX: _domain=\"...\" makes one of another domain",
                       ir::Quoted(op_type))});
  FitAttrs("op." + op_type, op == ir::Op::kOpaque ? domain : ir::InfoOf(op).domain, op_type, attrs);
  const ir::DType beside = TypeBeside(rw.graph, operands);
  std::vector<ir::ValueId> inputs;
  for (const py::handle& o : operands) inputs.push_back(OperandOf(rw, o, beside));
  const ir::NodeId id = op == ir::Op::kOpaque
                            ? rw.rewriter->CreateOpaque(domain, op_type, std::move(inputs), outputs, std::move(attrs))
                            : rw.rewriter->CreateN(op, std::move(inputs), outputs, std::move(attrs));
  const std::vector<ir::ValueId> made = Of(rw.graph).node(id).outputs;
  return made.size() == 1 ? ValueOrNone(rw.graph, made[0]) : py::object(Values(rw.graph, made));
}

void BindValue(py::module_& m) {
  py::class_<PyValue>(m, "Value", py::module_local(), "A tensor of a Graph: what a node makes, or an input.")
      .def_property_readonly("name", [](const PyValue& v) { return Name{Of(v).name}; })
      .def_property_readonly("type", [](const PyValue& v) { return Name{ToString(Of(v).type)}; })
      .def_property_readonly("dtype",
                             [](const PyValue& v) -> py::object {
                               const ir::DType t = Of(v).type.dtype;
                               return t == ir::DType::kUndefined ? py::object(py::none())
                                                                 : py::cast(std::string(quant::Name(t)));
                             })
      .def_property_readonly("shape", [](const PyValue& v) { return ShapeToPython(Of(v).type); })
      .def_property_readonly("producer",
                             [](const PyValue& v) -> py::object {
                               const ir::NodeId id = Of(v).producer;
                               return id.valid() ? py::cast(PyNode{v.graph, id}) : py::none();
                             })
      .def_property_readonly("users",
                             [](const PyValue& v) {
                               std::vector<PyNode> users;
                               for (const ir::Use& use : Of(v).uses) users.push_back({v.graph, use.node});
                               return users;
                             })
      .def_property_readonly("constant",
                             [](const PyValue& v) -> py::object {
                               Of(v);
                               const ir::Tensor* t = Of(v.graph).ConstantOf(v.id);
                               return t == nullptr ? py::object(py::none()) : ToNumpy(*t);
                             })
      .def_property_readonly("is_output", [](const PyValue& v) { return Of(v), Of(v.graph).IsGraphOutput(v.id); })
      .def(
          "__eq__", [](const PyValue& a, const PyValue& b) { return a.graph == b.graph && a.id == b.id; },
          py::is_operator())
      .def("__hash__", [](const PyValue& v) { return std::hash<uint32_t>()(v.id.index); })
      .def("__repr__",
           [](const PyValue& v) { return Name{std::format("<Value {} {}>", Of(v).name, ToString(Of(v).type))}; });
}

void BindNode(py::module_& m) {
  py::class_<PyNode>(m, "Node", py::module_local(), "One op of a Graph.")
      .def_property_readonly("op", [](const PyNode& n) { return OpOf(Of(n)); })
      .def_property_readonly("domain", [](const PyNode& n) { return DomainOf(Of(n)); })
      .def_property_readonly("name", [](const PyNode& n) { return Name{OriginName(Of(n))}; })
      .def_property_readonly("inputs", [](const PyNode& n) { return Values(n.graph, Of(n).inputs); })
      .def_property_readonly("outputs", [](const PyNode& n) { return Values(n.graph, Of(n).outputs); })
      .def_property_readonly("attrs", [](const PyNode& n) { return AttrsToPython(Of(n).attrs); })
      .def_property_readonly("origin",
                             [](const PyNode& n) {
                               std::vector<Name> names;
                               for (const std::string& o : Of(n).origin) names.push_back({o});
                               return names;
                             })
      .def(
          "__eq__", [](const PyNode& a, const PyNode& b) { return a.graph == b.graph && a.id == b.id; },
          py::is_operator())
      .def("__hash__", [](const PyNode& n) { return std::hash<uint32_t>()(n.id.index); })
      .def("__repr__",
           [](const PyNode& n) { return Name{std::format("<Node {} {}>", OpOf(Of(n)).bytes, OriginName(Of(n)))}; });
}

passes::Rewriter& Of(PyRewriter& rw) {
  if (rw.rewriter == nullptr) Raise({"this rewriter is gone: it is valid until the rule's rewrite returns"});
  return *rw.rewriter;
}

void BindRewriter(py::module_& m) {
  py::class_<PyRewriter, std::shared_ptr<PyRewriter>>(m, "Rewriter", py::module_local(),
                                                      "Makes nodes: rewriter.Gelu(x, approximate=\"tanh\").")
      .def(
          "create",
          [](PyRewriter& rw, const std::string& op, const py::args& operands, const py::kwargs& attrs) {
            return Create(rw, op, operands, attrs);
          },
          py::arg("op"),
          "A node of any op; the same as rewriter.OP(...). _outputs: how many; _domain: of an op that is not ONNX's.")
      .def("__getattr__",
           [](const std::shared_ptr<PyRewriter>& rw, const std::string& op) {
             if (op.starts_with("_")) throw py::attribute_error(op);
             return py::cpp_function([rw, op](const py::args& operands, const py::kwargs& attrs) {
               return Create(*rw, op, operands, attrs);
             });
           })
      .def(
          "at", [](PyRewriter& rw, const PyNode& node) { Of(node), Of(rw).At(node.id, {node.id}); }, py::arg("node"),
          "New nodes stand before this one from here on, and are named after it.")
      .def(
          "constant",
          [](PyRewriter& rw, const py::array& a) {
            return PyValue{rw.graph, Of(rw).Constant(FromNumpy("constant", a))};
          },
          py::arg("array"))
      .def(
          "replace",
          [](PyRewriter& rw, const PyValue& from, const PyValue& to) {
            Of(from), Of(to), Of(rw).Replace(from.id, to.id);
          },
          py::arg("old"), py::arg("new"), "Whoever reads the first value reads the second from here on.")
      .def(
          "set_input",
          [](PyRewriter& rw, const PyNode& n, size_t i, const PyValue& v) {
            Of(n), Of(v), Of(rw).SetInput(n.id, i, v.id);
          },
          py::arg("node"), py::arg("index"), py::arg("value"))
      .def(
          "set_attr",
          [](PyRewriter& rw, const PyNode& n, const std::string& name, const py::object& value) {
            ir::Attrs attrs;
            attrs.Set(name, AttrOf(name, value));
            FitAttrs("set_attr()", DomainOf(Of(n)).bytes, OpOf(Of(n)).bytes, attrs);
            Of(rw).SetAttr(n.id, name, *attrs.Find(name));
          },
          py::arg("node"), py::arg("name"), py::arg("value"))
      .def(
          "erase_dead", [](PyRewriter& rw, const PyNode& n) { Of(n), Of(rw).EraseDead(n.id); }, py::arg("node"),
          "Erases the node if nobody reads its outputs, and what only it read.");
}

}  // namespace

void FitAttrs(std::string_view place, std::string_view domain, std::string_view op, ir::Attrs& attrs) {
  const std::vector<ir::AttrRule>* rules = ir::AttrRulesOf(domain, op);
  for (const ir::AttrRule& rule : rules != nullptr ? *rules : std::vector<ir::AttrRule>()) {
    const ir::Attr* given = attrs.Find(rule.name);
    const auto* one = given == nullptr ? nullptr : std::get_if<int64_t>(given);
    const auto* many = given == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(given);
    if (rule.kind == 'f' && one != nullptr) attrs.Set(rule.name, static_cast<float>(*one));
    if (rule.kind == 'F' && many != nullptr) attrs.Set(rule.name, std::vector<float>(many->begin(), many->end()));
    if (rule.kind == 'S' && many != nullptr && many->empty()) attrs.Set(rule.name, std::vector<std::string>());
  }
  const auto known = ir::CheckAttributes(domain, op, attrs);
  if (known) return;
  std::string names;
  for (const ir::AttrRule& rule : rules != nullptr ? *rules : std::vector<ir::AttrRule>())
    names += std::format("{}{}", names.empty() ? "; its attributes are " : ", ", rule.name);
  Raise({std::format("{}: {}{}", place, known.error().message, names)});
}

ir::Attr AttrOf(const std::string& name, const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return static_cast<int64_t>(value.cast<bool>());
  if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
  if (py::isinstance<py::float_>(value)) return static_cast<float>(value.cast<double>());
  if (py::isinstance<py::str>(value)) return value.cast<Name>().bytes;
  if (py::isinstance<py::array>(value)) return FromNumpy(name, value.cast<py::array>());
  if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
    bool ints = true, texts = py::len(value) > 0;
    for (const py::handle& one : value) {
      ints = ints && py::isinstance<py::int_>(one);
      texts = texts && py::isinstance<py::str>(one);
    }
    if (ints) return value.cast<std::vector<int64_t>>();
    if (texts) return value.cast<std::vector<std::string>>();
    return value.cast<std::vector<float>>();
  }
  Raise({std::format("attribute {} is {}: pass a number, a text, a list of them or an array", ir::Quoted(name),
                     TypeOf(value))});
}

void BindGraph(py::module_& m) {
  BindValue(m);
  BindNode(m);
  BindRewriter(m);
  py::class_<GraphRef, Shared>(m, "Graph", py::module_local(),
                               "A model as a graph: to read, walk, change, check and write.")
      .def(py::init(&Read), py::arg("model"), py::arg("max_memory") = py::none(), py::arg("max_nodes") = py::none())
      .def_property_readonly("nodes",
                             [](const Shared& g) {
                               std::vector<PyNode> nodes;
                               for (const ir::NodeId id : Of(g).NodesInOrder()) nodes.push_back({g, id});
                               return nodes;
                             })
      .def_property_readonly("inputs", [](const Shared& g) { return Values(g, Of(g).inputs()); })
      .def_property_readonly("outputs",
                             [](const Shared& g) {
                               py::dict all;
                               for (const ir::GraphOutput& o : Of(g).outputs())
                                 all[py::cast(Name{o.name})] = PyValue{g, o.value};
                               return all;
                             })
      .def(
          "value", [](const Shared& g, const Name& name) { return ValueOrNone(g, Of(g).FindValue(name.bytes)); },
          py::arg("name"), "The value of that name, or None.")
      .def_property_readonly("metadata",
                             [](const Shared& g) {
                               py::dict all;
                               for (const auto& [key, value] : Of(g).info.metadata)
                                 all[py::cast(Name{key})] = Name{value};
                               return all;
                             })
      .def(
          "_id_limit",
          [](const Shared& g, const Name& input) -> std::optional<int64_t> {
            const auto limits = quant::IdLimits(Of(g));
            const auto it = limits.find(input.bytes);
            return it == limits.end() ? std::nullopt : std::optional(it->second);
          },
          py::arg("input"), "Rows of the table that this input indexes, or None.")
      .def(
          "rewriter",
          [](const Shared& g, const std::string& name) {
            auto own = std::make_shared<passes::Rewriter>(Of(g), name);
            passes::Rewriter* rewriter = own.get();
            return std::make_shared<PyRewriter>(PyRewriter{g, std::move(own), rewriter});
          },
          py::arg("name") = "python", "What changes this graph; new nodes carry the name.")
      .def(
          "infer",
          [](const Shared& g) {
            Unwrap(
                ir::Closed("inferring types", [&] { return ir::Inference::Run(Of(g)).transform([](const auto&) {}); }));
          },
          "Infers the types of all values anew.")
      .def(
          "verify",
          [](const Shared& g) {
            if (!Of(g).SortTopologically()) Raise({"the graph has a cycle"});
            std::vector<Name> wrong;
            for (const ir::Violation& v : ir::Verify(Of(g)))
              wrong.push_back({v.node.empty() ? v.message : std::format("{}: {}", v.node, v.message)});
            return wrong;
          },
          "Puts the nodes in order and returns what is wrong with the graph, a sentence each; empty: nothing.")
      .def(
          "to_bytes", [](const Shared& g) { return py::bytes(Unwrap(ir::onnx::WriteBytes(Of(g)))); },
          "The graph as an ONNX file.")
      .def(
          "save",
          [](const Shared& g, const py::object& path) {
            const auto target = PathOf(path);
            if (!target) Raise({std::format("the place to save is a path, not {}", TypeOf(path))});
            Unwrap(ir::onnx::WriteFile(Of(g), *target));
          },
          py::arg("path"))
      .def("__len__", [](const Shared& g) { return Of(g).node_count(); })
      .def("__str__", [](const Shared& g) { return Name{ir::ToText(Of(g), {.elide_constants_above = 16})}; });
}

}  // namespace octavo::python
