#include "octavo/integrations/onnxruntime/host.h"

#include <vector>

#include "octavo/ir/functions.h"

namespace octavo::integrations::onnxruntime {

namespace {

const OrtApi* api = nullptr;

// Memory of ONNX Runtime, never to be overwritten.
class Borrowed : public ir::Buffer {
 public:
  Borrowed(const void* data, size_t size) {
    data_ = static_cast<std::byte*>(const_cast<void*>(data));
    size_ = size;
  }
};

ir::Result<ir::DType> DTypeOf(const OrtTensorTypeAndShapeInfo* info) {
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  OCTAVO_TRY_STATUS(StatusOf(Api().GetTensorElementType(info, &type)));
  return static_cast<ir::DType>(type);  // both number them as TensorProto.DataType does
}

ir::Result<std::vector<int64_t>> DimsOf(const OrtTensorTypeAndShapeInfo* info) {
  size_t rank = 0;
  OCTAVO_TRY_STATUS(StatusOf(Api().GetDimensionsCount(info, &rank)));
  std::vector<int64_t> dims(rank);
  OCTAVO_TRY_STATUS(StatusOf(Api().GetDimensions(info, dims.data(), rank)));
  return dims;
}

// True: it was there and was read.
bool Done(OrtStatus* status) { return StatusOf(status).has_value(); }

bool Read(const OrtKernelInfo* info, const char* name, int64_t* out) {
  return Done(Api().KernelInfoGetAttribute_int64(info, name, out));
}
bool Read(const OrtKernelInfo* info, const char* name, float* out) {
  return Done(Api().KernelInfoGetAttribute_float(info, name, out));
}
bool Read(const OrtKernelInfo* info, const char* name, std::string* out) {
  size_t size = 0;
  if (!Done(Api().KernelInfoGetAttribute_string(info, name, nullptr, &size))) return false;
  out->resize(size);
  if (!Done(Api().KernelInfoGetAttribute_string(info, name, out->data(), &size))) return false;
  out->resize(size - 1);  // it counts the final zero
  return true;
}

template <typename T>
bool ReadInto(const OrtShapeInferContext* context, const char* name, OrtOpAttrType type, T* out, size_t bytes,
              size_t* size) {
  const OrtOpAttr* attr = nullptr;
  return Done(Api().ShapeInferContext_GetAttribute(context, name, &attr)) &&
         Done(Api().ReadOpAttr(attr, type, out, bytes, size));
}
bool Read(const OrtShapeInferContext* context, const char* name, int64_t* out) {
  size_t size = 0;
  return ReadInto(context, name, ORT_OP_ATTR_INT, out, sizeof(*out), &size);
}
bool Read(const OrtShapeInferContext* context, const char* name, float* out) {
  size_t size = 0;
  return ReadInto(context, name, ORT_OP_ATTR_FLOAT, out, sizeof(*out), &size);
}
bool Read(const OrtShapeInferContext* context, const char* name, std::string* out) {
  char text[64];  // the longest, an activation's name, has 10
  size_t size = 0;
  if (!ReadInto(context, name, ORT_OP_ATTR_STRING, text, sizeof(text), &size)) return false;
  out->assign(text, size - 1);
  return true;
}

template <typename Place>
ir::Attrs ReadAttrs(const Place* place) {
  ir::Attrs attrs;
  for (const ir::FusedAttr& known : ir::FusedAttrs()) {
    std::visit(
        [&](auto value) {
          if (Read(place, known.name, &value)) attrs.Set(known.name, std::move(value));
        },
        known.kind);
  }
  return attrs;
}

}  // namespace

const OrtApi& Api() { return *api; }
bool InitApi(const OrtApi* given) {
  if (api == nullptr) api = given;
  return api == given;
}

ir::Status StatusOf(OrtStatus* status) {
  if (status == nullptr) return {};
  std::string message = Api().GetErrorMessage(status);
  Api().ReleaseStatus(status);
  while (message.ends_with('\n')) message.pop_back();
  return ir::Fail("{}", message);
}

OrtStatus* ToOrt(const ir::Status& status) {
  return status ? nullptr : Api().CreateStatus(ORT_FAIL, ("octavo: " + status.error().message).c_str());
}

ir::Result<ir::Type> TypeOf(const OrtTensorTypeAndShapeInfo* info, bool scalar) {
  ir::Type type;
  OCTAVO_TRY(type.dtype, DTypeOf(info));
  OCTAVO_TRY(const std::vector<int64_t> dims, DimsOf(info));
  if (dims.empty() && !scalar) return type;
  std::vector<const char*> symbols(dims.size(), "");
  OCTAVO_TRY_STATUS(StatusOf(Api().GetSymbolicDimensions(info, symbols.data(), symbols.size())));
  ir::SymShape shape;
  for (size_t i = 0; i < dims.size(); ++i) {
    const std::string symbol = symbols[i] == nullptr ? "" : symbols[i];
    shape.push_back(dims[i] >= 0 ? ir::Dim(dims[i]) : symbol.empty() ? ir::Dim::Unknown() : ir::Dim::Symbol(symbol));
  }
  type.shape = std::move(shape);
  return type;
}

ir::Result<ir::Tensor> Borrow(const OrtValue* value) {
  if (value == nullptr) return ir::Tensor();
  OrtTensorTypeAndShapeInfo* raw = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().GetTensorTypeAndShape(value, &raw)));
  const ShapeInfo info(raw);
  OCTAVO_TRY(const ir::DType dtype, DTypeOf(raw));
  OCTAVO_TRY(const std::vector<int64_t> dims, DimsOf(raw));
  void* data = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().GetTensorMutableData(const_cast<OrtValue*>(value), &data)));
  const ir::Shape shape(dims.begin(), dims.end());
  const size_t bytes = quant::BytesOf(dtype, static_cast<size_t>(ir::ElementCount(shape)));
  return ir::Tensor::View(dtype, shape, std::make_shared<Borrowed>(data, bytes), 0);
}

ir::Result<ir::Tensor> OutputOf(OrtKernelContext* context, size_t index, ir::DType dtype, const ir::Shape& shape) {
  OrtValue* value = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().KernelContext_GetOutput(context, index, shape.data(), shape.size(), &value)));
  void* data = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().GetTensorMutableData(value, &data)));
  const size_t bytes = quant::BytesOf(dtype, static_cast<size_t>(ir::ElementCount(shape)));
  return ir::Tensor::View(dtype, shape, std::make_shared<Borrowed>(data, bytes), 0);
}

ir::Attrs AttrsOf(const OrtKernelInfo* info) { return ReadAttrs(info); }
ir::Attrs AttrsOf(const OrtShapeInferContext* context) { return ReadAttrs(context); }

void ForOnSession(OrtKernelContext* context, int64_t n, const std::function<void(int64_t)>& task) {
  const auto run = [](void* data, size_t i) {
    (*static_cast<const std::function<void(int64_t)>*>(data))(static_cast<int64_t>(i));
  };
  auto* data = const_cast<std::function<void(int64_t)>*>(&task);
  if (!StatusOf(Api().KernelContext_ParallelFor(context, run, static_cast<size_t>(n), 0, data))) {
    for (int64_t i = 0; i < n; ++i) task(i);
  }
}

}  // namespace octavo::integrations::onnxruntime
