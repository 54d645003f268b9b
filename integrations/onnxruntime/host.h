// What the library needs of ONNX Runtime's C API: statuses as results, and a node as ONNX Runtime describes it.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_HOST_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_HOST_H_

#include <onnxruntime_c_api.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "octavo/integrations/onnxruntime/one_node.h"
#include "octavo/ir/graph.h"
#include "octavo/quant/numeric/float_mode.h"

namespace octavo::integrations::onnxruntime {

// The table of functions of the ONNX Runtime that loaded the library. InitApi comes first; false: another one has.
const OrtApi& Api();
bool InitApi(const OrtApi* given);

// Takes the status over.
ir::Status StatusOf(OrtStatus* status);
OrtStatus* ToOrt(const ir::Status& status);
// Exceptions must not cross the C interface, nor the host's float mode; octavo's own errors are results.
template <typename F>
OrtStatus* Guarded(F&& body) {
  const quant::FloatMode mode;
  try {
    return ToOrt(body());
  } catch (const std::exception& e) {
    return ToOrt(ir::Fail("{}", e.what()));
  }
}

template <typename T, void (*OrtApi::*Release)(T*)>
struct Releaser {
  void operator()(T* p) const { (Api().*Release)(p); }
};
using TypeInfo = std::unique_ptr<OrtTypeInfo, Releaser<OrtTypeInfo, &OrtApi::ReleaseTypeInfo>>;
using ShapeInfo = std::unique_ptr<OrtTensorTypeAndShapeInfo,
                                  Releaser<OrtTensorTypeAndShapeInfo, &OrtApi::ReleaseTensorTypeAndShapeInfo>>;

// dtype and shape. ONNX Runtime tells an unknown rank like a scalar, with no dims: `scalar` says which is meant. Undefined: absent.
ir::Result<ir::Type> TypeOf(const OrtTensorTypeAndShapeInfo* info, bool scalar);

// A tensor that refers to the memory of `value`, which must outlive it; undefined where `value` is null.
ir::Result<ir::Tensor> Borrow(const OrtValue* value);

// Memory of output `index` of a run, which has this dtype, as a tensor; asked for again with the same shape, the same.
ir::Result<ir::Tensor> OutputOf(OrtKernelContext* context, size_t index, ir::DType dtype, const ir::Shape& shape);

// task(i) for i in [0, n) on the threads of the session whose run `context` belongs to.
void ForOnSession(OrtKernelContext* context, int64_t n, const std::function<void(int64_t)>& task);

// The attributes of a fused op as either of the two places tells them.
ir::Attrs AttrsOf(const OrtKernelInfo* info);
ir::Attrs AttrsOf(const OrtShapeInferContext* context);

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_HOST_H_
