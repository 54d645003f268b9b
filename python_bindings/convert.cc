#include "octavo/python_bindings/convert.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <format>

#include "octavo/ir/closed.h"
#include "octavo/ir/names.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/python_bindings/graph.h"
#include "octavo/quant/numeric/dtype.h"

namespace octavo::python {

using ir::DType;
using ir::Tensor;
using namespace py::literals;  // NOLINT: "name"_a

namespace {

// Keeps a numpy array alive; the reference is dropped with the interpreter's lock held, whichever thread is last.
class ArrayBuffer : public ir::Buffer {
 public:
  ArrayBuffer(const py::array& array, bool donated) : array_(new py::array(array)) {
    data_ = static_cast<std::byte*>(const_cast<void*>(array.data()));
    size_ = static_cast<size_t>(array.nbytes());
    exclusive_ = donated;
  }
  ~ArrayBuffer() override {
    const py::gil_scoped_acquire lock;
    delete array_;
  }
  ArrayBuffer(const ArrayBuffer&) = delete;
  ArrayBuffer& operator=(const ArrayBuffer&) = delete;

 private:
  py::array* array_;
};

struct Kind {
  char kind;
  py::ssize_t size;
  DType dtype;
  const char* numpy;
};
constexpr Kind kKinds[] = {
    {'f', 4, DType::kF32, "float32"}, {'f', 8, DType::kF64, "float64"}, {'f', 2, DType::kF16, "float16"},
    {'i', 8, DType::kS64, "int64"},   {'i', 4, DType::kS32, "int32"},   {'i', 2, DType::kS16, "int16"},
    {'i', 1, DType::kS8, "int8"},     {'u', 8, DType::kU64, "uint64"},  {'u', 4, DType::kU32, "uint32"},
    {'u', 2, DType::kU16, "uint16"},  {'u', 1, DType::kU8, "uint8"},    {'b', 1, DType::kBool, "bool"}};

Tensor Widened(const Tensor& t) {
  if (quant::IsFloat(t.dtype())) return Tensor::F32(t.shape(), t.ToFloats());
  return Tensor::S64(t.shape(), t.ToInts());
}

Tensor Copied(const Tensor& t) {
  Tensor copy = Tensor::Empty(t.dtype(), t.shape());
  if (t.byte_size() > 0) std::memcpy(copy.mutable_data(), t.data(), t.byte_size());
  return copy;
}

// Goes through the iterable each time it is rewound; what an iterator gives, such as a generator, is there once, so that is kept.
class IterableData : public quant::DataSource {
 public:
  IterableData(py::object iterable, std::vector<quant::InputSpec> inputs, Passes passes)
      : iterable_(std::move(iterable)),
        inputs_(std::move(inputs)),
        once_(py::isinstance<py::iterator>(iterable_)),
        keeps_(once_ && passes == Passes::kMany) {
    Rewind();
  }
  ~IterableData() override {
    const py::gil_scoped_acquire lock;
    iterator_ = py::iterator();
    iterable_ = py::object();
  }
  ir::Result<std::optional<quant::Batch>> Next() override {
    const py::gil_scoped_acquire lock;
    try {
      return Pull();
    } catch (py::error_already_set& e) {
      e.restore();
      return ir::Fail("the batches raised an exception");  // which is what the caller sees
    }
  }
  void Rewind() override {
    const py::gil_scoped_acquire lock;
    try {
      if (!once_ || !iterator_) iterator_ = py::iter(iterable_);
    } catch (py::error_already_set& e) {
      e.restore();
      iterator_ = py::iterator();
    }
    spent_ = once_ && !keeps_ && count_ > 0;
    count_ = 0;
  }
  int64_t size() const override {
    const py::gil_scoped_acquire lock;
    const py::ssize_t length = PyErr_Occurred() == nullptr ? PyObject_LengthHint(iterable_.ptr(), -1) : -1;
    if (length < 0) PyErr_Clear();
    return length;
  }
  std::string Describe() const override {
    const int64_t known = once_ ? -1 : size(), seen = std::max(count_, static_cast<int64_t>(kept_.size()));
    return std::format("{} batches from Python", known < 0 ? seen : known);
  }

 private:
  ir::Result<std::optional<quant::Batch>> Pull() {
    if (PyErr_Occurred() != nullptr) return ir::Fail("interrupted");
    if (spent_) return ir::Fail("the batches of an iterator come once; pass a list of them");
    if (static_cast<size_t>(count_) < kept_.size()) return kept_[static_cast<size_t>(count_++)];
    if (iterator_ == py::iterator::sentinel()) return std::nullopt;
    const std::string name = std::format("batch {}", count_++);
    auto fitted = quant::FitInputs(FromDict(py::reinterpret_borrow<py::object>(*iterator_), name), inputs_, name);
    if (!fitted) return std::unexpected(fitted.error());
    ++iterator_;
    quant::Batch batch{name, std::move(*fitted)};
    if (keeps_) kept_.push_back(batch);
    return batch;
  }

  py::object iterable_;
  py::iterator iterator_;
  std::vector<quant::InputSpec> inputs_;
  bool once_, keeps_, spent_ = false;
  std::vector<quant::Batch> kept_;
  int64_t count_ = 0;
};

// str(o) for a sentence.
std::string Described(const py::handle& o) {
  const auto text = py::reinterpret_steal<py::object>(PyObject_Str(o.ptr()));
  const auto encoded = py::reinterpret_steal<py::bytes>(
      text ? PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace") : nullptr);
  if (!encoded) PyErr_Clear();
  return encoded ? ir::Clean(std::string(encoded)) : "?";
}

// What asks for an object of another kind; what the caller's own code raises is not ours to translate.
bool SaysWrongKind(const py::error_already_set& e) {
  return e.matches(PyExc_TypeError) || e.matches(PyExc_ValueError) || e.matches(PyExc_AttributeError);
}

// The bytes of a model that Python has in memory, None for what holds none.
py::object BytesOf(const py::object& model) {
  if (py::isinstance<py::bytes>(model)) return model;
  if (py::isinstance<py::bytearray>(model) || py::isinstance<py::memoryview>(model))
    return py::module_::import("builtins").attr("bytes")(model);
  for (const char* method : {"SerializeToString", "read"}) {  // an onnx.ModelProto, an open file
    if (!py::hasattr(model, method)) continue;
    try {
      const py::object bytes = model.attr(method)();
      if (py::isinstance<py::bytes>(bytes)) return bytes;
    } catch (const py::error_already_set& e) {
      if (!e.matches(PyExc_Exception)) throw;  // Ctrl-C
      Raise({std::format("the model cannot be read from memory: {}; above 2 GB give the path of its file",
                         Described(e.value()))});
    }
    Raise({std::format("a model's {}() gives bytes, and this one gives something else; open the file in mode 'rb'",
                       method)});
  }
  return py::none();
}

void CheckDonated(const std::vector<std::string>& donated, const ir::TensorMap& tensors) {
  const auto end = [](const Tensor& t) { return t.data() + t.byte_size(); };
  for (const std::string& name : donated) {
    const Tensor& mine = tensors.at(name);
    for (const auto& [other, t] : tensors) {
      if (other == name || mine.byte_size() == 0 || t.byte_size() == 0) continue;
      if (mine.data() < end(t) && t.data() < end(mine))
        Raise({std::format("array {} is donated, but it shares memory with array {}; pass a copy of one of them",
                           ir::Quoted(name), ir::Quoted(other))});
    }
  }
}

}  // namespace

void Raise(const ir::Error& error) {
  const py::gil_scoped_acquire lock;
  const char* type = ir::LacksMemory(error) ? "OctavoMemoryError" : "OctavoError";
  const std::string text = ir::Clean(error.message, 4000);
  PyErr_SetObject(py::object(py::module_::import("octavo._octavo").attr(type)).ptr(), py::str(text).ptr());
  throw py::error_already_set();
}

bool OnMainThread() { return syscall(SYS_gettid) == getpid(); }

bool Interrupted() {
  // Python handles signals on the main thread alone: elsewhere a wait for its lock would be for nothing.
  if (!OnMainThread()) return false;
  const py::gil_scoped_acquire lock;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

std::string TypeOf(const py::handle& o) { return Described(py::type::handle_of(o).attr("__name__")); }

std::optional<std::string> PathOf(const py::object& o) {
  if (!py::isinstance<py::str>(o) && !py::hasattr(o, "__fspath__")) return std::nullopt;
  std::string path;
  try {
    path = std::string(py::bytes(py::module_::import("os").attr("fsencode")(o)));
  } catch (const py::error_already_set& e) {
    if (!SaysWrongKind(e)) throw;
    Raise({std::format("{} is no path", Described(o))});
  }
  if (path.find('\0') != std::string::npos)
    Raise({std::format("{} is no path: it has a zero byte in it", ir::Quoted(path))});
  return path;
}

ir::Limits LimitsOf(std::optional<int64_t> max_memory, std::optional<int64_t> max_nodes) {
  if (max_memory.value_or(1) <= 0 || max_nodes.value_or(1) <= 0)
    Raise(
        {"max_memory is a number of bytes and max_nodes one of nodes, both above 0; leave them out for the defaults"});
  return {.max_memory = max_memory.value_or(0), .max_nodes = max_nodes.value_or(0)};
}

Tensor FromNumpy(const std::string& name, const py::array& array, bool donated) {
  DType dtype = DType::kUndefined;
  for (const Kind& k : kKinds) {
    if (array.dtype().kind() == k.kind && array.dtype().itemsize() == k.size) dtype = k.dtype;
  }
  if (dtype == DType::kUndefined) {
    Raise({std::format("array {} has dtype {}, which no tensor has; pass numbers", ir::Quoted(name),
                       Described(array.dtype()))});
  }
  if (donated && !array.writeable())
    Raise({std::format("array {} is donated, but it is read-only; pass a copy of it", ir::Quoted(name))});
  py::object native = array;
  if (array.dtype().byteorder() == '>') native = array.attr("astype")(array.dtype().attr("newbyteorder")("="));
  py::array contiguous = py::array::ensure(native, py::array::c_style);
  if (contiguous && !contiguous.attr("flags").attr("aligned").cast<bool>()) contiguous = contiguous.attr("copy")();
  if (!contiguous) Raise({std::format("array {}: this machine has no more memory", ir::Quoted(name))});
  if (donated && contiguous.ptr() != array.ptr())
    Raise(
        {std::format("array {} is donated, but its elements do not lie as a tensor's; pass np.ascontiguousarray of it",
                     ir::Quoted(name))});
  ir::Shape shape(contiguous.shape(), contiguous.shape() + contiguous.ndim());
  if (contiguous.nbytes() == 0) return Tensor::Zeros(dtype, std::move(shape));
  return Tensor::View(dtype, std::move(shape), std::make_shared<ArrayBuffer>(contiguous, donated), 0);
}

py::array ToNumpy(Tensor tensor) {
  const char* numpy = nullptr;
  for (const Kind& k : kKinds) {
    if (k.dtype == tensor.dtype()) numpy = k.numpy;
  }
  if (tensor.dtype() == DType::kString) {
    py::list words;
    for (const std::string& s : tensor.strings()) words.append(Name{s});
    py::tuple shape(tensor.shape().size());
    for (size_t i = 0; i < shape.size(); ++i) shape[i] = tensor.shape()[i];
    return py::module_::import("numpy").attr("array")(words, "dtype"_a = "U").attr("reshape")(shape);
  }
  if (numpy == nullptr) return ToNumpy(Widened(tensor));
  // Constants of the model, inputs and other outputs may share the memory; what the caller gets is the caller's to write.
  auto* keep = new Tensor(tensor.sole() ? std::move(tensor) : Copied(tensor));
  const py::capsule owner(keep, [](void* p) { delete static_cast<Tensor*>(p); });
  return py::array(py::dtype(numpy), keep->shape(), keep->data(), owner);
}

py::object ShapeToPython(const ir::Type& type) {
  if (!type.shape) return py::none();
  py::list dims;
  for (const ir::Dim& d : *type.shape) {
    if (d.is_number()) {
      dims.append(d.number());
    } else if (d.known()) {
      dims.append(Name{d.ToString()});
    } else {
      dims.append(py::none());
    }
  }
  return dims;
}

py::object NumpyTypeOf(DType dtype) {
  for (const Kind& k : kKinds) {
    if (k.dtype == dtype) return py::dtype(k.numpy);
  }
  if (dtype == DType::kUndefined) return py::none();
  if (dtype == DType::kString) return py::dtype("U");
  return py::dtype(quant::IsFloat(dtype) ? "float32" : "int64");  // as Widened
}

ir::TensorMap FromDict(const py::object& mapping, std::string_view place, const std::vector<Name>& donate) {
  py::dict arrays;
  try {
    if (py::hasattr(mapping, "keys")) arrays = py::dict(mapping);
  } catch (const py::error_already_set& e) {
    if (!SaysWrongKind(e)) throw;
    Raise({std::format("{} cannot be read: {}", place, Described(e.value()))});
  }
  if (!py::hasattr(mapping, "keys")) Raise({std::format("{}: not a dict of arrays but {}", place, TypeOf(mapping))});
  std::vector<std::string> donated;
  for (const Name& name : donate) donated.push_back(name.bytes);
  ir::TensorMap tensors;
  for (const auto& [key, value] : arrays) {
    py::detail::make_caster<Name> caster;
    if (!caster.load(key, false)) Raise({std::format("{}: the key {} is no name of an input", place, Described(key))});
    const std::string name = py::detail::cast_op<Name&>(caster).bytes;
    const auto array = py::array::ensure(py::reinterpret_borrow<py::object>(value));
    if (!array)
      Raise({std::format("{} is no array, and numpy cannot make one of it (are its rows of different lengths?)",
                         ir::Quoted(name))});
    tensors[name] = FromNumpy(name, array, std::ranges::find(donated, name) != donated.end());
  }
  for (const std::string& name : donated) {
    if (!tensors.contains(name))
      Raise({std::format("{} is donated, but it is not among the inputs", ir::Quoted(name))});
  }
  CheckDonated(donated, tensors);
  return tensors;
}

namespace {

// Of the first line that is not the package's own: how deep a call went in it is no affair of the caller's.
Py_ssize_t LevelOfCaller() {
  const auto folder = py::module_::import("octavo").attr("__path__").cast<py::list>()[0].cast<Name>().bytes + "/";
  Py_ssize_t level = 1;
  py::object frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  for (; frame && !frame.is_none(); frame = frame.attr("f_back"), ++level) {
    if (!frame.attr("f_code").attr("co_filename").cast<Name>().bytes.starts_with(folder)) return level;
  }
  return 1;
}

}  // namespace

void Warn(const std::vector<std::string>& sentences) {
  if (sentences.empty()) return;
  const Py_ssize_t level = LevelOfCaller();
  for (const std::string& sentence : sentences) {
    if (PyErr_WarnEx(PyExc_UserWarning, ir::Clean(sentence, sentence.size()).c_str(), level) != 0)
      throw py::error_already_set();
  }
}

ir::Graph ReadModel(const py::object& model, const ir::Limits& limits, py::object* bytes, bool map_data) {
  ir::Graph graph;
  if (py::isinstance<GraphRef>(model)) {
    graph = Of(model.cast<Shared>());
    graph.info.limits = limits;
    return graph;
  }
  if (const auto path = PathOf(model)) {
    graph = Unwrap(ir::onnx::ReadFile(*path, {.limits = limits, .map_data = map_data}));
  } else if (py::object given = BytesOf(model); !given.is_none()) {
    graph = Unwrap(ir::onnx::ReadBytes(given.cast<std::string_view>(), {.limits = limits}));
    if (bytes != nullptr) *bytes = std::move(given);
  } else {
    Raise(
        {std::format("a model is a path, the bytes of a file, an onnx.ModelProto or a Graph, not {}", TypeOf(model))});
  }
  Warn(graph.info.notes);
  return graph;
}

std::unique_ptr<quant::DataSource> DataFromIterable(py::object iterable, std::vector<quant::InputSpec> inputs,
                                                    Passes passes) {
  if (!py::isinstance<py::iterable>(iterable) || py::isinstance<py::dict>(iterable))
    Raise({std::format("calibration data is a path or an iterable of dicts of arrays, not {}", TypeOf(iterable))});
  return std::make_unique<IterableData>(std::move(iterable), std::move(inputs), passes);
}

}  // namespace octavo::python
