#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <format>

#include "octavo/api/assume.h"
#include "octavo/api/optimize.h"
#include "octavo/api/report_html.h"
#include "octavo/api/report_json.h"
#include "octavo/ir/closed.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/whole_file.h"
#include "octavo/python_bindings/data.h"
#include "octavo/python_bindings/rules.h"

namespace octavo::python {

namespace {

struct OptimizeResult {
  std::string model, report, html;
};

std::vector<std::string> Bytes(const std::vector<Name>& names) {
  std::vector<std::string> list;
  for (const Name& name : names) list.push_back(name.bytes);
  return list;
}

// What optimize() gives, and what Python shall warn of. Without Python's lock.
ir::Result<OptimizeResult> Work(ir::Graph graph, const api::OptimizeOptions& options, std::vector<std::string>& notes) {
  const py::gil_scoped_release unlock;
  return ir::Closed("optimizing", [&]() -> ir::Result<OptimizeResult> {
    api::FileSizes bytes;
    bytes.before = api::BytesOfModel(graph, 0);
    OCTAVO_TRY(const api::Optimized result, api::Optimize(std::move(graph), options));
    OptimizeResult out;
    OCTAVO_TRY(out.model, ir::onnx::WriteBytes(result.graph));
    bytes.after = static_cast<int64_t>(out.model.size());
    out.report = api::ReportJson(result, bytes);
    out.html = api::ReportHtml(result, bytes, "model");
    notes = result.notes;
    return out;
  });
}

OptimizeResult Optimize(const py::object& model, const std::string& recipe, const py::object& calibration,
                        const std::string& calibrator, int threads, const std::optional<ProgressFn>& progress,
                        bool reduce_range, bool quantize_kv_cache, const std::vector<Name>& keep_float, bool layers,
                        const std::vector<Name>& dynamic, std::optional<double> min_db, bool fit,
                        std::optional<int64_t> max_memory, std::optional<int64_t> max_nodes,
                        const std::vector<PyRule>& rules, const std::optional<Name>& pipeline,
                        const std::vector<Name>& plugins, const std::vector<std::pair<Name, std::string>>& assume) {
  ir::Graph graph = ReadModel(model, LimitsOf(max_memory, max_nodes));
  for (const auto& [input, value] : assume) Unwrap(api::Assume(graph, input.bytes, value));
  api::OptimizeOptions options;
  passes::Registry registry;
  AddRules(rules, plugins, registry);
  options.registry = &registry;
  if (pipeline) options.pipeline = Unwrap(passes::PipelineFromJson(pipeline->bytes));
  options.recipe = recipe;
  options.reduce_range = reduce_range;
  options.keep_float = Bytes(keep_float);
  options.layers = layers;
  options.dynamic = Bytes(dynamic);
  options.min_db = min_db;
  options.fit = fit;
  options.quantize_kv_cache = quantize_kv_cache;
  options.calibrator = Unwrap(quant::CalibratorFromName(calibrator));
  options.threads = threads;
  std::unique_ptr<quant::DataSource> data;
  quant::Calibration ranges;
  if (py::isinstance<py::bytes>(calibration)) {
    ranges = Unwrap(quant::Calibration::FromBytes(std::string(py::bytes(calibration)), "calibration"));
    options.calibration = &ranges;
  } else if (const auto path = PathOf(calibration); path && path->ends_with(".calib")) {
    ranges = Unwrap(quant::Calibration::Load(*path));
    options.calibration = &ranges;
  } else if (!calibration.is_none()) {
    data = OpenData(calibration, graph, Passes::kMany);
    options.data = data.get();
  }
  options.progress = [&](std::string_view stage, int64_t done, int64_t total) { Step(progress, stage, done, total); };
  options.interrupted = Interrupted;
  std::vector<std::string> notes;
  OptimizeResult out = Unwrap(Work(std::move(graph), options, notes));
  Warn(notes);
  return out;
}

std::string Calibrate(const py::object& model, const py::object& calibration, int threads,
                      std::optional<int64_t> max_memory, std::optional<int64_t> max_nodes,
                      const std::optional<ProgressFn>& progress) {
  ir::Graph graph = ReadModel(model, LimitsOf(max_memory, max_nodes));
  const std::unique_ptr<quant::DataSource> data = OpenData(calibration, graph, Passes::kOne);
  api::OptimizeOptions options;
  options.threads = threads;
  options.progress = [&](std::string_view stage, int64_t done, int64_t total) { Step(progress, stage, done, total); };
  options.interrupted = Interrupted;
  const auto work = [&] {
    const py::gil_scoped_release unlock;
    return ir::Closed("calibrating", [&]() -> ir::Result<std::string> {
      OCTAVO_TRY(const api::CalibrationTask task, api::PrepareCalibration(std::move(graph), options));
      OCTAVO_TRY(const quant::Calibration ranges, api::RunCalibration(task, *data, options));
      return ranges.ToBytes();
    });
  };
  return Unwrap(work());
}

}  // namespace

void BindOptimize(py::module_& m) {
  py::class_<OptimizeResult>(m, "Result", "What optimize() gives: the model as bytes, and its report.")
      .def_property_readonly("model", [](const OptimizeResult& r) { return py::bytes(r.model); })
      .def_property_readonly(
          "report", [](const OptimizeResult& r) { return py::module_::import("json").attr("loads")(r.report); })
      .def_property_readonly("html", [](const OptimizeResult& r) { return r.html; })
      .def("save", [](const OptimizeResult& r, const py::object& path) {
        const auto target = PathOf(path);
        if (!target) Raise({std::format("the place to save is a path, not {}", TypeOf(path))});
        Unwrap(ir::WriteWholeFile(*target, r.model));
      });
  m.def(
      "_optimize", &Optimize, py::arg("model"), py::arg("recipe") = "int8", py::arg("calibration") = py::none(),
      py::arg("calibrator") = "mse", py::arg("threads") = 0, py::arg("progress") = py::none(),
      py::arg("reduce_range") = false, py::arg("quantize_kv_cache") = false,
      py::arg("keep_float") = std::vector<Name>{}, py::arg("layers") = false, py::arg("dynamic") = std::vector<Name>{},
      py::arg("min_db") = py::none(), py::arg("fit") = true, py::arg("max_memory") = py::none(),
      py::arg("max_nodes") = py::none(), py::arg("rules") = std::vector<PyRule>{}, py::arg("pipeline") = py::none(),
      py::arg("plugins") = std::vector<Name>{}, py::arg("assume") = std::vector<std::pair<Name, std::string>>{},
      "Fuses and quantizes; calibration: dicts of arrays, a path, or what calibrate() returned. reduce_range: int8 "
      "weights use 7 of their 8 bits, faster on CPUs without VNNI. quantize_kv_cache: past keys and values enter, and "
      "present ones leave, as the 8-bit codes that attention reads (Session.inputs has their dtype, the model's "
      "metadata \"octavo.caches\" scale and zero point). keep_float: names of nodes that are not quantized, with * and "
      "?.");
  m.def(
      "calibrate",
      [](const py::object& model, const py::object& calibration, int threads, std::optional<int64_t> max_memory,
         std::optional<int64_t> max_nodes, const std::optional<ProgressFn>& progress) {
        return py::bytes(Calibrate(model, calibration, threads, max_memory, max_nodes, progress));
      },
      py::arg("model"), py::arg("calibration"), py::arg("threads") = 0, py::arg("max_memory") = py::none(),
      py::arg("max_nodes") = py::none(), py::arg("progress") = py::none(),
      "Ranges of the activations, for optimize().");
}

}  // namespace octavo::python
