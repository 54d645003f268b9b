#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "octavo/api/optimize.h"
#include "octavo/api/report_html.h"
#include "octavo/api/report_json.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/onnx/tensor_file.h"
#include "octavo/ir/whole_file.h"
#include "octavo/python_bindings/convert.h"

namespace octavo::python {

namespace {

struct OptimizeResult {
  std::string model, report, html;
};

using ProgressFn = std::function<void(const std::string&, int64_t, int64_t)>;

// Of a str or a path; nothing of anything else.
std::optional<std::string> PathOf(const py::object& o) {
  if (!py::isinstance<py::str>(o) && !py::hasattr(o, "__fspath__")) return std::nullopt;
  return std::string(py::str(py::module_::import("os").attr("fspath")(o)));
}

// Paths as the command line takes them, or an iterable of dicts.
std::unique_ptr<quant::DataSource> OpenData(const py::object& data, const ir::Graph& graph, Passes passes) {
  const std::optional<std::string> path = PathOf(data);
  if (!path) return DataFromIterable(data, quant::InputsOf(graph), passes);
  quant::DataOptions options;
  options.read_tensor_file = ir::onnx::ReadTensorFile;
  options.random.limits = quant::IdLimits(graph);
  return Unwrap(quant::OpenData(*path, quant::InputsOf(graph), options));
}

// Between two batches or two Linears: tells Python, and Ctrl-C ends the work there.
void Step(const std::optional<ProgressFn>& progress, std::string_view stage, int64_t done, int64_t total) {
  const py::gil_scoped_acquire lock;
  if (progress) (*progress)(std::string(stage), done, total);
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

OptimizeResult Optimize(const py::object& model, const std::string& recipe, const py::object& calibration,
                        const std::string& calibrator, int threads, const std::optional<ProgressFn>& progress,
                        bool reduce_range, bool quantize_kv_cache, const std::vector<std::string>& keep_float,
                        bool layers, const std::vector<std::string>& dynamic, std::optional<double> min_db, bool fit) {
  ir::Graph graph = ReadModel(model);
  api::OptimizeOptions options;
  options.recipe = recipe;
  options.reduce_range = reduce_range;
  options.keep_float = keep_float;
  options.layers = layers;
  options.dynamic = dynamic;
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
  OptimizeResult out;
  std::vector<std::string> notes;
  {
    const py::gil_scoped_release unlock;
    api::FileSizes bytes;
    bytes.before = api::BytesOfModel(graph, 0);
    const api::Optimized result = Unwrap(api::Optimize(std::move(graph), options));
    out.model = Unwrap(ir::onnx::WriteBytes(result.graph));
    bytes.after = static_cast<int64_t>(out.model.size());
    out.report = api::ReportJson(result, bytes);
    out.html = api::ReportHtml(result, bytes, "model");
    notes = result.notes;
  }
  Warn(notes);
  return out;
}

std::string Calibrate(const py::object& model, const py::object& calibration, int threads) {
  ir::Graph graph = ReadModel(model);
  const std::unique_ptr<quant::DataSource> data = OpenData(calibration, graph, Passes::kOne);
  const py::gil_scoped_release unlock;
  api::OptimizeOptions options;
  options.threads = threads;
  options.progress = [](std::string_view stage, int64_t done, int64_t total) { Step({}, stage, done, total); };
  const api::CalibrationTask task = Unwrap(api::PrepareCalibration(std::move(graph), options));
  return Unwrap(api::RunCalibration(task, *data, options)).ToBytes();
}

}  // namespace

void BindOptimize(py::module_& m) {
  py::class_<OptimizeResult>(m, "Result")
      .def_property_readonly("model", [](const OptimizeResult& r) { return py::bytes(r.model); })
      .def_property_readonly(
          "report", [](const OptimizeResult& r) { return py::module_::import("json").attr("loads")(r.report); })
      .def_property_readonly("html", [](const OptimizeResult& r) { return r.html; })
      .def("save", [](const OptimizeResult& r, const py::object& path) {
        Unwrap(ir::WriteWholeFile(std::string(py::str(py::module_::import("os").attr("fspath")(path))), r.model));
      });
  m.def(
      "optimize", &Optimize, py::arg("model"), py::arg("recipe") = "int8", py::arg("calibration") = py::none(),
      py::arg("calibrator") = "mse", py::arg("threads") = 0, py::arg("progress") = py::none(),
      py::arg("reduce_range") = false, py::arg("quantize_kv_cache") = false,
      py::arg("keep_float") = std::vector<std::string>{}, py::arg("layers") = false,
      py::arg("dynamic") = std::vector<std::string>{}, py::arg("min_db") = py::none(), py::arg("fit") = true,
      "Fuses and quantizes; calibration: dicts of arrays, a path, or what calibrate() returned. reduce_range: int8 "
      "weights use 7 of their 8 bits, faster on CPUs without VNNI. quantize_kv_cache: past keys and values enter, and "
      "present ones leave, as the 8-bit codes that attention reads (Session.inputs has their dtype, the model's "
      "metadata \"octavo.caches\" scale and zero point). keep_float: names of nodes that are not quantized, with * and "
      "?.");
  m.def(
      "calibrate",
      [](const py::object& model, const py::object& calibration, int threads) {
        return py::bytes(Calibrate(model, calibration, threads));
      },
      py::arg("model"), py::arg("calibration"), py::arg("threads") = 0, "Ranges of the activations, for optimize().");
}

}  // namespace octavo::python
