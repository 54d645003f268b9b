// A fused node of an ONNX Runtime session, run by octavo's kernel: constants packed once, inputs read and outputs written where ONNX Runtime
// keeps them, work done by its threads.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_FUSED_KERNEL_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_FUSED_KERNEL_H_

#include <memory>
#include <vector>

#include "octavo/integrations/onnxruntime/host.h"
#include "octavo/runtime/step.h"

namespace octavo::integrations::onnxruntime {

class FusedKernel {
 public:
  static ir::Result<std::unique_ptr<FusedKernel>> Make(ir::Op op, const OrtKernelInfo* info);
  // May be called from several threads at once.
  ir::Status Run(OrtKernelContext* context) const;

 private:
  OneNode one_;
  std::vector<ir::RtValue> constants_;  // by input slot; undefined: comes with each run
  std::vector<bool> outputs_;           // by slot: somebody reads it
  runtime::KernelPtr kernel_;
};

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_FUSED_KERNEL_H_
