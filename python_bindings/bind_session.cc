#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <format>
#include <map>
#include <thread>

#include "octavo/api/clipped.h"
#include "octavo/api/logits_to_keep.h"
#include "octavo/api/open.h"
#include "octavo/api/version_text.h"
#include "octavo/ir/names.h"
#include "octavo/kernels/arch/numa.h"
#include "octavo/passes/quantize/caches.h"
#include "octavo/python_bindings/convert.h"
#include "octavo/python_bindings/data.h"
#include "octavo/python_bindings/made.h"
#include "octavo/runtime/cache_state.h"
#include "octavo/runtime/model.h"
#include "octavo/runtime/packed_file.h"

namespace octavo::python {

namespace {

// Runs on their way. A daemon thread that is in one when the process ends would use what oneDNN has freed, or come back to a Python that is gone;
// so the end waits until each has parked between two steps, where it stays, as daemon threads do from Python 3.14 on.
std::atomic<int> running = 0;
std::atomic<bool> ending = false;
struct OnItsWay {
  OnItsWay() { ++running; }
  ~OnItsWay() { --running; }
  OnItsWay(const OnItsWay&) = delete;
  OnItsWay& operator=(const OnItsWay&) = delete;
};
[[noreturn]] void Park() {
  for (;;) pause();
}
void EndRuns() {
  ending = true;
  const py::gil_scoped_release unlock;  // who has finished needs it to return
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (running > 0 && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// What `run` gives, while other threads of Python go on.
template <class Run>
auto Unlocked(const Run& run) {
  if (ending && !OnMainThread()) {
    const py::gil_scoped_release unlock;
    Park();
  }
  const OnItsWay here;
  auto results = [&] {
    const py::gil_scoped_release unlock;
    return run();
  }();
  return Unwrap(std::move(results));
}

// Keeps the model that its caches are of.
struct State {
  py::object session;
  std::unique_ptr<runtime::CacheState> caches;
};

class Session {
 public:
  Session(const py::object& model, int threads, bool fuse, std::optional<int64_t> max_memory,
          std::optional<int64_t> max_nodes, bool count_clipped, const py::object& packed, bool logits_to_keep,
          const std::optional<ProgressFn>& progress, std::optional<int> numa_node)
      : packed_file_(PackedFileOf(model, packed)),
        graph_inputs_(),
        model_(Compile(Counted(Open(ReadModel(model, LimitsOf(max_memory, max_nodes), nullptr, !packed_file_.empty()),
                                    fuse, logits_to_keep, caches_),
                               count_clipped, clipped_),
                       threads, packed_file_, progress, numa_node)) {
    if (!model_.packed().note.empty()) Warn({model_.packed().note});
    const size_t taps = clipped_ == nullptr ? 0 : clipped_->size();
    outputs_.assign(model_.outputs().begin(), model_.outputs().end() - static_cast<ptrdiff_t>(taps));
    for (const runtime::PortInfo& p : model_.inputs()) graph_inputs_.push_back({p.name, p.type});
    for (size_t i = 0; i < graph_inputs_.size(); ++i) {
      const bool kept = std::ranges::find(model_.caches(), i, &runtime::CachePort::input) != model_.caches().end();
      if (!kept) given_inputs_.push_back(graph_inputs_[i]);
    }
  }

  // inputs: any mapping, an open .npz too. As ONNX Runtime orders them, names first, they are told apart by what they are.
  std::vector<py::array> Run(const py::object& first, const py::object& second, const std::vector<Name>& donate,
                             const State* state) const {
    const bool names_first = py::hasattr(second, "keys") && !py::hasattr(first, "keys");
    const py::object &inputs = names_first ? second : first, &names = names_first ? first : second;
    std::optional<std::vector<Name>> outputs;
    try {
      outputs = names.cast<std::optional<std::vector<Name>>>();
    } catch (const py::cast_error&) {
      Raise({std::format("outputs are a list of names, or None for all of them, not {}", TypeOf(names))});
    }
    std::map<size_t, int> wanted;  // an output may be asked for twice
    if (outputs) {
      for (const Name& name : *outputs) ++wanted[state != nullptr ? FindUnkept(name) : Find(name)];
    }
    ir::TensorMap arrays =
        Unwrap(quant::FitInputs(FromDict(inputs, "inputs", donate), state != nullptr ? given_inputs_ : graph_inputs_,
                                "inputs", quant::Numbers::kMayBeNaN));
    const ir::TensorMap ids = clipped_ == nullptr ? ir::TensorMap() : clipped_->IdsOf(arrays);
    std::vector<ir::Tensor> results = Unlocked([&] {
      return state != nullptr ? model_.Run(std::move(arrays), *state->caches) : model_.Run(std::move(arrays));
    });
    return Chosen(std::move(results), outputs, std::move(wanted), ids);
  }

  // Several runs at once, each with its own inputs and, if given, state.
  std::vector<std::vector<py::array>> RunTogether(const std::vector<py::object>& inputs,
                                                  const std::optional<std::vector<Name>>& outputs,
                                                  const std::optional<std::vector<State*>>& states) const {
    std::map<size_t, int> wanted;
    if (outputs) {
      for (const Name& name : *outputs) ++wanted[states ? FindUnkept(name) : Find(name)];
    }
    std::vector<ir::TensorMap> all;
    for (const py::object& one : inputs) {
      all.push_back(Unwrap(quant::FitInputs(FromDict(one, "inputs", {}), states ? given_inputs_ : graph_inputs_,
                                            "inputs", quant::Numbers::kMayBeNaN)));
    }
    std::vector<runtime::CacheState*> caches;
    if (states) {
      for (State* state : *states) {
        if (state == nullptr) Raise({"states has None; give a state for each run, or no states"});
        caches.push_back(state->caches.get());
      }
      if (caches.size() != all.size())
        Raise({std::format("{} states for {} runs; give one for each, or none", caches.size(), all.size())});
    }
    std::vector<ir::TensorMap> ids(all.size());
    for (size_t i = 0; clipped_ != nullptr && i < all.size(); ++i) ids[i] = clipped_->IdsOf(all[i]);
    auto results = Unlocked([&] { return model_.RunTogether(std::move(all), caches); });
    std::vector<std::vector<py::array>> chosen;
    for (size_t i = 0; i < results.size(); ++i)
      chosen.push_back(Chosen(std::move(results[i]), outputs, wanted, ids[i]));
    return chosen;
  }

  static py::list Ports(const std::vector<runtime::PortInfo>& ports) {
    const py::object port = py::module_::import("octavo._results").attr("Port");
    py::list list;
    for (const runtime::PortInfo& p : ports)
      list.append(port(Name{p.name}, Name{ToString(p.type)}, NumpyTypeOf(p.type.dtype), ShapeToPython(p.type)));
    return list;
  }
  std::vector<Name> Kernels() const {
    std::vector<Name> list;
    for (std::string& kernel : model_.KernelOfEachStep()) list.push_back({std::move(kernel)});
    return list;
  }
  const runtime::Model& model() const { return model_; }
  const std::vector<runtime::PortInfo>& outputs() const { return outputs_; }  // without those that are counted
  py::dict ClippedValues() const {
    if (clipped_ == nullptr) Raise({"this session counts nothing; make it with count_clipped=True"});
    py::dict all;
    for (const api::Clipped& c : clipped_->Counts()) {
      py::dict one;
      one["kind"] = "codes", one["node"] = Name{c.node}, one["range"] = py::make_tuple(c.lo, c.hi);
      one["low"] = c.low, one["high"] = c.high, one["count"] = c.count;
      all[py::cast(Name{c.value})] = one;
    }
    for (const api::StrangeIds& ids : clipped_->Ids()) {
      py::dict one;
      one["kind"] = "ids", one["node"] = "", one["range"] = py::make_tuple(ids.range.lo, ids.range.hi);
      one["low"] = ids.below, one["high"] = ids.above, one["count"] = ids.count;
      all[py::cast(Name{ids.input})] = one;
    }
    return all;
  }
  py::object Packed() const {
    if (packed_file_.empty()) return py::none();
    py::dict all;
    all["file"] = Name{packed_file_}, all["taken"] = model_.packed().taken, all["made"] = model_.packed().made;
    return all;
  }
  // Of the caches that a state keeps: the input's name and the rows, dense.
  py::dict Kept(const State& state) const {
    py::dict all;
    const std::vector<ir::Tensor> tensors = state.caches->Tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined()) continue;  // a run has it
      all[py::cast(Name{model_.inputs()[model_.caches()[i].input].name})] = ToNumpy(tensors[i]);
    }
    return all;
  }
  py::dict Caches() const {
    py::dict all;
    for (const passes::quantize::CodedCache& c : caches_) {
      py::dict one;
      one["output"] = Name{c.output}, one["dtype"] = std::string(quant::Name(c.params.dtype));
      one["scale"] = c.params.scale, one["zero_point"] = c.params.zero_point;
      all[py::cast(Name{c.input})] = one;
    }
    return all;
  }

 private:
  std::vector<py::array> Chosen(std::vector<ir::Tensor> results, const std::optional<std::vector<Name>>& outputs,
                                std::map<size_t, int> wanted, const ir::TensorMap& ids) const {
    if (clipped_ != nullptr) {
      const py::gil_scoped_release unlock;
      clipped_->Count(std::span(results).subspan(outputs_.size()));
      clipped_->CountIds(ids);
    }
    results.resize(outputs_.size());
    std::vector<py::array> chosen;
    if (!outputs) {
      for (ir::Tensor& t : results) {
        if (t.defined()) chosen.push_back(ToNumpy(std::move(t)));  // caches stay in the state
      }
      return chosen;
    }
    for (const Name& name : *outputs) {
      const size_t i = Find(name);
      chosen.push_back(ToNumpy(--wanted[i] == 0 ? std::move(results[i]) : results[i]));
    }
    return chosen;
  }

  static ir::Graph Open(ir::Graph graph, bool fuse, bool logits_to_keep,
                        std::vector<passes::quantize::CodedCache>& caches) {
    caches = passes::quantize::CodedCaches(graph);
    api::Opened opened = {.graph = std::move(graph), .note = {}};
    if (fuse) {
      const py::gil_scoped_release unlock;
      opened = api::FuseToRun(std::move(opened.graph));
    }
    if (logits_to_keep) Unwrap(api::AddLogitsToKeep(opened.graph));
    // Of a model that opens: who is refused opens it otherwise, and hears it then.
    if (!opened.note.empty()) Warn({opened.note});
    return std::move(opened.graph);
  }
  static ir::Graph Counted(ir::Graph graph, bool counts, std::unique_ptr<api::ClipCounter>& counter) {
    if (!counts) return graph;
    counter = std::make_unique<api::ClipCounter>(graph);
    if (!counter->note().empty()) Warn({counter->note()});
    return graph;
  }
  // packed: None, True for beside the model's file, or a path.
  static std::string PackedFileOf(const py::object& model, const py::object& packed) {
    if (packed.is_none() || packed.is(py::bool_(false))) return {};
    const std::optional<std::string> place = PathOf(packed.is(py::bool_(true)) ? model : packed);
    if (place) return packed.is(py::bool_(true)) ? api::PackedBeside(*place) : *place;
    if (packed.is(py::bool_(true)))
      Raise({"packed=True keeps packed weights beside the model's file, and this model is none; give packed a path"});
    Raise({std::format("packed takes True, a path or None, not {}", TypeOf(packed))});
  }
  static runtime::Model Compile(ir::Graph graph, int threads, const std::string& packed_file,
                                const std::optional<ProgressFn>& progress, std::optional<int> numa_node) {
    std::optional<kernels::OnNumaNode> on_node;
    if (numa_node) on_node.emplace(*numa_node);
    return Unwrap(Compiled(std::move(graph), threads, packed_file, progress));
  }
  static ir::Result<runtime::Model> Compiled(ir::Graph graph, int threads, const std::string& packed_file,
                                             const std::optional<ProgressFn>& progress) {
    const py::gil_scoped_release unlock;
    const auto interrupted = [] {
      if (ending && !OnMainThread()) --running, Park();
      return Interrupted();
    };
    const runtime::PackingWatch watch(
        [&progress](int64_t done, int64_t total) { Step(progress, "write packed weights, MB", done, total); });
    return runtime::Model::Compile(
        std::move(graph),
        {.threads = threads, .interrupted = interrupted, .packed_file = packed_file, .packed_by = api::VersionText()});
  }
  size_t Find(const Name& name) const {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i].name == name.bytes) return i;
    }
    Raise({"the model has no output " + ir::Quoted(name.bytes)});
  }
  size_t FindUnkept(const Name& name) const {
    const size_t at = Find(name);
    if (std::ranges::find(model_.caches(), at, &runtime::CachePort::output) == model_.caches().end()) return at;
    Raise({std::format("output {} is a cache that the state keeps; state.caches() has it", ir::Quoted(name.bytes))});
  }

  std::string packed_file_;                           // empty: none
  std::vector<passes::quantize::CodedCache> caches_;  // before model_, whose making fills it, and the next
  std::unique_ptr<api::ClipCounter> clipped_;
  std::vector<runtime::PortInfo> outputs_;
  std::vector<quant::InputSpec> graph_inputs_, given_inputs_;  // all; without those that a state keeps
  runtime::Model model_;
};

}  // namespace
}  // namespace octavo::python

OCTAVO_MADE(octavo::python::Session);

namespace octavo::python {

void BindSession(py::module_& m) {
  py::module_::import("atexit").attr("register")(py::cpp_function(EndRuns));
  py::class_<State>(m, "State", "KV caches of a Session between its runs.")
      .def("__len__", [](const State& s) { return s.caches->length(); })
      .def_property_readonly("inputs",
                             [](const State& s) {
                               const auto& model = s.session.cast<const Session&>().model();
                               std::vector<Name> names;
                               for (const auto& port : model.caches())
                                 names.push_back({model.inputs()[port.input].name});
                               return names;
                             })
      .def_property_readonly("nbytes", [](const State& s) { return s.caches->bytes(); })
      .def_property_readonly("least", [](const State& s) { return s.caches->least(); })
      .def("reset", [](State& s) { s.caches->Reset(); })
      .def(
          "cut", [](State& s, int64_t tokens) { Unwrap(s.caches->Cut(tokens)); }, py::arg("tokens"))
      .def("copy", [](const State& s) { return State{s.session, std::make_unique<runtime::CacheState>(*s.caches)}; })
      .def("caches", [](const State& s) { return s.session.cast<const Session&>().Kept(s); });
  py::class_<Session>(m, "Session", "A compiled model; run() may be called from several threads at once.")
      .def(py::init<const py::object&, int, bool, std::optional<int64_t>, std::optional<int64_t>, bool,
                    const py::object&, bool, const std::optional<ProgressFn>&, std::optional<int>>(),
           py::arg("model"), py::arg("threads") = 0, py::arg("fuse") = true, py::arg("max_memory") = py::none(),
           py::arg("max_nodes") = py::none(), py::kw_only(), py::arg("count_clipped") = false,
           py::arg("packed") = py::none(), py::arg("logits_to_keep") = false, py::arg("progress") = py::none(),
           py::arg("numa_node") = py::none())
      .def("run", &Session::Run, py::arg("inputs"), py::arg("outputs") = py::none(),
           py::arg("donate") = std::vector<Name>(), py::arg("state") = py::none(),
           "Outputs by name, or all in the model's order. Inputs named in donate may be overwritten (a KV cache in "
           "place). state: keeps the caches, which are neither given nor returned.")
      .def("run_together", &Session::RunTogether, py::arg("inputs"), py::arg("outputs") = py::none(),
           py::arg("states") = py::none(), "Several runs at once: a product reads its weights once for all of them.")
      .def(
          "state",
          [](const py::object& self, int64_t tokens, const std::optional<std::string>& cache) {
            const auto& model = self.cast<const Session&>().model();
            if (model.caches().empty()) {
              Raise({"the model has no caches for a state to keep (no output is an input with rows appended)"});
            }
            constexpr int64_t kMost = int64_t{1} << 24;
            if (tokens < 0 || tokens > kMost)
              Raise({std::format("tokens is {}; a state has room for 0 to {}", tokens, kMost)});
            if (cache && *cache != "int8" && *cache != "int4")
              Raise({std::format("cache is {}; a state keeps 'int8', 'int4', or None for what the model has",
                                 ir::Quoted(*cache))});
            const auto codes = !cache             ? runtime::CacheCodes::kNone
                               : *cache == "int8" ? runtime::CacheCodes::kInt8
                                                  : runtime::CacheCodes::kInt4;
            return State{self, std::make_unique<runtime::CacheState>(tokens, codes)};
          },
          py::arg("tokens") = 0, py::kw_only(), py::arg("cache") = py::none(),
          "Caches that run(state=...) keeps and appends to in place.")
      .def_property_readonly("inputs", [](const Session& s) { return Session::Ports(s.model().inputs()); })
      .def_property_readonly("outputs", [](const Session& s) { return Session::Ports(s.outputs()); })
      .def("clipped", &Session::ClippedValues)
      .def_property_readonly("caches", &Session::Caches)
      .def_property_readonly("packed", &Session::Packed)
      .def_property_readonly("kernels", &Session::Kernels)
      .def_property_readonly("threads", [](const Session& s) { return s.model().threads(); });
  m.def(
      "load",
      [](const py::object& model, int threads, bool fuse, std::optional<int64_t> max_memory,
         std::optional<int64_t> max_nodes) {
        return std::make_unique<Session>(model, threads, fuse, max_memory, max_nodes, false, py::none(), false,
                                         std::nullopt, std::nullopt);
      },
      py::arg("model"), py::arg("threads") = 0, py::arg("fuse") = true, py::arg("max_memory") = py::none(),
      py::arg("max_nodes") = py::none(), "Session(model, threads, fuse, max_memory, max_nodes).");
}

}  // namespace octavo::python
