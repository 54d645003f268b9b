#include "octavo/python_bindings/convert.h"

#include <algorithm>
#include <cstring>
#include <format>

#include "octavo/ir/onnx/onnx.h"
#include "octavo/quant/numeric/dtype.h"

namespace octavo::python {

using ir::DType;
using ir::Tensor;

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
    if (spent_) return ir::Fail("the batches of an iterator come once; pass a list of them");
    if (static_cast<size_t>(count_) < kept_.size()) return kept_[static_cast<size_t>(count_++)];
    if (iterator_ == py::iterator::sentinel()) return std::nullopt;
    const std::string name = std::format("batch {}", count_++);
    if (!py::hasattr(*iterator_, "keys")) return ir::Fail("{}: not a dict of arrays", name);
    auto fitted = quant::FitInputs(FromDict(py::dict(py::reinterpret_borrow<py::object>(*iterator_))), inputs_, name);
    if (!fitted) return std::unexpected(fitted.error());
    ++iterator_;
    quant::Batch batch{name, std::move(*fitted)};
    if (keeps_) kept_.push_back(batch);
    return batch;
  }
  void Rewind() override {
    const py::gil_scoped_acquire lock;
    if (!once_ || !iterator_) iterator_ = py::iter(iterable_);
    spent_ = once_ && !keeps_ && count_ > 0;
    count_ = 0;
  }
  int64_t size() const override {
    const py::gil_scoped_acquire lock;
    return py::hasattr(iterable_, "__len__") ? static_cast<int64_t>(py::len(iterable_)) : -1;
  }
  std::string Describe() const override { return std::format("{} batches from Python", count_); }

 private:
  py::object iterable_;
  py::iterator iterator_;
  std::vector<quant::InputSpec> inputs_;
  bool once_, keeps_, spent_ = false;
  std::vector<quant::Batch> kept_;
  int64_t count_ = 0;
};

}  // namespace

void Raise(const ir::Error& error) {
  const py::gil_scoped_acquire lock;
  const py::object type = py::module_::import("octavo._octavo").attr("OctavoError");
  // Names out of a file need not be UTF-8.
  const auto text = py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(error.message.data(), static_cast<py::ssize_t>(error.message.size()), "backslashreplace"));
  PyErr_SetObject(type.ptr(), text.ptr());
  throw py::error_already_set();
}

Tensor FromNumpy(const std::string& name, const py::array& array, bool donated) {
  DType dtype = DType::kUndefined;
  for (const Kind& k : kKinds) {
    if (array.dtype().kind() == k.kind && array.dtype().itemsize() == k.size) dtype = k.dtype;
  }
  if (dtype == DType::kUndefined) {
    Raise({std::format("array '{}' has dtype {}, which no tensor has", name, std::string(py::str(array.dtype())))});
  }
  if (donated && !array.writeable())
    Raise({std::format("array '{}' is donated, but it is read-only; pass a copy of it", name)});
  py::object native = array;
  if (array.dtype().byteorder() == '>') native = array.attr("astype")(array.dtype().attr("newbyteorder")("="));
  const py::array contiguous = py::array::ensure(native, py::array::c_style);
  if (donated && contiguous.ptr() != array.ptr())
    Raise({std::format(
        "array '{}' is donated, but its elements do not lie as a tensor's; pass np.ascontiguousarray of it", name)});
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
    for (const std::string& s : tensor.strings()) words.append(py::str(s));
    return py::array(words).reshape(tensor.shape());
  }
  if (numpy == nullptr) return ToNumpy(Widened(tensor));
  // Constants of the model, inputs and other outputs may share the memory; what the caller gets is the caller's to write.
  auto* keep = new Tensor(tensor.sole() ? std::move(tensor) : Copied(tensor));
  const py::capsule owner(keep, [](void* p) { delete static_cast<Tensor*>(p); });
  return py::array(py::dtype(numpy), keep->shape(), keep->data(), owner);
}

ir::TensorMap FromDict(const py::dict& arrays, const std::vector<std::string>& donate) {
  ir::TensorMap tensors;
  for (const std::string& name : donate) {
    if (!arrays.contains(name)) Raise({std::format("'{}' is donated, but it is not among the inputs", name)});
  }
  for (const auto& [key, value] : arrays) {
    const std::string name = py::str(key);
    const bool donated = std::ranges::find(donate, name) != donate.end();
    const auto array = py::array::ensure(py::reinterpret_borrow<py::object>(value));
    if (!array)
      Raise({std::format("'{}' is no array, and numpy cannot make one of it (are its rows of different lengths?)",
                         name)});
    tensors[name] = FromNumpy(name, array, donated);
  }
  return tensors;
}

void Warn(const std::vector<std::string>& sentences) {
  for (const std::string& sentence : sentences) {
    if (PyErr_WarnEx(PyExc_UserWarning, sentence.c_str(), 1) != 0) throw py::error_already_set();
  }
}

ir::Graph ReadModel(const py::object& model) {
  ir::Graph graph;
  if (py::isinstance<py::bytes>(model)) {
    graph = Unwrap(ir::onnx::ReadBytes(std::string(py::bytes(model))));
  } else {
    const std::string path = py::str(py::module_::import("os").attr("fspath")(model));
    graph = Unwrap(ir::onnx::ReadFile(path));
  }
  Warn(graph.info.notes);
  return graph;
}

std::unique_ptr<quant::DataSource> DataFromIterable(py::object iterable, std::vector<quant::InputSpec> inputs,
                                                    Passes passes) {
  return std::make_unique<IterableData>(std::move(iterable), std::move(inputs), passes);
}

}  // namespace octavo::python
