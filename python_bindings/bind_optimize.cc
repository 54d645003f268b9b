#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <filesystem>
#include <format>

#include "octavo/api/assume.h"
#include "octavo/api/bench.h"
#include "octavo/api/made.h"
#include "octavo/api/optimize.h"
#include "octavo/api/options.h"
#include "octavo/api/peak.h"
#include "octavo/api/report_html.h"
#include "octavo/api/report_json.h"
#include "octavo/api/tries.h"
#include "octavo/api/version_text.h"
#include "octavo/api/weights.h"
#include "octavo/integrations/onnxruntime/session.h"
#include "octavo/ir/closed.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/sha256.h"
#include "octavo/ir/whole_file.h"
#include "octavo/python_bindings/data.h"
#include "octavo/python_bindings/made.h"
#include "octavo/python_bindings/rules.h"

namespace octavo::python {

namespace {

struct OptimizeResult {
  std::string model, report, html;
};

// Python's own and numpy's.
bool IsBool(const py::handle& value) { return PyBool_Check(value.ptr()) != 0 || TypeOf(value).starts_with("bool"); }

[[noreturn]] void RefuseArgument(std::string_view name, const py::handle& value, const char* wanted) {
  const std::string sentence = std::format("optimize(): {} takes {}, not {}", name, wanted, TypeOf(value));
  PyErr_SetString(PyExc_TypeError, sentence.c_str());
  throw py::error_already_set();
}
// convert: from a number of another type, but not from True, which would be a 1 that nobody wrote.
template <typename T>
T LoadArgument(std::string_view name, const py::handle& value, bool convert, const char* wanted) {
  py::detail::make_caster<T> caster;
  if ((convert && IsBool(value)) || !caster.load(value, convert)) RefuseArgument(name, value, wanted);
  return py::detail::cast_op<T>(std::move(caster));
}

// A value of Python into the field of an option.
class OptionSetter {
 public:
  OptionSetter(const api::Option& option, const py::handle& value, api::OptimizeOptions& options)
      : o_(option), value_(value), options_(options) {}
  void operator()(bool api::OptimizeOptions::* f) { options_.*f = Load<bool>(value_, false, "True or False"); }
  void operator()(int api::OptimizeOptions::* f) {
    options_.*f = Load<int>(value_, true, "a whole number");
    CheckRange(options_.*f);
  }
  void operator()(std::optional<double> api::OptimizeOptions::* f) {
    options_.*f = Load<std::optional<double>>(value_, true, "a number or None");
    if (options_.*f) CheckRange(*(options_.*f));
  }
  void operator()(std::string api::OptimizeOptions::* f) { options_.*f = Load<Name>(value_, false, "a str").bytes; }
  void operator()(quant::Calibrator api::OptimizeOptions::* f) {
    options_.*f = Unwrap(quant::CalibratorFromName(Load<Name>(value_, false, "a str").bytes));
  }
  void operator()(std::vector<std::string> api::OptimizeOptions::* f) {
    if (py::isinstance<py::str>(value_) || !py::isinstance<py::iterable>(value_))
      RefuseArgument(o_.name, value_, "a list of str");
    for (const py::handle name : py::reinterpret_borrow<py::iterable>(value_))
      (options_.*f).push_back(Load<Name>(name, false, "a list of str").bytes);
  }

 private:
  template <typename T>
  T Load(const py::handle& value, bool convert, const char* wanted) const {
    return LoadArgument<T>(o_.name, value, convert, wanted);
  }
  void CheckRange(double value) const {
    if (!(value >= o_.least && value <= o_.most))
      Raise({std::format("{} is {:g}; it takes a number from {:g} to {:.0f}", o_.name, value, o_.least, o_.most)});
  }

  const api::Option& o_;
  const py::handle value_;
  api::OptimizeOptions& options_;
};

// What report and file say of where things came from, and what is measured of them.
struct Page {
  std::string title = "model", command = {};
  std::vector<std::pair<std::string, std::string>> files = {};  // what, path
  bool measure = false, record = false;
  std::string program = {};     // that tells the peak of memory; empty: there is none
  std::string file = {};        // the model's, empty where it came otherwise
  std::string_view given = {};  // its bytes, then
  std::string_view calibration_given = {};
  quant::DataSource* data = nullptr;
  bool data_in_memory = false;
  int64_t bytes = 0;  // of the model's file
};

std::string HashOfBytes(std::string_view bytes) {
  ir::Sha256 hash;
  hash.Add(bytes);
  return hash.Hex();
}

// Of all batches, one behind the other: of each array its name, type and shape as text, and its bytes.
ir::Result<std::string> HashOfBatches(quant::DataSource& data) {
  ir::Sha256 hash;
  data.Rewind();
  for (;;) {
    OCTAVO_TRY(const auto batch, data.Next());
    if (!batch) return hash.Hex();
    for (const auto& [name, tensor] : batch->inputs) {
      std::string head = name + " " + std::string(quant::Name(tensor.dtype()));
      for (const int64_t size : tensor.shape()) head += " " + std::to_string(size);
      hash.Add(head + "\n");
      hash.Add({reinterpret_cast<const char*>(tensor.data()), tensor.byte_size()});
    }
  }
}

ir::Result<api::Provenance> ProvenanceOf(const Page& page) {
  api::Provenance from{.command = page.command, .version = api::VersionText()};
  if (!page.given.empty()) from.sha256.emplace_back("the model's bytes", HashOfBytes(page.given));
  for (const auto& [what, path] : page.files) {
    std::error_code none;
    if (!std::filesystem::is_regular_file(path, none) && !std::filesystem::is_directory(path, none)) continue;
    OCTAVO_TRY(std::string hash, ir::HashOf(path));
    from.sha256.emplace_back(what + ": " + path, std::move(hash));
  }
  if (!page.calibration_given.empty())
    from.sha256.emplace_back("the calibration's bytes", HashOfBytes(page.calibration_given));
  if (page.record && page.data_in_memory) {
    OCTAVO_TRY(std::string hash, HashOfBatches(*page.data));
    from.sha256.emplace_back("the calibration data's arrays", std::move(hash));
  }
  return from;
}

// Of the model in a file, which is written where it came without one, and of what was made of it.
void MeasurePeaks(const Page& page, const ir::Graph& came, std::string_view made, const ir::TensorMap& inputs,
                  api::Measured& measured) {
  const api::TemporaryFolder folder;
  if (page.program.empty() || folder.path.empty()) return;
  api::PeakFiles files{.program = page.program, .before = page.file, .after = (folder.path / "after.onnx").string()};
  if (!ir::WriteWholeFile(files.after, made)) return;
  if (files.before.empty()) {
    files.before = (folder.path / "before.onnx").string();
    const auto wrote =
        page.given.empty() ? ir::onnx::WriteFile(came, files.before, {}) : ir::WriteWholeFile(files.before, page.given);
    if (!wrote) return;
  }
  api::MeasurePeaks(files, inputs, Interrupted, measured);
}

// On the first batch of the data, or a random one. The outer error is one of Python's.
ir::Result<std::optional<ir::Result<api::Measured>>> MeasuredFor(const Page& page, const ir::Graph& came,
                                                                 const api::Optimized& result, std::string_view made) {
  if (!page.measure) return std::nullopt;
  ir::TensorMap inputs;
  bool random = page.data == nullptr || page.data->random();
  if (page.data != nullptr) {
    page.data->Rewind();
    OCTAVO_TRY(auto batch, page.data->Next());
    if (batch) inputs = std::move(batch->inputs);
  }
  if (inputs.empty()) {
    OCTAVO_TRY(inputs, api::RandomInputs(came, {}));
    random = true;
  }
  auto measured = api::Measure(came, result.graph, inputs, random, {.interrupted = Interrupted});
  if (measured) MeasurePeaks(page, came, made, inputs, *measured);
  return measured;
}

// What optimize() gives, and what Python shall warn of. Without Python's lock. optimize: takes the graph.
template <typename F>
ir::Result<OptimizeResult> Work(ir::Graph graph, const api::OptimizeOptions& options, F&& optimize,
                                std::vector<std::string>& notes, const Page& page = {}) {
  const py::gil_scoped_release unlock;
  return ir::Closed("optimizing", [&]() -> ir::Result<OptimizeResult> {
    api::FileSizes bytes;
    bytes.before = page.bytes > 0 ? page.bytes : api::BytesOfModel(graph, 0);
    ir::Graph came = page.measure ? graph : ir::Graph();
    OCTAVO_TRY(api::Optimized result, optimize(std::move(graph)));
    OCTAVO_TRY(const api::Provenance from, ProvenanceOf(page));
    api::RecordMade(options, from, result, page.record);
    OptimizeResult out;
    OCTAVO_TRY(out.model, ir::onnx::WriteBytes(result.graph));
    bytes.after = static_cast<int64_t>(out.model.size());
    OCTAVO_TRY(const std::optional<ir::Result<api::Measured>> measured, MeasuredFor(page, came, result, out.model));
    out.report = api::ReportJson(result, bytes, measured && *measured ? &**measured : nullptr);
    out.html = api::ReportHtml(result, bytes, page.title, from, measured ? &*measured : nullptr);
    notes = result.notes;
    return out;
  });
}

// Before the graph is worked on. model_bytes: what came instead of a path, null where that was a Graph.
Page PageOf(const py::dict& arguments, const py::object& model, const py::object& model_bytes, const ir::Graph& graph,
            quant::DataSource* data) {
  const auto of = [&arguments](const char* name) { return py::reinterpret_borrow<py::object>(arguments[name]); };
  const auto flag = [&of](const char* name) { return LoadArgument<bool>(name, of(name), false, "True or False"); };
  Page page{.command = of("call").cast<Name>().bytes, .measure = flag("measure"), .record = flag("record")};
  page.program = of("program").cast<Name>().bytes;
  page.data = data;
  if (model_bytes) {
    page.given = model_bytes.cast<std::string_view>();
  } else if (const auto path = PathOf(model)) {
    std::error_code none;
    const auto size = std::filesystem::file_size(*path, none);
    if (!none) page.bytes = api::BytesOfModel(graph, static_cast<int64_t>(size));
    page.title = page.file = *path, page.files.emplace_back("the model", *path);
  }
  const py::object calibration = of("calibration");
  if (py::isinstance<py::bytes>(calibration)) {
    page.calibration_given = calibration.cast<std::string_view>();
  } else if (const auto path = PathOf(calibration)) {
    page.files.emplace_back("the calibration data", *path);
  } else {
    page.data_in_memory = data != nullptr;
  }
  return page;
}

// arguments: all of optimize() in octavo/_options.py, each in the form that the function reads it in.
OptimizeResult Optimize(const py::object& model, const py::dict& arguments) {
  const auto of = [&arguments](const char* name) { return py::reinterpret_borrow<py::object>(arguments[name]); };
  const auto limit = [&of](const char* name) {
    return LoadArgument<std::optional<int64_t>>(name, of(name), true, "a whole number or None");
  };
  py::object model_bytes;
  ir::Graph graph = ReadModel(model, LimitsOf(limit("max_memory"), limit("max_nodes")), &model_bytes);
  for (const auto& [input, value] : of("assume").cast<std::vector<std::pair<Name, std::string>>>())
    Unwrap(api::Assume(graph, input.bytes, value));
  if (const auto weights = PathOf(of("weights"))) {
    Warn(Unwrap(api::TakeWeights(graph, *weights)).notes);
  } else if (!of("weights").is_none()) {
    RefuseArgument("weights", of("weights"), "a path or None");
  }
  api::OptimizeOptions options;
  for (const api::Option& option : api::Options())
    std::visit(OptionSetter(option, arguments[py::str(std::string(option.name))], options), option.field);
  options.other_runtime = integrations::onnxruntime::RuntimeNamed(options.calibrate_with);
  passes::Registry registry;
  AddRules(of("rules").cast<std::vector<PyRule>>(), of("plugins").cast<std::vector<Name>>(), registry);
  options.registry = &registry;
  if (const auto pipeline = of("pipeline").cast<std::optional<Name>>())
    options.pipeline = Unwrap(passes::PipelineFromJson(pipeline->bytes));
  Unwrap(api::SetPassOptions(of("set").cast<std::vector<std::string>>(), options));
  const py::object calibration = of("calibration");
  const auto progress = LoadArgument<std::optional<ProgressFn>>("progress", of("progress"), true, "a function or None");
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
  const Page page = PageOf(arguments, model, model_bytes, graph, data.get());
  const auto optimize = [&](ir::Graph g) { return api::Optimize(std::move(g), options); };
  OptimizeResult out = Unwrap(Work(std::move(graph), options, optimize, notes, page));
  Warn(notes);
  return out;
}

// api::Tries for tune(): one model and its data.
class PyTries {
 public:
  PyTries(const py::object& model, const py::object& calibration, int threads)
      : PyTries(ReadModel(model, LimitsOf({}, {})), calibration, threads) {}

  // recipe, keep_float, dynamic and reduce_range: as of optimize(). What is noted of a result whose weights are not refined is not told: it is compared, not used.
  OptimizeResult Optimize(const std::string& recipe, const std::vector<std::string>& keep_float,
                          const std::vector<std::string>& dynamic, bool refine, bool reduce_range,
                          const std::optional<ProgressFn>& progress) {
    api::OptimizeOptions options = Options(progress);
    options.recipe = recipe, options.keep_float = keep_float, options.dynamic = dynamic;
    options.reduce_range = reduce_range;
    std::vector<std::string> notes;
    const auto optimize = [&](const ir::Graph&) { return tries_.Optimize(options, refine); };
    OptimizeResult out = Unwrap(Work(tries_.model(), options, optimize, notes));
    if (refine) Warn(notes);
    return out;
  }
  std::vector<std::tuple<std::string, std::string, std::string>> Layers() {
    const auto layers = Unwrap(Free([&] { return tries_.Layers(Options({})); }));
    std::vector<std::tuple<std::string, std::string, std::string>> rows;
    rows.reserve(layers.size());
    for (const api::LayerLoss& layer : layers) rows.emplace_back(layer.node, layer.kind, layer.activation);
    return rows;
  }
  double NoiseOf(const std::vector<std::string>& nodes, bool dynamic) {
    return Unwrap(Free([&] { return tries_.NoiseOf(nodes, dynamic, Options({})); }));
  }

 private:
  PyTries(ir::Graph graph, const py::object& calibration, int threads)
      : data_(OpenData(calibration, graph, Passes::kMany)), tries_(std::move(graph), *data_), threads_(threads) {}
  api::OptimizeOptions Options(const std::optional<ProgressFn>& progress) const {
    api::OptimizeOptions options;
    options.threads = threads_, options.explain = false, options.interrupted = Interrupted;
    if (progress)
      options.progress = [&progress](std::string_view stage, int64_t done, int64_t total) {
        Step(progress, stage, done, total);
      };
    return options;
  }
  template <typename F>
  std::invoke_result_t<F> Free(F&& work) {
    const py::gil_scoped_release unlock;
    return ir::Closed("looking at layers", std::forward<F>(work));
  }

  std::unique_ptr<quant::DataSource> data_;
  api::Tries tries_;
  int threads_;
};

std::string Calibrate(const py::object& model, const py::object& calibration, int threads,
                      std::optional<int64_t> max_memory, std::optional<int64_t> max_nodes, const Name& with,
                      const std::optional<ProgressFn>& progress,
                      const std::optional<std::pair<int64_t, int64_t>>& shard, bool moments) {
  ir::Graph graph = ReadModel(model, LimitsOf(max_memory, max_nodes));
  std::unique_ptr<quant::DataSource> data = OpenData(calibration, graph, Passes::kOne);
  if (shard) data = quant::ShardOf(std::move(data), shard->first - 1, shard->second);
  api::OptimizeOptions options;
  options.threads = threads;
  options.moments = moments;
  options.other_runtime = integrations::onnxruntime::RuntimeNamed(with.bytes);
  options.progress = [&](std::string_view stage, int64_t done, int64_t total) { Step(progress, stage, done, total); };
  options.interrupted = Interrupted;
  const auto work = [&] {
    const py::gil_scoped_release unlock;
    return ir::Closed("calibrating", [&]() -> ir::Result<std::string> {
      OCTAVO_TRY(const api::CalibrationTask task, api::PrepareCalibration(std::move(graph), options));
      OCTAVO_TRY(quant::Calibration ranges, api::RunCalibration(task, *data, options));
      if (shard) ranges.shard = quant::ShardName(shard->first - 1, shard->second);
      return ranges.ToBytes();
    });
  };
  return Unwrap(work());
}

void Write(const py::object& path, std::string_view bytes) {
  const auto target = PathOf(path);
  if (!target) Raise({std::format("the place to save is a path, not {}", TypeOf(path))});
  Unwrap(ir::WriteWholeFile(*target, bytes));
}

// A pipe that nobody writes to, a device without end and a file beyond `most` are refused.
py::bytes Read(const py::object& path, size_t most) {
  const auto place = PathOf(path);
  if (!place) Raise({std::format("a file is named by a path, not {}", TypeOf(path))});
  auto bytes = [&] {
    const py::gil_scoped_release unlock;
    return ir::ReadWholeFile(*place, {.most = most});
  }();
  return py::bytes(Unwrap(std::move(bytes)));
}

}  // namespace
}  // namespace octavo::python

OCTAVO_MADE(octavo::python::PyTries);

namespace octavo::python {

void BindOptimize(py::module_& m) {
  py::class_<OptimizeResult>(m, "Result", "What optimize() gives: the model as bytes, and its report.")
      .def_property_readonly("model", [](const OptimizeResult& r) { return py::bytes(r.model); })
      .def_property_readonly(
          "report", [](const OptimizeResult& r) { return py::module_::import("json").attr("loads")(r.report); })
      .def_property_readonly("html", [](const OptimizeResult& r) { return r.html; })
      .def("save", [](const OptimizeResult& r, const py::object& path) { Write(path, r.model); }, py::arg("path"));
  m.def(
      "_write", [](const py::object& path, const Name& text) { Write(path, text.bytes); }, py::arg("path"),
      py::arg("text"));
  m.def("_read", &Read, py::arg("path"), py::arg("most"));
  m.def("_optimize", &Optimize, py::arg("model"), py::arg("arguments"));
  py::class_<PyTries>(m, "_Tries")
      .def(py::init<const py::object&, const py::object&, int>())
      .def("optimize", &PyTries::Optimize, py::arg("recipe"), py::arg("keep_float") = std::vector<std::string>(),
           py::arg("dynamic") = std::vector<std::string>(), py::arg("refine") = false, py::arg("reduce_range") = false,
           py::arg("progress") = std::nullopt)
      .def("layers", &PyTries::Layers)
      .def("noise_of", &PyTries::NoiseOf, py::arg("nodes"), py::arg("dynamic"));
  m.def(
      "split_if",
      [](const py::object& model, const Name& input) {
        const ir::Graph graph = ReadModel(model, LimitsOf({}, {}));
        const auto branch = [&](const char* value) {
          return py::bytes(Unwrap(ir::onnx::WriteBytes(Unwrap(api::BranchOf(graph, input.bytes, value)))));
        };
        return py::make_tuple(branch("true"), branch("false"));
      },
      py::arg("model"), py::arg("input"), "The model as two, where an If decides by an input.");
  m.def("_options_json", &api::OptionsJson);
  m.def(
      "_calibrate",
      [](const py::object& model, const py::object& calibration, int threads, std::optional<int64_t> max_memory,
         std::optional<int64_t> max_nodes, const Name& with, const std::optional<ProgressFn>& progress,
         const std::optional<std::pair<int64_t, int64_t>>& shard, bool moments) {
        return py::bytes(Calibrate(model, calibration, threads, max_memory, max_nodes, with, progress, shard, moments));
      },
      py::arg("model"), py::arg("calibration"), py::arg("threads"), py::arg("max_memory"), py::arg("max_nodes"),
      py::arg("with_"), py::arg("progress"), py::arg("shard"), py::arg("moments"));
}

}  // namespace octavo::python
