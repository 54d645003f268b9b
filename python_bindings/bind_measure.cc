// What a person asks about models: compare, bench, inspect, explain, trace. Each gives the JSON of the command of its name, which
// octavo/_measure.py makes a dict of.
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <filesystem>

#include "octavo/api/bench.h"
#include "octavo/api/compare.h"
#include "octavo/api/explain.h"
#include "octavo/api/inspect.h"
#include "octavo/api/open.h"
#include "octavo/ir/closed.h"
#include "octavo/ir/npz/npz.h"
#include "octavo/python_bindings/data.h"

namespace octavo::python {

namespace {

// Work without Python's lock; exceptions and Ctrl-C come when it has ended.
template <typename F>
auto Free(std::string_view place, F&& work) {
  auto result = [&] {
    const py::gil_scoped_release unlock;
    return ir::Closed(place, work);
  }();
  return Unwrap(std::move(result));
}

auto ProgressOf(const std::optional<ProgressFn>& progress) {
  return [&progress](std::string_view stage, int64_t done, int64_t total) { Step(progress, stage, done, total); };
}

std::string Compare(const py::object& a, const py::object& b, const py::object& data, int threads,
                    const std::optional<ProgressFn>& progress, bool layers) {
  ir::Graph first = ReadModel(a, {}), second = ReadModel(b, {});
  api::CompareOptions options{
      .threads = threads, .layers = layers, .progress = ProgressOf(progress), .interrupted = Interrupted};
  options.open_data = [&](const ir::Graph& graph) -> ir::Result<std::unique_ptr<quant::DataSource>> {
    const py::gil_scoped_acquire lock;
    try {
      return OpenData(data, graph, Passes::kOne);
    } catch (py::error_already_set& e) {
      e.restore();
      return ir::Fail("the data raised an exception");  // which is what the caller sees
    }
  };
  return Free("comparing", [&]() -> ir::Result<std::string> {
    OCTAVO_TRY(const api::Comparison done, api::Compare(std::move(first), std::move(second), options));
    return ir::Dump(api::ToJson(done));
  });
}

// inputs: a dict of arrays, or the sizes of random ones.
ir::Result<ir::TensorMap> InputsOf(const ir::Graph& graph, const std::optional<ir::TensorMap>& given,
                                   const api::Shapes& shapes) {
  if (!given) return api::RandomInputs(graph, shapes);
  return quant::FitInputs(*given, quant::InputsOf(graph), "inputs", quant::Numbers::kMayBeNaN);
}

py::dict ToDict(ir::TensorMap tensors) {
  py::dict arrays;
  for (auto& [name, tensor] : tensors) arrays[py::cast(Name{name})] = ToNumpy(std::move(tensor));
  return arrays;
}

// As the program reads them: numpy would take memory without a bound, and objects.
py::dict ReadArrays(const py::object& path) {
  const auto place = PathOf(path);
  if (!place) Raise({std::format("arrays are in a file, so a path is wanted, not {}", TypeOf(path))});
  return ToDict(Unwrap(ir::ReadNpz(*place, {})));
}

py::dict Inputs(const py::object& model, const py::object& inputs, const api::Shapes& shapes) {
  const ir::Graph graph = ReadModel(model, {});
  const std::optional<ir::TensorMap> given =
      inputs.is_none() ? std::nullopt : std::optional(FromDict(inputs, "inputs"));
  return ToDict(Unwrap(InputsOf(graph, given, shapes)));
}

ir::Result<runtime::Model> Opened(ir::Graph graph, int threads, bool fuse) {
  api::Opened opened = fuse ? api::FuseToRun(std::move(graph)) : api::Opened{std::move(graph), {}};
  return runtime::Model::Compile(std::move(opened.graph), {.threads = threads, .interrupted = Interrupted});
}

std::optional<ir::TensorMap> Arrays(const py::object& inputs) {
  if (inputs.is_none()) return std::nullopt;
  return FromDict(inputs, "inputs");
}

std::string Bench(const std::vector<std::pair<std::string, py::object>>& models, const py::object& inputs,
                  const api::Shapes& shapes, const std::vector<int>& threads, double seconds, bool fuse,
                  const std::optional<ProgressFn>& progress) {
  const std::optional<ir::TensorMap> given = Arrays(inputs);
  std::vector<std::pair<std::string, ir::Graph>> graphs;
  for (const auto& [name, model] : models) graphs.emplace_back(name, ReadModel(model, {}));
  return Free("timing", [&]() -> ir::Result<std::string> {
    std::vector<api::Timing> timings;
    for (const auto& [name, graph] : graphs) {
      OCTAVO_TRY(const ir::TensorMap batch, InputsOf(graph, given, shapes));
      for (const int count : threads) {
        OCTAVO_TRY(runtime::Model model, Opened(graph, count, fuse));
        const int used = model.threads();
        timings.push_back({name, used, std::move(model), batch});
      }
    }
    const api::BenchOptions options{.seconds = seconds, .progress = ProgressOf(progress), .interrupted = Interrupted};
    OCTAVO_TRY_STATUS(api::Bench(timings, options));
    return ir::Dump(api::ToJson(timings));
  });
}

std::string Trace(const py::object& model, const py::object& inputs, const api::Shapes& shapes, int threads,
                  bool fuse) {
  const std::optional<ir::TensorMap> given = Arrays(inputs);
  ir::Graph graph = ReadModel(model, {});
  return Free("tracing", [&]() -> ir::Result<std::string> {
    OCTAVO_TRY(const ir::TensorMap batch, InputsOf(graph, given, shapes));
    OCTAVO_TRY(const runtime::Model compiled, Opened(std::move(graph), threads, fuse));
    runtime::Profile profile;
    // The first run prepares what depends on shapes. Nobody wants to see that.
    OCTAVO_TRY_STATUS(compiled.Run(batch).transform([](const auto&) {}));
    OCTAVO_TRY_STATUS(compiled.Run(batch, &profile).transform([](const auto&) {}));
    return runtime::ToChromeTrace(profile);
  });
}

std::string Inspect(const py::object& model) {
  ir::Graph graph = ReadModel(model, {});
  int64_t bytes = 0;
  if (py::isinstance<py::bytes>(model)) {
    bytes = static_cast<int64_t>(py::len(model));
  } else if (const auto path = PathOf(model)) {
    std::error_code ec;
    const auto size = std::filesystem::file_size(*path, ec);
    bytes = ec ? 0 : static_cast<int64_t>(size);
  }
  return Free("inspecting", [&]() -> ir::Result<std::string> {
    OCTAVO_TRY(const auto json, api::Describe(std::move(graph), bytes));
    return ir::Dump(json);
  });
}

std::string Explain(const py::object& model, const Name& rule, const Name& node) {
  ir::Graph graph = ReadModel(model, {});
  const api::Wanted wanted{rule.bytes, node.bytes};
  return Free("explaining", [&]() -> ir::Result<std::string> {
    OCTAVO_TRY(const api::Optimized result, api::Explain(std::move(graph), wanted));
    return ir::Dump(api::ExplainJson(result, wanted));
  });
}

quant::Calibration CalibrationOf(const py::object& one) {
  if (py::isinstance<py::bytes>(one))
    return Unwrap(quant::Calibration::FromBytes(std::string(py::bytes(one)), "calibration"));
  if (const auto path = PathOf(one)) return Unwrap(quant::Calibration::Load(*path));
  Raise({"a calibration is what calibrate() returned or the path of a .calib file, not " + TypeOf(one)});
}

py::bytes Merge(const std::vector<py::object>& calibrations) {
  if (calibrations.empty()) Raise({"there is no calibration to merge; give one or more"});
  std::vector<std::string> paths;
  for (const py::object& one : calibrations) {
    if (py::isinstance<py::bytes>(one)) continue;
    if (auto path = PathOf(one)) paths.push_back(std::move(*path));
  }
  Unwrap(quant::CheckEachOnce(paths));
  quant::Calibration sum = CalibrationOf(calibrations[0]);
  for (size_t i = 1; i < calibrations.size(); ++i) Unwrap(sum.Merge(CalibrationOf(calibrations[i])));
  return py::bytes(sum.ToBytes());
}

}  // namespace

void BindMeasure(py::module_& m) {
  // The names are those of the public functions: sentences about wrong calls have them.
  m.def("_compare", &Compare, py::arg("a"), py::arg("b"), py::arg("data"), py::arg("threads"), py::arg("progress"),
        py::arg("per_layer"));
  m.def("_bench", &Bench, py::arg("models"), py::arg("inputs"), py::arg("shapes"), py::arg("threads"),
        py::arg("seconds"), py::arg("fuse"), py::arg("progress"));
  m.def("_inputs", &Inputs, py::arg("model"), py::arg("inputs"), py::arg("shapes"));
  m.def("_read_npz", [](const py::object& path) { return ReadArrays(path); }, py::arg("path"));
  m.def("_parse_shapes", [](const std::vector<std::string>& texts) { return Unwrap(api::ParseShapes(texts)); });
  m.def("_trace", &Trace, py::arg("model"), py::arg("inputs"), py::arg("shapes"), py::arg("threads"), py::arg("fuse"));
  m.def("_inspect", &Inspect, py::arg("model"));
  m.def("_explain", &Explain, py::arg("model"), py::arg("rule"), py::arg("node"));
  m.def("_merge", &Merge, py::arg("calibrations"));
}

}  // namespace octavo::python
