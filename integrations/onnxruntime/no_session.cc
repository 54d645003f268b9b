// In place of session.cc where the header of ONNX Runtime's C interface was not there.
#include "octavo/integrations/onnxruntime/session.h"

namespace octavo::integrations::onnxruntime {

ir::Result<Run> OpenSession(const ir::Graph&, const std::string&, int) {
  return ir::Fail(
      "octavo was built without libonnxruntime-dev and so cannot load ONNX Runtime: install it and build again");
}

}  // namespace octavo::integrations::onnxruntime
