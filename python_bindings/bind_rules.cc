// Rules that Python declares: their patterns are built once and matched without Python; check and rewrite are called where they match.
#include <pybind11/stl.h>

#include <format>
#include <map>

#include "octavo/api/passes_json.h"
#include "octavo/ir/names.h"
#include "octavo/passes/guard.h"
#include "octavo/passes/plugin.h"
#include "octavo/passes/registry.h"
#include "octavo/python_bindings/graph.h"
#include "octavo/python_bindings/made.h"
#include "octavo/python_bindings/rules.h"

namespace octavo::python {

using passes::pattern::Match;
using passes::pattern::Rule;
using passes::pattern::RuleBuilder;
using passes::pattern::Var;
using passes::pattern::Verdict;

namespace {

// A Python object that C++ keeps; let go with Python's lock held.
std::shared_ptr<py::object> Kept(py::object o) {
  return {new py::object(std::move(o)), [](py::object* held) {
            const py::gil_scoped_acquire lock;
            delete held;
          }};
}

struct PyMatch {
  Shared graph;
  std::map<std::string, ir::ValueId> values;  // by the names that the pattern gives
  std::vector<ir::NodeId> nodes;
};

// What a callback is given, for as long as it runs.
class Showing {
 public:
  explicit Showing(const ir::Graph& graph) : ref_(std::make_shared<GraphRef>()) {
    ref_->graph = const_cast<ir::Graph*>(&graph);  // changed through a rewriter alone, which only rewrite() is given
  }
  ~Showing() { ref_->graph = nullptr; }
  Showing(const Showing&) = delete;
  Showing& operator=(const Showing&) = delete;
  const Shared& ref() const { return ref_; }

 private:
  Shared ref_;
};

// f() with Python's lock; an exception stays pending and ends the work.
template <typename F>
auto Called(F&& f) {
  const py::gil_scoped_acquire lock;
  if (PyErr_Occurred() != nullptr) throw passes::StopWork("interrupted");
  try {
    return f();
  } catch (py::error_already_set& e) {
    e.restore();
  }
  throw passes::StopWork("the rule raised an exception");
}

using Names = std::vector<std::pair<std::string, Var>>;

PyMatch ToPython(const Match& m, const Names& names, const Shared& graph) {
  PyMatch match{graph, {}, m.nodes()};
  for (const auto& [name, var] : names) {
    if (m.Has(var)) match.values[name] = m[var];
  }
  return match;
}

class PyRuleBuilder {
 public:
  PyRuleBuilder(const std::string& name, const std::string& what) : name_(name), builder_(name, what) {}

  size_t Input(const std::string& name) { return Add(name, builder_.Input(name)); }
  size_t Constant(const std::string& name) { return Add(name, builder_.Constant(name)); }
  size_t Scalar(const std::string& name, std::optional<double> value, double tolerance) {
    return Add(name, builder_.Scalar(name, value, tolerance));
  }
  // operands: what this class returned, -1 for anything, -2 for absent.
  size_t Op(const std::string& name, const std::string& domain, const std::string& op_type,
            const std::vector<int64_t>& operands, const py::dict& attrs, bool any_order, bool open, bool escape,
            size_t output) {
    ir::Attrs named;
    for (const auto& [key, value] : attrs) named.Set(key.cast<std::string>(), AttrOf(key.cast<std::string>(), value));
    std::vector<Var> inputs;
    for (const int64_t o : operands)
      inputs.push_back(o == -1 ? passes::pattern::Anything() : o == -2 ? passes::pattern::Absent() : At(o));
    ir::Op op = ir::OpFromName(domain, op_type);
    if (op == ir::Op::kOpaque && domain.empty()) op = ir::OpFromName("octavo", op_type);
    if (op == ir::Op::kOpaque && domain.empty())
      Raise({std::format("rule {}: octavo knows no op {} of ONNX: _domain=\"...\" names one of another domain", name_,
                         ir::Quoted(op_type))});
    FitAttrs(std::format("rule {}: op.{}", name_, op_type), op == ir::Op::kOpaque ? domain : ir::InfoOf(op).domain,
             op_type, named);
    const Var v = op == ir::Op::kOpaque ? builder_.Opaque(name, domain, op_type, std::move(inputs))
                  : any_order           ? builder_.AnyOrder(name, op, inputs.at(0), inputs.at(1))
                                        : builder_.Op(name, op, std::move(inputs));
    builder_.Named(v, std::move(named));
    builder_.Output(v, output);
    if (open) builder_.Open(v);
    if (escape) builder_.MayEscape(v);
    return Add(name, v);
  }
  size_t OneOf(const std::string& name, const std::vector<int64_t>& alternatives) {
    std::vector<Var> all;
    for (const int64_t a : alternatives) all.push_back(At(a));
    return Add("", builder_.OneOf(name, std::move(all)));
  }

  PyRule Finish(int64_t root, const py::object& check, const py::object& rewrite, const passes::Placement& where) {
    builder_.Root(At(root));
    builder_.Guard(
        [check = Kept(check), names = names_, rule = name_](const Match& m) { return Check(*check, names, rule, m); });
    builder_.Build([rewrite = Kept(rewrite), names = names_, rule = name_](passes::Rewriter& rewriter, const Match& m) {
      return Rewrite(*rewrite, names, rule, rewriter, m);
    });
    for (const std::string& part : builder_.Unreached())
      Raise({std::format("rule {}: its pattern does not use {}", name_, ir::Quoted(part))});
    if (const std::string why = builder_.WhyWrong(); !why.empty()) Raise({std::format("rule {}: {}", name_, why)});
    return {builder_.Finish(), where};
  }

 private:
  Var At(int64_t index) const {
    if (index < 0 || static_cast<size_t>(index) >= vars_.size()) Raise({"an operand of a pattern is no part of it"});
    return vars_[static_cast<size_t>(index)];
  }
  size_t Add(const std::string& name, Var v) {
    if (!name.empty()) names_.emplace_back(name, v);
    vars_.push_back(v);
    return vars_.size() - 1;
  }

  static Verdict Check(const py::object& check, const Names& names, const std::string& rule, const Match& m) {
    return Called([&]() -> Verdict {
      const Showing showing(m.graph());
      const py::object why = check(ToPython(m, names, showing.ref()));
      if (why.is_none()) return passes::pattern::Ok();
      if (!py::isinstance<py::str>(why))
        Raise({std::format("rule {}: a rule's check returns None or a sentence, not {}", rule, TypeOf(why))});
      return passes::pattern::Illegal(why.cast<Name>().bytes);
    });
  }

  static ir::ValueId Rewrite(const py::object& rewrite, const Names& names, const std::string& rule,
                             passes::Rewriter& rewriter, const Match& m) {
    return Called([&]() -> ir::ValueId {
      const Showing showing(rewriter.graph());
      const auto op = std::make_shared<PyRewriter>(PyRewriter{showing.ref(), nullptr, &rewriter});
      py::object made;
      try {
        made = rewrite(op, ToPython(m, names, showing.ref()));
      } catch (...) {
        op->rewriter = nullptr;
        throw;
      }
      op->rewriter = nullptr;
      if (made.is_none()) return {};
      if (!py::isinstance<PyValue>(made))
        Raise({std::format(
            "rule {}: a rule's rewrite returns the value that takes the root's place, or None where it has "
            "replaced it, not {}",
            rule, TypeOf(made))});
      return made.cast<PyValue>().id;
    });
  }

  std::string name_;
  RuleBuilder builder_;
  std::vector<Var> vars_;
  Names names_;
};

py::object Find(const PyMatch& m, const std::string& name) {
  const auto it = m.values.find(name);
  return it == m.values.end() ? py::object(py::none()) : py::cast(PyValue{m.graph, it->second});
}

std::string NoSuch(const PyMatch& match, const std::string& name) {
  std::string names;
  for (const auto& [known, value] : match.values) names += (names.empty() ? "" : ", ") + known;
  return std::format("this match has no {}; it has {}", ir::Quoted(name), names);
}

}  // namespace

void AddRules(const std::vector<PyRule>& rules, const std::vector<Name>& plugins, passes::Registry& registry) {
  for (const Name& path : plugins) Unwrap(passes::LoadPlugin(path.bytes, registry).transform([](const auto&) {}));
  for (const PyRule& rule : rules) Unwrap(registry.Add(rule.rule, rule.where));
}

namespace {

void BindMatch(py::module_& m) {
  py::class_<PyMatch>(m, "Match", py::module_local(), "Which values of the graph the parts of a pattern stand for.")
      .def("__getitem__",
           [](const PyMatch& match, const std::string& name) {
             const py::object found = Find(match, name);
             if (found.is_none()) {
               PyErr_SetString(PyExc_KeyError, NoSuch(match, name).c_str());
               throw py::error_already_set();
             }
             return found;
           })
      .def("__contains__", [](const PyMatch& match, const std::string& name) { return match.values.contains(name); })
      .def("get", &Find, py::arg("name"), "The value of that name, or None where this match has none.")
      .def(
          "number",
          [](const PyMatch& match, const std::string& name) {
            const auto it = match.values.find(name);
            const ir::Tensor* t = it == match.values.end() ? nullptr : Of(match.graph).ConstantOf(it->second);
            if (t == nullptr || t->size() != 1) Raise({std::format("{} is no scalar of this match", ir::Quoted(name))});
            return t->GetDouble(0);
          },
          py::arg("name"), "What a scalar of the pattern is in this match.")
      .def_property_readonly("nodes", [](const PyMatch& match) {
        std::vector<PyNode> nodes;
        for (const ir::NodeId id : match.nodes) nodes.push_back({match.graph, id});
        return nodes;
      });
}

}  // namespace
}  // namespace octavo::python

OCTAVO_MADE(octavo::python::PyRuleBuilder);

namespace octavo::python {

void BindRules(py::module_& m) {
  BindMatch(m);
  py::class_<PyRule>(m, "CompiledRule", py::module_local())
      .def_property_readonly("name", [](const PyRule& r) { return Name{r.rule.name}; })
      .def("__str__", [](const PyRule& r) { return Name{Picture(r.rule)}; });
  py::class_<PyRuleBuilder>(m, "RuleBuilder", py::module_local())
      .def(py::init<const std::string&, const std::string&>())
      .def("input", &PyRuleBuilder::Input)
      .def("constant", &PyRuleBuilder::Constant)
      .def("scalar", &PyRuleBuilder::Scalar)
      .def("op", &PyRuleBuilder::Op)
      .def("one_of", &PyRuleBuilder::OneOf)
      .def("finish", [](PyRuleBuilder& b, int64_t root, const py::object& check, const py::object& rewrite,
                        const std::string& version, const std::string& after, const std::string& before) {
        return b.Finish(root, check, rewrite, {.version = version, .after = after, .before = before});
      });
  const auto apply = [](const Shared& g, const std::vector<std::string>& names, const std::vector<PyRule>& rules) {
    ir::Graph& graph = Of(g);
    passes::Registry registry;
    AddRules(rules, {}, registry);
    passes::PassRun run;
    std::vector<passes::NearMiss> misses;
    run.misses = &misses;
    const passes::Status done = [&] {
      const py::gil_scoped_release unlock;
      return passes::RunPasses(names, graph, run, {.registry = &registry, .after = {}});
    }();
    Unwrap(done);
    py::list decisions;
    for (const passes::Decision& d : run.decisions) {
      using Fate = passes::Decision::Fate;
      py::dict one;
      one["node"] = Name{d.node};
      one["fate"] = d.fate == Fate::kRewritten ? "rewritten" : d.fate == Fate::kKept ? "kept" : "left";
      one["rule"] = Name{d.rule}, one["reason"] = Name{d.reason};
      decisions.append(one);
    }
    for (const passes::NearMiss& miss : misses) {
      py::dict one;
      one["node"] = Name{miss.root}, one["fate"] = "near miss", one["rule"] = Name{miss.rule},
      one["reason"] = Name{miss.reason};
      decisions.append(one);
    }
    Warn(run.notes);
    return decisions;
  };
  m.def("_apply", apply, py::arg("graph"), py::arg("passes"), py::arg("rules"));
  const auto passes_json = [](const std::vector<Name>& plugins) {
    passes::Registry registry;
    AddRules({}, plugins, registry);
    return Name{api::PassesJson(registry)};
  };
  m.def("_passes_json", passes_json, py::arg("plugins"));
  const auto recipe_json = [](const std::string& recipe, const std::vector<PyRule>& rules,
                              const std::vector<Name>& plugins) {
    passes::Registry registry;
    AddRules(rules, plugins, registry);
    return Name{passes::PipelineToJson(Unwrap(passes::PipelineOfRecipe(recipe, registry)))};
  };
  m.def("_recipe_json", recipe_json, py::arg("recipe"), py::arg("rules"), py::arg("plugins"));
  const auto pipeline_of = [](const Shared& g) {
    return Name{passes::PipelineToJson(Unwrap(passes::PipelineOfGraph(Of(g))))};
  };
  m.def("_pipeline_of", pipeline_of, py::arg("model"));
  const auto check_pipeline = [](const Name& json) {
    return Name{passes::PipelineToJson(Unwrap(passes::PipelineFromJson(json.bytes)))};
  };
  m.def("_check_pipeline", check_pipeline, py::arg("text"));
}

}  // namespace octavo::python
